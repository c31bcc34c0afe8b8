"""The story of an engine in a corpus, replayed: what it shows today, told call by call."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..engines.story_fuzzing import StoredStory, StoryOutcome, play, read_story
from ..opening.names import runs_code
from ..traces.files import TraceError


@dataclass(frozen=True)
class StoryCase:
    """A file of a story, and the engine that it is to be replayed on."""

    path: Path
    stored: StoredStory
    spec: str
    """Name of the engine."""

    @property
    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["blockproof", "replay", str(self.path), "--target", self.spec])

    def run(self) -> "StoryAgain":
        """Replay it. TargetUnavailableError if the engine cannot be started, ValueError if it is none."""
        return StoryAgain(self, play(self.stored, self.spec, lambda line: None, shows=True))


@dataclass(frozen=True)
class StoryAgain:
    """What came of a case."""

    case: StoryCase
    outcome: StoryOutcome

    @property
    def steps(self) -> int:
        """How many steps the engine made."""
        return int(self.outcome.told.get("steps", 0))

    @property
    def headline(self) -> str:
        """What is wrong, in one line: a finding, a lost process, or that nothing was tested. Empty if nothing is."""
        outcome = self.outcome
        if outcome.found:
            return f"{outcome.found[0]['judge']}: {outcome.found[0]['what']}"
        if outcome.lost:
            return f"the process of {self.case.spec} was lost: {outcome.lost}"
        if not outcome.exit_code:
            return ""
        why = next(iter(outcome.told.get("not_built", ())), "no step ran")
        return f"{self.case.path.name} tests nothing: {why}"

    @property
    def text(self) -> str:
        """The same with the story, call by call."""
        return "\n".join([self.headline, *self.outcome.shown])

    @property
    def failed(self) -> bool:
        """True if something is wrong."""
        return bool(self.headline)

    def lines(self) -> list[str]:
        """The headline, then the story call by call, and the command that repeats it."""
        shown = ["", *self.outcome.shown] if self.outcome.shown else []
        return [self.headline, *shown, "", f"repeat it: {self.case.command}"]


def read_story_case(path: Path, engine: str | None = None) -> StoryCase:
    """The case in a file, for this engine, else for the one that it names. TraceError if the file cannot be used; also
    if somebody's code is to be its engine, since a file alone must not run code."""
    stored = read_story(path)
    if not (engine or stored.target):
        raise TraceError(str(path), "", "does not say with which engine it was made; name one")
    if engine is None and runs_code(stored.target):
        problem = f"{stored.target!r} is somebody's code; if you trust it, name it as the engine"
        raise TraceError(str(path), "target", problem)
    return StoryCase(path, stored, engine or stored.target)
