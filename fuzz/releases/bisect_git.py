"""The first commit of a repository in which a trace fails: `git bisect run`, in a worktree of its own.

The worktree has its own HEAD, index and state of bisection, so nothing of the user's checkout is touched. It is removed
however the search ends. Hooks of the repository do not run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from ..traces.trace_file import TraceFile, write_trace
from .bisect import Answer, BisectError, Question, State, answer_lines, one_line
from .bisect_commit import EXIT, PREFIX, Job, in_checkout

_QUIET = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
_CHECKOUT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE")
"""What git sets for a hook that it runs; it would lead our commands back into the user's checkout."""
_POLL_S = 0.1
_GRACE_S = 0.3
"""How long git has to tidy up after itself before it is killed."""
# An exit status of Python's own, such as 1 for a traceback, must never be taken for a verdict on the commit.
_VERDICT = f"""\
"$@"
case $? in
{EXIT[State.PASSES]}) exit 0;;
{EXIT[State.FAILS]}) exit 1;;
{EXIT[State.UNSEEN]}) exit 125;;
*) exit 200;;
esac"""


@dataclass(frozen=True)
class Commit:
    """One commit."""

    hash: str
    subject: str
    date: str
    """When it was written (author date), ISO 8601."""

    def __str__(self) -> str:
        return f"{self.hash}  {self.date}  {self.subject}"


@dataclass(frozen=True)
class Located:
    """The commits in which a trace may have begun to fail, and what came of those that were tried."""

    question: Question
    suspects: tuple[Commit, ...]
    """The first bad commit. Several, oldest first, if commits right before it could not be judged."""
    tried: tuple[tuple[Commit, Answer], ...]
    """Each commit that was tried and what came of it, in that order."""

    @property
    def code(self) -> int:
        """The exit code: 0, since a search without an answer ends in BisectError."""
        return 0

    def lines(self) -> list[str]:
        """A table of what came of each commit, and below it the first bad one."""
        rows = [(commit.hash[:12], answer) for commit, answer in self.tried]
        table = answer_lines("commit", rows, len(self.question.trace.operations))
        if len(self.suspects) == 1:
            return [*table, f"first bad commit: {self.suspects[0]}"]
        head = "the first bad commit is one of these, of which only the last could be judged:"
        return [*table, head, *(f"  {commit}" for commit in self.suspects)]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {
            "kind": self.question.kind,
            "oracles": self.question.oracles,
            "commits": [{**asdict(commit), **answer.as_json()} for commit, answer in self.tried],
            "suspects": [asdict(commit) for commit in self.suspects],
            "exact": len(self.suspects) == 1,
        }


def bisect_commits(
    repository: Path, span: str, target: str, question: Question, folder: str, say: Callable[[str], None]
) -> Located:
    """Search the commits in `GOOD..BAD` for the first in which the trace fails.

    `target` is the factory (`package.module:factory`), imported from `folder` of each commit. BisectError with 2 for a
    wrong range or repository, 1 if the ends do not differ as they should, 3 if one of them cannot be judged.
    """
    git = _Git(_repository(repository))
    good, bad = _ends(git, span)
    with _worktree(git, bad.hash) as (tree, scratch):
        top = git("rev-parse", "--show-toplevel", check=False) or str(git.folder)
        job = Job(str(scratch), str(tree), folder, os.path.realpath(top), target, question.kind, question.oracles)
        write_trace(TraceFile(question.trace), scratch / "trace.json")
        (scratch / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
        trial = _Trial(job, say)
        trial.end(bad, State.FAILS, f"it does not fail at BAD ({bad.hash[:12]}); name a commit in which it fails")
        earlier = f"it fails at GOOD ({good.hash[:12]}) already; name an older commit, in which it does not"
        trial.end(good, State.PASSES, earlier)
        suspects = trial.run(good, bad)
        answers = [(_commit(tree, name), answer) for name, answer in trial.entries()]
        return Located(question, tuple(_commit(tree, name) for name in suspects), tuple(answers))


class _Git:
    """Runs git in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        settings = [word for name, value in _QUIET.items() for word in ("-c", f"{name}={value}")]
        return ["git", "-C", str(self.folder), *settings, *arguments]

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """What it prints. BisectError (2) if it fails, unless `check` is off: then empty."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            code = _wait(self.command(*arguments), output)
            said = _text_of(output).strip()
        if code and check:
            raise BisectError(f"git {arguments[0]} failed: {one_line(said) or f'exit status {code}'}", 2)
        return "" if code else said


def _wait(
    command: list[str],
    output: IO[str],
    variables: Mapping[str, str] = MappingProxyType({}),
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Run a command to its end. Whatever ends it early, Ctrl-C included, ends the command and all it started."""
    environment = {name: value for name, value in os.environ.items() if name not in _CHECKOUT_VARIABLES}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **variables}
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise BisectError(f"{command[0]} is not installed; install it", 2) from None
    try:
        while True:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                meanwhile()
    finally:
        if process.returncode is None:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it has started, politely first: git then takes its lock files with it."""
    for name, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, name)
            process.wait(patience)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue


def _text_of(output: IO[str]) -> str:
    output.seek(0)
    return output.read()


def _repository(folder: Path) -> Path:
    if not folder.is_dir():
        raise BisectError(f"--repo: {folder} is no folder; name one with a git repository", 2)
    try:
        _Git(folder)("rev-parse", "--git-dir")
    except BisectError as error:
        raise BisectError(f"--repo: {folder} holds no git repository that can be used ({error})", 2) from None
    return folder.absolute()


def _ends(git: _Git, span: str) -> tuple[Commit, Commit]:
    """The commits GOOD and BAD of `GOOD..BAD`."""
    first, dots, last = span.partition("..")
    if not (first and dots and last) or last.startswith("."):
        raise BisectError(f"--git: {span!r} is no range; write GOOD..BAD, as in v1.2..HEAD", 2)
    hashes = []
    for name in (first, last):
        found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
        if not found:
            raise BisectError(f"--git: {name!r} is no commit of {git.folder}; git log shows what there is", 2)
        hashes.append(found)
    if hashes[0] == hashes[1]:
        raise BisectError(f"--git: {first} and {last} are the same commit; name an older one as GOOD", 2)
    if git("merge-base", *hashes, check=False) != hashes[0]:
        raise BisectError(f"--git: {first} is no ancestor of {last}; name one as GOOD (git merge-base finds it)", 2)
    return _commit(git.folder, hashes[0]), _commit(git.folder, hashes[1])


def _commit(folder: Path, name: str) -> Commit:
    return Commit(*_Git(folder)("show", "--no-patch", "--format=%H%n%s%n%aI", name).split("\n"))


@contextmanager
def _worktree(git: _Git, commit: str) -> Iterator[tuple[Path, Path]]:
    """A worktree at this commit, and a folder for what else is needed. Both are gone afterwards."""
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix="blockproof-bisect-")))
    tree = scratch / "tree"
    try:
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        yield tree, scratch
    finally:
        with _uninterrupted():
            shutil.rmtree(scratch, ignore_errors=True)
            # Twice forced: it may still be locked, if it was being made. Not `prune`, which takes others with it.
            git("worktree", "remove", "--force", "--force", str(tree), check=False)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C in the block, so that a second one does not end the tidying up."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, which alone hears it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Trial:
    """Tries commits in a worktree, one after the other."""

    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        self._tree = Path(job.tree)
        self._git = _Git(self._tree)
        self._log = Path(job.scratch, "log")
        self._say = say
        self._said = 0
        self._probe = [sys.executable, "-P", "-m", f"{__package__}.bisect_commit", str(Path(job.scratch, "job.json"))]
        # What we find, but for what lies in the checkout: that is no commit.
        paths = [os.path.realpath(entry or os.getcwd()) for entry in sys.path]
        self._variables = {"PYTHONPATH": os.pathsep.join(path for path in paths if not in_checkout(path, job))}

    def end(self, commit: Commit, wanted: State, otherwise: str) -> None:
        """Try an end of the range. BisectError unless it does what it should; `otherwise` if it does the opposite."""
        self._git("checkout", "--quiet", "--detach", commit.hash)
        code, words = self._run(self._probe)
        answer = dict(self.entries()).get(commit.hash)
        if code not in EXIT.values() or answer is None:
            raise BisectError(words or f"the trial of {commit.hash[:12]} ended with exit status {code}", 3)
        if answer.state.fails is None:
            advice = " (--any counts it)" if answer.state is State.OTHER else "; name another commit as this end"
            raise BisectError(f"{commit.hash[:12]}: {answer.state}: {answer.why}{advice}", 3)
        if answer.state is not wanted:
            raise BisectError(otherwise, 1)

    def run(self, good: Commit, bad: Commit) -> list[str]:
        """`git bisect run`. Hashes of the commits that may be the first bad one, oldest first; BisectError (3) if it
        breaks off before only such are left that cannot be judged.
        """
        self._git("bisect", "start", bad.hash, good.hash)
        words = ""
        if len(self._suspects()) > 1:
            _, words = self._run(self._git.command("bisect", "run", "sh", "-c", _VERDICT, "sh", *self._probe))
        *others, first_bad = self._suspects()
        blind = {name for name, answer in self.entries() if answer.state.fails is None}
        if not blind.issuperset(others):
            raise BisectError(f"git bisect broke off: {words}", 3)
        return [*others, first_bad]

    def entries(self) -> list[tuple[str, Answer]]:
        """What was tried so far: the hash of each commit and what came of it."""
        try:
            lines = self._log.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(name, Answer(**raw | {"state": State(raw["state"])})) for name, raw in entries]

    def _run(self, command: list[str]) -> tuple[int, str]:
        """Exit status, and what it said about why, in one line."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            code = _wait(command, output, self._variables, self._tell)
            lines = [line for line in _text_of(output).splitlines() if line.strip()]
        self._tell()
        ours = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
        return code, one_line((ours or lines or [""])[-1])

    def _tell(self) -> None:
        entries = self.entries()
        for name, answer in entries[self._said :]:
            self._say(f"{name[:12]}: {answer.state}" + (f" ({answer.why})" if answer.why else ""))
        self._said = len(entries)

    def _suspects(self) -> list[str]:
        """All that is not known to be good up to the first that is known to be bad, oldest first."""
        good = self._git("for-each-ref", "--format=%(objectname)", "refs/bisect/good-*").split()
        return self._git("rev-list", "--reverse", "--topo-order", "refs/bisect/bad", "--not", *good).split()
