"""The invariants of a core of any size (S1, S2, S4, S6), and what no move does to a table (S5).

Each is a condition on arbitrary places, blocks, numbers and tables of a `World`: what holds of these holds of all.
"""

from typing import Any

from ..claims import every, implies, negation, same, some
from .moves import World


def held_is_numbered(world: World, place: Any) -> Any:
    """S1: what a place holds is a block of the pool, and the place has a number of its own among its holders."""
    x, number = world.block[place], world.rank[place]
    numbered = every(number >= 0, number < world.count[x], world.nth[x, number] == place)
    return every(x >= 0, x < world.size, implies(x != 0, numbered))


def numbers_are_holders(world: World, x: Any, number: Any) -> Any:
    """S1: each number below the count is that of a place which holds the block; so references are holders, exactly."""
    place = world.nth[x, number]
    held = every(world.block[place] == x, world.rank[place] == number)
    return implies(
        world.is_block(x), every(world.count[x] >= 0, implies(every(number >= 0, number < world.count[x]), held))
    )


def free_is_unheld(world: World, x: Any) -> Any:
    """S1: a block is free exactly if nothing holds it."""
    return implies(world.is_block(x), same(world.is_free(x), world.count[x] == 0))


def free_is_counted(world: World, number: Any) -> Any:
    """S1 and S4: each number below the free count is that of a free block, which is not the null block."""
    x = world.free[number]
    inside = every(number >= 0, number < world.num_free)
    return every(world.num_free >= 0, implies(inside, every(world.is_block(x), world.slot[x] == number)))


def shared_is_equal(world: World, place: Any, other: Any) -> Any:
    """S2: a block that stands in two entries holds, for both, the same known content of one group."""
    both = every(world.in_table(place), world.in_table(other), place != other)
    shared = every(both, world.block[place] != 0, world.block[place] == world.block[other])
    return implies(shared, every(world.content[place] == world.content[other], world.content[place] != 0))


def named_by_content(world: World, place: Any) -> Any:
    """S2: a registered block in an entry is registered for what the entry is for: a hit finds what it looks for."""
    x = world.block[place]
    named = every(world.in_table(place), x != 0, world.key[x] != 0)
    return implies(named, world.content[place] == world.key[x])


def null_is_nameless(world: World) -> Any:
    """S4: the null block is never registered."""
    return world.key[0] == 0


def inside_its_table(world: World, place: Any) -> Any:
    """S5: blocks stand inside tables: behind the last entry, and in a table that is gone, nothing is held."""
    inside = every(world.index(place) >= 0, world.index(place) < world.length[world.table(place)])
    return implies(every(world.in_table(place), world.block[place] != 0), inside)


def read_is_there(world: World, place: Any) -> Any:
    """S6: an entry is null only where no query to come reads, as far as the table's cut says."""
    table = world.table(place)
    inside = every(world.index(place) >= 0, world.index(place) < world.length[table])
    living = every(world.in_table(place), world.reads(table), negation(world.closing[table]), inside)
    return implies(every(living, world.block[place] == 0), world.end(place) <= world.skip(table, world.cut[table]))


def cut_is_settled(world: World, table: Any) -> Any:
    """S6: no table is cut beyond the least position of a query to come."""
    floor = world.floor[world.request(table)]
    return every(world.cut[table] >= 0, world.cut[table] <= floor)


def only_grows(first: World, now: World, request: Any, place: Any, gives_back: Any) -> Any:
    """S5, from the beginning of an operation on this request to any moment of it.

    Entries of other requests are as they were, and their tables as long. An entry of its own is as it was, or null, or
    behind what there was, and its tables have not become shorter; one that is given back has no new block. Where states
    move, they may do so within their table.
    """
    table, was, is_now = first.table(place), first.block[place], now.block[place]
    others = every(is_now == was, now.length[table] == first.length[table])
    kept = some(is_now == was, is_now == 0, negation(first.reads(table)))
    grown = every(some(kept, first.index(place) >= first.length[table]), now.length[table] >= first.length[table])
    own = every(implies(gives_back, kept), implies(negation(gives_back), grown))
    mine = first.request(table) == request
    return implies(first.in_table(place), every(implies(negation(mine), others), implies(mine, own)))
