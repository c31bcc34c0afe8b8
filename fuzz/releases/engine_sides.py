"""The two sides of a change to an engine that is simulated: the engine before it, and the one after it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..engines.story_server import StoryPlayer
from ..targets.base import TargetUnavailableError
from .commit_target import CommitEngine, Wanted, place_for
from .git import Git, worktrees
from .verify_sides import commit_name, short_name


@dataclass(frozen=True)
class EngineSide:
    """An engine on one side of a change."""

    name: str
    """What reports call it."""
    spec: str
    """What the user calls it, which goes into stories."""
    player: StoryPlayer


@contextmanager
def named_engines(old: str, new: str) -> Iterator[tuple[EngineSide, EngineSide]]:
    """Two engines by their names. Errors as from `StoryPlayer`."""
    with ExitStack() as stack:
        sides = []
        for spec in (old, new):
            sides.append(EngineSide(short_name(spec), spec, StoryPlayer(spec)))
            stack.callback(sides[-1].player.close)
        yield sides[0], sides[1]


@contextmanager
def commit_engines(repository: Path, span: str, wanted: Wanted) -> Iterator[tuple[EngineSide, EngineSide]]:
    """The engines of two commits, BASE..HEAD, in worktrees of their own. BisectError for a wrong range; other errors as
    from `StoryPlayer`."""
    git = Git.of_repository(repository)
    commits = git.ends(span, "BASE..HEAD")
    with worktrees(git, *commits) as (scratch, trees), ExitStack() as stack:
        sides = []
        for number, (commit, tree) in enumerate(zip(commits, trees, strict=True)):
            place = place_for(wanted, tree, git.top, scratch / f"front{number}")
            engine = CommitEngine(place, commit.hash[:7])
            try:
                player = StoryPlayer(wanted.target, engine.home)
            except TargetUnavailableError as error:
                raise TargetUnavailableError(engine.problem(str(error))) from None
            stack.callback(player.close)
            sides.append(EngineSide(commit_name(commit), wanted.target, player))
        yield sides[0], sides[1]
