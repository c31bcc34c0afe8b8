"""The two sides of a change: the target before it, and the target after it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...model.ops import Failed, Group, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..adapters import family_of
from ..findings.oracle_names import LOCKSTEP, MODEL_FREE
from ..opening.known_deviations import known_of
from ..opening.names import ReleaseName, parsed_or_none
from ..opening.oracles import oracles_named, suited_to
from ..opening.targets import Home, home_of, open_target
from ..runs.judging import TooLongError
from ..runs.run import ask
from ..targets.base import (
    Target,
    TargetLostError,
    adapted_shape,
    block_sizes_of,
    close_target,
    designs_of,
    lacking,
    likeness,
)
from .commit_target import CommitTarget, Wanted, place_for
from .git import Commit, Git, worktrees

Answer = TypeVar("Answer")


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
    """What judges it; the same on both sides."""
    like: str = ""
    """What it is held against, the same on both sides: that of the old one. Empty: what its name says."""


@contextmanager
def named_sides(
    old: str, new: str, oracles: Sequence[str] | None = None
) -> Iterator[tuple[VerifiedSide, VerifiedSide]]:
    """Two targets by their names, each in a process of its own, judged by these oracles, else by those that suit both.

    Errors as from `open_target` and `oracles_named`.
    """
    with ExitStack() as stack:
        targets = []
        for spec in (old, new):
            targets.append(open_target(spec, isolate=True))
            stack.callback(close_target, targets[-1])
        judges = _judges(oracles, old, *targets)
        like = likeness(targets[0]) if LOCKSTEP in judges else ""
        sides = [
            VerifiedSide(short_name(spec), spec, target, home_of(spec), judges, like)
            for spec, target in zip((old, new), targets, strict=True)
        ]
        yield sides[0], sides[1]


@contextmanager
def commit_sides(
    repository: Path, span: str, wanted: Wanted, oracles: Sequence[str] | None = None
) -> Iterator[tuple[VerifiedSide, VerifiedSide]]:
    """The targets of two commits, BASE..HEAD, in worktrees of their own. BisectError for a wrong range.

    TargetUnavailableError if one of them cannot be imported. Other errors as from `oracles_named`.
    """
    git = Git.of_repository(repository)
    old, new = git.ends(span, "BASE..HEAD")
    with worktrees(git, old, new) as (scratch, trees), ExitStack() as stack:
        targets = []
        for number, (commit, tree) in enumerate(zip((old, new), trees, strict=True)):
            place = place_for(wanted, tree, git.top, scratch / f"front{number}")
            targets.append(CommitTarget(place, commit.hash[:7]))
            stack.callback(close_target, targets[-1])
        judges = _judges(oracles, wanted.target, *(target.launched() for target in targets))
        sides = [
            VerifiedSide(commit_name(commit), wanted.target, target, target.home, judges)
            for commit, target in zip((old, new), targets, strict=True)
        ]
        yield sides[0], sides[1]


def _judges(wanted: Sequence[str] | None, spec: str, old: Target, new: Target) -> tuple[str, ...]:
    """The oracles that are named, else those that need no model, and lockstep before them where the model describes the
    old side and the new one claims to be of the same kind: it has no design of its own, and is no other release."""
    if wanted and [*wanted] != ["auto"]:
        return oracles_named(wanted, spec, new)
    family = family_of(likeness(new))
    other = family is not None and known_of(likeness(new)) is None
    alike = LOCKSTEP in suited_to(spec, old) and not other and not designs_of(new)
    return (LOCKSTEP, *MODEL_FREE) if alike else MODEL_FREE


def short_name(spec: str) -> str:
    """A target as reports call it: of a patch one word, and its digest."""
    named = parsed_or_none(spec)
    if not isinstance(named, ReleaseName) or named.patch is None:
        return spec
    digest = named.patch.recorded or named.patch.digest()
    return f"{named.release}+{named.patch.label}@{digest}"


def commit_name(commit: Commit) -> str:
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


class Punctual(Borrowed):
    """A target that is asked nothing more once the time is over: TooLongError then, also in the middle of a run. So
    what is over by it is at most one call, whatever it is asked for, and however slow it is."""

    def __init__(self, target: Target, is_over: Callable[[], bool]) -> None:
        super().__init__(target)
        self._is_over = is_over

    def __getattr__(self, name: str) -> object:
        found = super().__getattr__(name)
        return self._in_time(found) if name in ("answer", "glance") and callable(found) else found

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """As `Target.start`."""
        return self._in_time(super().start)(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As `Target.step`."""
        return self._in_time(super().step)(operation)

    def _in_time(self, call: Callable[..., Answer]) -> Callable[..., Answer]:
        def called(*given: Any) -> Answer:
            if self._is_over():
                raise TooLongError
            return call(*given)

        return called


def warm_up(target: Target) -> None:
    """Build a first core, for which an engine may import much, before the time of a verification begins."""
    size = (*block_sizes_of(target), 1)[0]
    shape = Shape((Group("full", size),), 4, size, size, size, max_num_batched_tokens=size)
    with suppress(TargetLostError):
        ask(target.start, adapted_shape(shape, lacking(target)))


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
