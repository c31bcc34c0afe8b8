"""Runs that are led by coverage, held against runs that are drawn: the benchmark of detection with an engine more.

python benchmarks/coverage_guided.py --setting led-states --against usual --seeds 10 --seconds 2

Takes what `blockproof bench detection` takes, and knows further settings (`WAYS`); one process only.

A run is the list of choices that it was drawn from. What it reaches are marks: abstract states, or edges of the code.
The corpus has of each mark the run that got there in the fewest operations, and where. What is rare is gone back to:
the choices up to there are made again, and fresh ones behind. Runs in between are drawn afresh, as `random` draws all.
"""

import argparse
import gc
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from io import StringIO
from itertools import chain
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, TypeAlias, TypeVar

from blockproof import impl, model
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.detection.settings import SETTINGS, Setting
from blockproof.fuzz.engines.choice import ENGINES
from blockproof.fuzz.engines.plan import OnProgress, Plan
from blockproof.fuzz.engines.seeded import FULL_LOOK_EVERY, REFUSED_EVERY, SCRIPTS_EVERY, located, refused_run
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.findings.oracle_names import EVERY, LIVENESS
from blockproof.fuzz.oracles.liveness import judge
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.open_run import drawn_script, drawn_shape, open_run, usable, workload_of
from blockproof.fuzz.runs.run import Run
from blockproof.fuzz.targets.base import Target
from blockproof.model.ops import Operation
from written import processor, put_section

Mark: TypeAlias = tuple[Hashable, ...]
FOLDERS = tuple(str(Path(file).parent) for file in (model.__file__, impl.__file__) if file)
"""Where edges count: the model and our core, no oracle and no generator."""


class States:
    """Abstract states, read off the situations that a run counts: what an operation was, which of its fields are set,
    what it came to, and which situations it made; that behind the last one that made any; how often each situation came
    up, in classes that double. All but pairs by what kind of core it is."""

    def begin(self, attention: str) -> None:
        self._attention, self._total, self._counts = attention, 0, dict[str, int]()
        self._before: Hashable = None

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of the last operation."""
        reached, shape = run.situations, run.shape
        core = self._attention, shape.eagle, shape.retention_interval is not None, shape.caching
        operation, outcome = run.operations[-1], type(run.outcomes[-1]).__name__
        kind = (type(operation).__name__, *(name for name, value in vars(operation).items() if value))
        if (total := sum(reached.values())) == self._total:
            yield core, kind, outcome
            return
        changed = tuple(name for name, count in reached.items() if count != self._counts.get(name, 0))
        self._total, self._counts = total, dict(reached)
        what = (kind, outcome, changed)
        yield core, *what
        yield *what, self._before
        self._before = what
        for name in changed:
            yield core, name, reached[name].bit_length()

    def end(self) -> None:
        pass


class Edges:
    """Edges of model and core, by attention type: with the tracer of coverage.py, written in C; from Python 3.12 on
    with `sys.monitoring`, which tells lines, each once in a run."""

    def __init__(self) -> None:
        self._sets: dict[str, set[Any]] = {}
        self._stop = self._monitored() if sys.version_info >= (3, 12) else self._traced()

    def begin(self, attention: str) -> None:
        self._attention, self._known = attention, dict[str, set[Any]]()
        for edges in self._sets.values():
            edges.clear()
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of what is new in this run."""
        for file, edges in self._sets.items():
            known = self._known.setdefault(file, set())
            if len(edges) > len(known):
                for edge in sorted(edges - known):
                    yield self._attention, file, edge
                known |= edges

    def end(self) -> None:
        self._stop()

    def _traced(self) -> Any:
        from coverage.tracer import CFileDisposition, CTracer

        def wanted(file: str, _: object) -> CFileDisposition:
            one = CFileDisposition()
            one.original_filename = one.canonical_filename = one.source_filename = file
            one.trace, one.reason, one.file_tracer, one.has_dynamic_filename = file.startswith(FOLDERS), "", None, False
            return one

        tracer: Any = CTracer()
        tracer.data, tracer.trace_arcs, tracer.should_trace, tracer.should_trace_cache = self._sets, True, wanted, {}
        tracer.warn = tracer.lock_data = tracer.unlock_data = lambda *_: None
        tracer.file_tracers, tracer.concur_id_func, tracer.disable_plugin = {}, None, None  # all are needed
        tracer.should_start_context = tracer.switch_context = None
        tracer.start()
        return tracer.stop

    def _monitored(self) -> Any:
        if sys.version_info < (3, 12):
            raise RuntimeError("Python 3.11 has no sys.monitoring")
        tool, monitoring = 4, sys.monitoring

        def line(code: CodeType, number: int) -> object:
            if code.co_filename.startswith(FOLDERS):
                self._sets.setdefault(code.co_filename, set()).add(number)
            return monitoring.DISABLE

        def stop() -> None:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

        monitoring.use_tool_id(tool, __name__)
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)
        return stop


T = TypeVar("T")
AMONG = 8
"""Of so many marks the rarest one leads."""
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
    """What is to be run next; `operations`: how many, None for as many as any run has."""

    attention: str
    played: Sequence[float] = ()
    operations: int | None = None


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
            if self.times[mark] == 1:
                self._order.append(mark)
            if self.times[mark] == 1 or step < self.first[mark][1]:
                self.first[mark] = one, step

    def rare(self) -> tuple[Input, int]:
        """The run to the rarest of a few marks, and its step; what was tried often counts as less rare."""
        few = [self._order[int(self._random.random() * len(self._order))] for _ in range(AMONG)]
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
    """Some choices are replaced; the core stays."""
    made, begin, end = list(one.made), one.starts[0], len(one.made)
    for _ in range(random.choice((1, 2, 4, 8))):
        made[random.randrange(begin, end)] = random.random()
    return Wanted(one.attention, made)


@dataclass(frozen=True)
class Leading:
    """How runs are led."""

    reach: Sequence[type[States | Edges]]
    moves: Sequence[Move] = (go_on, same_core)
    """Each as likely as another."""
    fresh: int = 4
    """How many of 8 runs are drawn afresh."""
    after: int = 1
    """So many rounds over the attention types are drawn afresh before any run is led."""


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
        for part in led.reach:
            part.end()
    return summary


class Led:
    """The state of one engine."""

    def __init__(self, run: Run, plan: Plan, summary: Summary, leading: Leading) -> None:
        self.run, self.plan, self.summary, self.leading = run, plan, summary, leading
        self.random = Random(f"{plan.seed}/led")
        self.corpus, self.reach = Corpus(self.random), [part() for part in leading.reach]
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
                found = None if finding is None else located(run, finding)
        self.index += 1
        self.summary.add_run(wanted.attention, run, *(found or (None, None)))

    def wanted(self, fresh: Wanted) -> Wanted:
        """What is run: as drawn, or as the corpus leads."""
        leading, early = self.leading, self.index < self.leading.after * len(self.plan.attention)
        if early or not self.corpus.first or self.random.random() * 8 < leading.fresh:
            return fresh
        move = self.random.choice(leading.moves)
        return move(self.random, *self.corpus.rare(), self.plan.tuning.operations)

    def drive(self, wanted: Wanted) -> Finding | None:
        """One run; it goes into the corpus."""
        run, tuning = self.run, self.plan.tuning
        draw = RecordedDraw(Random(f"{self.plan.seed}/{self.index}"), wanted.played)
        for part in self.reach:
            part.begin(wanted.attention)
        shape = drawn_shape(run, draw, wanted.attention, tuning)
        if run.start(shape) is not None or not run.built:
            return run.found
        workload, marks = workload_of(run, draw, shape, chaos=self.plan.chaos, tuning=tuning), dict[Mark, int]()
        one = Input(wanted.attention, draw.made)
        for step in range(wanted.operations or tuning.operations):
            one.starts.append(len(draw.made))
            if self.ends(workload.next(run.scene)):
                return run.found
            for part in self.reach:
                for mark in part.look(run):
                    marks.setdefault(mark, step)
        self.corpus.add(one, marks)
        drain = workload.drain(run.scene) if tuning.drain else ()
        return run.found if any(map(self.ends, drain)) else run.finish()

    def ends(self, drawn: Operation) -> bool:
        """Apply an operation, as far as the target has it; True if the run ends there."""
        operation = usable(self.run, drawn)
        return operation is not None and (self.run.step(operation) is not None or self.run.dead)


PAGE = """# Led by coverage

Whether planted faults are found sooner by runs that are led by what earlier runs have reached. Each section
is what `python benchmarks/coverage_guided.py` printed, below its command. How to read the tables, and why
none of this is offered, is in [detection](../guide/detection.md#how-to-read-it); what the settings are, in
[benchmarks](../../benchmarks/README.md#led-by-coverage)."""
WAYS: dict[str, tuple[str, Leading]] = {
    "led-states": ("led by abstract states", Leading((States,))),
    "led-edges": ("led by edges of model and core", Leading((Edges,))),
    "led-both": ("led by abstract states and edges", Leading((States, Edges))),
    "led-late": ("abstract states, after three rounds over the attention types", Leading((States,), after=3)),
    "led-on": ("abstract states; runs only go on from them", Leading((States,), (go_on,))),
    "led-core": ("abstract states; only core and odds are kept", Leading((States,), (same_core,))),
    "led-vary": ("abstract states; choices are replaced", Leading((States,), (vary,))),
    "led-less": ("abstract states; 2 of 8 runs are led", Leading((States,), fresh=6)),
    "led-not": ("follows abstract states, but leads no run: what following costs", Leading((States,), fresh=8)),
    "led-not-edges": ("follows edges, but leads no run", Leading((Edges,), fresh=8)),
}


PASSED_ON = ("--setting", "--against", "--only", "--seeds", "--first-seed", "--seconds", "--operations", "--json")


def add_settings() -> None:
    """Let the benchmark know them. Trials of them are made again where this file has changed."""
    digest = sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    for name, (describe, leading) in WAYS.items():
        engine = f"{name}-{digest}"
        ENGINES[engine] = partial(run_led, leading=leading)
        SETTINGS[name] = Setting(name, describe, engine=engine)


def run() -> int:
    """Run the benchmark, and put what it says where it is wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--section", default="Against random")
    parser.add_argument("--write", type=Path)
    for option in PASSED_ON:
        parser.add_argument(option, action="append", default=[])
    asked = parser.parse_args()
    given = {option: getattr(asked, option[2:].replace("-", "_")) for option in PASSED_ON}
    words = [word for option, values in given.items() for value in values for word in (option, value)]
    add_settings()
    if asked.write is None:
        return main(["bench", "detection", *words])
    with redirect_stdout(StringIO()) as said:
        code = main(["bench", "detection", *words])
    where = f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {processor()}"
    put_section(asked.write, asked.section, PAGE, [*said.getvalue().splitlines(), "", where])
    return code


if __name__ == "__main__":
    sys.exit(run())
