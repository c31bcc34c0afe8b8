"""Two engines under simulation, the same stories on both, each judged by the same judges: what a change has done.

A story says on each side nothing, or what its first judge objects to. So it is told at once what the change did there
(`verify_effects.Where`); each kind of difference is made smaller, on both sides together.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..engines.played import Played, in_common
from ..engines.stories import FUTILE
from ..engines.story_fuzzing import write_story
from ..findings.oracle_names import BLOCKPROOF
from ..findings.story_finding import StoryFinding
from ..findings.words import plural
from ..reports.difference import Work
from ..runs.case import loop
from ..simulation.smaller import smaller
from ..simulation.story import SimulatedStory, story_to_json
from ..simulation.traffic import EngineFacts, draw_simulation
from ..traces.reducer import Reducer, SearchLimits
from ..workload.draw import SeededDraw
from .engine_sides import EngineSide
from .verify_effects import Where

SHRINKING = 0.4
"""Share of a limit in seconds that is for smaller stories."""
SHRINK_SECONDS = 30.0
"""For one kind of difference at most."""
LEAST_STEPS = 200
"""A comparison of fewer steps shows nothing."""
WORK = ("steps", "tokens", "tokens computed again", "hits", "preemptions", "tokens delivered")
"""What both have done for the same stories; counted, not judged."""
FATES = "fates"
"""In place of a judge: both sides are right, and differ in what clients got."""


@dataclass(frozen=True)
class StoryDifference:
    """What a story came to on both sides, if that is not the same."""

    where: Where
    finding: StoryFinding
    """Of the side that is wrong; of the new one if both are. Of `FATES` if none is."""
    other: StoryFinding | None = None
    """That of the old side, if both are wrong."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Differences that agree in it are one."""
        return self.where, self.finding.kind, self.other and self.other.kind

    @property
    def why(self) -> str:
        """What the other side does."""
        return f"the old side: {self.other.judge}: {self.other.what}" if self.other else ""


def difference_of(old: Played, new: Played) -> StoryDifference | None:
    """How the sides differ in a story that both could be built for; None if they do not."""
    before, after = next(iter(old.found), None), next(iter(new.found), None)
    if before is not None and after is not None:
        if before.kind[:2] == after.kind[:2]:
            return StoryDifference(Where.BOTH, after)
        return StoryDifference(Where.WRONG, after, before)
    if before is not None or after is not None:
        found = before or after
        assert found is not None
        return StoryDifference(Where.OLD if after is None else Where.NEW, found)
    for name in sorted(old.fates.keys() & new.fates.keys()):
        (old_end, old_got), (new_end, new_got) = old.fates[name], new.fates[name]
        if (old_end, old_got) != (new_end, new_got):
            what = f"{name}: the old side: {old_end}, {list(old_got)}; the new one: {new_end}, {list(new_got)}"
            rule = f"{old_end} became {new_end}" if old_end != new_end else f"other tokens, {new_end}"
            return StoryDifference(Where.RIGHT, StoryFinding(FATES, rule, what, 0))
    return None


@dataclass
class EngineChange:
    """A kind of difference, with the smallest story that shows it."""

    shown: StoryDifference
    story: SimulatedStory
    number: int
    """Of the story that showed it first."""
    times: int = 1
    file: str = ""


class _PairReducer(Reducer[SimulatedStory, StoryDifference]):
    """Looks for a smaller story with a difference of the same kind."""

    def __init__(self, pair: "ComparedEngines", story: SimulatedStory, shown: StoryDifference, seconds: float) -> None:
        super().__init__(story, shown, SearchLimits(seconds=seconds))
        self._pair = pair

    def search(self) -> None:
        """Until no proposal shows it."""
        self.exhaust(lambda story: smaller(story, self._pair.facts.block_sizes))

    def shows(self, candidate: SimulatedStory) -> tuple[SimulatedStory, StoryDifference] | None:
        """The candidate, if the sides differ in it in the same way."""
        shown = self._pair.compared(candidate)
        return None if shown is None or shown.kind != self.finding.kind else (candidate, shown)

    def is_smaller(self, case: SimulatedStory) -> bool:
        """By the story's own measure; a plainer one of the same size counts."""
        return case.size <= self.best.size and case != self.best


@dataclass(frozen=True)
class EnginePlan:
    """Which stories, and how many."""

    seed: int
    seconds: float | None = None
    steps: int | None = None
    """Of each side."""
    attention: tuple[str, ...] = ()
    """All that both have if empty."""


@dataclass
class ComparedEngines:
    """Plays stories on both sides: a `Case`."""

    old: EngineSide
    new: EngineSide
    plan: EnginePlan
    facts: EngineFacts
    begin: float = field(default_factory=time.monotonic)
    stories: int = 0
    stepped: int = 0
    """So many stories there were when both made a step last."""
    changes: dict[tuple[object, ...], EngineChange] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=lambda: {"old": 0, "new": 0})
    """Steps of each side."""
    work: dict[str, Counter[str]] = field(default_factory=lambda: {"old": Counter(), "new": Counter()})
    """Of the stories that both were right in: what is wrong ends a story early."""
    not_built: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begin

    @property
    def steps(self) -> int:
        """Of both sides, those of the side that made fewer."""
        return min(self.made.values())

    # The case.

    def draw(self, number: int) -> SimulatedStory:
        """See `Case`."""
        return draw_simulation(SeededDraw(f"{self.plan.seed}/{number}"), self.facts)

    def judge(self, story: SimulatedStory) -> Iterator[StoryDifference]:
        """See `Case`. What was done on both sides is counted."""
        self.stories += 1
        shown = self.compared(story, counts=True)
        if shown is not None:
            yield shown

    def compared(self, story: SimulatedStory, *, counts: bool = False) -> StoryDifference | None:
        """How they differ in a story; None also if one of them cannot be built for it."""
        played = {"old": self.old.player.play(story), "new": self.new.player.play(story)}
        for which, one in played.items():
            if one.not_built and counts:
                self.not_built[f"{which} side: {one.not_built}"] += 1
        if any(one.not_built for one in played.values()):
            return None
        before = self.steps
        for which, one in played.items() if counts else ():
            self.made[which] += one.reached.get("steps", 0)
            if not any(other.found for other in played.values()):
                self.work[which].update({name: one.reached.get(name, 0) for name in WORK})
        if self.steps > before:
            self.stepped = self.stories
        return difference_of(played["old"], played["new"])

    def keep(self, story: SimulatedStory, shown: StoryDifference) -> None:
        """See `Case`. Of each kind the smallest story is kept."""
        known = self.changes.get(shown.kind)
        if known is None:
            self.changes[shown.kind] = EngineChange(shown, story, self.stories - 1)
            return
        known.times += 1
        if story.size < known.story.size:
            known.story, known.shown = story, shown

    def over(self) -> bool:
        """See `Case`."""
        plan = self.plan
        share = 1 - SHRINKING if self.told else 1.0
        return bool(
            (plan.steps is not None and self.steps >= plan.steps)
            or (plan.seconds is not None and self.seconds >= plan.seconds * share)
            or self.stories - self.stepped >= (FUTILE if self.steps else 50)
        )

    # What came of it.

    @property
    def told(self) -> list[EngineChange]:
        """What is a difference, the worst first."""
        order = list(Where)
        found = [one for one in self.changes.values() if one.shown.where is not Where.BOTH and not _is_ours(one)]
        return sorted(found, key=lambda one: (order.index(one.shown.where), one.story.size))

    @property
    def alike(self) -> list[EngineChange]:
        """What both sides do, and it is wrong."""
        return [one for one in self.changes.values() if one.shown.where is Where.BOTH]

    @property
    def bugs(self) -> list[EngineChange]:
        """Bugs of blockproof: they say nothing of the engines."""
        return [one for one in self.changes.values() if _is_ours(one)]

    @property
    def vacuous(self) -> str:
        """Why the comparison shows nothing; empty if it does."""
        if self.steps >= LEAST_STEPS or self.told or self.interrupted:
            return ""
        why = f": {next(iter(self.not_built))}" if self.not_built else ""
        return f"only {plural(self.steps, 'step')} ran on both sides{why}"

    @property
    def code(self) -> int:
        """Exit code: 1 for a difference, 3 if nothing was compared, 70 for a bug of blockproof, 130 for Ctrl-C before
        anything was found; else 0."""
        if self.told:
            return 1
        return 130 if self.interrupted else 3 if self.vacuous else 70 if self.bugs else 0

    def shrink(self, say: Callable[[str], None]) -> None:
        """Make the stories smaller, each in its share of the time that is left. Ctrl-C ends it."""
        for place, one in enumerate(self.told):
            left = None if self.plan.seconds is None else max(0.0, self.plan.seconds - self.seconds)
            most = SHRINK_SECONDS if left is None else min(SHRINK_SECONDS, left / (len(self.told) - place))
            reducer = _PairReducer(self, one.story, one.shown, most)
            self.interrupted |= reducer.run().interrupted
            one.story, one.shown = reducer.best, reducer.finding
            say(f"{one.shown.where}: {one.shown.finding.judge}: {one.shown.finding.what}")
            if self.interrupted:
                return

    def write(self, folder: Path) -> None:
        """Write the smallest story of each difference."""
        for one in self.told:
            finding, spec = one.shown.finding, (self.old if one.shown.where is Where.OLD else self.new).spec
            told = {name: getattr(finding, name) for name in ("judge", "rule", "what", "step", "more")}
            name = {"name": f"{one.shown.where}: {finding.judge}", "known": ""}
            more = {"seed": self.plan.seed, "number": one.number, "story": story_to_json(one.story)}
            one.file = str(write_story({**name, **told, **more}, spec, folder))

    @property
    def figures(self) -> dict[str, Work]:
        """What each side has done, by name."""
        return {name: Work(self.work["old"][name], self.work["new"][name]) for name in WORK}


def _is_ours(one: EngineChange) -> bool:
    return BLOCKPROOF in (one.shown.finding.judge, one.shown.other and one.shown.other.judge)


def compare_engines(old: EngineSide, new: EngineSide, plan: EnginePlan, say: Callable[[str], None]) -> ComparedEngines:
    """Play the same stories on both, and make smaller what they differ in. Ctrl-C ends it with what there is so far.

    ValueError if there is no story for both; TargetUnavailableError if one cannot be started again.
    """
    facts = in_common(old.player.facts, new.player.facts)
    if unknown := [name for name in plan.attention if name not in facts.attention]:
        raise ValueError(f"the engines have no {unknown[0]!r} in common; they have {', '.join(facts.attention)}")
    facts = replace(facts, attention=plan.attention or facts.attention)
    done = ComparedEngines(old, new, plan, facts)
    say(f"the same stories on {old.name} and {new.name}, seed {plan.seed}")
    try:
        loop(done)
        done.shrink(say)
    except KeyboardInterrupt:
        done.interrupted = True
    return done
