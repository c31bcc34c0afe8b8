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

`tests/fuzz/exploration/test_exploration_reductions.py` explores small scopes without any renaming and finds the same
states.
"""

from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import NamedTuple, TypeAlias

from .scope import NAMES

RESTING, SUBMITTED, LOOKED_UP, ALLOCATED = range(4)
"""What the last operation left a request in the middle of; the next one is about the same request (`moves`)."""
ARRIVING = 255
"""In place of scheduled tokens: the request waits for tokens from outside (`Allocate.delay`)."""
NOBODY = (0, 0, 0)
"""In place of a request: there is none in this slot."""
_KEPT_POOLS = 20_000
Tables: TypeAlias = list[dict[str, list[int]]]


class Look(NamedTuple):
    """What can be seen of one side, as plain data; both sides are compared with `==`."""

    requests: list[
        tuple[int, int, int]
    ]  # by slot: number of the token sequence (0: nobody), computed, scheduled tokens or ARRIVING
    tables: Tables  # per group; 0 is the null block
    registered: list[dict[str, int]]  # per group: leading entries that count as registered
    queue: list[int]  # the free queue, the next block to be reused in front
    counts: list[int]  # references per block
    codes: list[int]  # per block: number of the content it is registered as, or 0
    duplicates: dict[int, list[int]]  # contents that several blocks are registered as; the blocks, earliest first
    this_step: set[int]  # contents registered in this step by mamba groups


class Focus(NamedTuple):
    """What the last operation was in the middle of."""

    phase: int = RESTING
    slot: int = 0
    hit_tokens: int = 0
    hit: tuple[tuple[int, ...], ...] = ()


_REST = Focus()
Order: TypeAlias = tuple[int, ...]
"""Slot `i` of a packed state is slot `order[i]` of the state that was packed."""


class PackedPool(NamedTuple):
    """The part of a state that operations on a request alone leave as it is: everything but requests and focus."""

    packed: bytes
    views: dict[int, "View"]
    """The pool as the request in each slot sees it, as far as somebody asked (`Packer.view`)."""
    reordered: dict[Order, "PackedPart"]
    """The pool with its slots in another order, as far as somebody asked (`Packer.reordered`)."""
    tables: Tables
    registered: list[dict[str, int]]
    queue: list[int]
    counts: list[int]
    codes: list[int]
    duplicates: dict[int, list[int]]
    this_step: set[int]


class PackedPart(NamedTuple):
    """A packed state without its requests."""

    pool: bytes
    hit: bytes
    """The hit of a lookup that was the last operation."""
    names: list[int]
    """Block `b` of the state that was packed is block `names[b]` of the packed state."""


class View(NamedTuple):
    """A pool as one request sees it: its own tables first, then those of the others, whoever they are."""

    part: PackedPart
    place: list[int]
    """Slot `i` stands at `place[i]` of the view."""


class Packed(NamedTuple):
    """A packed state, and what its renaming was."""

    state: bytes
    order: Order
    names: list[int]


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
        self._orders: dict[object, list[Order]] = {}
        self._pools: dict[bytes, PackedPool] = {}
        self._older_pools: dict[bytes, PackedPool] = {}
        """Those met before the last so many others: forgotten next."""

    def canonical(self, look: Look, focus: Focus) -> Packed:
        """The state up to renaming of blocks and requests."""
        orders = self.orders(look.requests, focus)
        if len(orders) == 1:
            return self.pack(look, focus, orders[0], rename=True)
        return min((self.pack(look, focus, order, rename=True) for order in orders), key=lambda packed: packed.state)

    def exact(self, look: Look, focus: Focus) -> Packed:
        """The state as it is, with nothing renamed."""
        return self.pack(look, focus, self.slots, rename=False)

    def orders(self, requests: Sequence[tuple[int, int, int]], focus: Focus) -> list[Order]:
        """Orders of the slots that are to be tried: one, unless running requests are alike in all but their tables."""
        mark = focus.slot if focus.phase else -1
        found = self._orders.get((*requests, mark))
        if found is None:
            found = self._orders[(*requests, mark)] = self._find_orders(requests, mark)
        return found

    def _find_orders(self, requests: Sequence[tuple[int, int, int]], mark: int) -> list[Order]:
        keys = [(not request[0], request, slot == mark) for slot, request in enumerate(requests)]
        order = tuple(sorted(self.slots, key=keys.__getitem__))
        if not any(keys[a] == keys[b] and requests[a][1] for a, b in pairwise(order)):
            return [order]
        ordered = [keys[slot] for slot in order]
        return [other for other in permutations(order) if [keys[slot] for slot in other] == ordered]

    def pack(self, look: Look, focus: Focus, order: Order, rename: bool) -> Packed:
        """The bytes of a state with its slots in this order."""
        part = self.part(look, focus, order, rename)
        return Packed(head(look.requests, focus, order) + part.pool + part.hit, order, part.names)

    def part(self, look: Look, focus: Focus, order: Order, rename: bool) -> PackedPart:
        """The bytes of everything but the requests, with their slots in this order."""
        _, tables, registered, queue, _, codes, duplicates, this_step = look
        out: list[int] = []
        names, count = (self.nameless[:], len(self.sinks)) if rename else (self.unnamed, 0)
        for group in range(self.num_groups):
            of_group, registered_of = tables[group], registered[group]
            for i in order:
                name = NAMES[i]
                table = of_group.get(name, ())
                out += (len(table), registered_of.get(name, -1) + 1)
                if not rename:
                    out += table
                    continue
                for block in table:
                    name_of = names[block]
                    if block and not name_of:
                        count += 1
                        name_of = names[block] = count
                    out.append(name_of)
        out.append(len(queue))
        if rename:
            for block in queue:
                count += 1
                names[block] = count
            renamed = [0] * self.num_blocks
            for block, code in enumerate(codes):
                if code:
                    renamed[names[block]] = code
            out += renamed
        else:
            out += queue
            out += codes
        out.append(len(this_step))
        if this_step:
            out += sorted(this_step)
        for code in sorted(duplicates) if duplicates else ():
            out.append(len(duplicates[code]))
            out += [names[block] for block in duplicates[code]]
        out.append(0)
        return PackedPart(bytes(out), self.hit(focus, names), names)

    def hit(self, focus: Focus, names: Sequence[int]) -> bytes:
        """The bytes of the hit of a lookup."""
        if focus.phase != LOOKED_UP:
            return b""
        tail = [focus.hit_tokens]
        for row in focus.hit:
            tail.append(len(row))
            tail += [names[block] for block in row]
        tail.append(len(tail) + 1)  # read from the end, it says where the hit begins
        return bytes(tail)

    def reordered(self, pool: PackedPool, look: Look, order: Order) -> PackedPart:
        """The pool of a canonical state with its slots in another order."""
        part = pool.reordered.get(order)
        if part is None:
            part = pool.reordered[order] = self.part(look, Focus(), order, rename=True)
        return part

    def turned(self, packed: bytes, hit: bytes, order: Order) -> tuple[bytes, bytes]:
        """A packed pool and hit with their slots in another order."""
        pool = self.pool(packed, renamed=True)
        part = self.reordered(pool, Look([], *pool[3:]), order)
        return part.pool, self.hit(self.focus(LOOKED_UP, 0, hit, 0), part.names) if hit else hit

    def view(self, pool: PackedPool, look: Look, slot: int) -> View:
        """The pool of a canonical state as the request in this slot sees it."""
        view = pool.views.get(slot)
        if view is None:
            others = sorted((other for other in self.slots if other != slot), key=lambda other: _tables_of(look, other))
            order = (slot, *others)
            place = [order.index(own) for own in self.slots]
            view = pool.views[slot] = View(self.reordered(pool, look, order), place)
        return view

    def unpack(self, state: bytes, renamed: bool) -> tuple[Look, Focus, PackedPool]:
        """What was packed, canonically if `renamed`. What comes back is shared: change nothing in it."""
        phase, slot = state[0] >> 4, state[0] & 15
        begin = 1 + 3 * self.num_slots
        end = len(state)
        if phase == LOOKED_UP:
            end -= state[-1]
        pool = self.pool(state[begin:end], renamed)
        requests = [(state[i], state[i + 1], state[i + 2]) for i in range(1, begin, 3)]
        focus = self.focus(phase, slot, state, end) if phase else _REST
        return Look(requests, *pool[3:]), focus, pool

    def pool(self, packed: bytes, renamed: bool) -> PackedPool:
        """What was packed as the part of a state without requests and hit."""
        pool = self._pools.get(packed)
        if pool is None:
            pool = self._older_pools.get(packed) or self._unpack_pool(packed, renamed)
            if len(self._pools) > _KEPT_POOLS:
                self._pools, self._older_pools = {}, self._pools
            self._pools[packed] = pool
        return pool

    def _unpack_pool(self, state: bytes, renamed: bool) -> PackedPool:
        num_blocks, at = self.num_blocks, 0
        tables: Tables = []
        registered: list[dict[str, int]] = []
        counts = self.counts[:]
        for _ in range(self.num_groups):
            of_group: dict[str, list[int]] = {}
            registered_of: dict[str, int] = {}
            for name in self.names:
                length, known = state[at : at + 2]
                at += 2
                if length:
                    of_group[name] = table = list(state[at : at + length])
                    at += length
                    for block in table:
                        counts[block] += 1
                if known:
                    registered_of[name] = known - 1
            tables.append(of_group)
            registered.append(registered_of)
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
        return PackedPool(state, {}, {}, tables, registered, queue, counts, codes, duplicates, this_step)

    def focus(self, phase: int, slot: int, state: bytes, at: int) -> Focus:
        """What a state is in the middle of; the hit of a lookup is packed at `at`."""
        if phase != LOOKED_UP:
            return Focus(phase, slot)
        tokens, at = state[at], at + 1
        hit = []
        for _ in range(self.num_groups):
            hit.append(tuple(state[at + 1 : at + 1 + state[at]]))
            at += 1 + state[at]
        return Focus(phase, slot, tokens, tuple(hit))


def head(requests: Sequence[tuple[int, int, int]], focus: Focus, order: Order) -> bytes:
    """The bytes of focus and requests."""
    out = [focus.phase << 4 | order.index(focus.slot)] if focus.phase else [0]
    for slot in order:
        out += requests[slot]
    return bytes(out)


def _tables_of(look: Look, slot: int) -> list[object]:
    """What the tables of a request consist of, the names of blocks left out."""
    name = NAMES[slot]
    found: list[object] = []
    for tables, registered in zip(look.tables, look.registered, strict=True):
        blocks = [(block > 0, look.codes[block], look.counts[block]) for block in tables.get(name, ())]
        found += [registered.get(name, -1), blocks]
    return found
