"""The two sides of a change: the target before it, and the target after it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...model.ops import Failed, Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from ..findings.oracle_names import LOCKSTEP, MODEL_FREE
from ..opening.oracles import suited_to
from ..opening.targets import Home, home_of, open_target
from ..targets.base import Target, TargetLostError, close_target
from .commit_target import CommitTarget, Wanted, place_for
from .git import Commit, Git, worktrees


@dataclass(frozen=True)
class VerifiedSide:
    """One side of a change."""

    name: str
    """What reports call it."""
    spec: str
    """What the user calls its target, which goes into traces."""
    target: Target
    home: Home
    oracles: tuple[str, ...]
    """Those that suit it."""


@contextmanager
def named_sides(old: str, new: str) -> Iterator[tuple[VerifiedSide, VerifiedSide]]:
    """Two targets by their names, each in a process of its own. Errors as from `open_target`."""
    with ExitStack() as stack:
        sides = []
        for spec in (old, new):
            target = open_target(spec, isolate=True)
            stack.callback(close_target, target)
            sides.append(VerifiedSide(spec, spec, target, home_of(spec), _suited(spec, target)))
        yield sides[0], sides[1]


@contextmanager
def commit_sides(repository: Path, span: str, wanted: Wanted) -> Iterator[tuple[VerifiedSide, VerifiedSide]]:
    """The targets of two commits, BASE..HEAD, in worktrees of their own. BisectError for a wrong range.

    TargetUnavailableError if one of them cannot be imported.
    """
    git = Git.of_repository(repository)
    old, new = git.ends(span, "BASE..HEAD")
    with worktrees(git, old, new) as (scratch, trees), ExitStack() as stack:
        sides = []
        for number, (commit, tree) in enumerate(zip((old, new), trees, strict=True)):
            place = place_for(wanted, tree, git.top, scratch / f"front{number}")
            target = CommitTarget(place, commit.hash[:7])
            stack.callback(close_target, target)
            oracles = _suited(wanted.target, target.launched())
            sides.append(VerifiedSide(_name(commit), wanted.target, target, Home(*target.home), oracles))
        yield sides[0], sides[1]


def _suited(spec: str, target: Target) -> tuple[str, ...]:
    """Those that need no model, and lockstep before them where the model describes the target."""
    return (LOCKSTEP, *MODEL_FREE) if LOCKSTEP in suited_to(spec, target) else MODEL_FREE


def _name(commit: Commit) -> str:
    """A commit as reports call it."""
    subject = commit.subject if len(commit.subject) <= 50 else f"{commit.subject[:47]}..."
    return f"{commit.hash[:7]} ({subject})"


class Borrowed:
    """A target that is used for a while; whoever opened it closes it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.name = target.name

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """As `Target.start`."""
        return self._target.start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As `Target.step`."""
        return self._target.step(operation)

    def close(self) -> None:
        """Does nothing."""


class Lasting(Borrowed):
    """A target of a pair. If it is lost that is an answer, `Failed`, so that the other one can be compared with it."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._last: Snapshot | None = None

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """As `Target.start`."""
        try:
            outcome, self._last = self._target.start(shape)
        except TargetLostError as lost:
            return Failed(lost.kind), None
        return outcome, self._last

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As `Target.step`; after a loss with the snapshot before it."""
        assert self._last is not None
        try:
            outcome, self._last = self._target.step(operation)
        except TargetLostError as lost:
            return Failed(lost.kind), self._last
        return outcome, self._last
