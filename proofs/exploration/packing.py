"""States as bytes: what a state consists of, and its canonical form.

A packed state is exact, not a digest: two states have the same bytes exactly when they are the same up to renaming.

**Blocks** are renamed by where they are first met: in the tables, request by request, then along the free queue. That
is sound since no rule compares block ids or computes with them: a block is taken because of its place in the queue,
found because of its content, freed because of its place in a table; ids come back in answers and in the labels of an
observer only. **Requests** are renamed likewise, since no rule reads a name but as the key of a table, and every
request may ask for every prompt.

What is left out of a state: the order in which blocks of *different* content were registered (the earliest block of
*one* content is what a lookup asks for), how often a request was preempted (only the statistics read it), and the last
hit of a request that did not use it at once (an allocation may use the hit of the operation just before only).

`tests/proofs/test_exploration_reductions.py` explores small scopes without any renaming and finds the same states.
"""

from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import NamedTuple, TypeAlias

from .scope import NAMES

RESTING, SUBMITTED, LOOKED_UP, ALLOCATED = range(4)
"""What the last operation left a request in the middle of; the next one is about the same request (`moves`)."""
_KEPT_POOLS = 20_000
Tables: TypeAlias = list[dict[str, list[int]]]


class Look(NamedTuple):
    """What can be seen of one side, as plain data; both sides are compared with `==`."""

    requests: list[
        tuple[int, int, int]
    ]  # by slot: number of the token sequence (0: nobody), computed, scheduled tokens
    tables: Tables  # per group; 0 is the null block
    registered: list[dict[str, int]]  # per group: leading entries that count as registered
    queue: list[int]  # the free queue, the next block to be reused in front
    counts: list[int]  # references per block
    codes: list[int]  # per block: number of the content it is registered as, or 0
    duplicates: dict[int, list[int]]  # contents that several blocks are registered as; the blocks, earliest first
    states: list[
        dict[str, int]
    ]  # per group: mamba tables that were started, and the entry before the current one or -1
    this_step: set[int]  # contents registered in this step by mamba groups


class Focus(NamedTuple):
    """What the last operation was in the middle of."""

    phase: int = RESTING
    slot: int = 0
    hit_tokens: int = 0
    hit: tuple[tuple[int, ...], ...] = ()


class Pool(NamedTuple):
    """The part of a state that operations on a request alone leave as it is: everything but requests and focus."""

    packed: bytes
    tables: Tables
    registered: list[dict[str, int]]
    queue: list[int]
    counts: list[int]
    codes: list[int]
    duplicates: dict[int, list[int]]
    states: list[dict[str, int]]
    this_step: set[int]


class Packed(NamedTuple):
    """A packed state, and what its renaming was."""

    state: bytes
    order: tuple[int, ...]
    """Slot `i` of the packed state is slot `order[i]` of the state that was packed."""
    names: list[int]
    """Block `b` of the state that was packed is block `names[b]` of the packed state."""


class Packer:
    """Packs the states of one scope. Neighbouring states often share their pool: those met lately are kept unpacked."""

    def __init__(self, num_blocks: int, num_slots: int, num_groups: int, sinks: list[int]) -> None:
        self.num_blocks, self.num_slots, self.num_groups, self.sinks = num_blocks, num_slots, num_groups, sinks
        self.slots = tuple(range(num_slots))
        self.names = NAMES[:num_slots]
        self.unnamed = list(range(num_blocks))
        """Every block under its own name."""
        self.nameless = [0] * num_blocks
        """No block has a name but those set aside for good, which come first."""
        self.counts = [0] * num_blocks
        for name, block in enumerate(sinks, 1):
            self.nameless[block] = name
            self.counts[name] = 1
        self._orders: dict[object, list[tuple[int, ...]]] = {}
        self._pools: dict[bytes, Pool] = {}

    def canonical(self, look: Look, focus: Focus) -> Packed:
        """The state up to renaming of blocks and requests."""
        orders = self.orders(look.requests, focus)
        if len(orders) == 1:
            return self.pack(look, focus, orders[0], rename=True)
        return min((self.pack(look, focus, order, rename=True) for order in orders), key=lambda packed: packed.state)

    def exact(self, look: Look, focus: Focus) -> Packed:
        """The state as it is, with nothing renamed."""
        return self.pack(look, focus, self.slots, rename=False)

    def orders(self, requests: Sequence[tuple[int, int, int]], focus: Focus) -> list[tuple[int, ...]]:
        """Orders of the slots that are to be tried: one, unless running requests are alike in all but their tables."""
        mark = focus.slot if focus.phase else -1
        found = self._orders.get((*requests, mark))
        if found is None:
            found = self._orders[(*requests, mark)] = self._find_orders(requests, mark)
        return found

    def _find_orders(self, requests: Sequence[tuple[int, int, int]], mark: int) -> list[tuple[int, ...]]:
        keys = [(not request[0], request, slot == mark) for slot, request in enumerate(requests)]
        order = tuple(sorted(self.slots, key=keys.__getitem__))
        if not any(keys[a] == keys[b] and requests[a][1] for a, b in pairwise(order)):
            return [order]
        ordered = [keys[slot] for slot in order]
        return [other for other in permutations(order) if [keys[slot] for slot in other] == ordered]

    def again(self, pool: Pool, look: Look, focus: Focus) -> bytes | None:
        """A state that has the pool of a canonical state. None if the slots change places or might do so."""
        orders = self.orders(look.requests, focus)
        if len(orders) > 1 or orders[0] != self.slots:
            return None
        head = bytes(_head(look, focus, self.slots))
        return (
            head + pool.packed + bytes(_tail(focus, self.unnamed)) if focus.phase == LOOKED_UP else head + pool.packed
        )

    def pack(self, look: Look, focus: Focus, order: tuple[int, ...], rename: bool) -> Packed:
        """The bytes of a state with its slots in this order."""
        _, tables, registered, queue, _, codes, duplicates, states, this_step = look
        out = _head(look, focus, order)
        names, count = (self.nameless[:], len(self.sinks)) if rename else (self.unnamed, 0)
        for group in range(self.num_groups):
            of_group, registered_of, states_of = tables[group], registered[group], states[group]
            for i in order:
                name = NAMES[i]
                table = of_group.get(name, ())
                out += (len(table), registered_of.get(name, -1) + 1, states_of.get(name, -2) + 2)
                if not rename:
                    out += table
                    continue
                for block in table:
                    name_of = names[block]
                    if block and not name_of:
                        count += 1
                        name_of = names[block] = count
                    out.append(name_of)
        if rename:
            for block in queue:
                count += 1
                names[block] = count
            out.append(len(queue))
            renamed = [0] * self.num_blocks
            for block, code in enumerate(codes):
                if code:
                    renamed[names[block]] = code
            out += renamed
        else:
            out.append(len(queue))
            out += queue
            out += codes
        out.append(len(this_step))
        if this_step:
            out += sorted(this_step)
        for code in sorted(duplicates) if duplicates else ():
            out.append(len(duplicates[code]))
            out += [names[block] for block in duplicates[code]]
        out.append(0)
        return Packed(bytes(out + _tail(focus, names)), order, names)

    def unpack(self, state: bytes, renamed: bool) -> tuple[Look, Focus, Pool]:
        """What was packed, canonically if `renamed`. What comes back is shared: change nothing in it."""
        phase, slot = state[0] >> 4, state[0] & 15
        head = 1 + 3 * self.num_slots
        end = len(state)
        if phase == LOOKED_UP:
            end -= state[-1]
        packed = state[head:end]
        pool = self._pools.get(packed)
        if pool is None:
            if len(self._pools) > _KEPT_POOLS:
                self._pools.clear()
            pool = self._pools[packed] = self._unpack_pool(packed, renamed)
        requests = [(state[i], state[i + 1], state[i + 2]) for i in range(1, head, 3)]
        return Look(requests, *pool[1:]), self._focus(phase, slot, state, end), pool

    def _unpack_pool(self, state: bytes, renamed: bool) -> Pool:
        num_blocks, at = self.num_blocks, 0
        tables: Tables = []
        registered: list[dict[str, int]] = []
        states: list[dict[str, int]] = []
        counts = self.counts[:]
        for _ in range(self.num_groups):
            of_group: dict[str, list[int]] = {}
            registered_of: dict[str, int] = {}
            states_of: dict[str, int] = {}
            for name in self.names:
                length, known, started = state[at : at + 3]
                at += 3
                if length:
                    of_group[name] = table = list(state[at : at + length])
                    at += length
                    for block in table:
                        counts[block] += 1
                if known:
                    registered_of[name] = known - 1
                if started:
                    states_of[name] = started - 2
            tables.append(of_group)
            registered.append(registered_of)
            states.append(states_of)
        counts[0] = 0
        length = state[at]
        at += 1
        if renamed:
            queue = list(range(num_blocks - length, num_blocks))
        else:
            queue = list(state[at : at + length])
            at += length
        codes = list(state[at : at + num_blocks])
        at += num_blocks
        length = state[at]
        this_step = set(state[at + 1 : at + 1 + length])
        at += 1 + length
        duplicates: dict[int, list[int]] = {}
        while length := state[at]:
            blocks = list(state[at + 1 : at + 1 + length])
            duplicates[codes[blocks[0]]] = blocks
            at += 1 + length
        return Pool(state, tables, registered, queue, counts, codes, duplicates, states, this_step)

    def _focus(self, phase: int, slot: int, state: bytes, at: int) -> Focus:
        if phase != LOOKED_UP:
            return Focus(phase, slot)
        tokens, at = state[at], at + 1
        hit = []
        for _ in range(self.num_groups):
            hit.append(tuple(state[at + 1 : at + 1 + state[at]]))
            at += 1 + state[at]
        return Focus(phase, slot, tokens, tuple(hit))


def _head(look: Look, focus: Focus, order: tuple[int, ...]) -> list[int]:
    """Focus and requests."""
    head = [focus.phase << 4 | order.index(focus.slot)] if focus.phase else [0]
    for slot in order:
        head += look.requests[slot]
    return head


def _tail(focus: Focus, names: list[int]) -> list[int]:
    """The hit of a lookup."""
    tail: list[int] = []
    if focus.phase == LOOKED_UP:
        tail.append(focus.hit_tokens)
        for row in focus.hit:
            tail.append(len(row))
            tail += [names[block] for block in row]
        tail.append(len(tail) + 1)  # read from the end, it says where the tail begins
    return tail
