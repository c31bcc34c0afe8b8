"""A free queue of any length, on which a core's own methods run: symbolic in a proof, real objects in a replay.

A *scene* holds a queue of `n` blocks and blocks that are not in it, and says whether the queue now reads as it should.
A theorem is written against a scene once. With symbols it is about every list: the blocks of the queue are given by two
functions that are each other's inverse, `at` (place to reference) and `place` (reference to place); the head stands at
place -1, the tail at place n. With plain numbers the scene is made of the core's real blocks and its real queue.

The invariant, for every place and every block:
* neighbours point at each other: `next[at[i]] = at[i + 1]` and `prev[at[i + 1]] = at[i]`,
* the head has no predecessor, the tail no successor, and a block that is not in the queue points nowhere,
* the counter is the length.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import z3

from .bare import bare
from .heap import LINKS, NONE, Heap
from .plain_queue import PlainQueue
from .symbolic import SymbolicBool, SymbolicInt, running, term

HEAD, TAIL = -2, -3
"""References of the sentinels."""
OFF = -9
"""Not a place."""

_VARIABLE = z3.Int("fact_of")
_FACTS: dict[tuple[object, ...], Any] = {}
"""Facts about a place or a block, as terms over `_VARIABLE`."""


class Order(Protocol):
    """Which blocks stand in the queue, front first. The methods return another order and change nothing."""

    def shows(self, place: Any, block: Any) -> Any:
        """True if this is the block at the place."""

    def dropped(self, count: Any) -> "Order":
        """Without the first `count`."""

    def without(self, block: Any) -> "Order":
        """Without a block that stands in it."""

    def inserted(self, place: Any, blocks: Sequence[Any]) -> "Order":
        """With more blocks, the first of them at this place."""

    @property
    def length(self) -> Any:
        """Number of blocks."""


class SymbolicOrder:
    """An order of any length: its two functions, and which places of the first order they lead back to."""

    def __init__(self, length: Any, at: Any, place: Any, origins: Any) -> None:
        self._length = term(length)
        self.at, self.place, self.origins = at, place, origins

    @property
    def length(self) -> SymbolicInt:
        """Number of blocks."""
        return SymbolicInt(self._length)

    def holds(self, reference: Any) -> Any:
        """The term that says whether this is a block of the queue or a sentinel."""
        place = self.place(reference)
        return z3.And(place >= -1, place <= self._length, self.at(place) == reference)

    def shows(self, place: Any, block: Any) -> SymbolicBool:
        """True if this is the block at the place."""
        return SymbolicBool(self.at(term(place)) == block.reference)

    def dropped(self, count: Any) -> "SymbolicOrder":
        """Without the first `count`."""
        k = term(count)
        return SymbolicOrder(
            self.length - count,
            lambda i: z3.If(i == -1, z3.IntVal(HEAD), self.at(i + k)),
            lambda x: z3.If(x == HEAD, z3.IntVal(-1), self.place(x) - k),
            lambda i: self.origins(i + k),
        )

    def without(self, block: Any) -> "SymbolicOrder":
        """Without a block that stands in it."""
        gone = block.reference
        where = self.place(gone)
        return SymbolicOrder(
            self.length - 1,
            lambda i: z3.If(i < where, self.at(i), self.at(i + 1)),
            lambda x: z3.If(x == gone, z3.IntVal(OFF), z3.If(self.place(x) < where, self.place(x), self.place(x) - 1)),
            lambda i: [*self.origins(i), *self.origins(i + 1)],
        )

    def inserted(self, place: Any, blocks: Sequence[Any]) -> "SymbolicOrder":
        """With more blocks, the first of them at this place."""
        first, count = term(place), len(blocks)

        def at(i: Any) -> Any:
            result = z3.If(i < first, self.at(i), self.at(i - count))
            for number, block in enumerate(blocks):
                result = z3.If(i == first + number, block.reference, result)
            return result

        def place_of(x: Any) -> Any:
            result = z3.If(self.place(x) < first, self.place(x), self.place(x) + count)
            for number, block in enumerate(blocks):
                result = z3.If(x == block.reference, first + number, result)
            return result

        def origins(i: Any) -> Any:
            return [*self.origins(i), *self.origins(i - count)] if count else self.origins(i)

        return SymbolicOrder(self.length + count, at, place_of, origins)


class SymbolicQueue:
    """A scene for a proof: a queue of any length `n`, and any number of blocks that are not in it.

    `gap`: the queue is just being changed: between the blocks at places `gap - 1` and `gap` nothing is known of the
    links. Make it inside the run.
    """

    def __init__(self, f: Any, n: Any, name: str = "q", gap: Any = None) -> None:
        self._name, self._n, self._gap = name, term(n), None if gap is None else term(gap)
        at, place, spare, number = (
            z3.Function(f"{stem}_{name}", z3.IntSort(), z3.IntSort()) for stem in ("at", "place", "spare", "number")
        )
        self._at, self._place, self._spare, self._number = at, place, spare, number
        self._of = (self._n, self._gap)
        self._places_met: dict[int, Any] = {}
        self.order = SymbolicOrder(n, at, place, lambda i: [i])
        self.heap = Heap(f.block_kind, name, self._assume_reference)
        running().assume(z3.And(self._n >= 0, at(-1) == HEAD, at(self._n) == TAIL))
        for sentinel in (HEAD, TAIL):
            running().assume(self.heap.before("block_id", z3.IntVal(sentinel)) == -1)
        self._assume_place(z3.IntVal(-1))
        self._assume_place(self._n)
        head, tail = self.heap.block(z3.IntVal(HEAD)), self.heap.block(z3.IntVal(TAIL))
        self.queue = bare(f.queue_kind, fake_free_list_head=head, fake_free_list_tail=tail, num_free_blocks=n)

    def block(self, place: Any) -> Any:
        """The block at this place of the queue; below 0, the block of this number among those that are not in it."""
        where = term(place)
        self._assume_place(where)
        if running().decide(z3.And(where >= 0, where < self._n)):
            return self.heap.block(self._at(where))
        spare = self._spare(where)
        special = [spare != reference for reference in (NONE, HEAD, TAIL)]
        facts = [self._number(spare) == where, *special, z3.Not(self.order.holds(spare)), *self._facts_of_spare(spare)]
        running().assume(z3.Implies(where < 0, z3.And(facts)))
        return self.heap.block(spare)

    def block_at(self, place: Any) -> Any:
        """The block at a place of the queue at first, or the sentinel if the place is -1 or n."""
        self._assume_place(term(place))
        return self.heap.block(self._at(term(place)))

    def reads(self, order: SymbolicOrder) -> list[SymbolicBool]:
        """The conditions under which the queue is in order and reads like this; all of them must hold."""
        return [*self._linked(order, None), self.queue.num_free_blocks == order.length]

    def reads_but_for_gap(self, order: SymbolicOrder, gap: Any) -> list[SymbolicBool]:
        """As `reads`, whatever links there are between `gap - 1` and `gap`, and whatever the counter says."""
        return self._linked(order, term(gap))

    def unchanged(self) -> list[SymbolicBool]:
        """True if links, counter and reference counts are those of the beginning."""
        any_block = z3.Int(f"any_block_{self._name}")
        self.heap.meet(any_block)
        fields = (*LINKS, "ref_cnt")
        same = [self.heap.value(field, any_block) == self.heap.before(field, any_block) for field in fields]
        return [SymbolicBool(z3.And(same)), self.queue.num_free_blocks == SymbolicInt(self._n)]

    def _linked(self, order: SymbolicOrder, gap: Any) -> list[SymbolicBool]:
        """The invariant at an arbitrary place and for an arbitrary block."""
        i, x = z3.Int(f"any_place_{self._name}"), z3.Int(f"any_block_{self._name}")
        length, value, none = order.length.term, self.heap.value, z3.IntVal(NONE)
        for place in (i - 1, i, i + 1):
            for origin in order.origins(place):
                self._assume_place(origin)
        self.heap.meet(x)
        here, after = order.at(i), order.at(i + 1)
        inside = z3.And(i >= -1, i < length, True if gap is None else i != gap - 1)
        neighbours = z3.And(value("next_free_block", here) == after, value("prev_free_block", after) == here)
        nowhere = z3.And(value("next_free_block", x) == none, value("prev_free_block", x) == none)
        ends = z3.And(
            order.at(z3.IntVal(-1)) == HEAD,
            value("prev_free_block", z3.IntVal(HEAD)) == none,
            order.at(length) == TAIL,
            value("next_free_block", z3.IntVal(TAIL)) == none,
        )
        claims = [
            z3.And(length >= 0, ends),
            z3.Implies(z3.And(i >= -1, i <= length), z3.And(here != none, order.place(here) == i)),
            z3.Implies(inside, neighbours),
            z3.Implies(z3.And(x != none, z3.Not(order.holds(x))), nowhere),
        ]
        return [SymbolicBool(claim) for claim in claims]

    def _assume_place(self, i: Any) -> None:
        """The invariant at one place."""
        i = z3.simplify(i)
        if i.get_id() not in self._places_met:
            self._places_met[i.get_id()] = i
            running().assume(self._instance("place", self._fact_of_place, i))

    def _assume_reference(self, x: Any) -> None:
        """The invariant for one block."""
        place = self._place(x)
        for near in (place - 1, place, place + 1):
            self._assume_place(near)
        running().assume(self._instance("block", self._fact_of_reference, x))

    def _instance(self, name: str, fact: Callable[[Any], Any], x: Any) -> Any:
        """A fact for `x`. It is built once for a variable, which is then replaced: that is quicker by far."""
        key = (name, type(self), self._name, *(None if one is None else one.get_id() for one in self._of))
        if key not in _FACTS:
            _FACTS[key] = self._of, fact(_VARIABLE)  # terms are kept, so that no other one gets their identities
        return z3.substitute(_FACTS[key][1], (_VARIABLE, x))

    def _fact_of_place(self, i: Any) -> Any:
        here, heap = self._at(i), self.heap
        forward, backward = i < self._n, i >= 0
        if self._gap is not None:
            forward, backward = z3.And(forward, i != self._gap - 1), z3.And(backward, i != self._gap)
        facts = [
            here != NONE,
            self._place(here) == i,
            *self._facts_of_member(i, here),
            z3.Implies(forward, heap.before("next_free_block", here) == self._at(i + 1)),
            z3.Implies(backward, heap.before("prev_free_block", here) == self._at(i - 1)),
            z3.Implies(i == -1, heap.before("prev_free_block", here) == NONE),
            z3.Implies(i == self._n, heap.before("next_free_block", here) == NONE),
        ]
        return z3.Implies(z3.And(i >= -1, i <= self._n), z3.And(facts))

    def _fact_of_reference(self, x: Any) -> Any:
        nowhere = [self.heap.before(field, x) == NONE for field in LINKS]
        off = z3.And(x != NONE, z3.Not(self.order.holds(x)))
        return z3.And(z3.Implies(off, z3.And(nowhere)), *self._facts_of_block(x))

    def _facts_of_member(self, i: Any, here: Any) -> list[Any]:
        """What else holds of the block at place `i`, or of the sentinel there."""
        return []

    def _facts_of_block(self, x: Any) -> list[Any]:
        """What else holds of any block."""
        return []

    def _facts_of_spare(self, x: Any) -> list[Any]:
        """What else holds of a block that is not in the queue and has a number."""
        return []


def queue_scene(f: Any, n: Any) -> Any:
    """A queue of `n` blocks of the core whose roles these are; symbolic if `n` is."""
    return SymbolicQueue(f, n) if isinstance(n, SymbolicInt) else PlainQueue(f, n)
