"""What a moment of a pool is made of: its blocks, and what stands in for its free queue and its map of identities."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import z3

from ...impl.pool.block import Batch
from ..heap import Heap, Identity
from ..solver import ProofError
from ..symbolic import SymbolicInt, running
from .listings import ANY_PLACE, Gathered, Grown, Listing, OfBlock, Row, as_term


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

    def __init__(self, moment: Any, order: Listing) -> None:
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
        return Row(self._moment, k, old.at, old.place)

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


def remaining(old: Listing, stays: OfBlock) -> Listing:
    """What is left of a listing when only these blocks stay: in whatever order, which is T25's to say."""
    name = running().fresh_name("left")
    at, place = (z3.Function(f"{stem}_{name}", z3.IntSort(), z3.IntSort()) for stem in ("at", "place"))
    length = z3.Int(f"length_{name}")

    def item(j: Any) -> Any:
        here = at(j)
        inside = z3.And(old.holds(here), stays(here), place(here) == j, here >= 1)
        running().assume(z3.Implies(z3.And(j >= 0, j < length), inside))
        return here

    def place_of(x: Any) -> Any:
        where = place(x)
        stands = z3.And(where >= 0, where < length, at(where) == x)
        running().assume(stands == z3.And(old.holds(x), stays(x)))
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

    def __init__(self, moment: Any, registered: OfBlock) -> None:
        self._moment, self.registered = moment, registered

    def forget(self, block: Any) -> bool:
        """Take the identity from the block, if it is registered under it; False, with nothing changed, if not."""
        before, x = self.registered, block.reference
        if block.content is None or not running().decide(before(x)):
            return False
        self.registered = lambda y: z3.And(before(y), y != x)
        block.content = None
        return True

    def forget_all(self, blocks: Any) -> None:
        """Take the identity from all of these blocks that have one."""
        blocks = blocks if hasattr(blocks, "holds") else _listed([block.reference for block in blocks])
        before, named = self.registered, self._moment.heap.as_now("content")
        self.registered = lambda y: z3.And(before(y), z3.Not(blocks.holds(y)))
        self._moment.heap.become(content=lambda y: z3.And(named(y), z3.Not(blocks.holds(y))))

    def take_end(self, blocks: Any) -> bool:
        """Take the identity from all of these blocks, and hold each; False, with nothing changed, if they are not the
        end of a run."""
        if not running().decide(z3.Bool(running().fresh_name("end"))):
            return False
        self.forget_all(blocks)
        if isinstance(blocks, Row):
            blocks.any_set_to("state", 1)
        else:
            for block in blocks:
                block.state = 1
        return True

    def dissolve(self) -> None:
        """Nobody asks any more."""

    def all_blocks(self) -> Listing:
        """The blocks that are registered, each once, in any order."""
        now = self.registered
        return Gathered("registered", lambda _, x: z3.And(x >= 1, x < self._moment.size, now(x))).after(z3.IntVal(0))

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
    """Some run: that of a block with an identity. Which group it is of does not matter."""

    group = 0


class MomentHeap(Heap):
    """Blocks whose fields are what the moment says: `state` is what the moment says of references and free blocks."""

    SORTS: ClassVar = {"state": z3.IntSort(), "content": z3.BoolSort(), "run": z3.BoolSort(), "block_id": z3.IntSort()}

    def __init__(self, kind: type, moment: Any, fields: Fields, assumed: Callable[[Any], None]) -> None:
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
