"""What a finding leaves for those who have to fix it: a trace, a pytest file and the command that repeats it.

File names follow from the finding, so that the same finding is written to the same files.
"""

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..findings.finding import Finding
from ..findings.oracle_names import ORACLES
from ..opening.memories import memory_named
from ..opening.targets import open_target
from ..runs.judging import Judging
from .replay import replay
from .trace_file import TraceFile, dump_trace, load_trace, write_trace

_TEST = '''"""{summary}

Found by blockproof{found_by}. Needs only blockproof: `pip install blockproof`, then run pytest on this file.
BLOCKPROOF_TARGET names another target, such as package.module:factory.
"""

import os

from blockproof.fuzz import replay_text

TARGET = os.environ.get("BLOCKPROOF_TARGET", {target!r})
TRACE = r"""
{trace}"""


def test_{name}():
    finding = replay_text(TRACE, TARGET{judged})
    assert finding is None, f"\\n{{finding}}"
'''


@dataclass(frozen=True)
class Reproduction:
    """The files that were written, and how to see the finding again."""

    trace: Path
    test: Path
    command: str
    """A shell command that exits with 1 as long as the finding is there."""


def replay_text(text: str, target: str, tensors: str | None = None, oracles: Sequence[str] = ORACLES) -> Finding | None:
    """Replay a trace given as text on the target of this name. Returns the finding, None if there is none.

    `oracles` judge the target, the shadow memory in `tensors` (`memory_named`).

    TraceError, ValueError and TargetUnavailableError as from reading a trace and opening a target.
    """
    core = open_target(target)
    try:
        return replay(load_trace(text).trace, core, Judging(oracles, new_memory=memory_named(tensors)))[0]
    finally:
        core.close()


def base_name(file: TraceFile) -> str:
    """`observable_operation_digest`: the same for the same trace and kind of finding."""
    kind = f"{file.finding.observable}_{file.finding.operation}" if file.finding else "trace"
    digest = hashlib.sha256(dump_trace(file.trace).encode()).hexdigest()[:8]
    words = re.sub(r"\W+", "_", kind).lower()
    return f"{words}_{digest}"


def write_reproduction(
    file: TraceFile, folder: Path, tensors: str | None = None, oracles: Sequence[str] = ORACLES
) -> Reproduction:
    """Write trace and pytest file for a finding into a folder, which is made if it is missing.

    `oracles` judged the target, the shadow memory in `tensors` (`memory_named`).
    """
    name = base_name(file)
    trace, test = folder / f"{name}.json", folder / f"test_{name}.py"
    write_trace(file, trace)
    test.write_text(pytest_file(file, name, tensors, oracles), encoding="utf-8")
    return Reproduction(trace, test, replay_command(trace, file.target, tensors, oracles))


def replay_command(trace: Path, target: str, tensors: str | None = None, oracles: Sequence[str] = ORACLES) -> str:
    """The shell command that replays a trace file on a target."""
    words = ["--tensors", tensors] if tensors else []
    words += ["--oracle", ",".join(oracles)] if tuple(oracles) != ORACLES else []
    return shlex.join(["blockproof", "replay", str(trace), "--target", target, *words])


def pytest_file(file: TraceFile, name: str, tensors: str | None = None, oracles: Sequence[str] = ORACLES) -> str:
    """A self-contained pytest file that fails as long as the finding is there."""
    what = f"`{file.finding.observable}` differs at {file.finding.operation}" if file.finding else "A trace"
    found_by = f" ({file.found_by.engine}, seed {file.found_by.seed}, {file.found_by.version})" if file.found_by else ""
    return _TEST.format(
        summary=_harmless(f"{what}."),
        found_by=_harmless(found_by),
        target=file.target,
        trace=dump_trace(file),  # JSON never holds three quotes in a row, and a raw string keeps its backslashes
        name=name,
        judged=(f", tensors={tensors!r}" if tensors else "")
        + (f", oracles={tuple(oracles)!r}" if tuple(oracles) != ORACLES else ""),
    )


def _harmless(text: str) -> str:
    """For the docstring: a trace from elsewhere must not be able to end it."""
    return re.sub(r"[^\w `.,()=+-]", "?", text)
