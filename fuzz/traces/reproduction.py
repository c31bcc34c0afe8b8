"""What a finding leaves for those who have to fix it: a trace, a pytest file and the command that repeats it.

File names follow from the finding, so that the same finding is written to the same files. They have only characters
that every file system takes.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..findings.finding import Finding
from ..findings.oracle_names import ORACLES
from ..findings.writing import told_if_lost, write_file
from ..opening.given import Given, is_owned, opened
from ..opening.names import folder_of, seen_from
from ..opening.oracles import memory_named
from ..runs.judging import Judging
from ..targets.base import TargetUnavailableError
from .replay import replay
from .trace_file import TraceFile, dump_trace, load_trace, write_trace

MAX_NAME = 60
"""Longest readable part of a file's name, in characters."""
WHOLE = "whole"
"""What the files of a trace end on that was not shrunk."""
_TEST = '''"""{summary}

Found by blockproof{found_by}. Needs only blockproof: `pip install /path/to/blockproof`
(a checkout or a wheel), then run pytest on this file.
BLOCKPROOF_TARGET names another target, such as package.module:factory.
"""

import os
{imports}
from blockproof.fuzz import replay_text

TARGET = os.environ.get("BLOCKPROOF_TARGET", {target!r})
{folder}TRACE = r"""
{trace}"""


def test_{name}():
    finding = replay_text(TRACE, TARGET{given})
    assert finding is None, f"\\n{{finding}}"
'''
_FOLDER = """# {target} is found from here; if this file has moved, change it.
FOLDER = None if "BLOCKPROOF_TARGET" in os.environ else Path(__file__).resolve().parent / {folder!r}
"""


@dataclass(frozen=True)
class Reproduction:
    """The files that were written, and how to see the finding again."""

    trace: Path
    test: Path
    command: str
    """A shell command that exits with 1 as long as the finding is there."""
    is_written: bool = True
    """False if the files could not be written."""

    def named(self) -> dict[str, str]:
        """All of it as texts, by name."""
        return {"trace": str(self.trace), "test": str(self.test), "command": self.command}


def replay_text(
    text: str,
    target: Given,
    tensors: str | None = None,
    oracles: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Finding | None:
    """Replay a trace given as text. Returns the finding, None if there is none.

    `target` is what `--target` takes, a target, or a function without arguments that makes one. `oracles` judge it, the
    shadow memory in `tensors` (`memory_named`); by default those of the trace. In `folder` a target is looked for that
    is named by a path or a module.

    TraceError, ValueError and TargetUnavailableError as from reading a trace and opening a target.
    """
    file = load_trace(text)
    judges = oracles or file.oracles or ORACLES
    named = isinstance(target, str) and folder is not None
    try:
        seen = seen_from(target, folder) if isinstance(target, str) and folder is not None else target
        core = opened(seen, file.lost_its_target)
    except TargetUnavailableError as error:
        where = f"; when the trace was written, it was found from {os.path.abspath(folder or '')}" if named else ""
        raise TargetUnavailableError(f"{error}{where}") from error
    try:
        return replay(file.trace, core, Judging(judges, new_memory=memory_named(tensors or file.tensors)))[0]
    finally:
        if is_owned(target):
            core.close()


def base_name(file: TraceFile, ending: str = "") -> str:
    """`observable_operation_digest`: the same for the same trace and kind of finding; with `_ending` if one is given.

    Lower-case ASCII letters, digits and underscores only.
    """
    kind = f"{file.finding.observable}_{file.finding.operation}" if file.finding else "trace"
    digest = hashlib.sha256(dump_trace(file.trace).encode()).hexdigest()[:8]
    words = safe_name(kind).replace("-", "_").lower()
    return "_".join([words, digest, *([ending] if ending else [])])


def safe_name(text: str) -> str:
    """The text as a name that every file system takes: ASCII letters, digits, `-` and `_`, not too long."""
    return re.sub(r"[^A-Za-z0-9-]+", "_", text)[:MAX_NAME].strip("_-") or "unnamed"


def folder_name(target: str) -> str:
    """The name of a target as a folder that any file system can have."""
    plain = target.replace("==", "-")
    words = re.sub(r"[^\w.-]+", "-", plain, flags=re.ASCII).strip("-.")
    digest = hashlib.sha256(target.encode()).hexdigest()[:6]
    return words if words == plain and len(words) <= MAX_NAME else f"{words[-MAX_NAME:]}-{digest}"


def write_reproduction(
    file: TraceFile, folder: Path, tensors: str | None = None, oracles: Sequence[str] = ORACLES, ending: str = ""
) -> Reproduction:
    """Write trace and pytest file for a finding into a folder, which is made if it is missing.

    `oracles` judged the target, the shadow memory in `tensors` (`memory_named`); the trace says so. The names of the
    files end on `ending`.
    """
    file = replace(file, oracles=tuple(oracles), tensors=tensors)
    name = base_name(file, ending)
    trace, test = folder / f"{name}.json", folder / f"test_{name}.py"
    write_trace(file, trace)
    write_file(test, pytest_file(file, name, folder))
    return Reproduction(trace, test, replay_command(trace, file.target))


def keep_reproduction(
    file: TraceFile,
    folder: Path,
    tensors: str | None = None,
    oracles: Sequence[str] = ORACLES,
    ending: str = "",
    *,
    anew: bool = True,
) -> Reproduction:
    """The same for what has just been found: files that cannot be written are told in a line and lose no finding. Those
    that are there are left as they are unless they are to be written `anew`."""
    trace = folder / f"{base_name(file, ending)}.json"
    files = Reproduction(trace, trace.with_name(f"test_{trace.stem}.py"), replay_command(trace, file.target))
    if not anew and files.test.exists():
        return files
    with told_if_lost():
        return write_reproduction(file, folder, tensors, oracles, ending)
    return replace(files, is_written=False)


def replay_command(trace: Path, target: str, tensors: str | None = None, oracles: Sequence[str] | None = None) -> str:
    """The shell command that replays a trace file on a target, judged as it says in the file unless that is given."""
    words = ["--tensors", tensors] if tensors else []
    words += ["--oracle", ",".join(oracles)] if oracles else []
    return shlex.join(["blockproof", "replay", str(trace), "--target", target, *words])


def shrink_command(trace: Path, target: str) -> str:
    """The shell command that goes on shrinking a trace."""
    return shlex.join(["blockproof", "shrink", str(trace), "--target", target])


def pytest_file(file: TraceFile, name: str, folder: Path | None = None) -> str:
    """A self-contained pytest file, to stand in `folder`, that fails as long as the finding is there."""
    what = f"`{file.finding.observable}` at {file.finding.operation}" if file.finding else "A trace"
    found_by = f" ({file.found_by.engine}, seed {file.found_by.seed}, {file.found_by.version})" if file.found_by else ""
    root = folder_of(file.target) if folder is not None else None
    # A path as it is written in Python and on every system; relative, so that both can move together.
    here = None if root is None or folder is None else Path(os.path.relpath(root, folder.resolve())).as_posix()
    return _TEST.format(
        summary=_harmless(f"{what}."),
        found_by=_harmless(found_by),
        imports="" if here is None else "from pathlib import Path\n",
        target=file.target,
        folder="" if here is None else _FOLDER.format(target=_harmless(file.target), folder=here),
        trace=dump_trace(file),  # JSON never holds three quotes in a row, and a raw string keeps its backslashes
        name=name,
        given="" if here is None else ", folder=FOLDER",
    )


def _harmless(text: str) -> str:
    """For comments and the docstring: a trace from elsewhere must not be able to end them."""
    return re.sub(r"[^\w `.,()=+:/-]", "?", text)
