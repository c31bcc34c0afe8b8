"""A small scheduler: first come, first served; prompts in chunks; the most recent request gives way.

It does what schedulers of serving engines do with a KV-cache core, one step at a time, and nothing else. In each step
the running requests go first, in the order of their arrival; if one is refused, the most recent running one is
preempted and goes to the front of the queue. If nobody had to give way, waiting requests are admitted, each after a
lookup and through the full-sequence gate, until one is refused. Then the step runs: tokens are computed, drafts judged,
tokens sampled; who is finished is freed.

So running and waiting requests together always stand in the order of their arrival, and the oldest has the whole
budget. What a target has no equivalent of is left out; without a gate, what only the gate can show is not observed.
"""

from collections import deque
from functools import partial

from ....model import arith
from ....model.ops import NULL, Advance, Allocate, Done, Failed, Free, Lookup, Operation, Preempt, StepStart, Submit
from ....model.requests import Request
from ...findings.finding import Finding
from ...targets.base import adapted, hidden_fields, lacking
from .bounds import Bounds
from .driven import DrivenRun
from .rules import Watch

MAX_RUNNING = 8
"""Requests that run at once."""


class Stopped(Exception):
    """The run is over before the script: another oracle objects, or no rule says what follows."""

    def __init__(self, finding: Finding | None) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Scheduler:
    """Drives the core of one run."""

    def __init__(self, run: DrivenRun, bounds: Bounds, watch: Watch) -> None:
        self.run, self.bounds, self.watch = run, bounds, watch

        self.shape = bounds.shape
        lacks = lacking(run.target)
        self._adapted = partial(adapted, lacks=lacks)
        self.gated = "Allocate.gate" not in lacks
        self.drafts = bounds.drafts if "Advance.rejected" not in lacks else 0
        self.shows_tables = "tables" not in hidden_fields(run.target)
        self.waiting: deque[str] = deque()
        self.running: list[str] = []
        self.hopeless: list[str] = []
        """Requests that can never fit: the gate is asked about them in every step."""
        self.outputs: dict[str, list[int]] = {}
        """Tokens that each request is still going to sample."""

    @property
    def live(self) -> list[str]:
        """Unfinished requests that fit alone, the oldest first."""
        return [*self.running, *self.waiting]

    def arrive(self, submit: Submit, outputs: tuple[int, ...]) -> None:
        """A request arrives. One that neither fits for certain nor is hopeless for certain is turned away unseen."""
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
            self._ask_in_vain(name)
        for name, count in counts.items():
            self._compute(name, count)
        self.watch.step_ends(self.live, len(counts))

    def end(self) -> None:
        """Everybody who fits is finished: those who do not are asked about once more, with the pool empty."""
        for name in self.hopeless:
            self._ask_in_vain(name)
            self._do(Free(name))

    def _schedule_running(self, counts: dict[str, int]) -> int:
        """Running requests get their tokens. Returns what is left of the budget."""
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
        """Reserve room for a running request, at the cost of the most recent ones; False if it gave way itself."""
        while not self._do(Allocate(name, count, lookahead=self.drafts)):
            self.watch.running_refused(name, self.running)
            victim = self.running.pop()
            own = self._own_blocks(victim)
            self._do(Preempt(victim))
            if self.shows_tables:
                self.watch.preempted(self.run.scene, victim, own)
            self.waiting.appendleft(victim)
            if victim == name:
                return False
        return True

    def _admit(self, counts: dict[str, int], budget: int) -> None:
        """Waiting requests start, in order, until one has to wait."""
        no_hit: list[list[int]] = [[] for _ in self.shape.groups]
        while self.waiting and budget and len(self.running) < MAX_RUNNING:
            name = self.waiting[0]
            request = self._request(name)
            self._do(Lookup(name))
            tokens, rows = request.hit or (0, no_hit)
            if tokens >= len(request.tokens):
                tokens, rows = 0, no_hit  # such a hit is for the contract to judge (S7); here it must only not be used
            count = self._tokens_for(name, tokens, budget)
            free, shared = self._free(), self._held(rows)
            if not count:
                return
            if not self._start(name, count, hit=tokens > 0):
                suspect = self.watch.waiting_refused(self.run.scene, name, rows, free)
                if suspect and self._start(name, self._tokens_for(name, 0, budget)):
                    self.watch.held_back(name)
                return
            self.watch.deferred.discard(name)
            if self.gated and self.shows_tables:
                self.watch.admitted(name, len(request.tokens), tokens, free, shared)
            self.running.append(self.waiting.popleft())
            counts[name] = count
            budget -= count

    def _ask_in_vain(self, name: str) -> None:
        """Ask for a request that can never fit, without a hit: a hit would only make the gate count less (T16.hit)."""
        length = len(self._request(name).tokens)
        count = min(length, self.shape.max_num_batched_tokens)
        self.watch.hopeless_answered(name, length, self._start(name, count))

    def _start(self, name: str, count: int, *, hit: bool = False) -> bool:
        """Ask the gate, and for the first step's blocks."""
        return self._do(Allocate(name, count, hit=hit, encoder_tokens=self.bounds.encoder_tokens, gate=True))

    def _tokens_for(self, name: str, computed: int, budget: int) -> int:
        """Tokens that the next step computes, drafts included; a prompt is split at ends of blocks."""
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
        """The step runs. Of the drafts a number that changes from step to step is accepted."""
        request, outputs = self._request(name), self.outputs[name]
        drafts = request.computed + count - len(request.tokens)
        if drafts < 0:
            self._do(Advance(name))
            return
        accepted = min(drafts, len(outputs) - 1, len(outputs) % (drafts + 1))
        sampled = tuple(outputs[: accepted + 1])
        del outputs[: accepted + 1]
        self._do(Advance(name, sampled, drafts - accepted))
        if not outputs:
            self._do(Free(name))
            self.running.remove(name)

    def _request(self, name: str) -> Request:
        return self.run.scene.requests[name]

    def _tables(self, name: str) -> set[int]:
        """Real blocks in the tables of a request."""
        rows = (tables.get(name, ()) for tables in self.run.scene.state.tables)
        return {block for row in rows for block in row if block != NULL}

    def _in_use(self, but: str = "") -> set[int]:
        """Real blocks in the tables of all requests, of all others than `but`."""
        names = {name for tables in self.run.scene.state.tables for name in tables}
        return set().union(*(self._tables(name) for name in names if name != but))

    def _own_blocks(self, name: str) -> list[int]:
        """Blocks that only this request holds."""
        return sorted(self._tables(name) - self._in_use(but=name))

    def _free(self) -> int:
        """Blocks in nobody's table: what a core should have free, whatever it says."""
        return self.bounds.usable - len(self._in_use())

    def _held(self, rows: list[list[int]]) -> int:
        """Blocks of a hit that somebody holds."""
        return len(self._in_use() & {block for row in rows for block in row})

    def _do(self, operation: Operation) -> bool:
        """Apply an operation, or nothing if the target has no such; False if it was refused."""
        wanted = self._adapted(operation)
        if wanted is None:
            return True
        finding = self.run.step(wanted)
        if finding is not None:
            raise Stopped(finding)
        outcome = self.run.outcomes[-1]
        if isinstance(outcome, Failed) and isinstance(operation, Submit | Lookup | Allocate | Advance | Preempt | Free):
            self.watch.fails(operation.request, type(operation).__name__, outcome.error)
        if self.run.dead:
            raise Stopped(None)
        return isinstance(outcome, Done)
