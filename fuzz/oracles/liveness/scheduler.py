"""A small scheduler: first come, first served; chunked prefill; the most recent request is preempted.

It calls a KV-cache core as the schedulers of serving engines do, one step at a time. In each step the running requests
come first, in the order of arrival. If one of them is refused, the most recent running request is preempted and goes to
the front of the queue. If none was preempted, waiting requests are admitted, each after a lookup and through the
admission gate, until one is refused. Then the step runs: tokens are computed, drafts are accepted or rejected, tokens
are sampled, and finished requests are freed.

So running and waiting requests, taken together, are always in the order of arrival, and the oldest has the whole
budget. Operations that a target has no equivalent of are left out. For a target without an admission gate, properties
of the gate are not checked. For one that never preempts, nobody is admitted unless the most that all running requests
can hold fits the pool together, as schedulers of such engines do it: then none of them is ever refused.
"""

from collections import deque
from dataclasses import replace
from functools import partial

from ....model import arith
from ....model.ops import NULL, Advance, Allocate, Done, Failed, Free, Lookup, Operation, Preempt, StepStart, Submit
from ....model.state import Request
from ...findings.finding import Finding
from ...findings.oracle_names import LOCKSTEP
from ...findings.severity import Severity, severity
from ...targets.base import adapted, hidden_fields, lacking_in
from .bounds import Bounds
from .driven import DrivenRun
from .rules import Watch

MAX_RUNNING = 8
"""The most requests that run at once."""


class Stopped(Exception):
    """The run ends before the script does: another oracle has a finding, or the state is undefined (None)."""

    def __init__(self, finding: Finding | None) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Scheduler:
    """Schedules the requests of one run."""

    def __init__(
        self, run: DrivenRun, bounds: Bounds, watch: Watch, *, max_running: int = MAX_RUNNING, stride: int = 1
    ) -> None:
        """`stride`: where there are no drafts, so many tokens are sampled at once."""
        self.run, self.bounds, self.watch = run, bounds, watch
        self.max_running, self.stride = max_running, stride
        self.shape = bounds.shape
        lacks = lacking_in(run.target, bounds.shape)
        self._adapted = partial(adapted, lacks=lacks)
        self.gated = "Allocate.gate" not in lacks
        self.preempts = "Preempt" not in lacks
        self.drafts = bounds.drafts
        self.shows_tables = "tables" not in hidden_fields(run.target)
        self.waiting: deque[str] = deque()
        self.running: list[str] = []
        self.hopeless: list[str] = []
        """Requests that can never fit. In every step the gate is asked to admit them, and must refuse."""
        self.outputs: dict[str, list[int]] = {}
        """Per request: tokens that it will sample."""
        self.objection: Finding | None = None
        """What other oracles object to at the last operation, if liveness may object to something worse there."""

    @property
    def live(self) -> list[str]:
        """Unfinished requests that fit alone, the oldest first."""
        return [*self.running, *self.waiting]

    def arrive(self, submit: Submit, outputs: tuple[int, ...]) -> None:
        """A request arrives. It is ignored if it is neither certain to fit nor certain not to fit."""
        name, length = submit.request, len(submit.prompt)
        if self.bounds.hopeless(length) and self.gated:
            self._do(submit)
            self.hopeless.append(name)
        elif self.bounds.fits_alone(length, len(outputs)):
            self._do(submit)
            self.outputs[name] = list(outputs)
            self.waiting.append(name)
            self.watch.arrives(name, length, len(outputs))
        else:
            self.run.seen["liveness: turned away, neither sure to fit nor sure not to"] += 1

    def step(self) -> None:
        """One scheduler step."""
        self._do(StepStart())
        self.watch.step_begins(self.run.scene)
        counts: dict[str, int] = {}
        before = len(self.running)
        budget = self._schedule_running(counts)
        if len(self.running) == before:
            self._admit(counts, budget)
        for name in self.hopeless:
            self._ask_for_hopeless(name)
        for name, count in counts.items():
            self._compute(name, count)
        self.watch.step_ends(self.live, len(counts))

    def end(self) -> None:
        """All requests that fit are finished: ask once more for those that can never fit, now with an empty pool."""
        for name in self.hopeless:
            self._ask_for_hopeless(name)
            self._do(Free(name))

    def _schedule_running(self, counts: dict[str, int]) -> int:
        """Allocate the steps of running requests. Returns the rest of the token budget."""
        budget = self.shape.max_num_batched_tokens
        for name in self.running.copy():
            if not budget or name not in self.running:
                break
            count = self._tokens_for(name, self._request(name).computed, budget)
            if count and self._make_room(name, count):
                counts[name] = count
                budget -= count
        return budget

    def _make_room(self, name: str, count: int) -> bool:
        """Allocate the step of a running request, preempting the most recent ones; False if it was preempted itself."""
        while not self._allocate(Allocate(name, count, lookahead=self.drafts)):
            self.watch.running_refused(name, self.running)
            victim = self.running.pop()
            own = self._own_blocks(victim)
            self._give_way(victim)
            if self.shows_tables:
                self.watch.preempted(self.run.scene, victim, own)
            self.waiting.appendleft(victim)
            if victim == name:
                return False
        return True

    def _give_way(self, victim: str) -> None:
        """A running request gives its blocks back and will start again, as a new one where nobody is preempted."""
        if self.preempts:
            self._do(Preempt(victim))
            return
        request = self._request(victim)
        again = replace(request.submit, prompt=tuple(request.tokens))
        self._do(Free(victim))
        self._do(again)

    def _may_run(self, name: str) -> bool:
        """True if this request may run beside those that do: nobody will have to give way, where nobody can."""
        return self.preempts or self.watch.fit_together([*self.running, name])

    def _admit(self, counts: dict[str, int], budget: int) -> None:
        """Admit waiting requests, in order, until one is refused."""
        no_hit: list[list[int]] = [[] for _ in self.shape.groups]
        while self.waiting and budget and len(self.running) < self.max_running:
            name = self.waiting[0]
            if not self._may_run(name):
                self.run.seen["liveness: waits, as nobody can be preempted for it"] += 1
                return
            request = self._request(name)
            self._do(Lookup(name))
            tokens, rows = request.hit or (0, no_hit)
            if tokens >= len(request.tokens):
                tokens, rows = 0, no_hit  # too long a hit is judged by the contract (S7); here it is just not used
            count = self._tokens_for(name, tokens, budget)
            free, shared = self._free(), self._held(rows)
            if not count:
                return
            if not self._start(name, count, hit=tokens > 0):
                free -= self.shape.watermark * bool(self.running)
                suspect = self.watch.waiting_refused(self.run.scene, name, rows, free)
                if suspect and self.shows_tables and self._start(name, self._tokens_for(name, 0, budget)):
                    self.watch.admitted_without_hit(name)
                return
            if self.gated and self.shows_tables:
                self.watch.admitted(name, len(request.tokens), tokens, free, shared)
            self.running.append(self.waiting.popleft())
            counts[name] = count
            budget -= count

    def _ask_for_hopeless(self, name: str) -> None:
        """Ask to admit a request that can never fit."""
        length = len(self._request(name).tokens)
        count = min(length, self.shape.max_num_batched_tokens)
        self.watch.hopeless_answered(name, length, self._start(name, count))

    def _start(self, name: str, count: int, *, hit: bool = False) -> bool:
        """Allocate the first step of a request, through the gate. False if it is refused."""
        encoder = self.bounds.encoder_tokens
        alone = self.shape.watermark > 0 and not self.running
        return self._allocate(Allocate(name, count, hit, self.drafts, encoder_tokens=encoder, gate=True, alone=alone))

    def _allocate(self, step: Allocate) -> bool:
        """Allocate a step of a request. False if it is refused."""
        done = self._do(step)
        if done:
            self.watch.takes(self.run.outcomes[-1])
        if done and self.shows_tables and step.request in self.watch.lengths:
            self.watch.holds(step.request, len(self._tables(step.request)))
        return done

    def _tokens_for(self, name: str, computed: int, budget: int) -> int:
        """Number of tokens in the next step, drafts included. A prompt is split at multiples of `Bounds.unit`."""
        request = self._request(name)
        known = len(request.tokens) - computed
        sampling = known == 1 and len(request.tokens) > len(request.submit.prompt)
        drafts = self.drafts if sampling else 0
        count = min(known + drafts, budget, self.shape.max_model_len - 1 - computed)
        if known == 1:
            return count
        unit, end = self.bounds.unit, computed + count
        last = arith.down(len(request.tokens), unit)
        if end < last or computed < last < end:
            end = arith.down(min(end, last), unit)
        return max(0, end - computed)

    def _compute(self, name: str, count: int) -> None:
        """Run the step of one request. How many drafts are accepted varies from step to step."""
        request, outputs = self._request(name), self.outputs[name]
        drafts = request.computed + count - len(request.tokens)
        if drafts < 0:
            self._do(Advance(name))
            return
        accepted = min(drafts, len(outputs) - 1, len(outputs) % (drafts + 1))
        count = accepted + 1 if drafts else self.stride
        sampled = tuple(outputs[:count])
        del outputs[:count]
        self._do(Advance(name, sampled, drafts - accepted))
        if not outputs:
            self._do(Free(name))
            self.running.remove(name)
            self.run.seen["liveness: request finished"] += 1

    def _request(self, name: str) -> Request:
        return self.run.scene.requests[name]

    def _tables(self, name: str) -> set[int]:
        """Blocks in the tables of a request, without the null block."""
        rows = (tables.get(name, ()) for tables in self.run.scene.state.tables)
        return {block for row in rows for block in row if block != NULL}

    def _in_use(self, but: str = "") -> set[int]:
        """Blocks in the tables of all requests except `but`, without the null block."""
        names = {name for tables in self.run.scene.state.tables for name in tables}
        return set().union(*(self._tables(name) for name in names if name != but))

    def _own_blocks(self, name: str) -> list[int]:
        """Blocks that only this request holds."""
        return sorted(self._tables(name) - self._in_use(but=name))

    def _free(self) -> int:
        """Number of blocks in no table: those that should be free, whatever the core shows."""
        return self.bounds.usable - len(self._in_use())

    def _held(self, rows: list[list[int]]) -> int:
        """Number of blocks of a hit that some request holds."""
        return len(self._in_use() & {block for row in rows for block in row})

    def _do(self, operation: Operation) -> bool:
        """Apply an operation; nothing happens if the target has no equivalent. False if it was refused or failed."""
        if self.objection is not None:
            raise Stopped(self.objection)
        wanted = self._adapted(operation)
        if wanted is None:
            return True
        finding = self.run.step(wanted)
        if finding is not None:
            # In lockstep the outcome that is watched here is the model's, and at nothing else can liveness object.
            if finding.oracle == LOCKSTEP or severity(finding) <= Severity.CRASH:
                raise Stopped(finding)
            self.objection = finding
        outcome = self.run.outcomes[-1]
        if isinstance(outcome, Failed) and isinstance(operation, Submit | Lookup | Allocate | Advance | Preempt | Free):
            self.watch.fails(operation.request, type(operation).__name__, outcome.error)
        if self.run.dead:
            raise Stopped(None)
        return isinstance(outcome, Done)
