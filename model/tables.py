"""The tables of the requests: how an allocation grows them, what of them is registered, and when an entry becomes null.

`Policy` is the record of what a core decides on the way, a function for each decision; by default as in core.md §§6-10.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from . import arith, lookup, ops
from .attention import Arrangement, Mamba, Rule, arrangement, demand, most_states
from .decisions import Additions, Kept, ended, stored
from .identity import ExtraKey, Identity, extra_keys
from .metrics import Metrics
from .ops import NULL, Shape
from .state import Key, Request

BlockIds: TypeAlias = list[list[int]]  # per group
UNKNOWN = -1  # stands for a block that an allocation is about to take


class Plan(NamedTuple):
    """The quantities of one allocation, in tokens (core.md §10)."""

    op: ops.Allocate
    hit: BlockIds  # blocks of the hit that is used
    total: int  # tokens computed, hit or from outside
    settled: int  # those of them that cannot be taken back: windows are cut by them
    main: int  # total with the tokens of the next step
    need: int  # the same with lookahead: tokens for which there must be room
    local: int = 0  # those of the computed ones that do not come from outside
    margin: int = 0  # blocks that stay free beside those that others have reserved


class Core(Kept):
    """Requests and their tables over one pool."""

    rules: list[Rule]
    alignment: int

    def __init__(self, shape: Shape, policy: "Policy") -> None:
        super().__init__(shape, policy)
        self.shape, self.policy = shape, policy
        self.requests: dict[str, Request] = {}
        self.state = policy.state(shape.num_blocks, len(shape.groups), Metrics(shape.sampling, shape.caching))
        self.registered: list[dict[str, int]] = [{} for _ in shape.groups]
        """Per group: how many leading table entries of a request count as registered; its keys are the running ones."""
        self.registered_this_step: set[Key] = set()
        """Mamba states that were registered in this step: no request can continue from them yet (core.md §7)."""
        self.new_block_ids: BlockIds = [[] for _ in shape.groups]

    def identity(self, request: Request, group: int, i: int) -> Identity:
        """The content up to the end of block `i` of the request's table."""
        return request.chain[(i + 1) * self.rules[group].b // self.shape.hash_block_size - 1]

    def cached(self, request: Request, group: int, i: int, earliest: Mapping[Key, int]) -> int:
        """The block that is registered for the content of block `i` of the request's table; null if there is none."""
        known = (i + 1) * self.rules[group].b <= len(request.chain) * self.shape.hash_block_size
        return earliest.get((group, self.identity(request, group, i)), NULL) if known else NULL

    def required(self, group: int, plan: Plan) -> int:
        """Table entries after the allocation; cross attention is sized by the encoder's tokens (core.md §9)."""
        rule = self.rules[group]
        return rule.required(plan.op.encoder_tokens if rule.by_encoder else plan.need)

    def predicted(self, plan: Plan, counts: list[int], *, capped: bool = False) -> int:
        """Blocks that leave the free queue (T7); `capped`: at most what a request holds (vllm-project/vllm#39734)."""
        return sum([self.policy.predicted(self, group, plan, counts, capped) for group in range(len(self.rules))])

    def begun(self, group: int, plan: Plan) -> tuple[list[int], int]:
        """The table before the step, with the hit, and how many blocks the external tokens still need."""
        name, rule = plan.op.request, self.rules[group]
        table = self.state.tables[group].get(name, [])
        if name in self.registered[group] or rule.by_encoder or not (any(plan.hit) or plan.op.external > 0):
            return table, 0
        demand(not table)
        skipped, external = rule.first(plan.settled - rule.again), plan.op.external
        if skipped or self.policy.skips_tokens:
            external = min(external, plan.total - max(0, rule.skipped(plan.settled - rule.again)))
        start = [NULL] * skipped + plan.hit[group][skipped:]
        return start, arith.cdiv(plan.total, rule.b) - len(start) if external > 0 else 0

    def attach(self, group: int, plan: Plan) -> int:
        """The hit becomes the start of the table. Returns how many blocks the external tokens still need."""
        name = plan.op.request
        if name in self.registered[group] or self.rules[group].by_encoder:
            return 0
        self.state.tables[group][name], missing = self.begun(group, plan)
        if not self.rules[group].scratch:
            self.registered[group][name] = len(self.state.tables[group][name])
        if self.policy.copies is not None and self.policy.copies(self, group, plan):
            self.registered[group][name] = i = plan.local // self.rules[group].b
            self.tails[group, name] = (i, plan.hit[group][-1])
        self.state.metrics.touched(self.state.tables[group][name])
        return missing

    def extend(self, group: int, plan: Plan) -> tuple[int, ...]:
        """The table grows to cover the tokens. Returns the added entries."""
        rule, table = self.rules[group], self.state.tables[group].setdefault(plan.op.request, [])
        before, states = len(table), isinstance(rule, Mamba) and rule.align
        own: Sequence[int] = ()
        if self.policy.make_private is not None and (group, plan.op.request) in self.tails:
            own = self.policy.make_private(self, group, plan.op.request, states)
        if states:
            self.policy.extend_states(self, group, plan, table)
        else:
            self.grow(group, table, arith.missing_blocks(self.required(group, plan), before))
        added = tuple(table[before:])
        return (*own, *added) if own else added

    def grow(self, group: int, table: list[int], count: int, listed: bool = True) -> None:
        """Add `count` blocks from the front of the free queue to the table."""
        new = self.state.take(count)
        table += new
        if listed and self.policy.lists(self, group):
            self.new_block_ids[group] += new

    def null_skipped(self, group: int, name: str, settled: int) -> None:
        """Entries that no query behind the settled tokens reads become null (T3). States stay for p tokens more: where
        accepted drafts have reached the end of a block, its state is registered only now. In mode align those that are
        registered go at once, so that the next step finds room in what the gate counted (T16)."""
        rule, table = self.rules[group], self.state.tables[group].get(name, [])
        end = min(rule.first(settled - rule.p), len(table))
        if isinstance(rule, Mamba) and rule.align:
            for i in reversed(range(end, min(rule.first(settled), len(table)))):
                if table[i] in self.state.identity:
                    block, table[i] = table[i], NULL
                    self.state.let_go([block])
        if gone := real(table[:end]):
            table[:end] = [NULL] * end
            self.state.let_go_by_identity(gone[::-1])

    def register(self, name: str, num_tokens: int) -> None:
        """Register the full blocks of the first `num_tokens` tokens that some later hit can use (core.md §§6, 9)."""
        request = self.requests[name]
        for group, rule in enumerate(self.rules):
            demand(rule.cacheable, "ValueError")
            reach = min(self.policy.reach(self, group, num_tokens), len(request.chain) * self.shape.hash_block_size)
            first, end = self.registered[group].get(name, 0), reach // rule.b
            if first < end:
                self.registered[group][name] = end
                self._register(group, request, first, end)
            self.policy.name_tail(self, group, request, num_tokens)
            if self.policy.offer is not None and first < end:
                self.policy.offer(self, group, name, first, end)

    def _register(self, group: int, request: Request, first: int, end: int) -> None:
        """The same for blocks `first .. end - 1` of one group."""
        rule, table = self.rules[group], self.state.tables[group].get(request.submit.request, [])
        worth, stands = self.policy.worth, self.policy.stands
        held = [i for i in range(first, end) if table[i] != NULL]
        kept = [i for i in held if worth(self, group, i, request) and stands(self, group, i, request)]
        named = {i: self.identity(request, group, i) for i in kept}
        for i, identity in named.items():
            self.state.register(table[i], (group, identity), (i + 1) * rule.b)
        if isinstance(rule, Mamba) and self.policy.offer is None:
            self.registered_this_step.update((group, identity) for identity in named.values())
        places = [(i * rule.b, (i + 1) * rule.b) for i in named]
        self.state.events.append(stored(self, group, request, places, (first * rule.b, end * rule.b), rule.b))


# What a core decides.


def set_aside(core: Core, rule: Rule) -> None:
    """The blocks of attention sinks are taken from the pool once and for all (core.md §7)."""
    demand(rule.group.sink_len > 0 and rule.group.sink_len % rule.b == 0)
    core.state.sinks += core.state.take(rule.group.sink_len // rule.b)


def hit(core: Core, request: Request) -> tuple[int, BlockIds]:
    """Tokens of the longest hit, and its blocks per group, null where no query reads them any more (core.md §9)."""
    earliest, size = core.state.earliest(), core.shape.hash_block_size
    found = [
        [earliest.get((group, identity), NULL) for identity in request.chain[rule.b // size - 1 :: rule.b // size]]
        for group, rule in enumerate(core.rules)
    ]  # the block for the content of each full block of the request's table
    length = lookup.longest_hit(
        core.rules, core.alignment, len(request.tokens), lambda group, i: i < len(found[group]) and found[group][i]
    )
    return length, [
        [NULL] * rule.first(length) + row[rule.first(length) : length // rule.b]
        for rule, row in zip(core.rules, found, strict=True)
    ]


def settled(request: Request, computed: int) -> int:
    """Those of the computed tokens that cannot be taken back. Drafts are not among the known tokens, and the last known
    one is computed again where a whole prompt was loaded from outside (vllm-project/vllm#47728)."""
    return min(computed, len(request.tokens) - 1)


def reach(core: Core, group: int, num_tokens: int) -> int:
    """Leading tokens that a group registers: up to the last boundary; where a draft model reads on, a block more."""
    boundary, rule = arith.down(num_tokens, core.alignment), core.rules[group]
    return min(num_tokens, boundary + rule.b) if boundary and rule.behind else boundary


def worth(core: Core, group: int, i: int, request: Request) -> bool:
    """True if some later hit can need block `i`: only such blocks are registered. A retention interval thins out the
    boundaries, but keeps the one that a replay of the prompt can reach (core.md §8)."""
    interval, num_prompt_tokens = core.shape.retention_interval, len(request.submit.prompt)
    if interval is None:
        return lookup.worth_registering(core.rules[group], i, core.alignment, 0)
    replay = lookup.replay_boundary(core.rules, core.alignment, num_prompt_tokens)
    return lookup.worth_registering(core.rules[group], i, interval, replay)


def stands(core: Core, group: int, i: int, request: Request) -> bool:
    """True unless entry `i` is to hold a state and nobody writes the one that its block stands for (core.md §7)."""
    return not isinstance(rule := core.rules[group], Mamba) or request.written.stands(rule, i)


def predicted(core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
    """Blocks that will leave the free queue for one group: new ones, and eviction candidates of the hit (T7)."""
    rule, name, hit = core.rules[group], plan.op.request, plan.hit[group]
    table = core.state.tables[group].get(name, [])
    if isinstance(rule, Mamba):
        if any(core.state.identity.get(block) in core.registered_this_step for block in hit if block != NULL):
            return core.shape.num_blocks + 1  # its state is only computed in this very step
        if rule.align:
            copied = core.policy.copies is not None and core.policy.copies(core, group, plan)
            return core.policy.states(core, group, plan, counts, capped) + copied
    running = name in core.registered[group] or rule.by_encoder
    skipped = 0 if running else rule.first(plan.settled - rule.again)
    kept = hit[max(0, skipped - len(table)) :]
    required, entries = core.required(group, plan), max(skipped, len(hit) + len(table))
    taken = candidates(kept, counts)
    if core.policy.copies is not None:
        taken += core.policy.copies(core, group, plan)
    if not capped:
        return arith.missing_blocks(required, entries) + taken
    inside = len(real(table)) + len(real(kept))
    return core.policy.capped(rule, plan.op.lookahead, required, entries, inside) + taken


def capped(rule: Rule, lookahead: int, required: int, entries: int, inside: int) -> int:
    """New blocks that the gate counts for a table of `entries` entries, `inside` of them real (T16)."""
    missing, cap = arith.missing_blocks(required, entries), rule.cap(lookahead)
    return missing if cap is None else min(missing, max(0, cap - inside))


def states(core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
    """Align mode: blocks that the allocation takes for states and for the hit; the gate counts the most that the
    request will hold (T7.align, T16)."""
    table, arriving = core.begun(group, plan)
    if capped:
        new = max(0, most_states(core.rules[group], plan.main) - len(real(table)))
    else:
        step = arranged(core, group, plan, table + [UNKNOWN] * arriving, counts)
        new = arriving + len(step.empty) - len(step.moved)
    return new + candidates(table, counts)


def extend_states(core: Core, group: int, plan: Plan, table: list[int]) -> None:
    """Align mode: the running state and those of drafts get their blocks."""
    empty, moved, dropped = arranged(core, group, plan, table, core.state.references())
    table += [NULL] * (max(empty, default=0) + 1 - len(table))
    blocks = [table[i] for i in moved] + core.state.take(len(empty) - len(moved))
    gone = [table[i] for i in reversed(dropped)]
    for i in moved + dropped:
        table[i] = NULL
    for i, block in zip(empty, blocks, strict=True):
        table[i] = block
    core.state.let_go_by_identity(gone)


def arranged(core: Core, group: int, plan: Plan, table: list[int], counts: list[int]) -> Arrangement:
    """What the step does to the states in this table. A block is the request's own if only one table holds it, and no
    lookup finds it."""

    def own(block: int) -> bool:
        return block == UNKNOWN or (counts[block] == 1 and block not in core.state.identity)

    rule = core.rules[group]
    assert isinstance(rule, Mamba)
    also = core.policy.checkpoints(core, group, plan) if core.policy.checkpoints is not None else ()
    return arrangement(rule, table, rule.first(plan.settled - rule.p), plan.total, plan.main, own, also)


def admits(core: Core, plan: Plan) -> bool:
    """The admission gate: is there room for the whole sequence, beside what others have reserved? (T16)"""
    request = core.requests[plan.op.request]
    whole = min(len(request.tokens) + plan.op.lookahead, core.shape.max_model_len)
    counts = core.state.references()
    needed = core.predicted(plan._replace(main=whole, need=whole), counts, capped=True)
    return needed + plan.margin <= counts.count(0) - 1 - plan.op.reserved


def attach_all(core: Core, plan: Plan) -> None:
    """Attach the hits of all groups first, so that no block of a hit is taken for external tokens."""
    missing = [core.attach(group, plan) for group in range(len(core.rules))]
    for group, count in enumerate(missing):
        if count:
            listed = group not in plan.op.unzeroed
            core.grow(group, core.state.tables[group][plan.op.request], count, listed)


def renewed(core: Core, name: str) -> list[int]:
    """States that count as used until now when the request gives its blocks back: those that a lookup finds for its
    registered entries, the last one first. It gave most of them up on its way; they would be reused long before the
    blocks of other groups, which no lookup can use without them (core.md §7)."""
    states = [at for at, rule in enumerate(core.rules) if isinstance(rule, Mamba) and core.registered[at].get(name)]
    earliest = core.state.earliest() if states else {}
    entries = [(group, i) for group in states for i in reversed(range(core.registered[group][name]))]
    return [core.cached(core.requests[name], group, i, earliest) for group, i in entries]


def give_back(core: Core, name: str) -> None:
    """Free the request's blocks group by group, each table from its end, since a longer prefix is less likely to be
    shared (vllm-project/vllm#48489)."""
    core.state.let_go(core.policy.renewed(core, name))
    ended(core, name)
    for group, tables in enumerate(core.state.tables):
        core.policy.let_go(core, group, tables.pop(name, [])[::-1], False)
        core.registered[group].pop(name, None)


def let_go(core: Core, group: int | None, blocks: list[int], front: bool) -> None:
    """What a request gives back of a window goes to either end by identity; the rest is reused in this order. `group`:
    whose table it was; None for an outside holder's, which says where it goes."""
    if group is not None and core.rules[group].windowed:
        core.state.let_go_by_identity(blocks)
    else:
        core.state.let_go(blocks, front)


def lists(core: Core, group: int) -> bool:
    """Are new blocks of the group listed, to be zeroed by a worker? (core.md §5)"""
    return core.rules[group].is_full and not core.rules[group].sinks


def surely(request: Request) -> int:
    """Computed tokens that the scheduler says cannot be taken back."""
    return settled(request, request.computed)


def shared_prefix(core: Core, group: int, name: str, counts: list[int]) -> int:
    """Leading blocks that all tables of a group hold; types other than full attention never share."""
    tables, shares = core.state.tables[group], core.rules[group].is_full and core.shape.caching
    return len(list(takewhile(lambda block: counts[block] == len(tables), tables.get(name, ()) if shares else ())))


def real(blocks: list[int]) -> list[int]:
    """Entries that are not null."""
    return [block for block in blocks if block != NULL]


def candidates(blocks: list[int], counts: list[int]) -> int:
    """Eviction candidates among these blocks: they leave the free queue when the hit is used."""
    return sum(block != NULL and not counts[block] for block in blocks)


@dataclass(frozen=True, slots=True)
class Policy(Additions):
    """What a core decides, one function for each decision. The defaults are the specification; to describe a core that
    decides otherwise, replace an entry. What is in `features` has entries of its own."""

    set_aside: Callable[[Core, Rule], None] = set_aside
    content_keys: Callable[[ops.Submit, int, int], tuple[ExtraKey, ...]] = extra_keys
    event_keys: Callable[[ops.Submit, int, int], tuple[ExtraKey, ...]] = extra_keys
    hit: Callable[[Core, Request], tuple[int, BlockIds]] = hit
    settled: Callable[[Request, int], int] = settled
    reach: Callable[[Core, int, int], int] = reach
    worth: Callable[[Core, int, int, Request], bool] = worth
    stands: Callable[[Core, int, int, Request], bool] = stands
    predicted: Callable[[Core, int, Plan, list[int], bool], int] = predicted
    capped: Callable[[Rule, int, int, int, int], int] = capped
    states: Callable[[Core, int, Plan, list[int], bool], int] = states
    extend_states: Callable[[Core, int, Plan, list[int]], None] = extend_states
    extend: Callable[[Core, int, Plan], tuple[int, ...]] = Core.extend
    null_skipped: Callable[[Core, int, str, int], None] = Core.null_skipped
    admits: Callable[[Core, Plan], bool] = admits
    attach: Callable[[Core, Plan], None] = attach_all
    renewed: Callable[[Core, str], list[int]] = renewed
    give_back: Callable[[Core, str], None] = give_back
    let_go: Callable[[Core, int | None, list[int], bool], None] = let_go
    lists: Callable[[Core, int], bool] = lists
    surely: Callable[[Request], int] = surely
    check: Callable[[Shape, Sequence[Rule]], None] = lookup.check
    alignment: Callable[[Shape, Sequence[Rule]], int] = lookup.alignment
    shared_prefix: Callable[[Core, int, str, list[int]], int] = shared_prefix
