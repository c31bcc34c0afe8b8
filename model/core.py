"""The model: a KV-cache core as an executable specification (core.md §§5-10).

`Model(shape).step(operation)` returns the outcome and the snapshot that a correct core has. Each operation is one
method below; the rules of the attention types are in `attention`, the pool is in `state`.
"""

import re
from collections import Counter
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from . import arith, ops
from .attention import CoreError, Mamba, Rule, demand, rule_for
from .identity import ExtraKey, Identities, extra_keys
from .lookup import Coordinator, Query
from .ops import FULL_FAMILY, NULL, OPERATIONS, SLIDING_FAMILY, Done, Failed, Operation, Outcome, Refused, Shape, Value
from .requests import Request
from .snapshot import Labels, Snapshot, event_value
from .state import Cleared, Key, State, Stored

BlockIds: TypeAlias = list[list[int]]  # per group
_METHODS = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name, kind in OPERATIONS.items()}
"""Kind of operation to the name of its method in `Model`: `TakeEvents` to `take_events`."""


class Refusal(Exception):
    """There is no room for the allocation right now. The message says which check found that."""


class Plan(NamedTuple):
    """The quantities of one allocation, in tokens (core.md §10)."""

    op: ops.Allocate
    hit: BlockIds  # blocks of the hit that is used
    local: int  # tokens computed or hit
    total: int  # the same with external tokens
    main: int  # the same with the tokens of the next step
    need: int  # the same with lookahead: tokens for which there must be room


class Model:
    """One core of the given shape, from its construction on."""

    coordinator_type = Coordinator
    dead = False  # true once a deviation (`fuzz.targets.deviations`) has left the state undefined; the run ends there
    undefined = False  # true if it was the last operation that did so: there is nothing to compare its result with

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.requests: dict[str, Request] = {}
        self.item_lengths: dict[str, int] = {}  # of the multimodal items seen, by identifier
        self.identities = Identities()
        self.labels = Labels()
        self.state = State(shape.num_blocks, len(shape.groups))
        self.reached = self.state.reached
        self.registered: list[dict[str, int]] = [{} for _ in shape.groups]
        """Per group: how many leading table entries of a request count as registered; its keys are the running ones."""
        self.registered_this_step: set[Key] = set()
        """Mamba states that were registered in this step: no request can continue from them yet (core.md §7)."""
        self.mamba_started: dict[tuple[int, str], int | None] = {}
        """Align mode: (group, request) with a running state, to the table index of the state before it."""
        self.new_block_ids: BlockIds = [[] for _ in shape.groups]
        self._shown: list[Value] = []  # the events not drained yet, as a snapshot shows them
        self.stats = [0] * 7
        self.last: tuple[Operation, Outcome] | None = None  # the operation before, with its outcome
        self.construction: Outcome = Done()
        try:
            self._construct()
        except CoreError as error:
            self.construction = Failed(str(error))

    @property
    def just_looked_up(self) -> str | None:
        """The request of the last operation if that was a lookup: its hit may be used now."""
        return self.last[0].request if self.last and isinstance(self.last[0], ops.Lookup) else None

    def _construct(self) -> None:
        shape = self.shape
        demand(shape.num_blocks > 0)
        self.rules = [self.rule(group) for group in range(len(shape.groups))]
        self.coordinator = self.coordinator_type(shape, self.rules)
        for rule in self.rules:
            if rule.group.kind == "sink":
                demand(rule.group.sink_len > 0 and rule.group.sink_len % rule.b == 0)
                self.state.sinks += self.state.take(rule.group.sink_len // rule.b)

    def rule(self, group: int) -> Rule:
        """The rule of a group."""
        return rule_for(self.shape.groups[group], self.shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation. Returns its outcome and the state afterwards."""
        outcome: Outcome
        try:
            outcome = Done(getattr(self, _METHODS[type(operation)])(operation))
        except Refusal as refusal:
            self.reached[str(refusal)] += 1
            outcome = Refused()
        except CoreError as error:
            outcome = Failed(str(error))
        if not self.shape.events:
            self._drop_events()
        self.last = (operation, outcome)
        return outcome, self.snapshot()

    def snapshot(self) -> Snapshot:
        """What can be observed of the core now."""
        state, shape = self.state, self.shape
        counts, earliest = state.references(), state.earliest()
        free = state.queue(counts)
        labels: list[int | None] = [None] * shape.num_blocks
        yields: list[int | None] = [None] * shape.num_blocks
        for block in sorted(state.identity):  # labels are given out in the order of the blocks
            key = state.identity[block]
            labels[block], yields[block] = self.labels(key), earliest[key]
        self._shown += [event_value(event, self.labels) for event in state.events[len(self._shown) :]]
        return Snapshot(
            free=free,
            num_free=len(free),
            usage=arith.usage(len(free), shape.num_blocks),
            ref_cnt=counts,
            tables=[{request: table.copy() for request, table in tables.items() if table} for tables in state.tables],
            registered=[registered.copy() for registered in self.registered],
            labels=labels,
            earliest=yields,
            num_identities=len(earliest),
            events=tuple(self._shown),
            new_block_ids=[ids.copy() for ids in self.new_block_ids],
            stats=tuple(self.stats) if shape.stats else None,
        )

    # Requests.

    def submit(self, op: ops.Submit) -> Value:
        """A request arrives (core.md §3)."""
        self.requests[op.request] = request = Request(op, list(op.prompt))
        self.item_lengths.update((item.identifier, item.length) for item in op.items)
        return self._name_content(request)

    def advance(self, op: ops.Advance) -> Value:
        """The allocated step has run."""
        request = self.requests[op.request]
        request.computed += request.scheduled - op.rejected
        request.scheduled = 0
        request.tokens += op.sampled
        self.reached["draft rejected"] += op.rejected > 0
        return self._name_content(request)

    def reject(self, op: ops.Reject) -> None:
        """Drafts counted as computed are taken back."""
        self.requests[op.request].computed -= op.count

    def _name_content(self, request: Request) -> Value:
        """Give every hash block that has become full its identity. Returns how many are full now."""
        size = self.shape.hash_block_size
        restart = len(request.chain) * size
        for start in range(restart, len(request.tokens) - size + 1 if self.shape.caching else 0, size):
            parent = request.chain[-1] if request.chain else None
            keys = self.content_keys(request, start, start + size, restart)
            request.chain.append(self.identities(parent, request.tokens[start : start + size], keys))
        return len(request.chain)

    def content_keys(self, request: Request, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Tagged extra keys of the tokens `start .. end - 1`. Only a deviation uses `restart`, the first token of the
        blocks that get their identity in this call."""
        return extra_keys(request.submit, start, end)

    # Lookup and allocation.

    def lookup(self, op: ops.Lookup) -> Value:
        """The longest hit of at most `num_tokens - 1` tokens: the last one is always recomputed (core.md §10, T13)."""
        request = self.requests[op.request]
        tokens, blocks = 0, [[] for _ in self.shape.groups]  # type: tuple[int, BlockIds]
        if self.shape.caching and not request.submit.skip_lookup:
            query = Query(request.chain, len(request.tokens) - 1, self.state.earliest())
            tokens, blocks = self.coordinator.longest_hit(query, self.reached)
            self.state.hit_before.update(block for row in blocks for block in row if block != NULL)
            first = 4 if request.preemptions else 1
            for offset, amount in enumerate((1, len(request.tokens), tokens)):
                self.stats[first + offset] += amount
        request.hit = (tokens, blocks)
        return tokens, tuple(tuple(row) for row in blocks)

    def allocate(self, op: ops.Allocate) -> Value:
        """`allocate_slots`, step by step as core.md §10 numbers them."""
        demand(min(op.new_tokens, op.external, op.lookahead, op.reserved, op.encoder_tokens) >= 0, "ValueError")
        demand(op.new_tokens + op.external > 0, "ValueError")
        request, max_len, groups = self.requests[op.request], self.shape.max_model_len, range(len(self.rules))
        hit_tokens, hit = request.hit if op.hit and request.hit else (0, [[] for _ in groups])
        local = request.computed + hit_tokens
        total = min(local + op.external, max_len)
        main = total + op.new_tokens
        plan = Plan(op, hit, local, total, main, need=min(main + op.lookahead, max_len))
        if op.gate:
            whole = min(len(request.tokens), max_len)
            if self.predicted(plan._replace(main=whole, need=whole), capped=True) > self.state.num_free():
                raise Refusal("refused by gate")
        for group in groups:
            self.null_skipped(group, op.request, total)
        predicted = self.predicted(plan, capped=False)
        if predicted > self.state.num_free() - op.reserved:
            fits = predicted <= self.state.num_free()
            raise Refusal("refused by reservation" if fits else "refused by free count")
        if any(hit) or op.external:
            self.attach_all(plan)
        new = [self.extend(group, plan) for group in groups]
        if self.shape.caching and not op.delay:
            self.register(op.request, min(main, len(request.tokens)))
        request.computed = local + op.external
        request.scheduled = op.new_tokens
        request.arriving = op.delay
        return tuple(new)

    def required(self, group: int, plan: Plan) -> int:
        """Table entries after the allocation; cross attention is sized by the encoder's tokens (core.md §9)."""
        is_cross = self.shape.groups[group].kind == "cross"
        return self.rules[group].required(plan.op.encoder_tokens if is_cross else plan.need)

    def predicted(self, plan: Plan, *, capped: bool) -> int:
        """Blocks that will leave the free queue, over all groups (T7)."""
        counts = self.state.references()
        return sum([self.predicted_in(group, plan, counts, capped) for group in range(len(self.rules))])

    def predicted_in(self, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
        """Blocks that will leave the free queue for one group (core.md §6, `get_num_blocks_to_allocate`)."""
        rule, name, hit = self.rules[group], plan.op.request, plan.hit[group]
        held = len(self.state.tables[group].get(name, ()))
        if isinstance(rule, Mamba):
            if any(self.state.identity.get(block) in self.registered_this_step for block in hit if block != NULL):
                self.reached["same-step refusal"] += 1
                return self.shape.num_blocks + 1
            if rule.align:
                arriving, entries = self.arriving_states(rule, plan, len(hit) + held)
                missing = rule.required(plan.main) - entries
                running = self.running_states(rule, missing, (group, name) in self.mamba_started)
                return _candidates(hit, counts) + arriving + running
        required = self.capped(rule, self.required(group, plan)) if capped else self.required(group, plan)
        if name in self.registered[group]:
            return arith.missing_blocks(required, held)
        skipped = rule.skipped(plan.total) // rule.b if rule.cacheable else 0
        touched = hit[max(0, skipped - held) :]
        return arith.missing_blocks(required, max(skipped, len(hit) + held)) + _candidates(touched, counts)

    def capped(self, rule: Rule, required: int) -> int:
        """The admission gate counts at most as many blocks as a request can hold at once (vllm-project/vllm#39734)."""
        cap = rule.cap()
        return required if cap is None else min(required, cap)

    def arriving_states(self, rule: Mamba, plan: Plan, entries: int) -> tuple[int, int]:
        """Align mode: number of blocks for states loaded from outside, and the table's length with them."""
        return (1, arith.cdiv(plan.total, rule.b)) if plan.op.external else (0, entries)

    def running_states(self, rule: Mamba, missing: int, started: bool) -> int:
        """Align mode: the first allocation takes one state and the speculative ones, a later one at most one."""
        return max(0, min(missing, 1 if started else 1 + rule.p))

    def attach_all(self, plan: Plan) -> None:
        """Attach the hits of all groups first, so that no block of a hit is taken for external tokens."""
        missing = [self.attach(group, plan) for group in range(len(self.rules))]
        for group, count in enumerate(missing):
            self.make_room(group, plan, count)

    def make_room(self, group: int, plan: Plan, count: int) -> None:
        """Add `count` blocks to the table, for external tokens."""
        if count:
            self.grow(group, self.state.tables[group][plan.op.request], count)

    def attach(self, group: int, plan: Plan) -> int:
        """The hit becomes the start of the table (`allocate_new_computed_blocks`).

        Returns how many blocks the external tokens still need.
        """
        name, hit, total, external = plan.op.request, plan.hit[group], plan.local + plan.op.external, plan.op.external
        if name in self.registered[group] or self.shape.groups[group].kind == "cross":
            return 0
        rule, tables = self.rules[group], self.state.tables[group]
        demand(not tables.get(name))
        skipped = max(0, rule.skipped(total) // rule.b)
        if skipped:
            hit = hit[skipped:]
            external = min(external, total - rule.skipped(total))
            self.reached["null entries made"] += 1
        demand(self.shape.caching or not any(hit))
        tables[name] = table = [NULL] * skipped + hit
        self.registered[group][name] = len(table)
        return arith.cdiv(total, rule.b) - len(table) if external else 0

    def extend(self, group: int, plan: Plan) -> tuple[int, ...]:
        """The table grows to cover the tokens. Returns the added entries (`allocate_new_blocks`)."""
        rule, name = self.rules[group], plan.op.request
        table = self.state.tables[group].setdefault(name, [])
        before = len(table)
        if isinstance(rule, Mamba) and rule.align:
            self._extend_states(group, name, table, rule, rule.required(plan.main))
        else:
            self.grow(group, table, arith.missing_blocks(self.required(group, plan), before))
        return tuple(table[before:])

    def grow(self, group: int, table: list[int], count: int) -> None:
        """Add `count` blocks from the front of the free queue to the table."""
        new = self.state.take(count)
        table += new
        if self.shape.groups[group].kind in FULL_FAMILY - {"sink"}:
            self.new_block_ids[group] += new

    def _extend_states(self, group: int, name: str, table: list[int], rule: Mamba, required: int) -> None:
        """Align mode: nulls up to the running state, then the states of drafts, which move from their old entries."""
        before, started = len(table), (group, name) in self.mamba_started
        if required <= before:
            return
        current = required - rule.p - 1
        table += [NULL] * (current - before)
        if started:
            for old in range(before - rule.p, min(before, current)):
                table.append(table[old])
                table[old] = NULL
                self.reached["mamba speculative block moved"] += 1
        self.grow(group, table, required - len(table))
        self.mamba_started[group, name] = before - 1 - (rule.p if started else 0) if before else None

    # Registration.

    def register(self, name: str, num_tokens: int) -> None:
        """Register the full blocks of the first `num_tokens` tokens that some later hit can use."""
        for group in range(len(self.rules)):
            self.register_in(group, self.requests[name], self.coordinator.cacheable(group, num_tokens))

    def register_in(self, group: int, request: Request, num_tokens: int) -> None:
        """The same for one group (`cache_blocks`, `cache_full_blocks`)."""
        rule, name = self.rules[group], request.submit.request
        demand(rule.cacheable, "ValueError")
        first, end = self.registered[group].get(name, 0), num_tokens // rule.b
        if first >= end:
            return
        table = self.state.tables[group].get(name, [])
        eagle, num_prompt_tokens = group in self.coordinator.eagle_groups, len(request.submit.prompt)
        kept = [i for i in range(first, end) if rule.keeps(i, eagle, num_prompt_tokens)]
        self.reached["block not worth registering"] += end - first - len(kept)
        self.reached["kept for a replay of the prompt"] += len(kept) if self.shape.retention_interval == 0 else 0
        stored = {i: self.coordinator.identity(request.chain, rule, i) for i in kept if table[i] != NULL}
        for i, identity in stored.items():
            self.state.register(table[i], (group, identity))
        if isinstance(rule, Mamba):
            self.registered_this_step.update((group, identity) for identity in stored.values())
        self.registered[group][name] = end
        parent = self.coordinator.identity(request.chain, rule, first - 1) if first else None
        tokens = tuple(request.tokens[first * rule.b : end * rule.b])
        keys = tuple(self.content_keys(request, i * rule.b, (i + 1) * rule.b, 0) for i in stored) or None
        adapter = request.submit.adapter
        self.state.events.append(Stored((*stored.values(),), parent, tokens, rule.b, adapter, keys, group))

    def arrive(self, op: ops.Arrive) -> None:
        """External tokens have arrived: register them. If they are the whole prompt, its last token is recomputed."""
        request = self.requests[op.request]
        if self.shape.caching:
            self.register(op.request, request.computed)
        request.arriving = False
        request.computed -= request.computed == len(request.tokens)

    # Giving blocks back.

    def free(self, op: ops.Free) -> None:
        """The request gives its blocks back and is forgotten; nothing happens for an unknown one (S12)."""
        self.give_back(op.request)
        self.requests.pop(op.request, None)

    def preempt(self, op: ops.Preempt) -> None:
        """The request gives its blocks back and will start again."""
        self.give_back(op.request)
        request = self.requests[op.request]
        request.computed = request.scheduled = 0
        request.arriving = False
        request.preemptions += 1
        self.reached["preemption"] += 1

    def give_back(self, name: str) -> None:
        """Free the request's blocks group by group, each table from its end, since a longer prefix is less likely to be
        shared (vllm-project/vllm#48489)."""
        for group, tables in enumerate(self.state.tables):
            blocks = tables.pop(name, [])[::-1]
            if self.shape.groups[group].kind in SLIDING_FAMILY:
                self.state.let_go_by_identity(blocks)
            else:
                self.state.let_go(blocks)
            self.registered[group].pop(name, None)
            self.mamba_started.pop((group, name), None)

    def remove_skipped(self, op: ops.RemoveSkipped) -> None:
        """In every group, set entries to null that no query from the computed tokens on reads."""
        computed = self.requests[op.request].computed if op.request in self.requests else 0
        for group in range(len(self.rules)):
            self.null_skipped(group, op.request, computed)

    def null_skipped(self, group: int, name: str, computed: int) -> None:
        """Set such entries to null, from the right up to the first one that is null already (T3)."""
        rule = self.rules[group]
        table = self.state.tables[group].get(name, [])
        end = max(0, min(rule.removable(computed) // rule.b, len(table)))
        gone = list(takewhile(lambda block: block != NULL, reversed(table[:end])))
        table[end - len(gone) : end] = [NULL] * len(gone)
        self.state.let_go_by_identity(gone)
        self.reached["null entries made"] += bool(gone)
        if isinstance(rule, Mamba) and rule.align:
            last = self.mamba_started.get((group, name))
            if last is not None and last < arith.cdiv(max(0, computed - rule.p), rule.b) - 1 and table[last] != NULL:
                block, table[last] = table[last], NULL
                self.state.let_go([block])
                self.reached["null entries made"] += 1

    # The prefix cache as a whole.

    def evict(self, op: ops.Evict) -> None:
        """The blocks lose their identity, in use or not."""
        demand(all(0 <= block < self.shape.num_blocks for block in op.blocks))
        for block in set(op.blocks):
            self.state.forget(block)

    def reset(self, op: ops.Reset) -> Value:
        """Forget every identity, unless a block is in use."""
        if self.state.num_free() != self.shape.num_blocks - 1:
            self.reached["reset refused"] += 1
            return False
        self.state.identity.clear()
        self.state.hit_before.clear()
        self.state.events.append(Cleared())
        self.stats[0] = 1
        return True

    def step_start(self, op: ops.StepStart) -> None:
        """A scheduler step begins: what was registered in the last one may be used."""
        self.registered_this_step.clear()

    # Observers.

    def common_prefix(self, op: ops.CommonPrefix) -> Value:
        """Leading blocks that all tables of the group hold, by reference count (vllm-project/vllm#23130,
        vllm-project/vllm#55227)."""
        counts = self.state.references()
        return tuple(self.common_prefix_in(group, op.request, counts) for group in range(len(self.rules)))

    def common_prefix_in(self, group: int, name: str, counts: list[int]) -> int:
        """One group's answer; types other than full attention never share."""
        tables = self.state.tables[group]
        if not (self.rules[group].is_full and self.shape.caching):
            return 0
        return len(list(takewhile(lambda block: counts[block] == len(tables), tables.get(name, ()))))

    def read_table(self, op: ops.ReadTable) -> Value:
        """The block table in every group; empty for an unknown request."""
        return tuple(tuple(tables.get(op.request, ())) for tables in self.state.tables)

    def take_events(self, op: ops.TakeEvents) -> Value:
        """Events since the last call, each with its group's kind and window."""
        events = tuple(event_value(event, self.labels, self.shape.groups) for event in self.state.events)
        self._drop_events()
        return events

    def _drop_events(self) -> None:
        self.state.events.clear()
        self._shown.clear()

    def take_new_block_ids(self, op: ops.TakeNewBlockIds) -> Value:
        """Ids of blocks handed to full-attention groups since the last call."""
        ids = tuple(block for row in self.new_block_ids for block in row)
        self.new_block_ids = [[] for _ in self.shape.groups]
        return ids

    def take_stats(self, op: ops.TakeStats) -> Value:
        """Requests, queried and hit tokens since the last call; separately for requests that had been preempted."""
        stats, self.stats = self.stats, [0] * 7
        return (bool(stats[0]), *stats[1:]) if self.shape.stats else None

    # Holders outside the tables.

    def take(self, op: ops.Take) -> Value:
        """An outside holder takes blocks from the pool."""
        blocks = self.state.take(op.count)
        self.state.outside += blocks
        return tuple(blocks)

    def touch(self, op: ops.Touch) -> None:
        """One more reference each."""
        self.state.outside += (block for block in op.blocks if block != NULL)

    def release(self, op: ops.Release) -> None:
        """An outside holder gives references back. ValueError, without any change, if it has fewer."""
        blocks = [block for block in op.blocks if block != NULL]
        demand(not Counter(blocks) - Counter(self.state.outside), "ValueError")
        for block in blocks:
            self.state.outside.remove(block)
        self.state.let_go(blocks, op.prepend)


def _candidates(hit: list[int], counts: list[int]) -> int:
    """Eviction candidates among the blocks of a hit: they leave the free queue when the hit is used."""
    return sum(block != NULL and not counts[block] for block in hit)
