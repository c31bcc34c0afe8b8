"""A pool of any size at any moment of an operation, on which a core's own methods run.

A *moment* says of every block how many references it has, whether it stands in the free queue and whether it carries an
identity, as functions of the block. Made with symbols, it stands for every pool of which that is true; a loop's
invariant is such a moment for each number of rounds. What is looked up here stands in for two objects of the pool:

* the free queue, by what T25 says of it: `remove` takes out a block that is in it, `take` takes the front, `append_n`
  and `prepend_n` put in different blocks that are not in it, `lose` notes blocks of one batch that have been given
  another state. That they are called so is claimed.
* the map of identities: `forget` takes the identity from a block and says so if it is registered under it, `register`
  gives identities to blocks that have none. Held against the real map for all small contents in the tests.

Events and metrics are off: neither touches a link, a count or an identity. Blocks are the real ones on a `Heap`: a
block's `state` is -1 for the null block, a batch for what is free, else the number of holders.
"""

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, ClassVar, NamedTuple

import z3

from ...impl.pool.free_queue import Batch
from ..heap import Heap, Identity
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
    shared: Any = None
    """How many blocks have two holders or more; None where it does not matter."""


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
        block.state = 0
        where = old.place(gone)
        self.order = Listing(
            old.length - 1,
            lambda j: z3.If(j < where, old.at(j), old.at(j + 1)),
            lambda x: z3.If(x == gone, z3.IntVal(-1), z3.If(old.place(x) < where, old.place(x), old.place(x) - 1)),
        )

    def take(self, count: Any) -> Listing:
        """So many leave its front. Their state is the caller's to set."""
        k, old = as_term(count), self.order
        self._moment.owe(z3.And(k >= 0, k <= old.length))
        self.order = Listing(old.length - k, lambda j: old.at(j + k), lambda x: old.place(x) - k)
        return Listing(k, old.at, old.place)

    def lose(self, batch: Any, count: Any) -> None:
        """So many blocks of one batch have been given another state: those of the listing that leaves."""
        gone, old, x = self._moment.leaving, self.order, ANY_BLOCK
        if gone is None:
            raise ProofError(f"{running().name}: blocks leave the queue, and nothing is known of which")
        if not isinstance(batch, Waiting):
            self._moment.owe(z3.BoolVal(False))
            return
        self._moment.heap.meet(x)
        inside = z3.And(x >= 1, x < self._moment.size)
        changed = z3.And(old.holds(x), self._moment.heap.value("state", x) != 0)
        self._moment.owe(as_term(count) == gone.length)
        self._moment.owe(z3.Implies(inside, changed == gone.holds(x)))
        self._moment.owe(z3.Implies(z3.And(inside, gone.holds(x)), self._moment.batch_of(x) == batch.number))
        self.order = without(old, gone)

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
        elif isinstance(blocks, Listing):
            new = blocks
        elif isinstance(blocks, list):
            new = _listed([block.reference for block in blocks])
        else:
            raise ProofError(f"{running().name}: {blocks!r} joins the queue: only what a loop has gathered can")
        first = new.at(ANY_PLACE)
        inside = z3.And(ANY_PLACE >= 0, new.length > ANY_PLACE)
        self._moment.owe(new.proper(self._moment.size))
        self._moment.owe(z3.Implies(inside, z3.Not(self.order.holds(first))))
        self._moment.heap.queued.append(new)
        return new


def _listed(references: list[Any]) -> Listing:
    """A few blocks, one behind the other."""

    def at(j: Any) -> Any:
        here = z3.IntVal(-1)
        for number, reference in enumerate(references):
            here = z3.If(j == number, reference, here)
        return here

    def place(x: Any) -> Any:
        where = z3.IntVal(-1)
        for number, reference in enumerate(references):
            where = z3.If(x == reference, z3.IntVal(number), where)
        return where

    return Listing(len(references), at, place)


def without(old: Listing, gone: Listing) -> Listing:
    """What is left of a listing without the blocks of another one, all of which stand in it: in whatever order, which
    is T25's to say."""
    name = running().fresh_name("left")
    at, place = (z3.Function(f"{stem}_{name}", z3.IntSort(), z3.IntSort()) for stem in ("at", "place"))
    length = old.length - gone.length

    def item(j: Any) -> Any:
        here = at(j)
        stays = z3.And(old.holds(here), z3.Not(gone.holds(here)), place(here) == j, here >= 1)
        running().assume(z3.Implies(z3.And(j >= 0, j < length), stays))
        return here

    def place_of(x: Any) -> Any:
        where = place(x)
        stands = z3.And(where >= 0, where < length, at(where) == x)
        running().assume(stands == z3.And(old.holds(x), z3.Not(gone.holds(x))))
        return where

    running().assume(length >= 0)
    return Listing(length, item, place_of)


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

    def forget(self, block: Any) -> bool:
        """Take the identity from the block, if it is registered under it; False, with nothing changed, if not."""
        before, x = self.registered, block.reference
        if block.content is None or not running().decide(before(x)):
            return False
        self.registered = lambda y: z3.And(before(y), y != x)
        block.content = None
        return True

    def register(self, group: Any, contents: Any, blocks: Any, row: Any) -> None:
        """Give each of different blocks that have no identity the content that stands where it stands, and register
        it under that."""
        before, named = self.registered, self._moment.heap.as_now("content")
        self._moment.pairs(self._moment, contents, blocks)
        first = z3.And(ANY_PLACE >= 0, blocks.length > ANY_PLACE)
        self._moment.owe(blocks.proper(self._moment.size))
        self._moment.owe(z3.Implies(first, z3.Not(named(blocks.at(ANY_PLACE)))))
        self.registered = lambda y: z3.Or(before(y), blocks.holds(y))
        self._moment.heap.become(content=lambda y: z3.Or(named(y), blocks.holds(y)))


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


class Waiting(Batch):
    """The batch in which a free block waits: of which only that is known, and which one it is."""

    def __init__(self, queue: Any, number: Any) -> None:
        self.queue, self.number = queue, number


class _Run:
    """Some run: that of a block with an identity."""


class _MomentHeap(Heap):
    """Blocks whose fields are what the moment says: `state` is what the moment says of references and free blocks."""

    SORTS: ClassVar = {"state": z3.IntSort(), "content": z3.BoolSort(), "run": z3.BoolSort(), "block_id": z3.IntSort()}

    def __init__(self, kind: type, moment: "Moment", fields: Fields, assumed: Callable[[Any], None]) -> None:
        super().__init__(kind, "moment", assumed)
        self._moment = moment
        self.queued: list[Listing] = []
        """What has joined the queue: nobody holds these any more."""
        self.become(state=fields.count, content=fields.named, run=fields.named, block_id=lambda x: x)

    def become(self, **fields: OfBlock) -> None:
        """Let these fields be what they are at another moment."""
        for field, of_block in fields.items():
            self._fields[field] = of_block
            self._written[field].clear()

    def named_now(self, x: Any) -> Any:
        """Whether a block carries an identity now."""
        return self.value("content", x)

    def as_now(self, field: str) -> OfBlock:
        """What a field is now, also when it has become something else."""
        of_block, written = self._fields[field], list(self._written[field].values())

        def value(x: Any) -> Any:
            result = of_block(x)
            for block, new in written:
                result = z3.If(x == block.reference, self._term(field, new), result)
            return result

        return value

    def read(self, block: Any, field: str) -> Any:
        """What the field holds now; may fork over what the state of a block is."""
        if field in ("state", "run") and id(block) not in self._written[field]:
            if field == "run":
                return None if block.content is None else _Run()
            x, moment = block.reference, self._moment
            if running().decide(x == 0):
                return -1
            if running().decide(moment.fields.free(x)):
                return Waiting(moment.queue, moment.batch_of(x))
            return SymbolicInt(self._fields["state"](x))
        if field == "content" and id(block) not in self._written[field]:
            self.write(block, field, Identity() if running().decide(self._fields[field](block.reference)) else None)
        return super().read(block, field)

    def value(self, field: str, reference: Any) -> Any:
        """The term of a field now, for any reference; of a state the references."""
        result = super().value(field, reference)
        if field == "state":
            for queued in self.queued:
                result = z3.If(queued.holds(reference), z3.IntVal(0), result)
        return result

    def _term(self, field: str, value: Any) -> Any:
        if field == "state" and isinstance(value, Waiting):
            return z3.IntVal(0)
        return z3.BoolVal(value is not None) if field in ("content", "run") else as_term(value)


def _no_pairs(moment: "Moment", contents: Any, blocks: Any) -> None:
    raise ProofError(f"{running().name}: blocks are registered, and nothing is known of what belongs together")


def _refused(*anything: Any) -> None:
    """What the pool does with misuse, without the message."""
    raise ValueError("refused")


class Moment:
    """A pool of which the fields are true. Make it inside the run.

    `facts` says what is known of each block that is met, in terms of whatever the fields are made of.
    """

    def __init__(
        self,
        f: Any,
        name: str,
        size: Any,
        caching: Any,
        fields: Fields,
        facts: Callable[[Any], None],
        made: Any = None,
    ) -> None:
        self.size, self.fields, self._facts = as_term(size), fields, facts
        self._made, self._first_facts = (f, caching, made), facts
        self.owed: list[Any] = []
        """What must hold for the contracts to speak of the calls that were made."""
        self._at, self._place = (z3.Function(f"{stem}_{name}", z3.IntSort(), z3.IntSort()) for stem in ("at", "place"))
        self._length = z3.Int(f"length_{name}")
        self._known: dict[tuple[str, int], Any] = {}
        running().assume(self._length >= 0)
        self.order = Listing(self._length, self._block_at, self._place_of)
        self.leaving: Listing | None = None
        """Blocks that leave the queue together (`Queue.lose`)."""
        self.pairs: Callable[[Moment, Any, Any], None] = _no_pairs
        """Owes that contents and blocks belong together."""
        self.heap = _MomentHeap(f.block_kind, self, fields, facts)
        self.queue, self.registry = Queue(self, self.order), Registry(self, fields.registered or fields.named)
        self.null = self.heap.block(z3.IntVal(0))
        self.own = Own(self.heap, self.size if made is None else made)
        self.pool = bare(
            f.pool_kind,
            num_gpu_blocks=SymbolicInt(self.size),
            enable_caching=caching,
            hash_block_size=1,
            _made=self.own,
            _num_shared=None if fields.shared is None else SymbolicInt(fields.shared),
            _trusting=SymbolicBool(z3.Bool("trusting")),
            free_block_queue=self.queue,
            null_block=self.null,
            cached_block_hash_to_block=self.registry,
            metrics_collector=None,
            enable_kv_cache_events=False,
            _refuse=_refused,
        )

    def another(self, name: str, fields: Fields, known: Callable[[Any], Any] | None = None) -> "Moment":
        """The same pool at another moment, at which something more is known of each block."""
        f, caching, own = self._made

        def facts(x: Any) -> None:
            self._first_facts(x)
            if known is not None:
                running().assume(known(x))

        made = Moment(f, name, SymbolicInt(self.size), caching, fields, facts, own)
        made._first_facts, made.leaving, made.pairs = self._first_facts, self.leaving, self.pairs
        return made

    def become(self, fields: Fields) -> None:
        """Let references and identities be those of another moment, in the middle of a round."""
        self.heap.become(state=fields.count, content=fields.named)
        if fields.shared is not None:
            self.pool._num_shared = SymbolicInt(fields.shared)

    def batch_of(self, x: Any) -> Any:
        """The number of the batch in which a free block waits."""
        return z3.Function("batch_of", z3.IntSort(), z3.IntSort())(x)

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
            self.heap.value("state", x) == expected.count(x),
            order.holds(x) == expected.free(x),
            self.heap.named_now(x) == expected.named(x),
            registered(x) == (expected.registered or expected.named)(x),
        ]
        nameless = z3.Or(self.heap.named_now(z3.IntVal(0)), registered(z3.IntVal(0)))
        here = order.at(ANY_PLACE)
        self._facts(here)
        claims = [*(z3.Implies(inside, one) for one in right), z3.Not(nameless), order.proper(self.size)]
        if expected.shared is not None:
            claims.append(as_term(self.pool._num_shared) == expected.shared)
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
        count = self.heap.value("state", x)
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
