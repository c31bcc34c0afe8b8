"""What the pytest plugin does with an engine: it is simulated, and stories are replayed on it."""

import shlex
from pathlib import Path

from ..engines.stories import StoryTask
from ..engines.story_fuzzing import StoryOutcome, simulate
from ..targets.base import TargetUnavailableError
from .pytest_options import chosen_seed
from .pytest_shared import MARK, BlockproofItem, shared
from .story_corpus import StoryCase, read_story_case


class StoryItem(BlockproofItem):
    """A story, replayed: it must show nothing."""

    def __init__(self, *, case: StoryCase, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # name and parent, as pytest passes them
        self.case = case
        self.spec = case.spec
        self.label = f"replay of {case.path}"
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Replay the story."""
        try:
            outcome = self.case.run()
        except (ValueError, TargetUnavailableError) as error:
            self.fail([str(error)])
        self.user_properties += [("steps", outcome.steps), ("repeat", self.case.command)]
        if outcome.failed:
            self.fail(outcome.lines())


class SimulateItem(BlockproofItem):
    """An engine, simulated for some steps or seconds: nothing must be found."""

    def __init__(self, *, attention: str, **more: object) -> None:
        """`attention`: the only type; empty for all that it has."""
        super().__init__(**more)  # type: ignore[arg-type]  # as above
        self.attention = attention
        self.spec = shared(self.config).target or ""
        self.label = f"simulating {attention}".strip()
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Simulate, and shrink what is found."""
        ours = shared(self.config)
        attention = (self.attention,) if self.attention else ()
        seed, steps, seconds = chosen_seed(self.config), ours.steps or None, ours.seconds or None
        task = StoryTask(seed, steps=steps, seconds=seconds, attention=attention, goes_on=False)
        words = ["blockproof", "simulate", "--target", self.spec, "--seed", str(task.seed)]
        words += [word for name in attention for word in ("--attention", name)]
        words += ["--steps", str(task.steps)] if task.steps else []
        words += ["--seconds", f"{task.seconds:g}"] if task.seconds else []
        repeat = shlex.join(words)
        try:
            outcome = simulate(self.spec, task, ours.out, print)
        except (ValueError, TargetUnavailableError) as error:
            self.fail([f"tests nothing: {error}"])
        self.user_properties += [("steps", outcome.told.get("steps", 0)), ("repeat", repeat)]
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.exit_code:
            self.fail([*self._failure(outcome), f"repeat the search: {repeat}"])

    def _failure(self, outcome: StoryOutcome) -> list[str]:
        """What was found: the smallest story call by call, and where it is; or why nothing was tested."""
        kept = [Path(one["file"]) for one in outcome.found if one.get("file")]
        if not kept:
            return outcome.lines()
        return [*read_story_case(kept[0], self.spec).run().lines(), f"story: {kept[0]}"]
