"""What the story of an engine does on one of a line of releases, or of commits."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..engines.story_fuzzing import FORM, StoredStory, StoryOutcome, play
from ..findings.oracle_names import BLOCKPROOF
from ..findings.writing import write_file
from ..opening.targets import Home
from ..targets.base import TargetUnavailableError
from .bisect import BisectAnswer, State, one_line


@dataclass(frozen=True)
class StoryQuestion:
    """A story, and what counts as failing."""

    stored: StoredStory
    kind: tuple[str, str] | None
    """Judge and rule of the finding in question; None if any finding counts."""
    oracles: tuple[str, ...] = ()
    """None: an engine is judged by what its clients get and its device reads."""
    manner: tuple[str, ...] = ()
    unit = "steps"

    def count(self, answer: BisectAnswer) -> str:
        """How much of it was applied. How many steps there are is for the engine to say."""
        return str(answer.operations)

    def write(self, path: Path) -> None:
        """For a process that asks the same."""
        write_file(path, json.dumps({FORM.version_field: FORM.version, **asdict(self.stored)}))


def question_of_story(stored: StoredStory, any_finding: bool) -> StoryQuestion:
    """What is asked of a story: whether it fails as it did when it was written, or with `any_finding` at all."""
    return StoryQuestion(stored, None if any_finding else (stored.judge, stored.rule))


def observe_story(question: StoryQuestion, spec: str, at: Home | None = None) -> BisectAnswer:
    """Run the story on the engine of this name; `at`: what is opened, and where, if its name does not say it. Never
    raises for what the engine does."""
    begin = time.monotonic()
    try:
        outcome = play(question.stored, spec, lambda line: None, at=at)
    except (TargetUnavailableError, ValueError) as error:
        return BisectAnswer(State.UNSEEN, one_line(str(error)), 0, time.monotonic() - begin)
    if outcome.interrupted:
        raise KeyboardInterrupt
    state, why = _judged(question, outcome)
    return BisectAnswer(state, one_line(why), outcome.told.get("steps", 0), time.monotonic() - begin)


def _judged(question: StoryQuestion, outcome: StoryOutcome) -> tuple[State, str]:
    for one in outcome.found:
        wanted = one["judge"] != BLOCKPROOF and question.kind in (None, (one["judge"], one["rule"]))
        return State.FAILS if wanted else State.OTHER, f"{one['judge']}: {one['what']}"
    if outcome.lost:
        return State.OTHER, f"the process was lost: {outcome.lost}"
    if outcome.exit_code:
        return State.UNSEEN, next(iter(outcome.told.get("not_built", ())), "no step ran")
    return State.PASSES, ""
