"""Which module of ours imports which, whatever way it does so, and where these arrows form a circle."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

PACKAGE = "blockproof"
COMPUTED = "?"
"""Stands for a part of a module name that is only known when the program runs."""


def import_graph(*folders: Path) -> dict[str, set[str]]:
    """Every module below these folders of the package, and which of these modules it imports.

    Counts imports at the top, in functions and under TYPE_CHECKING, and calls of `import_module`; a computed part of
    a name there stands for any name without a dot, but a name that is computed as a whole is not counted. Python also
    runs `__init__` of the package around an imported module; that is not counted, or no package could offer names from
    its own modules.
    """
    files = {_module(path.relative_to(folder.parent)): path for folder in folders for path in folder.rglob("*.py")}
    graph: dict[str, set[str]] = {module: set() for module in files}
    for folder in folders:
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder.parent)
            for name in imported(inside, path.read_text()):
                graph[_module(inside)] |= _modules_named(name, files)
    return graph


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Every circle as the sorted list of all modules that import each other through it; a module may import itself."""
    reached = {module: _reached(graph, module) for module in graph}
    found: list[list[str]] = []
    for module in sorted(graph):
        if module in reached[module] and not any(module in circle for circle in found):
            found.append(sorted(other for other in reached[module] if module in reached.get(other, ())))
    return found


def imported(path: Path, source: str) -> Iterator[str]:
    """Absolute names of what a file imports, its path being that inside the package; see COMPUTED.

    `from .a import b` gives `a.b`, whether `b` is a module or a name in one.
    """
    package = [PACKAGE, *path.parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute("." * node.level + (node.module or ""), package)
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            named = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
            yield from (_absolute(_text(argument, _module(path)), package) for argument in [*node.args[:1], *named])


def _module(path: Path) -> str:
    parts = [PACKAGE, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _absolute(name: str, package: list[str]) -> str:
    """A name that may begin with dots, as in `from ..a import b`, seen from a package."""
    bare = name.lstrip(".")
    level = len(name) - len(bare)
    return ".".join([*package[: len(package) + 1 - level], *([bare] if bare else [])]) if level else name


def _text(argument: ast.expr, module: str) -> str:
    """The string that an expression in this module gives, as far as it can be read off."""
    if isinstance(argument, ast.JoinedStr):
        return "".join(_text(part, module) for part in argument.values)
    if isinstance(argument, ast.FormattedValue):
        return _text(argument.value, module)
    if isinstance(argument, ast.Name) and argument.id == "__name__":
        return module
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else COMPUTED


def _modules_named(name: str, modules: Collection[str]) -> set[str]:
    """The module of that name or the one that holds it; several if a part is computed, none if it is not ours."""
    if set(name) <= {COMPUTED, "."}:
        return set()
    if COMPUTED in name:
        pattern = re.escape(name).replace(re.escape(COMPUTED), r"[^.]+")
        return {module for module in modules if re.fullmatch(pattern, module)}
    parts = name.split(".")
    starts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return {next((start for start in starts if start in modules), "")} - {""}


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """What can be reached from a module along one arrow or more."""
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting.extend(graph.get(module, ()))
    return reached
