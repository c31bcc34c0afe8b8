"""Moves with something wrong: negative controls of the invariants of any size."""

from typing import Any

from ..claims import every, negation, some
from . import moves
from .moves import Cells, World


def constructed_with_null(world: World) -> None:
    """The null block is free at first."""
    moves.construct(world)
    world.free = Cells(lambda number: number)
    world.slot = Cells(lambda x: x)


def taken_and_free(world: World, place: Any, x: Any) -> None:
    """A block that is handed out stays free."""
    world.demand(every(world.is_block(x), world.is_free(x)), "")
    world.add_entry(place)
    world.hold(place, x)


def hit_and_free(world: World, place: Any, x: Any) -> None:
    """A hit leaves its block in the free queue."""
    world.demand(every(world.is_block(x), world.key[x] != 0, world.key[x] == world.content[place]), "")
    world.add_entry(place)
    world.hold(place, x)


def dropped_and_free(world: World, place: Any) -> None:
    """A block is freed while somebody holds it."""
    world.demand(world.block[place] != 0, "")
    world.enter_free(world.let_go(place))


def dropped_and_lost(world: World, place: Any) -> None:
    """A block that nobody holds any more is lost."""
    world.demand(world.block[place] != 0, "")
    world.let_go(place)


def held_uncounted(world: World, place: Any, x: Any) -> None:
    """A holder is not counted."""
    world.demand(every(world.is_block(x), negation(world.in_table(place)), world.count[x] != 0), "")
    world.add_entry(place)
    world.block.set(place, x)


def hit_anything(world: World, place: Any, x: Any) -> None:
    """A hit takes a block whatever it is registered for."""
    world.demand(every(world.is_block(x), world.key[x] != 0), "")
    world.add_entry(place)
    if world.count[x] == 0:
        world.leave_free(x)
    world.hold(place, x)


def taken_from_holder(world: World, place: Any, x: Any) -> None:
    """A block that somebody holds is handed out."""
    world.demand(every(world.is_block(x), world.count[x] > 0), "")
    world.add_entry(place)
    world.key.set(x, 0)
    world.hold(place, x)


def taken_with_its_name(world: World, place: Any, x: Any) -> None:
    """A block that is handed out keeps its identity."""
    world.demand(every(world.is_block(x), world.is_free(x)), "")
    world.add_entry(place)
    world.leave_free(x)
    world.hold(place, x)


def registered_as_another(world: World, place: Any) -> None:
    """A block is registered for what is not in it."""
    x = world.block[place]
    world.demand(every(world.in_table(place), x != 0, world.content[place] != 0, world.key[x] == 0), "")
    world.key.set(x, world.content[place] + 1)


def renewed_in_use(world: World, place: Any) -> None:
    """The tokens of a block in use change."""
    world.content.set(place, 0)


def registered_null(world: World, place: Any) -> None:
    """A null entry is registered."""
    world.demand(every(world.in_table(place), world.content[place] != 0), "")
    world.key.set(world.block[place], world.content[place])


def dropped_null(world: World, place: Any) -> None:
    """A null entry is given back."""
    world.demand(world.block[place] == 0, "")
    world.enter_free(world.block[place])


def taken_in_the_middle(world: World, place: Any, x: Any) -> None:
    """A new block takes the place of another one."""
    world.demand(every(world.is_block(x), world.is_free(x), world.in_table(place)), "")
    inside = world.index(place) < world.length[world.table(place)]
    world.demand(every(inside, world.block[place] != 0, world.count[world.block[place]] == 1), "")
    world.enter_free(world.let_go(place))
    world.leave_free(x)
    world.hold(place, x)


def closed_in_use(world: World, table: Any, empty: Any) -> None:
    """The next table is forgotten."""
    world.length.set(table + 1, 0)


def shortened(world: World, place: Any) -> None:
    """The last entry is cut off."""
    world.demand(world.in_table(place), "")
    table = world.table(place)
    world.demand(every(world.length[table] > 0, negation(world.closing[table])), "")
    world.length.set(table, world.length[table] - 1)


def dropped_too_early(world: World, place: Any) -> None:
    """The window is cut an entry too far."""
    table = world.table(place)
    early = some(world.closing[table], world.end(place) - 1 <= world.skip(table, world.cut[table]))
    world.demand(every(world.in_table(place), world.block[place] != 0, early), "")
    x = world.let_go(place)
    if world.count[x] == 0:
        world.enter_free(x)


def padded_anywhere(world: World, place: Any) -> None:
    """Null entries stand where a query reads."""
    world.demand(world.in_table(place), "")
    world.add_entry(place)


def cut_ahead(world: World, table: Any, tokens: Any) -> None:
    """A window is cut by tokens that may be taken back."""
    world.demand(world.cut[table] <= tokens, "")
    world.cut.set(table, tokens)


def settled_back(world: World, request: Any, tokens: Any) -> None:
    """Settled tokens are taken back."""
    world.demand(tokens >= 0, "")
    world.floor.set(request, tokens - 1)
