"""Where the proofs about the pool begin: a pool of any size, and what they all ask of an operation."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import z3

from ...impl import BlockPool
from ...impl.today.asleep import SleepyQueue
from ...impl.today.block_pool import TodayPool
from ..solver import ProofError
from ..symbolic import SymbolicInt, running, term
from ..theorem import NegativeControl, UnavailableError
from ..wrong_code import changed
from .induction import Batch
from .pool import Moment
from .pool_parts import Fields

PARTS = {
    "size": "blocks of the pool",
    "part": "0 before the first loop, 2k + 1 a round of loop k, 2k + 2 what comes behind it",
    "i": "rounds before",
}
BATCH = {**PARTS, "m": "blocks in the batch"}


class Start:
    """A pool of any size: how many references each block has, and which carry an identity."""

    def __init__(self, f: Any, v: Any, caching: Any = True) -> None:
        count, named = (
            z3.Function("count", z3.IntSort(), z3.IntSort()),
            z3.Function("named", z3.IntSort(), z3.BoolSort()),
        )
        self.size = term(v.size)
        self.made = z3.Int("made")
        """Blocks that exist: those behind them nobody has had yet."""
        self.also: list[Callable[[Any], Any]] = []
        """What else is known of each block."""
        shared, known = z3.Int("shared"), dict[int, Any]()
        running().assume(z3.And(shared >= 0, self.made >= 1, self.made <= self.size))

        def facts(x: Any) -> None:
            if x.get_id() in known:
                return
            known[x.get_id()] = x
            inside = z3.And(x >= 1, x < self.size)
            running().assume(z3.Implies(inside, z3.And(count(x) >= 0, z3.Implies(x >= self.made, count(x) == 0))))
            # No block has two holders if there are none of these.
            running().assume(z3.Implies(z3.And(inside, shared == 0), count(x) <= 1))
            running().assume(z3.Implies(z3.Or(x == 0, x >= self.made, z3.Not(term(caching))), z3.Not(named(x))))
            for one in self.also:
                running().assume(one(x))

        self.fields = Fields(count, lambda x: count(x) == 0, named, None, shared)
        self.moment = Moment(f, "start", v.size, caching, self.fields, facts, self.made)

    def holds(self, x: Any) -> Any:
        """Is it a block of the pool, the null block left out?"""
        return z3.And(x >= 1, x < self.size)

    def batch(self, length: Any) -> Batch:
        """Blocks of the pool, of any number."""
        batch = Batch(length, SymbolicInt(self.made))
        batch.moment = self.moment
        return batch

    def tally(self, batch: Batch, count: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        """How many blocks have two holders or more after so many entries of a batch, by which only the entry's own
        block has gained or lost some: so by how many it is one more or less follows from that block."""
        shared = z3.Function("shared_after", z3.IntSort(), z3.IntSort())

        def after(i: Any) -> Any:
            running().assume(shared(z3.IntVal(0)) == self.fields.shared)
            for k in (z3.simplify(i - 1), i):
                x = batch.at(k)
                one, less = (z3.If(count(x, j) > 1, 1, 0) for j in (k + 1, k))
                change = z3.If(x == 0, shared(k + 1) == shared(k), shared(k + 1) == shared(k) + one - less)
                running().assume(z3.Implies(z3.And(k >= 0, k < batch.length), change))
            return shared(i)

        return after


def is_symbolic(v: Any) -> bool:
    """True in a proof, False in a replay."""
    return isinstance(v.size, SymbolicInt)


def wrong(role: str, what: str, line: str, instead: str, raises: str = "") -> NegativeControl:
    """Our core's method with one line changed, and the error that it then `raises`, if any. Without such a line nobody
    can say whether it would be refuted."""
    try:
        method = changed(getattr(BlockPool, role), line, instead)
    except (ValueError, AttributeError) as error:
        method = partial(_missing, str(error))
    return NegativeControl(what, {role: method}, raises=raises)


def wrong_around(role: str, what: str, line: str, instead: str) -> NegativeControl:
    """The same of what the pool of today puts around a method."""
    try:
        made: Any = type("TodayPool", (TodayPool,), {role: changed(vars(TodayPool)[role], line, instead)})
    except (ValueError, KeyError) as error:
        return NegativeControl(what, {role: partial(_missing, str(error))})
    made.__module__ = TodayPool.__module__
    return NegativeControl(what, {"pool_kind": made, "queue_kind": SleepyQueue})


def _missing(why: str, *anything: Any) -> Any:
    raise ProofError(why)


def parts_of(v: Any, loops: int) -> list[Any]:
    """What is assumed: a pool, and a part of an operation with so many loops."""
    return [v.size >= 1, v.part >= 0, v.part <= 2 * loops]


def own_code(f: Any, role: str) -> Any:
    """The method; only of a pool whose loops are written so that they can be cut. Of a pool that puts something around
    the method of the pool under it (`around`) that one's."""
    method = getattr(f, role)
    if not f.pool_kind.__module__.startswith("blockproof."):
        raise UnavailableError("the induction is written for the loops of our core's pool")
    ways = _ways(f.pool_kind, role)
    return ways[-1] if method in ways else method


def around(f: Any, role: str) -> Any:
    """What a pool puts around the method of the pool under it; None if it has that method as it is."""
    own, *under = _ways(f.pool_kind, role)
    return own if under else None


def is_around(f: Any, role: str) -> bool:
    """On one of two paths, if there is something around the method: then the claim is about that, on the other one
    about the method that it leaves the rest to."""
    return around(f, role) is not None and running().decide(z3.Bool("around"))


def _ways(kind: type, role: str) -> list[Any]:
    return [vars(one)[role] for one in kind.__mro__ if role in vars(one)]


def expected(counts: Sequence[int], times: Iterable[int], sign: int) -> list[int]:
    """The references when each of these blocks has gained one, or lost one."""
    changes = Counter(times)
    return [count + sign * changes[block] * (block != 0) for block, count in enumerate(counts)]


def plain_part(part: Any) -> int:
    """The part, on the path that is about it."""
    number = 0
    while part != number:
        number += 1
    return number
