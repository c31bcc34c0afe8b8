"""Which pages stay on the device: of those that are on the host as well, the ones that nobody else needs (`pools`)."""

from collections.abc import Sequence

from ..ops import NULL
from ..tables import Core
from .copies import watch
from .page_names import give_names, name_whole, tell
from .pools import Move, Pages, pages_of, pools

TAIL = 2  # pages that steps may be writing still


def pages_stay(core: Core, name: str) -> None:
    """Who is admitted takes up pages that are still there. Who has a region lets its whole pages go; who has none asks
    for one where the pool runs low, or where it has as many pages as were counted when it was admitted."""
    state, of = pools(core), pages_of(core, name)
    for page, host_block in enumerate(state.tables[state.source].get(name, [])[: of.taken_up]):
        key = state.host.identity.get(host_block)
        blocks = state.copies.get(key, ()) if key else ()
        for group, block in zip(state.resident, blocks, strict=False):
            if state.row(group, name)[page] == NULL:
                state.changed.setdefault((group, name), {})[page] = block
                of.pinned.add(page)
    of.taken_up = 0
    if state.has_region(name):
        for page in sorted(of.pinned, reverse=True):
            let_page_go(core, name, page)
        return
    low = state.num_free() < max(sum(state.hot.values()), state.num_blocks // 10)
    if low or any(len(state.tables[g].get(name, [])) >= (core.rules[g].cap() or 0) for g in state.resident):
        state.reads_host.add(name)


def let_page_go(core: Core, name: str, page: int) -> None:
    """A whole page is held no more, unless a worker may be writing it."""
    state, of = pools(core), pages_of(core, name)
    rows = [state.row(group, name) for group in state.resident]
    if page in of.moving or any(page >= len(row) - TAIL or row[page] == NULL for row in rows):
        return
    of.pinned.discard(page)
    of.let_go.add(page)
    for row in rows:
        state.readers.setdefault(row[page], set()).add((name, page))
        watch(core, [row[page]])


def arrived(core: Core, moves: Sequence[Move]) -> None:
    """Pages of one request have been copied."""
    state, of = pools(core), moves[0].of
    state.moves = [move for move in state.moves if move.of is not of]
    for one in moves:
        for block in one.blocks:
            state.let_go_by_identity([block])
    for one in moves:
        of.moving.discard(one.page)
        if not one.restores:
            of.whole.add(one.page)
        if state.pages.get(one.name) is of and one.page in of.whole:
            of.pinned.add(one.page)
            if state.has_region(one.name):
                let_page_go(core, one.name, one.page)
            if one.restores:
                tell(core, one.name, one.page, one.host_block)
        elif state.pages.get(one.name) is not of and not of.moving and of.left is not None:
            name_left(core, of)
        state.host.outside.remove(one.host_block)
        state.host.let_go_by_identity([one.host_block])
    of.ready = next(page for page in range(of.ready, len(of.whole) + of.ready + 1) if page not in of.whole)
    if state.pages.get(moves[0].name) is of:
        name_whole(core, moves[0].name)


def name_left(core: Core, of: Pages) -> None:
    """What a finished request has left is whole: it gets its names, and is held no more."""
    state, blocks, b = pools(core), of.left or [], core.rules[0].b
    of.ready = next(page for page in range(of.ready, len(blocks) + of.ready + 2) if page not in of.whole)
    give_names(core, of.request, blocks, of.named, min(of.ready, (of.asked or 0) // b))
    for block in blocks:
        state.host.outside.remove(block)
    state.host.let_go_by_identity(blocks[::-1])
    of.left = of.asked = None


def last_offer(core: Core, name: str) -> None:
    """The request has finished; of one that is preempted nobody knows whether its last step has run."""
    pools(core).ending = name


def give_back(core: Core, name: str) -> None:
    """All goes back. Whole pages are read on by others; what is being copied is waited for, if the request has
    finished."""
    state, of = pools(core), pools(core).pages.pop(name, None)
    finished, state.ending = state.ending == name, ""
    state.imports.pop(name, None)
    source = state.tables[state.source]
    if of is not None and of.asked is not None and finished and of.moving:
        of.left, of.named = source[name][: of.asked // core.rules[0].b], core.registered[state.source].get(name, 0)
        state.host.outside += of.left
    elif of is not None:
        of.asked = None
    for group in state.resident:
        state.tables[group][name] = rest = [*state.row(group, name)]
        state.changed.pop((group, name), None)
        for page in reversed(range(len(rest)) if of is not None else range(0)):
            assert of is not None
            block, rest[page] = rest[page], rest[page] if page not in of.whole or page in of.moving else NULL
            if page in of.let_go:
                state.readers.get(block, set()).discard((name, page))
            elif rest[page] == NULL != block:
                watch(core, [block])
    for group, of_group in enumerate(state.tables):
        pool = state.host if group == state.source else state
        core.registered[group].pop(name, None)
        pool.let_go_by_identity(of_group.pop(name, [])[::-1])
    state.reads_host.discard(name)
