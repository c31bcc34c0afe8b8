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
from functools import partial
from types import MethodType
from typing import Any

import z3

from ..bare import bare
from ..solver import ProofError
from ..symbolic import SymbolicBool, SymbolicInt, running
from .listings import ANY_BLOCK, ANY_PLACE, Grown, Listing, OfBlock, as_term
from .pool_parts import Fields, MomentHeap, Own, Queue, Registry


def _no_pairs(moment: "Moment", contents: Any, blocks: Any) -> None:
    raise ProofError(f"{running().name}: blocks are registered, and nothing is known of what belongs together")


def _no_other(*asked: Any) -> Any:
    raise ProofError(f"{running().name}: the pool leaves {asked[0]} to another one, of which nothing is said")


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
        self.pairs: Callable[[Moment, Any, Any], None] = _no_pairs
        """Owes that contents and blocks belong together."""
        self.inherited: Callable[..., Any] = _no_other
        """What the pool under this one does: the name of the method, and what it is given."""
        self.rounds: Callable[[Any], Any] = partial(_no_other, "a loop")
        """What a loop through blocks goes through (`induction.each_round`)."""
        self.heap = MomentHeap(f.block_kind, self, fields, facts)
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
            # Of the pool of today: nobody is to be told who takes a block, and anything may have been lent.
            _watchers={},
            _folding=(),
            partial={},
            further={},
            _inherited=lambda *asked: self.inherited(*asked),
            _were_lent=lambda blocks: SymbolicBool(z3.Bool("lent")),
            _are_held=self._are_held,
        )

    def another(self, name: str, fields: Fields, known: Callable[[Any], Any] | None = None) -> "Moment":
        """The same pool at another moment, at which something more is known of each block."""
        f, caching, own = self._made

        def facts(x: Any) -> None:
            self._first_facts(x)
            if known is not None:
                running().assume(known(x))

        made = Moment(f, name, SymbolicInt(self.size), caching, fields, facts, own)
        for later in ("partial", "further"):
            setattr(made.pool, later, getattr(self.pool, later))
        made._first_facts, made.pairs, made.inherited = self._first_facts, self.pairs, self.inherited
        return made

    def _are_held(self, blocks: Any) -> bool:
        """Whether few blocks are of this pool, and have as many references as they stand here. S1.short tries it."""
        times = {id(block): sum([other is block for other in blocks]) for block in blocks}
        return all(
            running().decide(
                z3.And(as_term(block.block_id) >= 0, as_term(block.block_id) < self.own.symbolic_len().term)
            )
            and self.own[block.block_id] is block
            and times[id(block)] <= (block.state if isinstance(block.state, SymbolicInt) else 0)
            for block in blocks
        )

    def become(self, fields: Fields) -> None:
        """Let references and identities be those of another moment, in the middle of a round."""
        self.heap.become(state=fields.count, content=fields.named)
        if fields.shared is not None:
            self.pool._num_shared = SymbolicInt(fields.shared)
        self.registry.registered = fields.registered or fields.named

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
