"""A core of any size as tables, references and identities, and the moves of which every operation of it consists.

The relation between the state before an operation and that after it is: some of these moves, one after the other, each
where it is allowed. `follower` finds the moves of a step that was taken, `theorems.invariants` proves that each move
keeps the invariants. The functions below serve both: with plain numbers they check a real step, with symbols they stand
for any step of any core.

* A *place* is an entry of a table, or a reference of an outside holder (its table is 0). Its table, its index there and
  the tokens up to its end are fixed; `block` is what it holds, 0 for nothing or the null block.
* `content` of a place is the number of what its tokens are, with everything before them and the group, 0 while some of
  them are not known. `key` of a block is the content under which it is registered, 0 for none.
* `count` is what the core counts as references. The places that hold a block are numbered by `rank` and `nth`, the free
  blocks by `slot` and `free`: so "how many" is said without counting.
* `cut` of a table says up to where it may hold null: no query behind so many tokens reads the tokens before
  `skip(table, cut)` (T1-T3: it never falls, and what it skips is read by nobody). `floor` of a request is the least
  position of any query to come.
"""

from collections.abc import Callable
from typing import Any

import z3

from ..claims import every, implies, negation, some
from ..symbolic import Condition, SymbolicBool, SymbolicInt, term

OUTSIDE = 0
"""The table of a place that belongs to an outside holder."""


def pick(condition: Condition, one: Any, other: Any) -> Any:
    """`one if condition else other`, without a fork."""
    if not isinstance(condition, SymbolicBool):
        return one if condition else other
    chosen = z3.If(condition.term, term(one), term(other))
    return SymbolicBool(chosen) if z3.is_bool(chosen) else SymbolicInt(chosen)


class NotAllowedError(Exception):
    """A move is made where it is not allowed; says which and why."""


class Cells:
    """A function that can be changed at a point: what a state keeps of each block, place, table or request."""

    def __init__(self, value: Callable[..., Any]) -> None:
        self.value = value

    def __getitem__(self, key: Any) -> Any:
        return self.value(*key) if isinstance(key, tuple) else self.value(key)

    def set(self, key: Any, value: Any) -> None:
        """Let it be this there."""
        before, point = self.value, key if isinstance(key, tuple) else (key,)
        self.value = lambda *args: pick(
            every(*(one == other for one, other in zip(args, point, strict=True))), value, before(*args)
        )


class Kept(Cells):
    """The same for plain numbers, of which few matter."""

    def __init__(self, default: int | bool = 0) -> None:
        self.default = default
        self.known: dict[Any, Any] = {}
        super().__init__(lambda *key: self.known.get(key if len(key) > 1 else key[0], default))

    def __getitem__(self, key: Any) -> Any:
        return self.known.get(key, self.default)

    def set(self, key: Any, value: Any) -> None:
        """Let it be this there."""
        self.known[key] = value


class World:
    """A state. What is fixed: `size` of the pool, and `table`, `index` and `end` of a place, `request` of a table,
    `reads` (are its entries tokens that queries read?) and `skip`."""

    size: Any
    num_free: Any
    count: Any
    key: Any
    slot: Any
    free: Any
    block: Any
    rank: Any
    nth: Any
    content: Any
    length: Any
    cut: Any
    floor: Any
    closing: Any

    def table(self, place: Any) -> Any:
        """The table of a place."""
        raise NotImplementedError

    def index(self, place: Any) -> Any:
        """Its index there."""
        raise NotImplementedError

    def end(self, place: Any) -> Any:
        """Tokens up to the end of the entry."""
        raise NotImplementedError

    def request(self, table: Any) -> Any:
        """Whose table it is."""
        raise NotImplementedError

    def reads(self, table: Any) -> Any:
        """Whether what the next query reads stands in the entries of its tokens; not so where states move."""
        raise NotImplementedError

    def skip(self, table: Any, tokens: Any) -> Any:
        """How many leading tokens no query at `tokens` or later reads."""
        raise NotImplementedError

    def demand(self, condition: Condition, why: str) -> None:
        """The move is allowed only under this condition."""
        if not condition:
            raise NotAllowedError(why)

    # What moves are made of.

    def is_block(self, x: Any) -> Any:
        """A block of the pool that is not the null block."""
        return every(x >= 1, x < self.size)

    def is_free(self, x: Any) -> Any:
        """It stands among the free ones."""
        return every(self.slot[x] >= 0, self.slot[x] < self.num_free, self.free[self.slot[x]] == x)

    def in_table(self, place: Any) -> Any:
        """It is an entry of a table."""
        return self.table(place) != OUTSIDE

    def leave_free(self, x: Any) -> None:
        """A free block is free no more; the last one of them gets its number."""
        number, last = self.slot[x], self.free[self.num_free - 1]
        self.free.set(number, last)
        self.slot.set(last, number)
        self.slot.set(x, -1)
        self.num_free = self.num_free - 1

    def enter_free(self, x: Any) -> None:
        """A block is free."""
        self.free.set(self.num_free, x)
        self.slot.set(x, self.num_free)
        self.num_free = self.num_free + 1

    def hold(self, place: Any, x: Any) -> None:
        """The place holds the block, too."""
        self.nth.set((x, self.count[x]), place)
        self.rank.set(place, self.count[x])
        self.block.set(place, x)
        self.count.set(x, self.count[x] + 1)

    def let_go(self, place: Any) -> Any:
        """The place holds nothing. Returns what it held, which may be free now."""
        x, number = self.block[place], self.rank[place]
        last = self.nth[x, self.count[x] - 1]
        self.nth.set((x, number), last)
        self.rank.set(last, number)
        self.rank.set(place, -1)
        self.block.set(place, 0)
        self.count.set(x, self.count[x] - 1)
        return x

    def add_entry(self, place: Any) -> None:
        """The place is behind the last entry of its table, which grows; where states move, it may be a null entry."""
        self.demand(self.block[place] == 0, "the place holds a block already")
        table = self.table(place)
        last, length = self.index(place) == self.length[table], self.length[table]
        null = every(negation(self.reads(table)), self.index(place) < length)
        self.demand(
            implies(self.in_table(place), every(some(last, null), negation(self.closing[table]))),
            "a table grows at its end only, and not while it is given back",
        )
        self.length.set(table, pick(every(self.in_table(place), last), length + 1, length))

    def may_be_null(self, place: Any) -> Any:
        """No query to come reads the tokens of this entry, as far as its table says."""
        table = self.table(place)
        return implies(self.reads(table), self.end(place) <= self.skip(table, self.cut[table]))


# The moves.


def take(world: World, place: Any, x: Any) -> None:
    """A free block is handed out: it loses its identity, and the place holds it."""
    world.demand(every(world.is_block(x), world.is_free(x)), "only a free block can be handed out")
    world.add_entry(place)
    world.leave_free(x)
    world.key.set(x, 0)
    world.hold(place, x)


def hit(world: World, place: Any, x: Any) -> None:
    """A registered block is used again for the content that it is registered for, whoever holds it."""
    world.demand(world.is_block(x), "a hit has blocks of the pool")
    world.demand(every(world.key[x] != 0, world.key[x] == world.content[place]), "a hit holds what the place is for")
    _share(world, place, x)


def touch(world: World, place: Any, x: Any) -> None:
    """An outside holder holds the block, too."""
    world.demand(every(world.is_block(x), negation(world.in_table(place))), "an outside holder holds a block")
    _share(world, place, x)


def _share(world: World, place: Any, x: Any) -> None:
    world.add_entry(place)
    if world.count[x] == 0:
        world.leave_free(x)
    world.hold(place, x)


def pad(world: World, place: Any) -> None:
    """A null entry is added, where no query to come reads."""
    world.demand(every(world.in_table(place), world.may_be_null(place)), "what a query reads is no null entry")
    world.add_entry(place)


def drop(world: World, place: Any) -> None:
    """An entry becomes null where no query to come reads, or the table is given back; or an outside holder lets go."""
    gone = some(negation(world.in_table(place)), world.closing[world.table(place)], world.may_be_null(place))
    world.demand(every(world.block[place] != 0, gone), "an entry that a query reads does not become null")
    x = world.let_go(place)
    if world.count[x] == 0:
        world.enter_free(x)


def shift(world: World, place: Any, new: Any) -> None:
    """The state of a draft moves from its entry to a new one of its table."""
    x, table = world.block[place], world.table(place)
    world.demand(every(x != 0, world.in_table(place), table == world.table(new)), "a state moves within its table")
    world.demand(every(world.count[x] == 1, world.key[x] == 0), "only a state that nobody else can find moves")
    world.demand(negation(world.reads(table)), "entries of tokens do not move")
    world.add_entry(new)
    world.let_go(place)
    world.hold(new, x)


def register(world: World, place: Any) -> None:
    """The block of an entry is registered for the entry's content."""
    x = world.block[place]
    world.demand(
        every(world.in_table(place), x != 0, world.content[place] != 0), "known content of a block is registered"
    )
    world.demand(world.key[x] == 0, "a block has one identity at most")
    world.key.set(x, world.content[place])


def forget(world: World, x: Any) -> None:
    """A block loses its identity."""
    world.key.set(x, 0)


def learn(world: World, place: Any, content: Any) -> None:
    """The tokens of an entry are known now."""
    world.demand(every(world.content[place] == 0, content > 0), "known tokens do not change")
    world.content.set(place, content)


def renew(world: World, place: Any) -> None:
    """An entry that is not there will be another request's."""
    world.demand(world.block[place] == 0, "the tokens of a block in use do not change")
    world.content.set(place, 0)


def settle(world: World, request: Any, tokens: Any) -> None:
    """No query before this position is to come."""
    world.demand(world.floor[request] <= tokens, "a query to come stands before what was settled")
    world.floor.set(request, tokens)


def cut(world: World, table: Any, tokens: Any) -> None:
    """Entries that no query behind so many tokens reads may be null."""
    world.demand(
        every(world.cut[table] <= tokens, tokens <= world.floor[world.request(table)]), "what is not settled is cut"
    )
    world.cut.set(table, tokens)


def leave(world: World, table: Any) -> None:
    """A table is about to be given back."""
    world.closing.set(table, True)


def close(world: World, table: Any, empty: Callable[[World, Any], Any]) -> None:
    """A table that has been given back is gone. `empty` says that it holds nothing."""
    world.demand(
        every(table != OUTSIDE, world.closing[table], empty(world, table)), "a table that holds blocks is forgotten"
    )
    world.length.set(table, 0)
    world.cut.set(table, 0)
    world.closing.set(table, False)


def restart(world: World, request: Any, uncut: Callable[[World, Any], Any]) -> None:
    """A request whose tables are gone, none of them cut, begins again."""
    world.demand(uncut(world, request), "a request begins again while a table of it is cut")
    world.floor.set(request, 0)


def construct(world: World) -> None:
    """A new core: all blocks but the null block are free, in any order; there is nothing else."""
    for name in ("count", "key", "block", "content", "length", "cut", "floor"):
        setattr(world, name, Cells(lambda *point: 0))
    world.num_free = world.size - 1
    world.free, world.slot = Cells(lambda number: number + 1), Cells(lambda x: x - 1)
    world.rank, world.closing = Cells(lambda place: -1), Cells(lambda table: False)
