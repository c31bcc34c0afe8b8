"""What `git bisect run` runs on each commit: `python -m blockproof.fuzz.releases.bisect_commit JOB`.

The target lives in a child process, whose import path begins with the commit's files; this process imports nothing of
them. So whatever a commit does, its verdict is one of `EXIT`.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..engines.story_fuzzing import read_story
from ..traces.files import STORY, other_form
from ..traces.trace_file import read_trace
from .bisect import BisectAnswer, BisectQuestion, State, observe
from .bisect_story import StoryQuestion, observe_story
from .commit_target import CommitEngine, CommitPlace, CommitTarget

EXIT = {State.PASSES: 10, State.FAILS: 11, State.UNSEEN: 12, State.OTHER: 12}
"""Exit statuses that are a verdict; none that Python itself may end with."""


@dataclass(frozen=True)
class CommitJob:
    """What is the same for all commits."""

    scratch: str
    """Folder with the trace or story (`trace.json`), and for what comes of it (`log`)."""
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
    answer = _answer(job, scratch / "trace.json")
    with (scratch / "log").open("a", encoding="utf-8") as log:
        log.write(json.dumps([commit, asdict(answer)]) + "\n")
    return EXIT[answer.state]


def _answer(job: CommitJob, asked: Path) -> BisectAnswer:
    if other_form(asked) == STORY:
        engine = CommitEngine(job.place, job.target)
        answer = observe_story(StoryQuestion(read_story(asked), job.kind), job.target, engine.home)
        why = engine.problem(answer.why if answer.state is State.UNSEEN else "")
        return replace(answer, state=State.UNSEEN, why=why) if why else answer
    question = BisectQuestion(read_trace(asked).trace, job.kind, job.oracles, job.manner)
    return observe(question, lambda: CommitTarget(job.place, job.target).launched())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
