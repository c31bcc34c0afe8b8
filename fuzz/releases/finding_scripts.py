"""Standalone scripts of findings: what anybody can run who has the engine, and nothing of ours.

`FOLDER/NAME/scenario.py` takes what scripts share from modules beside it or one folder up (`from engine_without_device
import start`); in the one file that a report comes with (`standalone`) these stand before it, each once. A script
drives the engine by itself. It prints what is expected and what happens, then a verdict, and exits with 1 where the
defect shows, 0 where it does not and 3 where it could not be tried. Here the scripts are run in the environment of each
release, in a process of their own, with nothing of ours on its path, and what they say is not taken on trust: exit
status and verdict must agree, and where a finding is an exception, the script must have met that one
(`FindingEntry.raises`).
"""

import ast
import re
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..adapters import families, family_of
from ..opening.commands import run
from ..opening.targets import python_of
from ..targets.family import Family
from .findings import SCRIPT, WHOLE, FindingEntry, Observations
from .scheduler_cases import NOTHING, SHOWS

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
        tree, lines = _parsed(source, path.name), source.splitlines(keepends=True)
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
            told = " ".join((ast.get_docstring(_parsed(source)) or neighbour.stem).split())
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
    first = _parsed(source).body[0]
    return (first.end_lineno or 0) if ast.get_docstring(_parsed(source)) is not None else 0


@cache
def _parsed(source: str, name: str = "<unknown>") -> ast.Module:
    """Not to be changed: most scripts have the same neighbours."""
    return ast.parse(source, name)


DEADLINE_S = 300.0
"""For one script; they take 10 to 30 seconds, most of them for importing the engine."""
NOT_TRIED, FAILED = "not tried", "failed"
VERDICTS: Mapping[int, tuple[str, str]] = {
    0: ("the defect does not show", NOTHING),
    1: ("the defect shows", SHOWS),
    3: ("could not be tried: ", NOT_TRIED),
}
"""How the last line of the output begins, and what is recorded, by exit status."""
_EXCEPTION = "exception: "
"""How a script's line with type and text of the exception begins."""


@dataclass(frozen=True)
class ScriptSaid:
    """What came of running a script."""

    seen: str
    """`shows`, `nothing`, `not tried: WHY` or `failed: WHY`."""
    lines: tuple[str, ...]
    """What the script printed."""


def read_scripts(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The scripts of these findings; some have none."""
    return {name: folder / name / SCRIPT for name in names if (folder / name / SCRIPT).exists()}


def engine_of(script: Path) -> Family:
    """The engine that a script imports, itself or by what it shares. ValueError if it imports none that is known, or
    cannot be made one file."""
    text = standalone(script)
    for family in families().values():
        if re.search(rf"^\s*(?:from|import) {re.escape(family.module or family.name)}\b", text, re.MULTILINE):
            return family
    raise ValueError(f"{script} imports no engine that is known here: {', '.join(families())}")


def run_script(
    script: Path, spec: str, raises: str = "", deadline_s: float | None = None, fixed: bool = False
) -> ScriptSaid:
    """Run a script on a release, as one file; `raises` is the exception that a defect must come with, as `TYPE: TEXT`.
    With `fixed` the script changes the engine as proposed before it starts it.

    ValueError unless `spec` names a release and one file can be made, TargetUnavailableError if it is not installed.
    """
    deadline_s = deadline_s or DEADLINE_S
    with python_of(spec, ()) as python, tempfile.TemporaryDirectory(prefix="blockproof-script-") as folder:
        whole = Path(folder) / WHOLE
        whole.write_text(standalone(script), encoding="utf-8")
        command = [python.python, "-P", str(whole), *(["--fixed"] if fixed else [])]
        ran = run(command, seconds=deadline_s, folder=Path(folder), environment=python.environment)
    lines = tuple(ran.output.splitlines())
    if ran.status is None:
        return ScriptSaid(f"{FAILED}: no end within {deadline_s:g} s", lines)
    return ScriptSaid(judged(ran.status, lines, ran.errors, raises), lines)


def judged(status: int, lines: Sequence[str], errors: str, raises: str = "") -> str:
    """What a script has shown that exited with this status and printed these lines.

    A traceback exits with 1, too, so a status without its verdict is a failure. So is a defect without the exception
    that it is known by.
    """
    begins, seen = VERDICTS.get(status, ("", ""))
    last = lines[-1] if lines else ""
    if not begins or not last.startswith(begins):
        why = errors.strip().splitlines()[-1:] or [last]
        return f"{FAILED}: exit status {status}, {why[0][:200] or 'and nothing printed'}"
    if seen == NOT_TRIED:
        return f"{NOT_TRIED}: {last.removeprefix(begins)[:200]}"
    met = [line.removeprefix(_EXCEPTION) for line in lines if line.startswith(_EXCEPTION)]
    if seen == SHOWS and raises and raises not in met:
        return f"{FAILED}: another exception, {', '.join(met) or 'or none'}; demanded is {raises}"
    return seen


def observe_scripts(
    entries: Mapping[str, FindingEntry],
    scripts: Mapping[str, Path],
    specs: Sequence[str],
    times: int,
    on_seen: Callable[[str, str, Sequence[str]], None],
    run: Callable[[Path, str, str], ScriptSaid] = run_script,
) -> tuple[Observations, list[str], dict[str, dict[str, tuple[str, ...]]]]:
    """Run the scripts of each engine on its releases, so many times each.

    Returns what was seen the first time, a line for each that failed or was not the same every time, and what the
    scripts printed the first time, by name and release. TargetUnavailableError if a release is not installed.
    """
    observed: Observations = {}
    printed: dict[str, dict[str, tuple[str, ...]]] = {}
    problems = []
    for spec in specs:
        for name, script in scripts.items():
            if engine_of(script) is not family_of(spec):
                continue
            rounds = [run(script, spec, entries[name].raises) for _ in range(times)]
            seen = [one.seen for one in rounds]
            if len(set(seen)) > 1 or seen[0].startswith(FAILED):
                problems.append(f"{name} on {spec}: {', '.join(dict.fromkeys(seen))}")
            observed.setdefault(name, {})[spec] = seen[0]
            printed.setdefault(name, {})[spec] = rounds[0].lines
            on_seen(spec, name, seen)
    return observed, problems, printed
