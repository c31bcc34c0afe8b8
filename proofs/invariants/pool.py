"""A pool of any size at any moment of an operation, on which a core's own methods run.

A *moment* says of every block how many references it has, whether it stands in the free queue and whether it carries an
identity, as functions of the block. Made with symbols, it stands for every pool of which that is true; a loop's
invariant is such a moment for each number of rounds. What is looked up here stands in for two objects of the pool:

* the free queue, by what T25 proves of it for any length: `remove` takes out a block that is in it, `popleft_n` takes
  the front, `append_n` and `prepend_n` put in different blocks that are not in it. That they are called so is claimed.
* the map of identities: `pop(key, id)` gives up a registered block and says so, `insert` registers one. Held against
  the real map for all small contents in the tests.

Events and metrics are off: neither touches a link, a count or an identity. Blocks are the real ones on a `Heap`.
"""

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, NamedTuple

import z3

from ..heap import LINKS, Heap
from ..roles.bare import bare
from ..solver import ProofError
from ..symbolic import SymbolicBool, SymbolicInt, running
from .listings import ANY_BLOCK, ANY_PLACE, Grown, Listing, OfBlock, as_term


class Fields(NamedTuple):
    """What a moment says of each block."""

    count: OfBlock
    """References."""
    free: OfBlock
    """Is it in the free queue?"""
    named: OfBlock
    """Does it carry an identity?"""
    registered: OfBlock | None = None
    """Is it in the map of identities? None: exactly if it carries one."""


class Queue:
    """What T25 proves of the free queue."""

    def __init__(self, moment: "Moment", order: Listing) -> None:
        self._moment, self.order = moment, order

    @property
    def num_free_blocks(self) -> SymbolicInt:
        """How many stand in it (T25: the counter is the length)."""
        return SymbolicInt(self.order.length)

    def remove(self, block: Any) -> None:
        """A block that stands in it leaves it."""
        gone, old = block.reference, self.order
        self._moment.owe(old.holds(gone))
        where = old.place(gone)
        self.order = Listing(
            old.length - 1,
            lambda j: z3.If(j < where, old.at(j), old.at(j + 1)),
            lambda x: z3.If(x == gone, z3.IntVal(-1), z3.If(old.place(x) < where, old.place(x), old.place(x) - 1)),
        )

    def popleft_n(self, count: Any) -> Listing:
        """So many leave its front."""
        k, old = as_term(count), self.order
        self._moment.owe(z3.And(k >= 0, k <= old.length))
        self.order = Listing(old.length - k, lambda j: old.at(j + k), lambda x: old.place(x) - k)
        return Listing(k, old.at, old.place)

    def append_n(self, blocks: Any) -> None:
        """Different blocks that do not stand in it join its back."""
        new, old = self._joining(blocks), self.order
        self.order = _joined(old, new)

    def prepend_n(self, blocks: Any) -> None:
        """The same at its front."""
        new, old = self._joining(blocks), self.order
        self.order = _joined(new, old)

    def _joining(self, blocks: Any) -> Listing:
        if isinstance(blocks, Grown) and not blocks.added:
            new = blocks.listing
        elif isinstance(blocks, list) and not blocks:
            new = Listing(0, lambda j: z3.IntVal(-1), lambda x: z3.IntVal(-1))
        else:
            raise ProofError(f"{running().name}: {blocks!r} joins the queue: only what a loop has gathered can")
        first = new.at(ANY_PLACE)
        inside = z3.And(ANY_PLACE >= 0, new.length > ANY_PLACE)
        self._moment.owe(new.proper(self._moment.size))
        self._moment.owe(z3.Implies(inside, z3.Not(self.order.holds(first))))
        return new


def _joined(front: Listing, back: Listing) -> Listing:
    n = front.length
    return Listing(
        n + back.length,
        lambda j: z3.If(j < n, front.at(j), back.at(j - n)),
        lambda x: z3.If(front.holds(x), front.place(x), back.place(x) + n),
    )


class Registry:
    """What the map of identities does."""

    def __init__(self, moment: "Moment", registered: OfBlock) -> None:
        self._moment, self.registered = moment, registered

    def pop(self, key: Any, block_id: Any) -> Any:
        """Give up the block if it is registered under its identity; None if it is not registered."""
        x = z3.simplify(as_term(block_id))
        owner = self._moment.heap.block(x)
        if owner is None or owner._block_hash is not key:
            raise ProofError(f"{running().name}: a block is looked for under the identity of another one")
        before = self.registered
        if not running().decide(before(x)):
            return None
        self.registered = lambda y: z3.And(before(y), y != x)
        return owner

    def insert(self, key: Any, block: Any) -> None:
        """Register the block under an identity, which must be the one it carries."""
        if block._block_hash is not key:
            raise ProofError(f"{running().name}: a block is registered under what it does not carry")
        before, x = self.registered, block.reference
        self.registered = lambda y: z3.Or(before(y), y == x)
        self._moment.inserted.append((key, block))


class Table:
    """A table of a request: a block in each of any number of entries. `at` gives their ids."""

    any_length = True

    def __init__(self, moment: "Moment", at: OfBlock) -> None:
        self._moment, self._at = moment, at

    def at_moment(self, moment: "Moment") -> "Table":
        """The same table, its blocks as they are at another moment."""
        return Table(moment, self._at)

    def __getitem__(self, index: Any) -> Any:
        return self._moment.heap.block(self._at(as_term(index)))


class Own:
    """The pool's blocks by id."""

    any_length = True

    def __init__(self, heap: Heap, size: Any) -> None:
        self._heap, self._size = heap, size

    def __getitem__(self, index: Any) -> Any:
        i = z3.simplify(as_term(index))
        if running().decide(z3.And(i >= 0, i < self._size)):
            return self._heap.block(i)
        raise ProofError(f"{running().name}: a block of the pool is asked for by an id outside of it")

    def symbolic_len(self) -> SymbolicInt:
        """Number of blocks."""
        return SymbolicInt(self._size)


class _MomentHeap(Heap):
    """Blocks whose fields are what the moment says."""

    def __init__(self, kind: type, fields: Mapping[str, OfBlock], assumed: Callable[[Any], None]) -> None:
        super().__init__(kind, "moment", assumed)
        self._fields = {**dict.fromkeys(LINKS, _no_links), **fields}

    def become(self, **fields: OfBlock) -> None:
        """Let these fields be what they are at another moment."""
        self._fields.update(fields)
        for field in fields:
            self._written[field].clear()


def _refused(*anything: Any) -> None:
    """What the pool does with misuse, without the message."""
    raise ValueError("refused")


def _no_links(x: Any) -> Any:
    raise ProofError(f"{running().name}: a link of a block is read: here the queue is known by what it does only")


class Moment:
    """A pool of which the fields are true. Make it inside the run.

    `facts` says what is known of each block that is met, in terms of whatever the fields are made of.
    """

    def __init__(
        self, f: Any, name: str, size: Any, caching: Any, fields: Fields, facts: Callable[[Any], None]
    ) -> None:
        self.size, self.fields, self._facts = as_term(size), fields, facts
        self._made, self._first_facts = (f, caching), facts
        self.owed: list[Any] = []
        """What must hold for the contracts to speak of the calls that were made."""
        self.inserted: list[tuple[Any, Any]] = []
        self._at, self._place = (z3.Function(f"{stem}_{name}", z3.IntSort(), z3.IntSort()) for stem in ("at", "place"))
        self._length = z3.Int(f"length_{name}")
        self._known: dict[tuple[str, int], Any] = {}
        running().assume(self._length >= 0)
        self.order = Listing(self._length, self._block_at, self._place_of)
        self.heap = _MomentHeap(
            f.block_kind,
            {
                "ref_cnt": fields.count,
                "_block_hash": fields.named,
                "block_id": lambda x: x,
                "is_null": lambda x: x == 0,
            },
            facts,
        )
        self.queue, self.registry = Queue(self, self.order), Registry(self, fields.registered or fields.named)
        self.null = self.heap.block(z3.IntVal(0))
        self.own = Own(self.heap, self.size)
        self.pool = bare(
            f.pool_kind,
            num_gpu_blocks=SymbolicInt(self.size),
            enable_caching=caching,
            hash_block_size=1,
            blocks=self.own,
            free_block_queue=self.queue,
            null_block=self.null,
            cached_block_hash_to_block=self.registry,
            metrics_collector=None,
            enable_kv_cache_events=False,
            _refuse=_refused,
        )

    def another(self, name: str, fields: Fields, known: Callable[[Any], Any] | None = None) -> "Moment":
        """The same pool at another moment, at which something more is known of each block."""
        f, caching = self._made

        def facts(x: Any) -> None:
            self._first_facts(x)
            if known is not None:
                running().assume(known(x))

        made = Moment(f, name, SymbolicInt(self.size), caching, fields, facts)
        made._first_facts = self._first_facts
        return made

    def become(self, fields: Fields) -> None:
        """Let references and identities be those of another moment, in the middle of a round."""
        self.heap.become(ref_cnt=fields.count, _block_hash=fields.named)

    def owe(self, condition: Any) -> None:
        """Something to be proved."""
        self.owed.append(condition)

    def shows(self, expected: Fields) -> list[SymbolicBool]:
        """The conditions under which this is what the moment has come to, the queue and the map included."""
        x, order = ANY_BLOCK, self.queue.order
        self._facts(x)
        inside = z3.And(x >= 1, x < self.size)
        registered = self._registered()
        right = [
            self.heap.value("ref_cnt", x) == expected.count(x),
            order.holds(x) == expected.free(x),
            self.heap.value("_block_hash", x) == expected.named(x),
            registered(x) == (expected.registered or expected.named)(x),
        ]
        nameless = z3.Or(self.heap.value("_block_hash", z3.IntVal(0)), registered(z3.IntVal(0)))
        here = order.at(ANY_PLACE)
        self._facts(here)
        claims = [*(z3.Implies(inside, one) for one in right), z3.Not(nameless), order.proper(self.size)]
        return [SymbolicBool(claim) for claim in (*self.owed, *claims)]

    def _registered(self) -> OfBlock:
        """What the pool's map has; it may have been replaced by a real one."""
        found = self.pool.cached_block_hash_to_block
        if isinstance(found, Registry):
            return found.registered
        if len(found):
            raise ProofError(f"{running().name}: the map of identities is replaced by one that is not empty")
        return lambda x: z3.BoolVal(False)

    def counts_right(self) -> SymbolicBool:
        """S1 for an arbitrary block: no count is negative, and it is free exactly if nothing holds it."""
        x = ANY_BLOCK
        count = self.heap.value("ref_cnt", x)
        right = z3.And(count >= 0, (count == 0) == self.queue.order.holds(x))
        return SymbolicBool(z3.Implies(z3.And(x >= 1, x < self.size), right))

    def moved(self, value: Any, before: "Moment", lists: Mapping[int, Grown]) -> Any:
        """What a variable with this value at another moment holds at this one."""
        if id(value) in lists:
            return lists[id(value)]
        same = (
            (before.pool, self.pool),
            (before.own, self.own),
            (before.queue, self.queue),
            (before.registry, self.registry),
            (before.null, self.null),
        )
        for old, new in same:
            if value is old:
                return new
            if isinstance(value, MethodType) and value.__self__ is old:
                return getattr(new, value.__name__)
        if hasattr(value, "at_moment"):
            return value.at_moment(self)
        if isinstance(value, list):
            raise ProofError(f"{running().name}: a loop gathers something that its invariant does not speak of")
        return value

    # The order of the queue is any order of the free blocks.

    def _block_at(self, j: Any) -> Any:
        here = self._at(j)
        if self._new("place", j):
            self._facts(here)
            inside = z3.And(here >= 1, here < self.size, self.fields.free(here), self._place(here) == j)
            running().assume(z3.Implies(z3.And(j >= 0, j < self._length), inside))
        return here

    def _place_of(self, x: Any) -> Any:
        place = self._place(x)
        if self._new("block", x):
            stands = z3.And(place >= 0, place < self._length, self._at(place) == x)
            running().assume(z3.Implies(z3.And(x >= 1, x < self.size), stands == self.fields.free(x)))
        return place

    def _new(self, kind: str, about: Any) -> bool:
        key = kind, about.get_id()
        if key in self._known:
            return False
        self._known[key] = about  # kept, so that its number stays its own
        return True
