"""The first commit of a repository in which a trace fails, or no longer does: `git bisect run`, in a worktree of its
own.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .bisect import BisectAnswer, BisectError, BisectQuestion, State, answer_lines, one_line
from .bisect_commit import EXIT, CommitJob
from .bisect_story import StoryQuestion
from .commit_target import Wanted, in_checkout, place_for
from .git import Commit, Git, wait, worktrees

# An exit status of Python's own, such as 1 for a traceback, must never be taken for a verdict on the commit. Git calls
# what the older end does good and what the newer one does bad, whichever of them fails.
_VERDICT = """\
"$@"
case $? in
{older}) exit 0;;
{newer}) exit 1;;
{blind}) exit 125;;
*) exit 200;;
esac"""


@dataclass(frozen=True)
class Located:
    """The commits in which a trace may have begun, or ceased, to fail, and what came of those that were tried."""

    question: BisectQuestion | StoryQuestion
    begins: bool
    """True if it fails at the newer end; False if it fails at the older one, so that the commits are those of a fix."""
    suspects: tuple[Commit, ...]
    """The first commit that does what the newer end does. Several, oldest first, if commits right before it could not
    be judged."""
    tried: tuple[tuple[Commit, BisectAnswer], ...]
    """Each commit that was tried and what came of it, in that order."""

    @property
    def code(self) -> int:
        """The exit code: 0, since a search without an answer ends in BisectError."""
        return 0

    def lines(self) -> list[str]:
        """A table of what came of each commit, and below it the one that was looked for."""
        rows = [(commit.short, answer) for commit, answer in self.tried]
        table = answer_lines("commit", rows, self.question.unit, self.question.count)
        wanted = "first bad commit" if self.begins else "first commit that fixes it"
        if len(self.suspects) == 1:
            return [*table, f"{wanted}: {self.suspects[0]}"]
        head = f"the {wanted} is one of these, of which only the last could be judged:"
        return [*table, head, *(f"  {commit}" for commit in self.suspects)]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {
            "kind": self.question.kind,
            "oracles": self.question.oracles,
            "commits": [{**asdict(commit), **answer.as_json()} for commit, answer in self.tried],
            "begins": self.begins,
            "suspects": [asdict(commit) for commit in self.suspects],
            "exact": len(self.suspects) == 1,
        }


def bisect_commits(
    repository: Path,
    span: str,
    wanted: Wanted,
    question: BisectQuestion | StoryQuestion,
    say: Callable[[str], None],
) -> Located:
    """Search the commits between two for the first in which the trace, or story, fails, or, if the older one fails and
    the newer one does not, for the first in which it no longer does.

    BisectError with 2 for a wrong range, repository or adapter, 1 if both ends do the same, 3 if one of them cannot be
    judged.
    """
    git = Git.of_repository(repository)
    older, newer = git.ends(span, "GOOD..BAD")
    with worktrees(git, newer) as (scratch, (tree,)):
        place = place_for(wanted, tree, git.top, scratch / "front")
        job = CommitJob(str(scratch), wanted.target, place, question.kind, question.oracles, question.manner)
        question.write(scratch / "trace.json")
        (scratch / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
        trial = _Trial(job, say)
        ends = {name: trial.end(commit) for name, commit in (("newer", newer), ("older", older))}
        if ends["older"] is ends["newer"]:
            what = "it fails" if ends["older"] is State.FAILS else "it does not fail"
            raise BisectError(f"{what} at {older.short} and at {newer.short}; name two commits that differ in that", 1)
        suspects = trial.run(older, newer, ends["older"])
        at = Git(tree)
        answers = [(at.commit(name), answer) for name, answer in trial.entries()]
        begins = ends["newer"] is State.FAILS
        return Located(question, begins, tuple(at.commit(name) for name in suspects), tuple(answers))


class _Trial:
    """Tries commits in a worktree, one after the other."""

    def __init__(self, job: CommitJob, say: Callable[[str], None]) -> None:
        self._git = Git(Path(job.place.tree))
        self._scratch = Path(job.scratch)
        self._log = Path(job.scratch, "log")
        self._say = say
        self._said = 0
        self._probe = [sys.executable, "-P", "-m", f"{__package__}.bisect_commit", str(Path(job.scratch, "job.json"))]
        # What we find, but for what lies in the checkout: that is no commit.
        paths = [os.path.realpath(entry or os.getcwd()) for entry in sys.path]
        outside = (path for path in paths if not in_checkout(path, job.place.checkout))
        self._variables = {"PYTHONPATH": os.pathsep.join(outside)}

    def end(self, commit: Commit) -> State:
        """Try an end of the range: whether it fails. BisectError (3) if that cannot be seen."""
        self._git("checkout", "--quiet", "--detach", commit.hash)
        code, words = self._run(self._probe)
        answer = dict(self.entries()).get(commit.hash)
        if code not in EXIT.values() or answer is None:
            raise BisectError(words or f"the trial of {commit.short} ended with exit status {code}", 3)
        if answer.state.fails is None:
            advice = " (--any counts it)" if answer.state is State.OTHER else "; name another commit as this end"
            raise BisectError(f"{commit.short}: {answer.state}: {answer.why}{advice}", 3)
        return answer.state

    def run(self, older: Commit, newer: Commit, at_older: State) -> list[str]:
        """`git bisect run`. Hashes of the commits that may be the first to do what the newer end does, oldest first.

        `at_older` is what the older end does. BisectError (3) if it breaks off before only such are left that cannot be
        judged.
        """
        self._git("bisect", "start", newer.hash, older.hash)
        words = ""
        if len(self._suspects()) > 1:
            at_newer = State.FAILS if at_older is State.PASSES else State.PASSES
            verdict = _VERDICT.format(older=EXIT[at_older], newer=EXIT[at_newer], blind=EXIT[State.UNSEEN])
            _, words = self._run(self._git.command("bisect", "run", "sh", "-c", verdict, "sh", *self._probe))
        *others, first = self._suspects()
        blind = {name for name, answer in self.entries() if answer.state.fails is None}
        if not blind.issuperset(others):
            raise BisectError(f"git bisect broke off: {words}", 3)
        return [*others, first]

    def entries(self) -> list[tuple[str, BisectAnswer]]:
        """What was tried so far: the hash of each commit and what came of it."""
        try:
            lines = self._log.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(name, BisectAnswer(**raw | {"state": State(raw["state"])})) for name, raw in entries]

    def _run(self, command: list[str]) -> tuple[int, str]:
        """Exit status, and what it said about why, in one line."""
        # Not where the user stands: what lies there is no commit, and is not to be found for the ends only.
        ran = wait(command, self._variables, self._tell, self._scratch)
        self._tell()
        return ran.status or 0, one_line((ran.lines or [""])[-1])

    def _tell(self) -> None:
        entries = self.entries()
        for name, answer in entries[self._said :]:
            self._say(f"{name[:12]}: {answer.state}" + (f" ({answer.why})" if answer.why else ""))
        self._said = len(entries)

    def _suspects(self) -> list[str]:
        """All from the last known to do what the older end does to the first known to do the other, oldest first."""
        good = self._git("for-each-ref", "--format=%(objectname)", "refs/bisect/good-*").split()
        return self._git("rev-list", "--reverse", "--topo-order", "refs/bisect/bad", "--not", *good).split()
