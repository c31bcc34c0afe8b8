"""One file out of the script of a finding and what scripts share: for a report, to be run by whoever has the engine.

A script takes what it shares from modules beside it or one folder up (`from engine_without_device import start`). In
the one file these stand before it, each once.
"""

import ast
import textwrap
from pathlib import Path

WIDTH = 120
"""Of a line of a comment."""
_Import = ast.Import | ast.ImportFrom


def standalone(script: Path) -> str:
    """The script, behind all that it takes from its neighbours.

    ValueError if one file cannot be made of them: a neighbour is imported as a whole, under another name or not at top
    level, has not what is asked of it, or gives another meaning to a name.
    """
    whole = _Whole(script)
    source = script.read_text(encoding="utf-8")
    case = whole.without_imports(script, source)
    if not whole.parts:
        return source
    told = "".join(source.splitlines(keepends=True)[: _lines_of_docstring(source)])
    return "\n\n".join([told, *whole.parts, f"# The case.\n\n{case}"])


class _Whole:
    """One file in the making."""

    def __init__(self, script: Path) -> None:
        self.parts: list[str] = []
        """The neighbours, each behind those that it imports from."""
        self._folders = (script.parent, script.parent.parent)
        self._seen: set[Path] = set()
        self._means: dict[str, str] = {}
        """What each name at top level stands for, as `MODULE.NAME`."""

    def without_imports(self, path: Path, source: str) -> str:
        """A file without its docstring and the imports of what is in the one file before it."""
        tree, lines = ast.parse(source, path.name), source.splitlines(keepends=True)
        for node in (node for node in ast.walk(tree) if isinstance(node, _Import)):
            for neighbour in filter(None, map(self._neighbour, _modules(node))):
                if node not in tree.body or not isinstance(node, ast.ImportFrom) or _renames(node):
                    raise ValueError(f"{path.name}, line {node.lineno}: only `from MODULE import NAME` can be put in")
                self._put_in(neighbour)
        for statement in tree.body:
            if self._is_there(statement, path.stem):
                first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
                lines[first:last] = [""] * (last - first)
        return "".join(lines[_lines_of_docstring(source) :]).lstrip()

    def _put_in(self, neighbour: Path) -> None:
        if neighbour not in self._seen:
            self._seen.add(neighbour)
            source = neighbour.read_text(encoding="utf-8")
            part = self.without_imports(neighbour, source)
            told = " ".join((ast.get_docstring(ast.parse(source)) or neighbour.stem).split())
            comment = textwrap.fill(told, WIDTH, initial_indent="# ", subsequent_indent="# ")
            self.parts.append(f"{comment}\n\n{part}")

    def _neighbour(self, module: str) -> Path | None:
        return next((path for folder in self._folders if (path := folder / f"{module}.py").is_file()), None)

    def _is_there(self, node: ast.stmt, stem: str) -> bool:
        """Note what a statement at top level gives a meaning. True for an import of what has that meaning already."""
        bound = _bound(node, stem)
        known = all(self._means.get(name) == meaning for name, meaning in bound)
        asked = isinstance(node, ast.ImportFrom) and self._neighbour(node.module or "") is not None
        for name, meaning in bound:
            if asked or name in self._means:
                is_it = self._means.get(name, "nothing")
                if is_it != meaning:
                    raise ValueError(f"{stem}.py, line {node.lineno}: {name} is {is_it} in one file, not {meaning}")
            self._means[name] = meaning
        return known and isinstance(node, _Import) and not any("." in alias.name for alias in node.names)


def _modules(node: _Import) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


def _renames(node: ast.ImportFrom) -> bool:
    return any(alias.asname or alias.name == "*" for alias in node.names)


def _bound(node: ast.stmt, stem: str) -> list[tuple[str, str]]:
    """The names that a statement gives a meaning, and which."""
    if isinstance(node, ast.ImportFrom):
        return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
    if isinstance(node, ast.Import):
        return [(alias.asname, alias.name) if alias.asname else 2 * (alias.name.split(".")[0],) for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [(node.name, f"{stem}.{node.name}")]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    inside = [one for target in targets for one in ast.walk(target)]
    names = [one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return [(name, f"{stem}.{name}") for name in names]


def _lines_of_docstring(source: str) -> int:
    first = ast.parse(source).body[0]
    return (first.end_lineno or 0) if ast.get_docstring(ast.parse(source)) is not None else 0
