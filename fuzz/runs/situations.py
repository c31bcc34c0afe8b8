"""Which interesting situations a lockstep run met: what a run reports as reached, and what floors are about.

They are read off the model from outside: from its operations, its outcomes and its snapshots before and after.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations, compress, takewhile
from operator import ne
from typing import Any, cast

from ...model import lookup
from ...model.arith import cdiv
from ...model.attention import Mamba
from ...model.core import Model
from ...model.features import checkpoints
from ...model.features.pools import Pools
from ...model.metrics import Gone
from ...model.ops import (
    NULL,
    Advance,
    Allocate,
    AllocateBatch,
    Arrive,
    Done,
    Free,
    Item,
    Landed,
    Lookup,
    Operation,
    Outcome,
    Preempt,
    Refused,
    Release,
    Reset,
    StepStart,
    Submit,
    Take,
    TakeStats,
    Value,
)
from ...model.snapshot import Snapshot
from ...model.state import Key, Request
from ...model.tables import settled
from ..targets.answers import answers_of
from ..workload.rounds import takes_rounds
from .pool_situations import PoolSituations

MANY = 8
"""Blocks from which on a core may do something with all of them together; ours does (`impl`)."""


class Situations:
    """Counts the situations that a model meets. Fields that a glance takes over are the same objects, so `is` is tried
    first."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reached: Counter[str] = Counter()
        self._hit_before: set[int] = set()  # registered blocks that were part of some hit
        self._decoded: set[Key] = set()  # states that a step behind the prompt has registered in this scheduler step
        self._today = model.policy.copies is not None
        rules = model.rules if isinstance(model.construction, Done) else []
        self._moving = [rule.b for rule in rules if isinstance(rule, Mamba) and rule.align]  # block sizes, in tokens
        self._states = [group for group, rule in enumerate(rules) if isinstance(rule, Mamba)]
        self._drafts = any(rule.behind for rule in rules)
        self._rounds = self._today and takes_rounds([group.kind for group in model.shape.groups])
        self._pools = PoolSituations(model.state, self.reached) if isinstance(model.state, Pools) else None
        self._full = next((group for group, rule in enumerate(rules) if rule.is_full), None)

    def see(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot) -> None:
        """The model has made a step."""
        if type(outcome) is Done:
            if seen := _DONE.get(type(operation)):
                seen(self, operation, outcome)
            if self._today:
                self._see_today(operation)
        elif type(outcome) is Refused and isinstance(operation, Allocate):
            self.reached[self.model.refusal] += 1
            self.reached["same-step refusal"] += self._waits_for(operation, self.model.registered_this_step)
            if self._decoded:
                self.reached["same-step refusal of a state of decoding"] += self._waits_for(operation, self._decoded)
        if before is after:
            return
        if after.num_free - before.num_free >= MANY:
            self.reached["many blocks: given back together"] += 1
        if before.labels is not after.labels and not isinstance(operation, Reset):
            self._see_identities(before, after)
        if before.registered is not after.registered:
            self._see_registered(before, after)
        if before.tables is not after.tables:
            self._see_tables(before, after)
        if before.free is not after.free and len(after.free) > 1 and after.free[0] not in before.free:
            self.reached["freed to the front"] += 1

    def _see_today(self, operation: Operation) -> None:
        """What the rule of today has besides (`model.features`)."""
        if self._pools is not None:
            self._pools.see()
        model, reached = self.model, self.reached
        match operation:
            case Lookup(name, limit, for_connector):
                reached["lookup for a connector"] += for_connector
                reached["states end before a hit"] += model.requests[name].lags
                reached["hit limited"] += limit is not None
            case Allocate(name):
                request = model.requests[name]
                found = request.hit[0] if operation.hit and request.hit else 0
                reached["hit cut for tokens from outside"] += model.shape.taken(operation, found) < found
                reached["checkpoint inside a step"] += sum(
                    bool(checkpoints.wanted(model, group, request, request.written.last)) for group in self._states
                )
                reached["junction named inside a block"] += any(
                    end == request.junction for (_, one), end in model.named_itself.items() if one == name
                )
            case Free():
                reached["blocks kept beyond their request"] += operation.keep
            case Release():
                reached["blocks read on"] += operation.watched
        told = model.offered[-1:] if isinstance(operation, Allocate | Take | Reset) else ()
        reached["reader told of a block"] += any(isinstance(one, int) for one in told)

    def _see_advance(self, operation: Advance, outcome: Done) -> None:
        if operation.rejected:
            self.reached["draft rejected"] += 1

    def _see_submit(self, operation: Submit, outcome: Done) -> None:
        if len(operation.items) > 1:
            self.reached["items on the same tokens"] += _overlap(operation.items)

    def _see_preempt(self, operation: Preempt, outcome: Done) -> None:
        self.reached["preemption"] += 1

    def _see_step_start(self, operation: StepStart, outcome: Done) -> None:
        self._decoded.clear()

    def _see_arrive(self, operation: Arrive, outcome: Done) -> None:
        if operation.missing:
            windows = any(rule.skipped(self.model.shape.max_model_len) for rule in self.model.rules)
            self.reached["load failed in part"] += 1
            self.reached["load failed in part, with windows"] += windows

    def _see_landed(self, operation: Landed, outcome: Done) -> None:
        request = self.model.requests.get(operation.request)
        self.reached["landed"] += request is None or request.scheduled > 0 or request.lead > 0

    def _see_stats(self, operation: TakeStats, outcome: Done) -> None:
        if self.model.shape.sampling:
            _, gone = cast(tuple[Value, tuple[Gone, ...]], outcome.value)
            self.reached["life of a block told"] += len(gone)
            self.reached["life of a block told with its uses"] += sum(life != idle for life, idle, _ in gone)

    def _see_reset(self, operation: Reset, outcome: Done) -> None:
        if outcome.value is False:
            self.reached["reset refused"] += 1
        else:
            self._hit_before.clear()

    def _waits_for(self, operation: Allocate, states: Collection[Key]) -> bool:
        """True if the hit that the allocation uses has one of the states, which are only computed in this scheduler
        step."""
        request, state = self.model.requests[operation.request], self.model.state
        rows = request.hit[1] if operation.hit and request.hit else []
        return any(state.identity.get(block) in states for row in rows for block in row)

    def _see_allocated(self, operation: Allocate, outcome: Done) -> None:
        """One request has room for its step, in a call of its own or in a batch."""
        model, request, reached = self.model, self.model.requests[operation.request], self.reached
        new: Any = outcome.value  # a row for each group
        if new and _are_many(new):
            reached["many blocks: taken together"] += 1
        if operation.hit and request.hit is not None and _are_many(request.hit[1]):
            reached["many blocks: hit used"] += 1
        if operation.in_flight:
            self._see_in_flight(operation, request)
        if self._moving and ((written := request.written).last.drafts or written.before.drafts > 1):
            last, before = written.last, written.before
            reached["drafts fill a block of states"] += any(last.drafts >= b for b in self._moving)
            goes_back = any(cdiv(last.end, b) < cdiv(before.end, b) for b in self._moving)
            reached["step ends in an earlier block than the last"] += goes_back
        if self._states and model.registered_this_step and request.computed >= len(request.submit.prompt):
            identity = model.state.identity
            for group in self._states:
                if end := model.registered[group].get(operation.request, 0):
                    key = identity.get(model.state.tables[group][operation.request][end - 1])
                    if key is not None and key in model.registered_this_step:
                        self._decoded.add(key)

    def _see_in_flight(self, operation: Allocate, request: Request) -> None:
        computed, tables = request.computed, self.model.state.tables
        cut = settled(request, computed)
        told = min(cut, computed - operation.in_flight)
        self.reached["tokens in flight"] += 1
        self.reached["block kept for tokens in flight"] += any(
            any(tables[group][operation.request][rule.first(told) : rule.first(cut)])
            for group, rule in enumerate(self.model.rules)
        )

    def _see_batch(self, batch: AllocateBatch, outcome: Done) -> None:
        answers = answers_of(batch, outcome)
        refused = [place for place, (_, answer) in enumerate(answers) if type(answer) is Refused]
        self.reached["batch of requests"] += 1
        self.reached["batch that goes on behind a refusal"] += bool(refused) and refused[0] < len(answers) - 1
        self.reached["batch of which several take blocks"] += (
            sum(type(answer) is Done and _takes_blocks(answer) for _, answer in answers) > 1
        )
        self.reached["batch in which a request takes no block"] += any(
            type(answer) is Done and not _takes_blocks(answer) for _, answer in answers
        )
        for allocation, answer in answers:
            if type(answer) is Done:
                self._see_allocated(allocation, answer)

    def _see_lookup(self, operation: Lookup, outcome: Done) -> None:
        model, request = self.model, self.model.requests[operation.request]
        tokens, blocks = request.hit or (0, [])
        self.reached["many blocks: found by a lookup"] += tokens >= MANY and _are_many(blocks)
        self.reached["hit"] += tokens > 0
        if model.policy.copies is not None:
            self.reached["hit inside a block"] += any(
                row and tokens % rule.b for row, rule in zip(blocks, model.rules, strict=True)
            )
            self.reached["names look ahead"] += tokens > 0 and model.ahead > 0
            self.reached["names look no further than a block"] += tokens > 0 and self._drafts
            self.reached["names look further ahead"] += tokens > 0 and model.ahead > 1
            self.reached["shared prefix goes on"] += request.junction > 0
        self.reached["hit with null entries"] += tokens > 0 and any(NULL in row for row in blocks)
        if tokens:
            self._hit_before.update(block for row in blocks for block in row if block != NULL)
        if not model.shape.caching or request.submit.skip_lookup or not model.state.identity:
            return
        several, drafts, full = len(model.rules) > 1, self._drafts, self._full
        if not several and not drafts:
            return  # one group alone, with hits at its own blocks: what it finds is the hit
        size, more = len(request.tokens), tokens + model.alignment
        if more >= size and (full is None or model.rules[full].b == model.alignment):
            return  # there is no longer hit
        there = self._there(request)
        if several:
            cut = any(self._alone(group, there[group], more, size) for group in range(len(model.rules)))
            self.reached["hit cut by another group"] += cut
            if cut and self._rounds:
                self.reached["lookup that may take rounds, with a chain of draft models"] += model.shape.reads_ahead > 1
                self.reached["lookup that may take rounds, with junctions named"] += model.shape.names_junctions
        if full is not None and (unit := model.rules[full].b) < model.alignment and there[full][:1] == [True]:
            lengths = range(unit, lookup.replay_boundary([model.rules[full]], unit, size) + 1, unit)
            prefixes = [0, *takewhile(partial(self._serves, full, there[full]), lengths)]
            self.reached["hit cut by the alignment"] += prefixes[-1] % model.alignment > 0
        if drafts and more < size:
            self.reached["eagle drop"] += all(
                _all_there(there[group], rule.first(more), more // rule.b) for group, rule in enumerate(model.rules)
            )

    def _alone(self, group: int, there: list[bool], more: int, size: int) -> bool:
        """True if the group alone would have a hit of `more` tokens or above, in a request of `size` tokens."""
        rule, unit = self.model.rules[group], self.model.alignment
        if rule.scratch or (True not in there and not self._needs_nothing[group]):
            return False
        lengths = range(more, lookup.replay_boundary([rule], unit, size) + 1, unit)
        if rule.is_full:  # what has no hit of `more` tokens has no longer one
            lengths = lengths[:1]
        return any(self._serves(group, there, length) for length in lengths)

    def _serves(self, group: int, there: list[bool], length: int) -> bool:
        """True if the group has every block that a hit of so many tokens needs."""
        rule = self.model.rules[group]
        return _all_there(there, rule.first(length), rule.end(length))

    @cached_property
    def _needs_nothing(self) -> list[bool]:
        """Per group, whether there is a length at which a hit needs no block of it."""
        lengths = range(self.model.alignment, self.model.shape.max_model_len + 1, self.model.alignment)
        return [any(rule.first(one) >= rule.end(one) for one in lengths) for rule in self.model.rules]

    def _there(self, request: Request) -> list[list[bool]]:
        """Per group, whether a block is registered for the content of each full block of the request's table."""
        registered, chain = set(self.model.state.identity.values()), request.chain
        per_block = [rule.b // self.model.shape.hash_block_size for rule in self.model.rules]
        return [
            [(group, identity) in registered for identity in chain[count - 1 :: count]]
            for group, count in enumerate(per_block)
        ]

    def _see_identities(self, before: Snapshot, after: Snapshot) -> None:
        changed = map(ne, before.labels, after.labels)
        evicted = again = second = registered = 0
        for block in compress(range(len(after.labels)), changed):
            if before.labels[block] is not None:
                evicted += 1
                again += block in self._hit_before
                self._hit_before.discard(block)
            if after.labels[block] is not None:
                registered += 1
                second += after.earliest[block] != block
        if evicted:
            self.reached["registered block evicted"] += evicted
            self.reached["evicted without ever being hit"] += evicted - again
        if registered:
            self.reached["second block under one identity"] += second
            self.reached["kept for a replay of the prompt"] += registered * (self.model.shape.retention_interval == 0)
        self.reached["many blocks: evicted together"] += evicted >= MANY

    def _see_registered(self, before: Snapshot, after: Snapshot) -> None:
        for group, registered in enumerate(after.registered):
            if registered is before.registered[group] or (self._pools is not None and group == self._pools.hosted):
                continue
            for name, end in registered.items():
                first = before.registered[group].get(name)
                if first == end:
                    continue
                table = after.tables[group].get(name, [])
                if first is not None or name in before.tables[group] or end == len(table):
                    new = table[first or 0 : end]
                    self.reached["block not worth registering"] += sum(after.labels[block] is None for block in new)

    def _see_tables(self, before: Snapshot, after: Snapshot) -> None:
        nulls = moved = 0
        for group, tables in enumerate(after.tables):
            if tables is before.tables[group]:
                continue
            for name, table in tables.items():
                old = before.tables[group].get(name, [])
                if old is table or old == table:
                    continue
                nulls += table.count(NULL) > old.count(NULL)
                if old and table[: len(old)] != old:  # it has not only grown
                    places = {block: place for place, block in enumerate(old) if block != NULL}
                    moved += any(places.get(block, place) != place for place, block in enumerate(table))
        self.reached["null entries made"] += nulls
        self.reached["mamba speculative block moved"] += moved


_DONE: Mapping[type[Operation], Callable[[Situations, Any, Done], None]] = {
    Allocate: Situations._see_allocated,
    AllocateBatch: Situations._see_batch,
    Lookup: Situations._see_lookup,
    Advance: Situations._see_advance,
    Submit: Situations._see_submit,
    Preempt: Situations._see_preempt,
    StepStart: Situations._see_step_start,
    Arrive: Situations._see_arrive,
    Landed: Situations._see_landed,
    TakeStats: Situations._see_stats,
    Reset: Situations._see_reset,
}
"""What is looked at once an operation is done, by its kind."""


def _are_many(rows: Sequence[Sequence[int]]) -> bool:
    """True if a row has many blocks that are not null."""
    for row in rows:  # noqa: SIM110 - a generator takes twice the time, and most rows are short
        if len(row) >= MANY and len(row) - row.count(NULL) >= MANY:
            return True
    return False


def _takes_blocks(answer: Done) -> bool:
    """True if an allocation has added entries to some table."""
    return isinstance(answer.value, tuple) and any(answer.value)


def _overlap(items: Sequence[Item]) -> bool:
    """True if two of the items have a token in common."""
    return any(
        one.offset < other.offset + other.length and other.offset < one.offset + one.length
        for one, other in combinations(items, 2)
    )


def _all_there(there: list[bool], first: int, end: int) -> bool:
    """True if all blocks `first .. end - 1` are there."""
    return end <= first or (end <= len(there) and all(there[first:end]))
