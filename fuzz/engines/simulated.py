"""What stories need of an engine under simulation (`stories`): draws, runs, names, faults, a canary.

Works in the Python environment of the engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...model.ops import Group, Shape, Value
from ..findings.finding import BUG
from ..findings.oracle_names import BLOCKPROOF
from ..findings.story_finding import StoryFinding, place_of, stack_of
from ..opening.engines import open_engine_here
from ..oracles.contract import Contract
from ..runs.canary import Canary, check_plants
from ..simulation.answers import is_from_outside
from ..simulation.faults import FAULTS, SEEN_BY
from ..simulation.judges import CAPACITY, FATE, MEMORY, TIER
from ..simulation.picture import PicturingEngine
from ..simulation.protocol import ClientRequest, Engine, EngineShape
from ..simulation.run import Fates, SimulatedRun, declared
from ..simulation.smaller import smaller
from ..simulation.story import Happening, SimulatedStory, story_from_json, story_to_json
from ..simulation.tier_faults import LosesKeys, OneWithTier
from ..simulation.traffic import draw_simulation, facts_of
from ..workload.draw import SeededDraw
from .deadlines import HANG, START_HANGS, START_SECONDS, StoryTooLongError, deadline
from .forked import EndsHereError, Forked
from .played import StartEndsError, started_wrong

PLANTED: Mapping[str, Any] = {**FAULTS, "loses-keys": LosesKeys}
"""By name, what plants a mistake into an engine; the last one into one with a lower tier."""
SEEN = {**SEEN_BY, "loses-keys": TIER}
"""Which judge must notice."""
NOT_ITS_OWN = "findings of the engine without its known defects, of which it shows nothing itself"
NOT_BUILT_AGAIN = "stories for which the engine without its known defects cannot be built, and it itself can"
"""Of both, whoever wrote how an engine without a known defect is made has made a mistake."""
MOST_STEPS = 3000
"""Of one story; nearly all end long before."""


class Guarded:
    """The run of one story, with a limit of time; a mistake of ours in it says nothing of the engine."""

    def __init__(self, engine: Engine, story: SimulatedStory, *, tells: bool = False) -> None:
        """`tells`: it is told call by call."""
        self._telling = PicturingEngine(engine) if tells else None
        try:
            with deadline(starts=True):
                self._run = SimulatedRun(self._telling or engine, story)
        except StoryTooLongError as late:
            line = f"start does not return within {START_SECONDS:g} s"
            raise StartEndsError(StoryFinding(FATE, START_HANGS, line, 0, more=stack_of(late.__traceback__))) from late
        except BaseException as error:
            if isinstance(error, Exception) or is_from_outside(error):
                raise
            raise StartEndsError(started_wrong(error)) from error
        if self._telling is not None:
            self._telling.device = self._run.device

    @property
    def lines(self) -> list[str]:
        """The story in words, if it is told."""
        return self._telling.lines if self._telling is not None else []

    @property
    def picture(self) -> dict[str, Any]:
        """The same for a page (`simulation.picture.StoryPicture`)."""
        return self._telling.document() if self._telling is not None else {}

    @property
    def happened(self) -> int:
        """How many of the story's happenings there were."""
        return self._run.happened

    @property
    def reached(self) -> Any:
        """See `SimulatedRun`."""
        return self._run.reached

    @property
    def fates(self) -> Fates:
        """See `SimulatedRun`."""
        return self._run.fates

    def run(self, steps: int) -> list[StoryFinding]:
        """See `SimulatedRun`."""
        try:
            with deadline(computes=self._run.samples):
                return self._run.run(steps)
        except StoryTooLongError as late:
            rule = f"{HANG} in {late.method}" if late.method else HANG
            return [
                StoryFinding(FATE, rule, late.what, late.step or self._run.steps, more=stack_of(late.__traceback__))
            ]
        except EndsHereError:
            return []
        except Exception as error:
            place = f"{type(error).__name__} in {place_of(error.__traceback__)}"
            what = f"a bug of blockproof, please report it: {place}: {error}"
            return [StoryFinding(BLOCKPROOF, f"{BUG}: {place}", what, self._run.steps)]


@dataclass(frozen=True)
class Suspect:
    """A known defect of an engine, and the story to be run without it."""

    id: str
    engine: Engine
    story: SimulatedStory


class SimulatedFamily:
    """One engine, of which stories are run."""

    story_to_json = staticmethod(story_to_json)
    story_from_json = staticmethod(story_from_json)

    def __init__(self, engine: Engine, fault: str = "", *, tells: bool = False) -> None:
        """`tells`: runs are told call by call. ValueError for an engine that declares what cannot be meant, and for a
        fault of no known name."""
        self.engine, self.facts, self._tells = engine, facts_of(engine), tells
        self._as_it_is = engine
        self.in_forks = False
        """True: each story runs in a process of its own, since the engine may end it."""
        if hasattr(engine, "contract_maker"):
            engine.contract_maker = Contract
        if fault and fault not in PLANTED:
            raise ValueError(f"there is no fault {fault!r}; write one of {', '.join(PLANTED)}")

    def smaller(self, story: SimulatedStory) -> Iterator[SimulatedStory]:
        """See `simulation.smaller`."""
        return smaller(story, self.facts.block_sizes)

    def version(self) -> str:
        """What the engine says of itself."""
        return str(getattr(self.engine, "version", ""))

    def draw(
        self, seed: int, number: int, options: Sequence[str] = (), attention: Sequence[str] = ()
    ) -> SimulatedStory:
        """The story of this number; `options`: as in `StoryTask`. ValueError for attention types and options that the
        engine does not have."""
        facts = replace(self.facts, options={**self.facts.options, **self._fixed(options)})
        if unknown := [name for name in attention if name not in facts.attention]:
            raise ValueError(f"the engine has no {unknown[0]!r}; it has {', '.join(dict.fromkeys(facts.attention))}")
        narrowed = replace(facts, attention=tuple(attention) or facts.attention)
        return draw_simulation(SeededDraw(f"{seed}/{number}"), narrowed)

    def _fixed(self, options: Sequence[str]) -> dict[str, tuple[Value, ...]]:
        """The value of each of these options: one of its own, a number where it has numbers, or the text as it stands.
        ValueError for a text where there are numbers only."""
        fixed, all_of_it = dict[str, tuple[Value, ...]](), dict(self.facts.options)
        for given in options:
            all_of_it |= self.facts.options_of.get(given, {})
        for given in options:
            name, equals, text = given.partition("=")
            if not equals or name not in all_of_it:
                known = ", ".join(all_of_it) or "none"
                raise ValueError(f"{given!r} is no option of the engine as NAME=VALUE; it has {known}")
            fixed[name] = (_read(text, all_of_it[name]),)
        return fixed

    def _run(self, engine: Engine, story: SimulatedStory, fault: str = "", *, tells: bool = False) -> Guarded | Forked:
        engine = PLANTED[fault](engine) if fault else engine
        if not self.in_forks:
            return Guarded(engine, story, tells=tells)
        return Forked(engine, lambda engine, tells: Guarded(engine, story, tells=tells), MOST_STEPS, tells=tells)

    def run_of(self, story: SimulatedStory, fault: str = "") -> Guarded | Forked:
        """The run of a story, ready to go."""
        return self._run(self.engine, story, fault, tells=self._tells)

    def shows_anything(self, story: SimulatedStory, fault: str, steps: int) -> bool:
        """True if the engine as it is shows anything in a story of which its stand-in shows something (`go_on_behind`).

        Where it does not, the stand-in was made wrong."""
        if self.engine is self._as_it_is:
            return True
        return bool(self._run(self._as_it_is, story, fault).run(steps))

    def builds(self, story: SimulatedStory) -> bool:
        """True if there is a stand-in, and the engine as it is can be built for a story for which it cannot."""
        if self.engine is self._as_it_is:
            return False
        try:
            self._run(self._as_it_is, story)
        except Exception:
            return False
        return True

    def suspects(self, judge: str, rule: str, what: str, story: SimulatedStory) -> Iterator[Suspect]:
        """The defects that the engine's author knows (`remedies`): each with an engine that lacks it; where its author
        says which of them may lead to such a finding (`suspects`), only those."""
        remedies: Mapping[str, Any] = getattr(self.engine, "remedies", {})
        for id in self.engine.suspects(judge, what, story) if hasattr(self.engine, "suspects") else remedies:
            if id in remedies:
                yield self.suspect(id, story)

    def suspect(self, id: str, story: SimulatedStory) -> Suspect:
        """This known defect, and the story."""
        return Suspect(id, self.engine.remedies[id](), story)  # type: ignore[attr-defined]  # its author knows it

    def without(self, suspect: Suspect) -> "SimulatedFamily":
        """The engine without a known defect."""
        return SimulatedFamily(suspect.engine)

    def run_without(self, suspect: Suspect, fault: str) -> Guarded | Forked:
        """The same story without a known defect; what was planted is still there."""
        return self._run(suspect.engine, suspect.story, fault)

    def go_on_behind(self, known: str) -> None:
        """Stories are told of an engine without this known defect from now on, so that what lies behind it is seen."""
        self.engine = self.engine.remedies[known]()  # type: ignore[attr-defined]  # that is where it comes from

    def canary(self) -> Canary | None:
        """Plant a mistake for each judge into a small engine of ours, which has none by itself."""
        plants = ((SEEN[fault], partial(_is_seen, fault)) for fault in PLANTED)
        return check_plants([("an engine without mistakes", lambda: not _played("")), *plants])

    def told(self, reached: Mapping[str, int]) -> dict[str, object]:
        """What a run of this engine must have reached, and which judges had nothing to look at."""
        floors = {"requests": 20, "tokens delivered": 100, "steps with several requests": 1}
        floors |= declared(self.engine, "floors")
        if "cancel" not in self.facts.lacks:
            floors["cancel"] = 1
        unseen = []
        if not reached.get("reads checked", 0) + reached.get("states read", 0):
            unseen.append(MEMORY)
        elif reached.get("parts without slots", 0):
            unseen.append(f"{MEMORY}, in some steps")
        if not reached.get("looks at an idle engine", 0):
            unseen.append(f"{CAPACITY}, but that it says it is idle")
        if "tiers" in self.facts.methods and not reached.get("tier blocks asked for", 0):
            unseen.append(TIER)
        unseen += [
            f"{many} {what}" for what, many in reached.items() if what.startswith((NOT_ITS_OWN, NOT_BUILT_AGAIN))
        ]
        if getattr(self.engine, "samples", False):
            floors["requests served alone to compare"] = 20
        return {"floors": floors, "not_observed": unseen}


def opened(target: str, fault: str = "", *, tells: bool = False) -> SimulatedFamily:
    """The engine of this name. Errors as from `open_engine_here` and `SimulatedFamily`."""
    return SimulatedFamily(open_engine_here(target), fault, tells=tells)


# The canary.

_SHAPE = EngineShape(Shape((Group("full", 2),), 9, 12, 2, 2, 16))
_STORY = SimulatedStory(
    _SHAPE,
    tuple(
        Happening(number, "add", request=ClientRequest(f"r{number}", (1, 2, 3 + number % 2), 3 + number % 2))
        for number in range(6)
    ),
)


def _played(fault: str) -> list[str]:
    engine: Engine = OneWithTier()
    return [one.judge for one in SimulatedRun(PLANTED[fault](engine) if fault else engine, _STORY).run(500)]


def _is_seen(fault: str) -> bool:
    return _played(fault)[:1] == [SEEN[fault]]


def _read(text: str, values: Sequence[Value]) -> Value:
    """The value of an option, of which these are drawn, that somebody has written."""
    own = [value for value in values if str(value) == text]
    if own or not values or not all(type(value) is int for value in values):
        return own[0] if own else text
    try:
        return int(text)
    except ValueError:
        numbers = ", ".join(map(str, dict.fromkeys(values)))
        raise ValueError(f"{text!r} is no number; the option has numbers, {numbers} say") from None
