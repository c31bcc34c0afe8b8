"""Which functions of a core differ between two installed releases: what somebody who brings the model to the new one
reads first.

Compared is what runs, without comments, docstrings and annotations: of the modules whose mutants are tried
(`Family.mutable`), and of all beside them where a folder has more than two of these.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ..adapters import family_of
from ..findings.words import plural
from ..opening import environments
from .watch_parts import PartNews, Sides

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def functions_in(source: str) -> dict[str, str]:
    """By qualified name, what each function of a module does, as text that equal functions have in common.

    >>> sorted(functions_in("class A:\\n    def f(self): 'Text.'; return 1\\ndef g(): pass"))
    ['A.f', 'g']
    """
    return dict(_functions(ast.parse(source), ""))


def _functions(node: ast.AST, within: str) -> Iterator[tuple[str, str]]:
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, _NAMED):
            continue
        if isinstance(one, ast.ClassDef):
            yield from _functions(one, f"{within}{one.name}.")
        else:
            yield f"{within}{one.name}", ast.dump(_Bare().visit(one))


class _Bare(ast.NodeTransformer):
    """Takes out what does not run."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Texts that stand alone say nothing."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Nor do types of what is returned run."""
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Types of arguments do not run."""
        return ast.arg(node.arg)


def modules_of(root: Path, named: Sequence[str]) -> dict[str, Path]:
    """The files below a folder of packages: those of these modules, and all beside more than two of them."""
    places = [PurePosixPath(name.replace(".", "/")) for name in named]
    several = [folder for folder, times in Counter(place.parent for place in places).items() if times > 2]
    paths = [root / f"{place}.py" for place in places]
    paths += [path for folder in several for path in (root / folder).glob("*.py")]
    return {path.relative_to(root).as_posix(): path for path in sorted(paths) if path.is_file()}


def compared(old: Mapping[str, Path], new: Mapping[str, Path]) -> dict[str, list[str]]:
    """Functions that differ, that are new and that are gone; `FILE:NAME`."""
    before, after = (
        {
            f"{name}:{function}": text
            for name, path in files.items()
            for function, text in functions_in(path.read_text(encoding="utf-8")).items()
        }
        for files in (old, new)
    )
    changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    return {
        "changed": changed,
        "new": sorted(after.keys() - before.keys()),
        "gone": sorted(before.keys() - after.keys()),
    }


def changed_functions(old: str, new: str) -> dict[str, list[str]] | str:
    """The same of two releases; why they cannot be compared, if they cannot."""
    family, sides = family_of(new), []
    if family is None or family.mutable is None:
        return f"it is not known which modules of {new} are its core"
    for spec in (old, new):
        there = environments.find(spec)
        if there is None:
            return f"{spec} is not installed"
        sides.append(modules_of(there.path, family.mutable().modules))
    return compared(*sides)


FILES_SHOWN = 12
"""Functions of a file that are named; the others are counted."""


def read_functions(said: Any, sides: Sides) -> PartNews:
    """What `changed_functions` has said, as lines of the page: by file, what differs."""
    if isinstance(said, str):
        return PartNews(said, open=[f"functions: {said}"])
    told = PartNews(", ".join(f"{len(said[how])} {how}" for how in ("changed", "new", "gone")))
    for how in ("changed", "new", "gone"):
        by_file: dict[str, list[str]] = {}
        for name in said[how]:
            file, _, function = name.partition(":")
            by_file.setdefault(file, []).append(function)
        for file, names in by_file.items():
            more = f", and {len(names) - FILES_SHOWN} more" if len(names) > FILES_SHOWN else ""
            told.begin.append(
                f"{plural(len(names), 'function')} {how} in {file}: {', '.join(names[:FILES_SHOWN])}{more}"
            )
    return told


if __name__ == "__main__":
    print(json.dumps(changed_functions(*sys.argv[1:3])))
