"""An engine whose runs are led by what earlier runs have reached; `coverage_guided.py` holds it against `random`.

A run is the list of choices that it was drawn from. The corpus has, of each mark (`led_reach.py`), the run that got
there in the fewest operations, and where. What is rare is gone back to: the choices up to there are made again, and
fresh ones behind; or the run is varied. Runs in between are drawn afresh, as `random` draws all.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random
from typing import TypeAlias, TypeVar

from blockproof.fuzz.engines.plan import OnProgress, Plan
from blockproof.fuzz.engines.seeded import FULL_LOOK_EVERY, REFUSED_EVERY, SCRIPTS_EVERY, located, refused_run
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.findings.oracle_names import EVERY, LIVENESS
from blockproof.fuzz.oracles.liveness import judge
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.open_run import drawn_script, drawn_shape, open_run, usable, workload_of
from blockproof.fuzz.runs.run import Run
from blockproof.fuzz.targets.base import Target
from led_reach import Mark, Reach

T = TypeVar("T")
MOST = 4
BITS = 30
"""Of a number that is too large for one choice, so many are drawn at a time."""


class RecordedDraw:
    """Choices that were made before, then such from a source; all of them are kept, as numbers from 0 to below 1."""

    def __init__(self, source: Random, played: Iterable[float] = ()) -> None:
        self.made: list[float] = []
        self._next: Callable[[], float] = chain(played, iter(source.random, None)).__next__

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        size = high - low + 1
        self.made.append(one := self._next())
        if size < 1 << BITS:
            return low + int(one * size)
        number = int(one * (1 << BITS))
        for _ in range(size.bit_length() // BITS + 1):
            self.made.append(one := self._next())
            number = number << BITS | int(one * (1 << BITS))
        return low + number % size

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        self.made.append(one := self._next())
        return options[int(one * len(options))]


@dataclass
class Input:
    """A run of the corpus."""

    attention: str
    made: Sequence[float]
    """All choices."""
    starts: list[int] = field(default_factory=list)
    """How many choices were made before each operation; those before the first one are its core."""


@dataclass(frozen=True)
class Wanted:
    """What is to be run next."""

    attention: str
    played: Sequence[float] = ()
    operations: int | None = None
    """How many operations; None for as many as any run has."""


class Corpus:
    """Runs by what they have reached, and how many runs have reached it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.times: Counter[Mark] = Counter()
        self.tried: Counter[Mark] = Counter()
        self.first: dict[Mark, tuple[Input, int]] = {}
        """Where each was reached soonest: the run, and the step in it."""
        self._order: list[Mark] = []

    def add(self, one: Input, marks: Mapping[Mark, int]) -> None:
        """A run is over; `marks`: the step at which it got each."""
        for mark, step in marks.items():
            self.times[mark] += 1
            if mark not in self.first:
                self._order.append(mark)
                self.first[mark] = one, step
            elif step < self.first[mark][1]:
                self.first[mark] = one, step

    def rare(self, among: int) -> tuple[Input, int]:
        """The run to the rarest of so many marks, and its step; what was tried often counts as less rare."""
        few = [self._order[int(self._random.random() * len(self._order))] for _ in range(among)]
        mark = min(few, key=lambda one: self.times[one] + self.tried[one])
        self.tried[mark] += 1
        return self.first[mark]


Move: TypeAlias = Callable[[Random, Input, int, int], Wanted]
"""From a run of the corpus, its step of interest, and how many operations any run has, to what is run next."""


def go_on(random: Random, one: Input, step: int, operations: int) -> Wanted:
    """The same up to the step, then afresh; at least for half a run."""
    begin = one.starts[step + 1] if step + 1 < len(one.starts) else len(one.made)
    return Wanted(one.attention, one.made[:begin], max(operations, step + 1 + operations // 2))


def same_core(random: Random, one: Input, step: int, operations: int) -> Wanted:
    """The same core and the same odds, other operations."""
    return Wanted(one.attention, one.made[: one.starts[0]])


def vary(random: Random, one: Input, step: int, operations: int) -> Wanted:
    """Some choices are replaced, up to the step or anywhere."""
    made, begin = list(one.made), one.starts[0]
    end = one.starts[step + 1] if step + 1 < len(one.starts) and random.random() < 0.5 else len(made)
    for _ in range(random.choice((1, 2, 4, 8))):
        made[random.randrange(begin, end)] = random.random()
    return Wanted(one.attention, made)


def leave_out(random: Random, one: Input, step: int, operations: int) -> Wanted:
    """Some operations in a row are left out, or come twice."""
    first = random.randrange(len(one.starts))
    last = min(first + random.choice((1, 2, 4, 16)), len(one.starts) - 1)
    begin, end = one.starts[first], one.starts[last]
    played = [*one.made[:begin], *one.made[end:]] if random.random() < 0.5 else [*one.made[:end], *one.made[begin:]]
    return Wanted(one.attention, played)


@dataclass(frozen=True)
class Leading:
    """How runs are led."""

    reach: Callable[[], Reach]
    moves: Sequence[Move] = (go_on, go_on, same_core, vary, leave_out)
    """Each as likely as another."""
    fresh: int = 4
    """How many of 8 runs are drawn afresh."""
    among: int = 8
    """Of so many marks the rarest one leads."""
    patience: int = 0
    """If there is one: a run ends once so many operations have brought no new mark, and else goes on, `MOST` times as
    long as usual."""


def run_led(
    target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None, *, leading: Leading
) -> Summary:
    """As `run_random`, but led. Ends with the first finding. The same seed makes the same runs."""
    judging = replace(plan.judging(), full_look_every=FULL_LOOK_EVERY)
    summary.canary = plan.tried(target, judging)
    run, start = open_run(target, judging), time.monotonic()
    led = Led(run, plan, summary, leading)
    gc.freeze()
    try:
        while summary.finding is None and not plan.is_over(summary):
            led.one_run()
            summary.seconds = time.monotonic() - start
            if on_progress is not None:
                on_progress(summary)
    finally:
        gc.unfreeze()
        led.reach.end()
    return summary


class Led:
    """The state of one engine."""

    def __init__(self, run: Run, plan: Plan, summary: Summary, leading: Leading) -> None:
        self.run, self.plan, self.summary, self.leading = run, plan, summary, leading
        self.random = Random(f"{plan.seed}/led")
        self.corpus, self.reach = Corpus(self.random), leading.reach()
        self.index = 0
        self.alone = {*plan.oracles}.intersection(EVERY) == {LIVENESS}

    def one_run(self) -> None:
        """The next run, and what comes of it."""
        plan, run = self.plan, self.run
        turn, place = divmod(self.index, len(plan.attention))
        draw, wanted = RecordedDraw(Random(f"{plan.seed}/{self.index}")), Wanted(plan.attention[place])
        if LIVENESS in plan.oracles and (self.alone or turn % SCRIPTS_EVERY == SCRIPTS_EVERY - 1):
            found = judge(run, drawn_script(run, draw, wanted.attention))
        else:
            found = None if self.index % REFUSED_EVERY else refused_run(run, plan, self.index, self.summary)
            if found is None:
                wanted = self.wanted(wanted)
                finding = self.drive(wanted)
                found = finding and located(run, finding)
        self.index += 1
        self.summary.add_run(wanted.attention, run, *(found or (None, None)))

    def wanted(self, fresh: Wanted) -> Wanted:
        """What is run: as drawn, or as the corpus leads."""
        leading = self.leading
        if not self.corpus.first or self.random.random() * 8 < leading.fresh:
            return fresh
        move = self.random.choice(leading.moves)
        return move(self.random, *self.corpus.rare(leading.among), self.plan.tuning.operations)

    def drive(self, wanted: Wanted) -> Finding | None:
        """One run; it goes into the corpus."""
        run, tuning, reach = self.run, self.plan.tuning, self.reach
        draw = RecordedDraw(Random(f"{self.plan.seed}/{self.index}"), wanted.played)
        reach.begin(wanted.attention)
        shape = drawn_shape(run, draw, wanted.attention, tuning)
        finding = run.start(shape)
        if finding is not None or not run.built:
            return finding
        workload, marks = workload_of(run, draw, shape, chaos=self.plan.chaos, tuning=tuning), dict[Mark, int]()
        one = Input(wanted.attention, draw.made)
        patience, last_new = self.leading.patience, 0
        for step in range((wanted.operations or tuning.operations) * (MOST if patience else 1)):
            one.starts.append(len(draw.made))
            operation = usable(run, workload.next(run.scene))
            finding = None if operation is None else run.step(operation)
            if finding is not None or run.dead:
                return finding
            if operation is not None:
                for mark in reach.look(run):
                    if mark not in marks:
                        marks[mark] = step
                        if mark not in self.corpus.first:
                            last_new = step
            if patience and step - last_new > patience:
                break
        self.corpus.add(one, marks)
        for last in workload.drain(run.scene) if tuning.drain else ():
            operation = usable(run, last)
            finding = None if operation is None else run.step(operation)
            if finding is not None or run.dead:
                return finding
        return run.finish()
