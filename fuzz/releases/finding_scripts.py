"""Standalone scripts of findings: what anybody can run who has the engine, and nothing of ours.

`FOLDER/NAME/scenario.py`, with what scripts share (`standalone`), drives the engine by itself. It prints what is
expected and what happens, then a verdict, and exits with 1 where the defect shows, 0 where it does not and 3 where it
could not be tried. Here the scripts are run in the environment of each release, in a process of their own, with nothing
of ours on its path, and what they say is not taken on trust: exit status and verdict must agree, and where a finding is
an exception, the script must have met that one (`Entry.raises`).
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..adapters import families, family_of
from ..opening.child import environment_of
from ..opening.targets import interpreter_of
from ..targets.family import Family
from .findings import SCRIPT, WHOLE, Entry, Observations
from .scheduler_cases import NOTHING, SHOWS
from .standalone import standalone

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
    _, place = interpreter_of(spec)
    with tempfile.TemporaryDirectory(prefix="blockproof-script-") as modules:
        python = sys.executable if place is None else str(place.python)
        whole = Path(modules) / WHOLE
        whole.write_text(standalone(script), encoding="utf-8")
        try:
            done = subprocess.run(
                [python, "-P", str(whole), *(["--fixed"] if fixed else [])],
                cwd=modules,
                env=environment_of(place, Path(modules), packages=()),
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=deadline_s,
            )
        except subprocess.TimeoutExpired as late:
            printed = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
            return ScriptSaid(f"{FAILED}: no end within {deadline_s:g} s", tuple(printed.splitlines()))
    lines = tuple(done.stdout.splitlines())
    return ScriptSaid(judged(done.returncode, lines, done.stderr, raises), lines)


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
    entries: Mapping[str, Entry],
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
