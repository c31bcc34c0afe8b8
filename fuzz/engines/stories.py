"""Many stories through a release's own scheduler: judged, counted, shrunk and named. Runs in the release's interpreter.

`python -m blockproof.fuzz.engines.stories MODULE TASK`: TASK is the JSON of a `StoryTask`, MODULE the family's
(`Family.stories`). Each line of the output is one JSON object with `found`, `progress`, `so_far`, `blind` or `end` in
it.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from ..findings.oracle_names import CONTRACT
from ..reports.history import History, Sample
from ..reports.progress import Pace
from ..runs.canary import BlindOracleError
from ..runs.scheduler_story import StoryFinding, StoryRun
from ..runs.story_canary import check_judges
from ..traces.reducer import Limits, Reducer

MOST_STEPS = 3000
"""Of one story; nearly all end long before."""
SHRUNK_OF_A_KIND = 2
"""Findings that agree in judge, rule and engine are shrunk so often; the others are only counted."""
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
    connector: str | None = None
    """The only connector; all of them if None, none if empty."""
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

    def now(self) -> Sample:
        """What they have come to so far."""
        return Sample(self.seconds, self.steps, self.reached["requests"], self.reached["hits"])

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        times = list(self.first.values())
        return {**vars(self), "history": self.history.as_json(self.now(), times)}


class _StoryReducer(Reducer[Any, StoryFinding]):
    """Looks for a smaller story with a finding of the same kind."""

    def __init__(self, family: Any, story: Any, finding: StoryFinding, fault: str, limits: Limits) -> None:
        super().__init__(story, finding, limits)
        self._family, self._fault = family, fault

    def search(self) -> None:
        """Until no proposal shows it."""
        self.exhaust(self._family.smaller)

    def shows(self, candidate: Any) -> tuple[Any, StoryFinding] | None:
        """The candidate, if its engine can be built and the same judge objects to the same."""
        try:
            run = StoryRun(self._family.engine(candidate, self._fault))
        except Exception:
            return None
        found = run.run(MOST_STEPS)
        again = [one for one in found if one.kind == self.finding.kind]
        return (candidate, again[0]) if again else None

    def is_smaller(self, case: Any) -> bool:
        """By the story's own measure; a plainer one of the same size counts, and no proposal is made twice."""
        return bool(case.size <= self.best.size and case != self.best)


class Stories:
    """Runs stories one after the other."""

    def __init__(self, family: Any, task: StoryTask, say: Callable[[str, dict[str, object]], None]) -> None:
        self.family, self.task, self.told = family, task, StoriesDone()
        self._say = say
        self._names: dict[tuple[object, ...], list[str]] = {}
        self._shrinking = 0.0

    def run(self) -> StoriesDone:
        """All stories of the task."""
        task, started, spoken, pace = self.task, time.monotonic(), time.monotonic(), Pace()
        cpu = time.process_time()
        for number, story in self._drawn():
            self._one(number, story)
            self.told.seconds = time.monotonic() - started
            self.told.cpu_seconds = time.process_time() - cpu
            self.told.history.reach(self.told.reached, self.told.seconds)
            self.told.history.see(self.told.now())
            self.told.first |= {name: self.told.seconds for name in self.told.counted if name not in self.told.first}
            if time.monotonic() - spoken > PROGRESS_S:
                spoken = time.monotonic()
                self._say("progress", {"stories": self.told.stories, "steps": self.told.steps})
            if task.tells and pace.due:
                with pace.telling():
                    self._say("so_far", self.told.as_json())
            if task.steps is not None and self.told.steps >= task.steps:
                break
            if task.seconds is not None and self.told.seconds >= task.seconds:
                break
        return self.told

    def _drawn(self) -> Iterable[tuple[int, Any]]:
        if self.task.replay is not None:
            yield 0, self.family.story_from_json(self.task.replay)
            return
        number = self.task.first
        while True:
            yield number, self.family.draw(self.task.seed, number, self.task.connector, self.task.attention)
            number += 1

    def _one(self, number: int, story: Any) -> None:
        told = self.told
        told.stories += 1
        try:
            run = StoryRun(self.family.engine(story, self.task.fault))
        except Exception as error:
            told.not_built[f"{type(error).__name__}: {str(error)[:120]}"] += 1
            return
        found = run.run(MOST_STEPS)
        reached = run.reached
        told.steps += reached["steps"]
        told.reached += reached
        of_kind = told.by_kind.setdefault(story.kinds, Counter())
        plain = ("steps", "preemptions", "hits", "evictions", "loads", "steps with drafts rejected")
        of_kind.update({"stories": 1, **{name: reached[name] for name in plain}})
        for finding in found:
            self._found(number, story, finding)

    def _found(self, number: int, story: Any, finding: StoryFinding) -> None:
        """Shrink, name and tell a finding if it is one of the first of its kind; count it in any case."""
        setup = story.setup
        kind = (*finding.kind, story.kinds, setup.connector, setup.asynchronous, bool(setup.drafts), setup.shape.eagle)
        names = self._names.setdefault(kind, [])
        if len(names) >= SHRUNK_OF_A_KIND:
            self.told.counted[names[0]] += 1
            return
        limits = Limits(seconds=self.task.shrink_seconds)
        reducer = _StoryReducer(self.family, story, finding, self.task.fault, limits)
        reduced = reducer.run()
        smallest, shown = reducer.best, reduced.finding
        known = self._cause(shown, smallest)
        name = known or f"new: {shown.judge}: {shown.rule}"
        names.append(name)
        self.told.counted[name] += 1
        self._say(
            "found",
            {
                "name": name,
                "known": known,
                "judge": shown.judge,
                "rule": shown.rule,
                "what": shown.what,
                "step": shown.step,
                "seed": self.task.seed,
                "number": number,
                "tries": reduced.candidates,
                "complete": reduced.complete,
                "fault": self.task.fault,
                "story": self.family.story_to_json(smallest),
            },
        )

    def _cause(self, shown: StoryFinding, story: Any) -> str:
        """The first known cause without which the same is not found; empty if there is none. What was read wrong has
        many forms: where the device says it, it must say nothing any more."""
        for suspect in self.family.suspects(shown.judge, shown.rule, shown.what, story):
            try:
                run = StoryRun(self.family.engine_of(suspect, self.task.fault))
            except Exception:  # no such engine
                continue
            same = (one for one in run.run(MOST_STEPS) if one.judge == shown.judge)
            if all(shown.judge == CONTRACT and one.rule != shown.rule for one in same):
                return str(suspect.id)
        return ""


def task_from_json(raw: Any) -> StoryTask:
    """The task with these fields."""
    return replace(StoryTask(), **raw)


def main(module: str, task: str) -> None:
    """See above."""

    def say(name: str, told: dict[str, object]) -> None:
        print(json.dumps({name: told}), flush=True)

    family, of_task = import_module(module), task_from_json(json.loads(task))
    try:
        if of_task.replay is None:
            family.draw(of_task.seed, of_task.first, of_task.connector, of_task.attention)
    except ValueError as wrong:
        say("refused", {"why": str(wrong)})
        return
    try:
        canary = check_judges(family.wrong_reads)
    except BlindOracleError as blind:
        say("blind", {"why": str(blind)})
        return
    stories = Stories(family, of_task, say)
    told = stories.run()
    say("end", {**told.as_json(), "version": family.version(), "canary": canary and canary.as_json()})


if __name__ == "__main__":
    main(*sys.argv[1:])
