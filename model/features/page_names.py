"""Blocks of the host get their names once a whole page is there; then later requests are told of it (`pools`)."""

from collections.abc import Sequence

from ..ops import NULL
from ..state import Request
from ..tables import Core
from .pools import pools


def name_whole(core: Core, name: str) -> None:
    """Of what is asked for, the blocks of the host that are whole get their names."""
    state, of = pools(core), pools(core).pages[name]
    if of.asked is None:
        return
    b, table, registered = core.rules[0].b, state.tables[state.source].get(name, []), core.registered[state.source]
    end = min(of.asked // b, of.ready)
    if registered.get(name, 0) < end:
        give_names(core, of.request, table, registered.get(name, 0), end)
        registered[name] = end
    for page in range(of.indexed, min(end, len(table))):
        if page not in of.moving:
            tell(core, name, page, table[page])
    of.indexed = max(of.indexed, min(end, len(table)))
    if of.ready >= of.asked // b:
        of.asked = None


def give_names(core: Core, request: Request, blocks: Sequence[int], first: int, end: int) -> None:
    """Name blocks `first .. end - 1` of a request."""
    state, b = pools(core), core.rules[0].b
    for i in range(first, end):
        state.host.register(blocks[i], (state.source, request.chain[i]), (i + 1) * b)


def tell(core: Core, name: str, page: int, host_block: int) -> None:
    """Later requests are told of the page on the device."""
    state = pools(core)
    rows = [state.row(group, name) for group in state.resident]
    key = state.host.identity.get(host_block)
    blocks = tuple([row[page] if page < len(row) else NULL for row in rows])
    if key is not None and NULL not in blocks:
        state.unlist(key)
        state.copies[key] = blocks
        state.copy_of.update(dict.fromkeys(blocks, key))
