"""The model: a KV-cache core as an executable specification (core.md §§5-10).

`Model(shape).step(operation)` returns the outcome and the snapshot that a correct core has. Each operation is one
method below; the rules of the attention types are in `attention`, hits in `lookup`, the pool in `state`.
"""

import re
from collections import Counter
from collections.abc import Sequence

from . import arith, legal, lookup, ops
from .attention import NO_STEP, CoreError, Mamba, Step, demand, rules_for
from .decisions import looked_up
from .identity import Identities
from .ops import DONE, NULL, OPERATIONS, Done, Failed, Group, Operation, Outcome, Refused, Shape, Value
from .snapshot import Labels, Snapshot, event_value
from .state import Cleared, Event, Request
from .tables import Core, Plan, Policy

_METHODS = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name, kind in OPERATIONS.items()}
"""Kind of operation to the name of its method in `Model`: `TakeEvents` to `take_events`."""


class Refusal(Exception):
    """There is no room for the allocation right now. The message says which check found that."""


class Model(Core):
    """One core of the given shape, from its construction on."""

    def __init__(self, shape: Shape, policy: Policy | None = None) -> None:
        super().__init__(shape, policy or Policy())
        self.identities = Identities()
        self.labels = Labels()
        self.shown: list[Value] = []  # the events not drained yet that a snapshot has shown, as it shows them
        self.stats = [0] * 7
        self.last: tuple[Operation, Outcome] | None = None
        self.refusal = ""  # which check refused the operation before, if one did
        self.construction: Outcome = DONE
        try:
            demand(shape.num_blocks > 0)
            self.rules = rules_for(shape, reads_on=not self.ahead)
            lookup.check_sizes(shape)
            for rule in [rule for rule in self.rules if rule.sinks]:
                self.policy.set_aside(self, rule)
            self.policy.check(shape, self.rules)
            self.alignment = self.policy.alignment(shape, self.rules)
            self.policy.chain(self)
        except CoreError as error:
            self.construction = Failed(str(error))

    @property
    def just_looked_up(self) -> str | None:
        """The request of the last operation if that was a lookup: its hit may be used now."""
        return self.last[0].request if self.last and isinstance(self.last[0], ops.Lookup) else None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation. Returns its outcome and what can be observed afterwards."""
        return self.apply(operation), self.snapshot()

    def apply(self, operation: Operation) -> Outcome:
        """Apply one operation. Returns its outcome."""
        self.refusal, self.copied, self.offered = "", (), ()
        self.state.metrics.now += type(operation) is not ops.Landed  # which is no call
        outcome = Failed(error) if (error := legal.error_of(self, operation)) else self.carry_out(operation)
        if type(operation) in (ops.Allocate, ops.AllocateBatch) and type(outcome) is Done:
            self.policy.finish(self)
        self.last = (operation, outcome)
        self.offered += self.policy.reused(self) if self.policy.reused is not None else ()
        return outcome

    def carry_out(self, operation: Operation) -> Outcome:
        """Do it, whatever its preconditions are. Returns the outcome."""
        try:
            value = getattr(self, _METHODS[type(operation)])(operation)
            outcome: Outcome = DONE if value is None else Done(value)
        except Refusal as refusal:
            self.refusal = str(refusal)
            outcome = Refused()
        except CoreError as wrong:
            outcome = Failed(str(wrong))
        if not self.shape.events:
            self.state.events, self.shown = [], []
        return outcome

    def snapshot(self) -> Snapshot:
        """What can be observed of the core now."""
        state, shape = self.state, self.shape
        counts, earliest = state.references(), state.earliest()
        free = state.queue(counts)
        keys = [state.identity.get(block) for block in range(shape.num_blocks)]
        labels = [None if key is None else self.labels(key) for key in keys]  # of blocks first, then of events
        self.shown += [self.event_value(event) for event in state.events[len(self.shown) :]]
        return Snapshot(
            free=free,
            num_free=len(free),
            usage=arith.usage(len(free), shape.num_blocks),
            ref_cnt=counts,
            tables=[{request: table.copy() for request, table in tables.items() if table} for tables in state.tables],
            registered=[registered.copy() for registered in self.registered],
            labels=labels,
            earliest=[None if key is None else earliest[key] for key in keys],
            num_identities=len(earliest),
            events=tuple(self.shown),
            new_block_ids=[ids.copy() for ids in self.new_block_ids],
            stats=self.shown_stats(),
        )

    # Requests.

    def submit(self, op: ops.Submit) -> Value:
        """A request arrives (core.md §3)."""
        self.requests[op.request] = request = Request(op, list(op.prompt))
        return self.name_content(request)

    def advance(self, op: ops.Advance) -> Value:
        """The allocated step has run."""
        request = self.requests[op.request]
        computed, request.scheduled = request.computed + request.scheduled - op.rejected, 0
        request.tokens += op.sampled
        request.compute(computed)
        return self.name_content(request)

    def reject(self, op: ops.Reject) -> None:
        """Drafts counted as computed are taken back."""
        request = self.requests[op.request]
        request.compute(request.computed - op.count)

    def landed(self, op: ops.Landed) -> None:
        """Nothing changes: which blocks a core may hand out does not depend on the device here (contract.md, S13)."""

    def name_content(self, request: Request) -> Value:
        """Give every hash block that has become full its identity. Returns how many are full now."""
        size, chain = self.shape.hash_block_size, request.chain.copy()
        covered = size + self.ahead
        for start in range(len(chain) * size, len(request.tokens) - covered + 1 if self.shape.caching else 0, size):
            keys = self.policy.content_keys(request.submit, start, start + covered)
            keys += self.policy.also_named(self, request, start + size) if self.policy.also_named else ()
            chain.append(self.identities(chain[-1] if chain else None, request.tokens[start : start + covered], keys))
        request.chain = chain
        return len(chain)

    # Lookup and allocation.

    def lookup(self, op: ops.Lookup) -> Value:
        """The longest hit (core.md §10)."""
        request, tokens = self.requests[op.request], 0
        blocks: list[list[int]] = [[] for _ in self.rules]
        request.limit, request.lags = len(request.tokens) - 1 if op.limit is None else op.limit, False
        if self.shape.caching and not request.submit.skip_lookup:
            demand(all(rule.cacheable for rule in self.rules), "NotImplementedError")
            demand(self.shape.parallel == 1 or all(rule.is_full for rule in self.rules))
            if op.for_connector and self.policy.connector_hit is not None:
                tokens, blocks, request.lags = self.policy.connector_hit(self, request)
            else:
                tokens, blocks = self.policy.hit(self, request)
            looked_up(self, request, tokens, blocks)
            if not self.policy.counts_admitted:
                self.count_lookup(request, tokens)
        request.hit = (tokens, blocks)
        self.offered = (request.lags,) if op.for_connector else ()
        return tokens, tuple(tuple(row) for row in blocks)

    def count_lookup(self, request: Request, hit: int) -> None:
        """A request was looked up, and a hit of so many tokens found."""
        for place, amount in enumerate((1, len(request.tokens), hit), 4 if request.preemptions else 1):
            self.stats[place] += amount

    def allocate(self, op: ops.Allocate) -> Value:
        """`allocate_slots`, step by step as core.md §10 numbers them."""
        request, max_len, groups = self.requests[op.request], self.shape.max_model_len, range(len(self.rules))
        hit_tokens, hit = request.hit if op.hit and request.hit else (0, [[] for _ in groups])
        if (whole := self.shape.taken(op, hit_tokens)) < hit_tokens:
            for rule, row in zip(self.rules, hit, strict=True):
                demand(len(row) >= whole // rule.b or isinstance(rule, Mamba) or rule.scratch)
            hit_tokens, hit = whole, [row[: whole // rule.b] for rule, row in zip(self.rules, hit, strict=True)]
        local = request.computed + hit_tokens
        total = min(local + op.external, max_len)
        main = total + op.new_tokens
        kept = min(self.policy.settled(request, total), total - op.in_flight)
        margin = self.policy.margin(self, op)
        plan = Plan(op, hit, total, kept, main, min(main + op.lookahead, max_len), local, margin)
        if op.gate and not self.policy.admits(self, plan):
            raise Refusal("refused by gate")
        for group in groups:
            self.policy.null_skipped(self, group, op.request, kept)
        counts = self.state.references()
        predicted, free = self.predicted(plan, counts), counts.count(0) - 1
        rooms = {"free count": free, "reservation": free - op.reserved, "watermark": free - op.reserved - plan.margin}
        for by, room in rooms.items():
            if predicted > room:
                raise Refusal(f"refused by {by}")
        if any(hit) or op.external > 0:
            self.policy.attach(self, plan)
        new = [self.policy.extend(self, group, plan) for group in groups]
        drafts = max(0, main - max(total + 1, len(request.tokens)))  # the first token of a step is none
        request.written = request.written.then(Step(total, main, drafts), loaded=op.external > 0)
        if self.shape.caching and not op.delay:
            self.register(op.request, min(main, len(request.tokens)))
        request.compute(local + op.external)
        request.scheduled, request.arriving, request.runs = op.new_tokens, op.external if op.delay else 0, not op.delay
        if self.policy.counts_admitted and op.hit and self.shape.caching and not request.submit.skip_lookup:
            self.count_lookup(request, hit_tokens)
        return tuple(new)

    def allocate_batch(self, op: ops.AllocateBatch) -> Value:
        """One allocation after the other, all for one step; a refusal holds up no other."""
        return tuple([getattr(self.carry_out(one), "value", None) for one in op.allocations])

    def arrive(self, op: ops.Arrive) -> None:
        """External tokens have arrived, but for the missing ones: register them. The last of a prompt is recomputed."""
        request = self.requests[op.request]
        request.computed, request.arriving = request.computed - op.missing, 0
        if self.shape.caching:
            self.register(op.request, request.computed)
        if op.missing:
            self.policy.zero_again(self, op.request)
        request.compute(request.computed - (request.computed == len(request.tokens)))

    # Giving blocks back.

    def free(self, op: ops.Free) -> Value:
        """The request gives its blocks back and is forgotten; nothing happens for an unknown one (S12)."""
        self.policy.last_offer(self, op.request)
        kept = [block for tables in self.state.tables for block in tables.get(op.request, ()) if op.keep and block]
        self.state.outside += kept
        self.policy.give_back(self, op.request)
        self.requests.pop(op.request, None)
        return tuple(kept) if op.keep else None

    def preempt(self, op: ops.Preempt) -> None:
        """The request gives its blocks back and will start again."""
        self.policy.give_back(self, op.request)
        request = self.requests[op.request]
        request.compute(0)
        request.scheduled, request.arriving, request.runs, request.written = 0, 0, False, NO_STEP
        request.preemptions += 1

    def remove_skipped(self, op: ops.RemoveSkipped) -> None:
        """In every group, set entries to null that no query behind the settled tokens (the scheduler's word) reads."""
        if request := self.requests.get(op.request):
            for group in range(len(self.rules)):
                self.policy.null_skipped(self, group, op.request, self.policy.surely(request))

    # The prefix cache as a whole.

    def evict(self, op: ops.Evict) -> None:
        """The blocks lose their identity, in use or not."""
        for block in set(op.blocks):
            self.state.forget(block)
            self.state.metrics.evicted(block)

    def reset(self, op: ops.Reset) -> Value:
        """Forget every identity, unless a block is in use."""
        if self.state.num_free() != self.shape.num_blocks - 1:
            return False
        self.state.forget_all()
        self.state.metrics.reset()
        self.state.events.append(Cleared())
        self.stats[0] = 1
        return True

    def step_start(self, op: ops.StepStart) -> None:
        """A scheduler step begins: what was registered in the last one may be used."""
        self.registered_this_step.clear()

    # Observers.

    def common_prefix(self, op: ops.CommonPrefix) -> Value:
        """Leading blocks that all tables hold, by references (vllm-project/vllm#23130, vllm-project/vllm#55227)."""
        counts = self.state.references()
        return tuple(self.policy.shared_prefix(self, group, op.request, counts) for group in range(len(self.rules)))

    def read_table(self, op: ops.ReadTable) -> Value:
        """The block table in every group; empty for an unknown request."""
        self.offered = self.policy.read(self, op.request) if self.policy.read is not None else ()
        return tuple(tuple(tables.get(op.request, ())) for tables in self.state.tables)

    def take_events(self, op: ops.TakeEvents) -> Value:
        """Events since the last call, each with its group's kind and window."""
        events = tuple(self.event_value(event, self.shape.groups) for event in self.state.events)
        self.state.events, self.shown = [], []
        return events

    def event_value(self, event: Event, groups: Sequence[Group] = ()) -> Value:
        """What is shown of an event, with its kind and window if there are groups."""
        sizes = [rule.b for rule in self.rules] if self.shape.event_digests and self.policy.digests_by_size else ()
        return event_value(event, self.labels, groups, sizes)

    def take_new_block_ids(self, op: ops.TakeNewBlockIds) -> Value:
        """Ids of blocks handed to full-attention groups since the last call."""
        ids = tuple(block for row in self.new_block_ids for block in row)
        self.new_block_ids = [[] for _ in self.shape.groups]
        return ids

    def take_stats(self, op: ops.TakeStats) -> Value:
        """Requests, queried and hit tokens since the last call, of preempted ones apart; and of followed blocks."""
        counted, self.stats = self.stats, [0] * 7
        stats = (bool(counted[0]), *counted[1:]) if self.shape.stats else None
        return (stats, self.state.metrics.drain()) if self.shape.sampling else stats

    def shown_stats(self) -> tuple[Value, ...] | None:
        """What was not drained yet; with sampling, also the blocks that are followed."""
        stats, metrics = tuple(self.stats) if self.shape.stats else None, self.state.metrics
        return (stats, metrics.followed(), tuple(metrics.gone)) if self.shape.sampling else stats

    # Holders outside the tables.

    def take(self, op: ops.Take) -> Value:
        """An outside holder takes blocks from the pool."""
        blocks = self.state.take(op.count)
        self.state.outside += blocks
        return tuple(blocks)

    def touch(self, op: ops.Touch) -> None:
        """One more reference each."""
        self.state.metrics.touched(op.blocks)
        self.state.outside += (block for block in op.blocks if block != NULL)

    def release(self, op: ops.Release) -> None:
        """An outside holder gives references back. ValueError, without any change, if it has fewer."""
        blocks = [block for block in op.blocks if block != NULL]
        demand(not Counter(blocks) - Counter(self.state.outside), "ValueError")
        for block in blocks:
            self.state.outside.remove(block)
        if op.watched and self.policy.watch is not None:
            self.policy.watch(self, blocks)
        else:
            self.policy.let_go(self, None, blocks, op.prepend)
