"""How many lines of this program a result rests on: of the modules in `kernel.TRUSTED`, those that it reaches."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from . import kernel, roles
from .theorems import FAMILIES
from .verdict import Verdict

_FOLDER = Path(__file__).parent
_ROLES = _FOLDER / "roles"


def parts() -> Iterator[tuple[str, frozenset[Path]]]:
    """What is trusted, with its files; one may do for several parts. LookupError for a module that there is not."""
    yield "this kernel", frozenset({Path(kernel.__file__)})
    for one in kernel.TRUSTED:
        yield one.what, frozenset(path for name in one.modules for path in _files(name))


def trusted() -> frozenset[Path]:
    """All files that a proof may rest on."""
    return frozenset().union(*(paths for _, paths in parts()))


def lines(paths: Iterable[Path]) -> int:
    """Lines of these files in all."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def lines_under(verdict: Verdict) -> int:
    """Lines that a verdict rests on, at most: of all that its family and the roles that it asked for reach."""
    (family,) = (one for one in FAMILIES if any(theorem.id == verdict.theorem for theorem in one.THEOREMS))
    return _lines_under(Path(str(family.__file__)), frozenset(verdict.roles))


@cache
def _lines_under(family: Path, played: frozenset[str]) -> int:
    named = frozenset(
        re.findall(r'"(\w+)"', family.read_text(encoding="utf-8"))
    )  # what is tried finds its roles itself
    tables = [file for file, names in _tables().items() if names & (played | named)]
    always = [Path(kernel.__file__), *(_FOLDER / f"{name}.py" for name in ("theorem", "state"))]
    return lines(_reached([family, *tables, *always]) & trusted())


def _files(name: str) -> list[Path]:
    path = _FOLDER.joinpath(*name.split("."))
    found = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not all(one.is_file() for one in found):
        raise LookupError(f"there is no module {name}")
    return found


def _reached(start: Iterable[Path]) -> frozenset[Path]:
    """The files of this package to which these lead."""
    waiting, seen = [*start], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += _imported(path)
    return frozenset(seen)


@cache
def _tables() -> dict[Path, frozenset[str]]:
    """The files of roles, and the roles in each."""
    found = {}
    for family in roles.FAMILIES:
        found[Path(str(family.__file__))] = frozenset([*getattr(family, "MODEL", ()), *family.API])
    return found


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """The modules of this package that it imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found |= {base.with_suffix(".py"), *((base / name.name).with_suffix(".py") for name in node.names)}
    return tuple(sorted(one for one in found if one.is_file() and _FOLDER in one.parents))
