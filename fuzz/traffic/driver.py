"""Drives a run with the requests of a log: they arrive at their times, and the scheduler of the liveness oracle serves
them.

Time is pretended: a step takes `STEP_S`, and `TOKEN_S` for each token that it computes. While nobody is there to be
served the clock goes on to the next arrival; while `WAITING` requests wait, nobody else comes in.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...model.ops import (
    Advance,
    Allocate,
    Done,
    Group,
    Kind,
    Lookup,
    Operation,
    Preempt,
    Shape,
    StepStart,
    Submit,
    TakeNewBlockIds,
    TakeStats,
)
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import LIVENESS
from ..kinds import KINDS
from ..oracles.liveness.bounds import Bounds
from ..oracles.liveness.rules import Excused, Violated, Watch
from ..oracles.liveness.scheduler import Scheduler, Stopped
from ..runs.open_run import usable
from ..runs.run import Run
from .logs import Log, Logged

STEP_S, TOKEN_S = 0.02, 0.0001
"""What a step takes, and each token that it computes: about what a large model takes on one device."""
WAITING = 64
"""Most requests that wait."""
MARGIN = 1.05
"""Without a number of blocks: the pool has room for so many times the longest request. It evicts all the time,
and preempts now and then."""
OUTPUT = 1 << 40
"""Tokens that are sampled count from here, a number for each request: nobody else has them."""


@dataclass(frozen=True)
class TrafficSetting:
    """The core that serves a log, and how it is served."""

    kinds: tuple[Kind, ...] = ("full",)
    block_size: int = 16
    blocks: int | None = None
    """Of the pool, besides the null block; None for `MARGIN` times what the longest request needs."""
    running: int = 16
    """Most requests that run at once."""
    budget: int = 8_192
    """Tokens of a step."""
    stride: int = 1
    """Tokens that a request samples in a step."""
    longest: int | None = None
    """Tokens of the longest request that the core is made for; None for the longest of the log."""
    divisor: int = 1
    """By which the lengths of the log were divided; windows, chunks and the budget are, too."""

    def shape(self, longest: int) -> Shape:
        """The core, for requests of at most so many tokens."""
        groups = tuple(self._group(kind, number) for number, kind in enumerate(self.kinds))
        budget = max(self.budget // self.divisor, self.block_size)
        shape = Shape(groups, 2, longest + 1, self.block_size, self.block_size, budget, stats=True)
        sinks = sum(group.sink_len // self.block_size for group in groups)
        blocks = self.blocks or int(Bounds(shape).most(longest) * MARGIN) + sinks
        return replace(shape, num_blocks=blocks + 1)

    def _group(self, kind: Kind, number: int) -> Group:
        """A group of this kind; no two have equal specs."""
        record = KINDS[kind]
        return replace(record.usual(self.block_size, max(1, record.reach // self.divisor)), num_heads=number + 1)


@dataclass
class ServedTraffic:
    """What became of the requests of a log."""

    arrived: int = 0
    turned_away: int = 0
    """Of these: neither sure to fit into the pool nor sure not to, or too long for it."""
    admitted: int = 0
    """Requests, each once."""
    asked: int = 0
    """Tokens of their prompts."""
    hit: int = 0
    """Tokens of these that were found at the first admission."""
    preemptions: int = 0
    steps: int = 0
    operations: int = 0
    clock: float = 0.0
    """Seconds that were pretended."""

    @property
    def hit_ratio(self) -> float:
        """Of the tokens asked for, the share that was found."""
        return self.hit / self.asked if self.asked else 0.0


@dataclass(frozen=True)
class Objection:
    """What was found while a log was served."""

    finding: Finding
    trace: Trace
    """What replays it: the operations; for liveness a script of the requests so far."""
    newest: int
    """The number in the log of the request that arrived last."""


class Service:
    """One run over a log."""

    def __init__(self, run: Run, setting: TrafficSetting, log: Log) -> None:
        self.run, self.setting, self.log = run, setting, log
        self.served = ServedTraffic()
        self.shape = setting.shape(setting.longest or log.longest)
        self._script: list[Operation] = []
        self._looked: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # of the requests that were not admitted yet, the tokens of their prompts
        self._counted = 0

    def serve(self, on_step: Callable[[ServedTraffic], None] = lambda served: None) -> Objection | None:
        """Serve the whole log. Returns the first finding; None, too, if the core cannot be built, or does what its
        target is known for and cannot go on. `on_step` is told after each step how far it is."""
        finding = self.run.start(self.shape)
        if finding is not None or not self.run.built:
            return None if finding is None else Objection(finding, self.run.trace, 0)
        bounds = Bounds(self.shape, self.run.losses)
        scheduler = Scheduler(
            self.run, bounds, Watch(bounds, self.run.seen), max_running=self.setting.running, stride=self.setting.stride
        )
        try:
            self._play(scheduler, on_step)
            finding = self.run.finish()
        except Stopped as stopped:
            finding = stopped.finding
        except Excused:
            pass
        except Violated as violated:
            return self._violation(violated)
        finally:
            self._count()
        return None if finding is None else Objection(finding, self.run.trace, self.served.arrived - 1)

    def _play(self, scheduler: Scheduler, on_step: Callable[[ServedTraffic], None]) -> None:
        requests, served = self.log.requests, self.served
        while served.arrived < len(requests) or scheduler.live:
            if not scheduler.live and served.arrived < len(requests):
                served.clock = max(served.clock, requests[served.arrived].arrival)
            while (
                served.arrived < len(requests)
                and requests[served.arrived].arrival <= served.clock
                and len(scheduler.waiting) < WAITING
            ):
                self._arrive(scheduler, requests[served.arrived])
            self._script.append(StepStart())
            scheduler.step()
            self._drain()
            served.steps += 1
            served.clock += STEP_S + TOKEN_S * self._count()
            on_step(served)
        scheduler.end()

    def _drain(self) -> None:
        """Take what has piled up in the step, as a scheduler does at the end of each."""
        for operation in (TakeNewBlockIds(), TakeStats()):
            wanted = usable(self.run, operation)
            finding = None if wanted is None else self.run.step(wanted)
            if finding is not None or self.run.dead:
                raise Stopped(finding)

    def _arrive(self, scheduler: Scheduler, one: Logged) -> None:
        number = self.served.arrived
        self.served.arrived += 1
        submit = Submit(f"r{number}", self._prompt(one))
        outputs = (OUTPUT + number,) * one.output
        self._script += [submit, Advance(submit.request, outputs)]
        waiting = len(scheduler.waiting)
        scheduler.arrive(submit, outputs)
        if len(scheduler.waiting) == waiting:
            self.served.turned_away += 1
        else:
            self._asked[submit.request] = one.prompt

    def _prompt(self, one: Logged) -> tuple[int, ...]:
        """The tokens of a prompt: each number of its content, `Log.unit` times."""
        unit = self.log.unit
        return tuple(number for number in one.content for _ in range(unit))[: one.prompt]

    def _count(self) -> int:
        """Count what the operations came to that were not counted yet. Returns how many tokens they compute."""
        run, served, computed = self.run, self.served, 0
        served.operations = len(run.operations)
        new = slice(self._counted, len(run.outcomes))
        for operation, outcome in zip(run.operations[new], run.outcomes[new], strict=True):
            match operation, outcome:
                case Lookup(name), Done((int(tokens), _)):
                    self._looked[name] = tokens
                case Allocate(name), Done():
                    computed += operation.new_tokens
                    if name in self._asked:
                        served.admitted += 1
                        served.asked += self._asked.pop(name)
                        served.hit += self._looked[name] if operation.hit else 0
                case Preempt(), _:
                    served.preemptions += 1
        self._counted = new.stop
        return computed

    def _violation(self, violated: Violated) -> Objection:
        """What liveness objects to, with a script of the requests so far."""
        script = tuple(self._script)
        step = next(
            index
            for index, operation in enumerate(script)
            if isinstance(operation, Submit) and operation.request == violated.request
        )
        last = self.run.outcomes[-1] if self.run.outcomes else None
        finding = Finding(violated.observable, script[step], step, None, last, detail=violated.detail, oracle=LIVENESS)
        return Objection(finding, Trace(self.shape, script), self.served.arrived - 1)
