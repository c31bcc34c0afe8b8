"""How pages come to the host, get their names there, and are told to later requests (`pools`)."""

from .. import ops, tables
from ..ops import NULL, Value
from ..tables import Core
from .given_up import arrived, pages_stay
from .page_names import name_whole
from .pools import Move, pages_of, pools


def behind(core: Core) -> tuple[Value, ...]:
    """What happens behind an operation: a step is sent off, what was copied has come, tokens from outside are there."""
    assert core.last is not None
    match core.last:
        case ops.Allocate(name) as op, ops.Done():
            request = core.requests[name]
            end = min(request.computed + op.new_tokens, len(request.tokens))
            if core.shape.caching and not op.delay:
                publish(core, name, end)
            if op.new_tokens:
                write_back(core, name, end)
                pages_stay(core, name)
        case ops.Arrive(name), ops.Done():
            imported(core, name)
            if core.shape.caching:
                publish(core, name, pools(core).imports.pop(name))
            pools(core).imports.pop(name, None)
        case ops.StepStart(), _:
            moves = pools(core).moves
            for of in dict.fromkeys([move.of for move in moves]):
                arrived(core, [move for move in moves if move.of is of])
        case ops.Reset(), _:
            host = pools(core).host
            if host.num_free() == host.num_blocks - 1:
                host.forget_all()
    return pools(core).shown()


def publish(core: Core, name: str, num_tokens: int) -> None:
    """Blocks of the host are to be named, as far as hits reach; those get their names that are whole."""
    pages_of(core, name).asked = tables.reach(core, pools(core).source, num_tokens)
    name_whole(core, name)


def write_back(core: Core, name: str, tokens: int) -> None:
    """Pages that the step makes full are copied to the host."""
    of, b = pages_of(core, name), core.rules[0].b
    for page in range(of.ready, tokens // b):
        if page not in of.moving and page not in of.whole:
            move(core, name, page)


def move(core: Core, name: str, page: int, restores: bool = False) -> None:
    """Copy a page, if it is on the device. Both sides are held meanwhile."""
    state, of = pools(core), pages_of(core, name)
    blocks = tuple([state.row(group, name)[page] for group in state.resident])
    table = state.tables[state.source].get(name, [])
    if NULL not in blocks and page < len(table):
        state.host.outside.append(table[page])
        state.moves.append(Move(name, page, of, table[page], blocks, restores))
        of.moving.add(page)


def imported(core: Core, name: str) -> None:
    """Tokens from outside are in the host's pool. Their last page is copied to the device."""
    of, tokens, b = pages_of(core, name), pools(core).imports[name], core.rules[0].b
    of.whole, of.ready = {*range(tokens // b)}, tokens // b
    move(core, name, (tokens - 1) // b, restores=True)
    name_whole(core, name)
