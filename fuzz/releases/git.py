"""Git for those who try several commits of a repository, without touching the user's checkout.

Commits are checked out in worktrees of their own, which have their own HEAD, index and state of bisection. Hooks of the
repository do not run. Whatever ends a command early, Ctrl-C included, ends all that it started.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..findings.writing import write_file
from ..opening.commands import Ran, run
from .bisect import BisectError, one_line

_QUIET = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
_CHECKOUT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE")
"""What git sets for a hook that it runs; it would lead our commands back into the user's checkout."""


@dataclass(frozen=True)
class Commit:
    """One commit."""

    hash: str
    subject: str
    date: str
    """When it was written (author date), ISO 8601."""

    @property
    def short(self) -> str:
        """The first digits of its hash."""
        return self.hash[:12]

    def __str__(self) -> str:
        return f"{self.hash}  {self.date}  {self.subject}"


class Git:
    """Runs git in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_repository(cls, folder: Path) -> "Git":
        """For the repository of this folder. BisectError (2) if there is none."""
        if not folder.is_dir():
            raise BisectError(f"--repo: {folder} is no folder; name one with a git repository", 2)
        try:
            cls(folder)("rev-parse", "--git-dir")
        except BisectError as error:
            raise BisectError(f"--repo: {folder} holds no git repository that can be used ({error})", 2) from None
        return cls(folder.absolute())

    @property
    def top(self) -> str:
        """The real path of the checkout; of the folder itself for a repository without one."""
        return os.path.realpath(self("rev-parse", "--show-toplevel", check=False) or str(self.folder))

    def command(self, *arguments: str) -> list[str]:
        """The words of a command of git in this folder."""
        settings = [word for name, value in _QUIET.items() for word in ("-c", f"{name}={value}")]
        return ["git", "-C", str(self.folder), *settings, *arguments]

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """What it prints. BisectError (2) if it fails, unless `check` is off: then empty."""
        ran = wait(self.command(*arguments))
        said = ran.output.strip()
        if ran.status and check:
            raise BisectError(f"git {arguments[0]} failed: {one_line(said) or f'exit status {ran.status}'}", 2)
        return "" if ran.status else said

    def commit(self, name: str) -> Commit:
        """The commit of this name. BisectError (2) if there is none."""
        return Commit(*self("show", "--no-patch", "--format=%H%n%s%n%aI", name).split("\n"))

    def ends(self, span: str, form: str) -> tuple[Commit, Commit]:
        """The two commits in `A..B`, the older one first, whichever stands first. `form` is what messages call it.

        BisectError (2) for anything else, and for two commits of which neither is an ancestor of the other.
        """
        first, dots, last = span.partition("..")
        if not (first and dots and last) or last.startswith("."):
            raise BisectError(f"--git: {span!r} is no range; write {form}, as in v1.2..HEAD", 2)
        hashes = []
        for name in (first, last):
            found = self("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
            if not found:
                raise BisectError(f"--git: {name!r} is no commit of {self.folder}; git log shows what there is", 2)
            hashes.append(found)
        if hashes[0] == hashes[1]:
            raise BisectError(f"--git: {first} and {last} are the same commit; name two", 2)
        base = self("merge-base", *hashes, check=False)
        if base not in hashes:
            raise BisectError(f"--git: neither of {first} and {last} is an ancestor of the other; git log --graph", 2)
        older, newer = hashes if base == hashes[0] else reversed(hashes)
        return self.commit(older), self.commit(newer)


def wait(
    command: list[str],
    variables: Mapping[str, str] = MappingProxyType({}),
    meanwhile: Callable[[], None] | None = None,
    folder: Path | None = None,
) -> Ran:
    """Run a command to its end, its errors in its output; as `commands.run`. BisectError (2) if there is none.

    `variables` come on top of the environment.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _CHECKOUT_VARIABLES}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **variables}
    try:
        return run(command, environment=environment, folder=folder, together=True, meanwhile=meanwhile)
    except FileNotFoundError:
        raise BisectError(f"{command[0]} is not installed; install it", 2) from None


@contextmanager
def worktrees(git: Git, *commits: Commit) -> Iterator[tuple[Path, list[Path]]]:
    """A worktree for each commit, and before them a folder for what else is needed. All are gone afterwards."""
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix="blockproof-commits-")))
    trees = [scratch / f"tree{number or ''}" for number, _ in enumerate(commits)]
    try:
        for tree, commit in zip(trees, commits, strict=True):
            git("worktree", "add", "--detach", "--quiet", str(tree), commit.hash)
        yield scratch, trees
    finally:
        with _uninterrupted():
            shutil.rmtree(scratch, ignore_errors=True)
            for tree in trees:
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


GENERATOR = "fuzz/workload"


def write_generator(name: str, folder: Path) -> str:
    """Write the generator of the commit of this name into a folder. Returns the first digits of the commit's hash.

    ValueError, in one line, if this is no repository, there is no such commit, or it has no generator there.
    """
    root = Path(__file__).resolve().parents[2]
    try:
        git = Git.of_repository(root)
        commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
        if not commit:
            raise ValueError(f"{name!r} is no commit of {root}; git log shows what there is")
        files = git("ls-tree", "--name-only", commit, f"{GENERATOR}/").splitlines()
        sources = [path for path in files if path.endswith(".py")]
        if not sources:
            raise ValueError(f"{name!r} has no {GENERATOR}; name a later commit")
        for path in sources:
            write_file(folder / Path(path).name, git("show", f"{commit}:{path}") + "\n")
    except BisectError as error:
        raise ValueError(str(error)) from None
    return commit[:12]
