"""What `git bisect run` runs on each commit: `python -m blockproof.fuzz.releases.bisect_commit JOB`.

The target lives in a child process, whose import path begins with the commit's files; this process imports nothing of
them. So whatever a commit does, its verdict is one of `EXIT`.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ..traces.trace_file import read_trace
from .bisect import BisectQuestion, State, observe
from .commit_target import CommitPlace, CommitTarget

EXIT = {State.PASSES: 10, State.FAILS: 11, State.UNSEEN: 12, State.OTHER: 12}
"""Exit statuses that are a verdict; none that Python itself may end with."""


@dataclass(frozen=True)
class CommitJob:
    """What is the same for all commits."""

    scratch: str
    """Folder with the trace (`trace.json`), and for what comes of it (`log`)."""
    target: str
    """What the user calls it."""
    place: CommitPlace
    kind: tuple[str, str] | None
    oracles: tuple[str, ...]
    manner: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str) -> "CommitJob":
        """The job in this file."""
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        place = CommitPlace.of_json(raw["place"])
        kind = raw["kind"] and tuple(raw["kind"])
        names = {name: tuple(raw[name]) for name in ("oracles", "manner")}
        return cls(**raw | {"place": place, "kind": kind} | names)


def main(arguments: list[str]) -> int:
    """Try the commit that is checked out, write down what came of it, and return the exit status."""
    job = CommitJob.read(arguments[0])
    scratch = Path(job.scratch)
    command = ["git", "-C", job.place.tree, "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    question = BisectQuestion(read_trace(scratch / "trace.json").trace, job.kind, job.oracles, job.manner)
    answer = observe(question, lambda: CommitTarget(job.place, job.target).launched())
    with (scratch / "log").open("a", encoding="utf-8") as log:
        log.write(json.dumps([commit, asdict(answer)]) + "\n")
    return EXIT[answer.state]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
