"""Many stories through an engine's own scheduler: judged, counted, shrunk and named. Runs in the engine's interpreter.

`python -m blockproof.fuzz.engines.stories TASK`: TASK is the JSON of a `StoryTask`; how stories are drawn, run and made
smaller, `simulated` says. Each line of the output is one JSON object with `begun`, `noticed`, `found`, `progress`,
`so_far`, `refused`, `blind` or `end` in it.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from ..findings.story_finding import StoryFinding
from ..opening.engine_process import begin_telling
from ..reports.history import History, Sample
from ..reports.progress import Pace
from ..runs.canary import BlindOracleError
from ..runs.case import loop
from ..simulation.judges import CHECKS, FATE
from ..simulation.protocol import PoolTooSmallError
from ..simulation.tier_policies import shares_found
from ..targets.base import TargetUnavailableError
from ..traces.reducer import Reducer, SearchLimits
from .deadlines import START_HANGS, end_what_hangs
from .played import found_at_start
from .simulated import MOST_STEPS, NOT_BUILT_AGAIN, NOT_ITS_OWN, opened

SHRUNK_OF_A_KIND = 2
"""Findings that agree in judge, rule and engine are shrunk so often; the others are only counted."""
FUTILE = 1000
"""A run ends behind so many stories in a row of which none has made a step."""
PROGRESS_S = 20.0


@dataclass(frozen=True)
class StoryTask:
    """What is to be run."""

    seed: int = 0
    first: int = 0
    """Number of the first story."""
    steps: int | None = None
    """Stop after so many steps of the scheduler."""
    seconds: float | None = None
    options: tuple[str, ...] = ()
    """What options of engines are at, each as `NAME=VALUE`; others are drawn."""
    attention: tuple[str, ...] = ()
    """Of which attention types engines are, as in `full+mamba`; all if empty."""
    fault: str = ""
    """A planted fault, for tests."""
    shrink_seconds: float = 30.0
    """How long one finding is shrunk at most."""
    replay: Any = None
    """JSON of the one story to run, in place of drawn ones."""
    tells: bool = False
    """Tell all that they have come to now and then, as `so_far`."""
    shows: bool = False
    """Tell a replayed story call by call, where it can be told."""
    target: str = ""
    """What is opened, where the module opens it (`opened`)."""
    goes_on: bool = True
    """False: nothing is run behind the first story with a finding."""
    forks_at: int = -1
    """The story of this number is the last one, and runs in processes of its own: the engine has ended one with it."""


MOST_SHARES = 400
"""Kept of one run."""


@dataclass
class StoriesDone:
    """What all stories came to."""

    stories: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Time of the process, without what other processes took."""
    reached: Counter[str] = field(default_factory=Counter)
    by_kind: dict[str, Counter[str]] = field(default_factory=dict)
    """What was reached by the attention types of the engine."""
    not_built: Counter[str] = field(default_factory=Counter)
    """Reasons for which the release could not build an engine."""
    counted: Counter[str] = field(default_factory=Counter)
    """Stories with a finding, by the name of its cause, or by judge and rule."""
    first: dict[str, float] = field(default_factory=dict)
    """When each of these came up first, in seconds."""
    history: History = field(default_factory=History)
    """With steps as operations, and the requests that were let in as lookups."""
    tier_shares: list[dict[str, Any]] = field(default_factory=list)
    """After so many `steps`, which share of what was looked for in lower tiers was `found`, and `by_definition`."""

    def note_tiers(self) -> None:
        """Of a long run every second one is kept, and then again."""
        if shares := shares_found(self.reached):
            self.tier_shares.append({"steps": self.steps, "found": shares.pop("found"), "by_definition": shares})
            if len(self.tier_shares) == MOST_SHARES:
                del self.tier_shares[1:-1:2]

    def now(self) -> Sample:
        """What they have come to so far."""
        return Sample(self.seconds, self.steps, self.reached["requests"], self.reached["hits"])

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        times = list(self.first.values())
        return {**vars(self), "history": self.history.as_json(self.now(), times)}


class _StoryReducer(Reducer[Any, StoryFinding]):
    """Looks for a smaller story with a finding of the same kind."""

    def __init__(
        self,
        family: Any,
        story: Any,
        finding: StoryFinding,
        fault: str,
        limits: SearchLimits,
        happened: int | None = None,
    ) -> None:
        """`happened`: so much of the story there was, if that is known."""
        super().__init__(story, finding, limits)
        self._family, self._fault, self._happened = family, fault, happened
        self._is_its_own = family.shows_anything(story, fault, MOST_STEPS)
        """So must be each smaller one; else a smaller one may be."""

    def search(self) -> None:
        """Until no proposal shows it."""
        if self._happened is not None and self._happened < len(self.best.happenings):
            self.accept(replace(self.best, happenings=self.best.happenings[: self._happened]))
        self.exhaust(self._family.smaller)

    def shows(self, candidate: Any) -> tuple[Any, StoryFinding] | None:
        """The candidate, if its engine can be built and the same judge objects to the same."""
        try:
            run = self._family.run_of(candidate, self._fault)
        except Exception as error:
            found = found_at_start(error)
        else:
            found = run.run(MOST_STEPS)
        again = [one for one in found if one.kind == self.finding.kind]
        if not again:
            return None
        if self._is_its_own and not self._family.shows_anything(candidate, self._fault, MOST_STEPS):
            return None
        return candidate, again[0]

    def is_smaller(self, case: Any) -> bool:
        """By the story's own measure; a plainer one of the same size counts, and no proposal is made twice."""
        return bool(case.size <= self.best.size and case != self.best)


class _Drawn(NamedTuple):
    """A story."""

    number: int
    story: Any


class Stories:
    """Runs stories one after the other: a `Case`."""

    def __init__(self, family: Any, task: StoryTask, say: Callable[[str, dict[str, object]], None]) -> None:
        self.family, self.task, self.told = family, task, StoriesDone()
        self._say = say
        self._names: dict[tuple[object, ...], list[str]] = {}
        self._number = task.first
        """Of the story at hand."""
        self._stepped = 0
        """So many stories there were when one made a step last."""
        self._happened: int | None = None
        """How much of it there was, if that is known."""
        self._started = self._spoken = time.monotonic()
        self._cpu_started, self._pace = time.process_time(), Pace()

    def run(self) -> StoriesDone:
        """All stories of the task."""
        loop(self, self.task.first)
        return self.told

    def draw(self, number: int) -> "_Drawn":
        """See `Case`."""
        self._number = number
        if number == self.task.forks_at:
            self.family.in_forks = True
        if self.task.replay is not None:
            return _Drawn(0, self.family.story_from_json(self.task.replay))
        # So that it is known which one has ended the process.
        self._say("begun", {"number": number, "steps": self.told.steps})
        return _Drawn(number, self.family.draw(self.task.seed, number, self.task.options, self.task.attention))

    def judge(self, drawn: "_Drawn") -> Sequence[StoryFinding]:
        """See `Case`."""
        told, story = self.told, drawn.story
        told.stories += 1
        try:
            run = self.family.run_of(story, self.task.fault)
        except Exception as error:
            is_ours = not isinstance(error, PoolTooSmallError) and self.family.builds(story)
            if not is_ours and (found_then := found_at_start(error)):
                return found_then
            told.not_built[f"{type(error).__name__}: {str(error)[:120]}"] += 1
            if is_ours:
                told.reached[NOT_BUILT_AGAIN] += 1
            return ()
        found: Sequence[StoryFinding] = run.run(MOST_STEPS)
        self._happened = getattr(run, "happened", None)
        if self.task.shows:
            self._say("shown", {"lines": run.lines, "picture": run.picture})
        reached = run.reached
        told.steps += reached["steps"]
        self._stepped = told.stories if reached["steps"] else self._stepped
        told.reached += reached
        of_kind = told.by_kind.setdefault(story.kinds, Counter())
        plain = ("steps", "preemptions", "hits", "evictions", "transfers ended", "steps with drafts rejected")
        of_kind.update({"stories": 1, **{name: reached[name] for name in plain}})
        return found

    def over(self) -> bool:
        """See `Case`."""
        task, told, now = self.task, self.told, time.monotonic()
        told.seconds, told.cpu_seconds = now - self._started, time.process_time() - self._cpu_started
        told.history.reach(told.reached, told.seconds)
        told.history.see(told.now())
        told.note_tiers()
        told.first |= {name: told.seconds for name in told.counted if name not in told.first}
        if now - self._spoken > PROGRESS_S:
            self._spoken = now
            self._say("progress", {"stories": told.stories, "steps": told.steps})
        if task.tells and self._pace.due:
            with self._pace.telling():
                self._say("so_far", told.as_json())
        return bool(
            task.replay is not None
            or self._number == task.forks_at
            or (told.counted and not task.goes_on)
            or (task.steps is not None and told.steps >= task.steps)
            or (task.seconds is not None and told.seconds >= task.seconds)
            or told.stories - self._stepped >= FUTILE
        )

    def keep(self, drawn: "_Drawn", found: StoryFinding) -> None:
        """Shrink, name and tell a finding if it is one of the first of its kind; count it in any case."""
        (number, story), finding = drawn, found
        if number < self.task.forks_at:
            return  # it was told by the process that was lost
        kind = (*finding.kind, *story.alike)
        names = self._names.setdefault(kind, [])
        if len(names) >= SHRUNK_OF_A_KIND:
            self.told.counted[names[0]] += 1
            return
        self._tell("noticed", drawn, finding)
        limits = SearchLimits(seconds=0.0 if finding.rule == START_HANGS else self.task.shrink_seconds)
        reducer = _StoryReducer(self.family, story, finding, self.task.fault, limits, self._happened)
        reduced = reducer.run()
        smallest, shown = reducer.best, reduced.finding
        if not self.family.shows_anything(smallest, self.task.fault, MOST_STEPS):
            self.told.reached[f"{NOT_ITS_OWN}: {finding.judge}: {finding.rule}"] += 1
            return
        known = self._cause(shown, smallest)
        name = self._tell("found", _Drawn(number, smallest), shown, known, reduced.candidates, reduced.complete)
        names.append(name)
        self.told.counted[name] += 1
        if known:
            self.family.go_on_behind(known)

    def _tell(
        self,
        what: str,
        drawn: "_Drawn",
        shown: StoryFinding,
        known: str = "",
        tries: int = 0,
        complete: bool = False,
    ) -> str:
        """Tell a finding; `noticed` is one that is made smaller now, which may take a while. Returns its name."""
        name = known or f"new: {shown.judge}: {shown.rule}"
        self._say(
            what,
            {
                "name": name,
                "known": known,
                "judge": shown.judge,
                "rule": shown.rule,
                "what": shown.what,
                "step": shown.step,
                "more": list(shown.more),
                "seed": self.task.seed,
                "number": drawn.number,
                "steps": self.told.steps,
                "tries": tries,
                "complete": complete,
                "fault": self.task.fault,
                "story": self.family.story_to_json(drawn.story),
            },
        )
        return name

    def _cause(self, shown: StoryFinding, story: Any) -> str:
        """The first known cause without which nothing is found; empty if there is none. What is raised, or objected to
        by a check of the engine, has a name: there it is enough if nothing of this name is found, nor by others.

        Without a cause, another one may show that the story has, too. Then both are taken away: the finding is due to
        the first if nothing is left, and it is still found where only the second is taken away. Where the same is found
        without either of two, and nothing without both, each would do alone: it has the name of the first."""
        same, behind = list[Any](), list[tuple[Any, StoryFinding]]()
        for suspect in self.family.suspects(shown.judge, shown.rule, shown.what, story):
            found = self._without(suspect)
            if found is not None and _is_gone(shown, found):
                return str(suspect.id)
            if found and (found[0].judge, found[0].rule) != (shown.judge, shown.rule):
                behind.append((suspect, found[0]))
            elif found:
                same.append(suspect)
        for suspect, then in behind:
            for both in self.family.without(suspect).suspects(then.judge, then.rule, then.what, story):
                alone = self.family.suspect(both.id, story)
                if self._without(both) == [] and self._without(alone, may_refuse=False) != []:
                    return str(suspect.id)
        for one, other in combinations(same, 2):
            if self._without(self.family.without(one).suspect(other.id, story), may_refuse=False) == []:
                return str(one.id)
        return ""

    def _without(self, suspect: Any, *, may_refuse: bool = True) -> list[StoryFinding] | None:
        """What the story shows without this cause: nothing if such an engine refuses the pool, where it `may_refuse`;
        None if there is no such engine."""
        try:
            run = self.family.run_without(suspect, self.task.fault)
        except PoolTooSmallError:
            return [] if may_refuse else None
        except Exception:
            return None
        found: list[StoryFinding] = run.run(MOST_STEPS)
        return found


def _is_gone(shown: StoryFinding, found: Sequence[StoryFinding]) -> bool:
    return all(one.judge == shown.judge in (CHECKS, FATE) and one.rule != shown.rule for one in found)


def task_from_json(raw: Any) -> StoryTask:
    """The task with these fields."""
    return replace(StoryTask(), **raw)


def main(task: str) -> None:
    """See above."""
    tell, stacks = begin_telling()
    end_what_hangs(stacks)

    def say(name: str, told: dict[str, object]) -> None:
        tell(**{name: told})

    of_task = task_from_json(json.loads(task))
    try:
        family = opened(of_task.target, of_task.fault, tells=of_task.shows)
        if of_task.replay is None:
            family.draw(of_task.seed, of_task.first, of_task.options, of_task.attention)
    except (ValueError, TargetUnavailableError) as wrong:
        say("refused", {"why": str(wrong), "usage": isinstance(wrong, ValueError)})
        return
    try:
        canary = family.canary()
    except BlindOracleError as blind:
        say("blind", {"why": str(blind)})
        return
    stories = Stories(family, of_task, say)
    told = stories.run()
    more = family.told(told.reached)
    say("end", {**told.as_json(), "version": family.version(), "canary": canary and canary.as_json(), **more})


if __name__ == "__main__":
    main(*sys.argv[1:])
