"""What `git bisect run` runs on each commit: `python -m blockproof.fuzz.releases.bisect_commit JOB`.

The target lives in a child process, whose import path begins with the commit's files; this process imports nothing of
them. So whatever a commit does, its verdict is one of `EXIT`.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType

from ...model.ops import Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..opening.child import ChildTarget
from ..opening.targets import open_here
from ..targets.base import Target, TargetUnavailableError
from ..traces.trace_file import read_trace
from .bisect import Question, State, observe

EXIT = {State.PASSES: 10, State.FAILS: 11, State.UNSEEN: 12, State.OTHER: 12}
"""Exit statuses that are a verdict; none that Python itself may end with."""
_ABORT = 13
PREFIX = "blockproof: "
"""Begins what is said about a trial that cannot go on."""
_VARIABLE = "BLOCKPROOF_BISECT_JOB"
_ROOT = (__package__ or "").split(".")[0]
_OPENED = f"{__package__}.bisect_commit:open_commit"
_FAILED = f"{_OPENED}: the factory failed: {TargetUnavailableError.__name__}: "
"""What our own factory puts before an error of the user's."""


@dataclass(frozen=True)
class Job:
    """What is the same for all commits."""

    scratch: str
    """Folder with the trace (`trace.json`), and for what comes of it (`log`, `origins.json`)."""
    tree: str
    """The worktree."""
    folder: str
    """The folder of the worktree in which modules are."""
    checkout: str
    """The user's checkout, from which nothing may be imported."""
    target: str
    kind: tuple[str, str] | None
    oracles: tuple[str, ...]

    @classmethod
    def read(cls, path: str) -> "Job":
        """The job in this file."""
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**raw | {"kind": raw["kind"] and tuple(raw["kind"]), "oracles": tuple(raw["oracles"])})


def main(arguments: list[str]) -> int:
    """Try the commit that is checked out, write down what came of it, and return the exit status."""
    job = Job.read(arguments[0])
    scratch = Path(job.scratch)
    origins = scratch / "origins.json"
    origins.unlink(missing_ok=True)
    os.environ[_VARIABLE] = arguments[0]
    command = ["git", "-C", job.tree, "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    question = Question(read_trace(scratch / "trace.json").trace, job.kind, job.oracles)
    answer = observe(question, lambda: _open(job))
    answer = replace(answer, why=answer.why.removeprefix(_FAILED))
    if origins.exists() and (problem := _strayed(job, *json.loads(origins.read_text(encoding="utf-8")))):
        print(f"{PREFIX}{problem}", file=sys.stderr)
        return _ABORT
    with (scratch / "log").open("a", encoding="utf-8") as log:
        log.write(json.dumps([commit, asdict(answer)]) + "\n")
    return EXIT[answer.state]


def _open(job: Job) -> Target:
    sys.path.insert(0, str(Path(job.tree, job.folder)))  # for the child, which finds what we find
    return ChildTarget(job.target, _OPENED)


def _strayed(job: Job, own: int, strays: list[str]) -> str:
    """What is wrong with where the target's modules came from; empty if nothing is."""
    if strays:
        return f"{strays[0]} was imported from the checkout, not from the commit; keep such a module outside of both"
    if not own:
        advice = f"is it below another folder than {job.folder!r}? --path names it"
        return f"{job.target} imported nothing from the commit: {advice}"
    return ""


def open_commit() -> Target:
    """The target of the job, in the child process."""
    job = Job.read(os.environ[_VARIABLE])
    # Bisection checks out one commit right after the other: two files of the same size and second look the same.
    sys.dont_write_bytecode = True
    return _Traced(open_here(job.target), job)


class _Traced:
    """A target that writes down where its modules came from."""

    def __init__(self, target: Target, job: Job) -> None:
        self._target = target
        self._job = job
        self.name = target.name

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        answer = self._target.start(shape)
        text = json.dumps(origins(list(sys.modules.values()), self._job))
        Path(self._job.scratch, "origins.json").write_text(text, encoding="utf-8")
        return answer

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        return self._target.step(operation)

    def close(self) -> None:
        self._target.close()


def origins(modules: Iterable[ModuleType], job: Job) -> tuple[int, list[str]]:
    """How many modules are of the commit, and the names of those of the user's checkout, without blockproof's own."""
    own, strays = 0, []
    for module in modules:
        path = os.path.realpath(getattr(module, "__file__", None) or "")
        if path.startswith(job.tree + os.sep):
            own += 1
        elif in_checkout(path, job) and not module.__name__.startswith(f"{_ROOT}."):
            strays.append(module.__name__)
    return own, sorted(strays)


def in_checkout(path: str, job: Job) -> bool:
    """True if this real path is in the user's checkout, but not in a Python environment that may lie there too."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    environment = tuple(os.path.realpath(sysconfig.get_path(name)) for name in names)
    return f"{path}{os.sep}".startswith(job.checkout + os.sep) and not path.startswith(environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
