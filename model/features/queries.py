"""What a scheduler asks besides, of a request that it knows."""

from .. import arith
from ..attention import Mamba
from ..ops import NULL, Value
from ..tables import Core
from .names import named


def read(core: Core, name: str) -> tuple[Value, ...]:
    """The free blocks behind the one that is reused next, in order, as a connector reads them; by group, the ids of the
    blocks with computed tokens (of states and of an encoder, all); and how many tokens are cached in every group that
    can be: up to where the furthest name of a block reaches."""
    request = core.requests.get(name)
    if request is None:
        return ()
    tables = [tables.get(name, []) for tables in core.state.tables]
    ids: list[Value] = []
    cached: list[int] = []
    for rule, table in zip(core.rules, tables, strict=True):
        every = isinstance(rule, Mamba) or rule.by_encoder
        ids.append(tuple(table if every else table[: arith.cdiv(request.computed, rule.b)]))
        if not (rule.by_encoder or rule.scratch):
            cached.append(max([named(core).covers.get(block, 0) for block in table if block != NULL], default=0))
    return (tuple(core.state.queue()[1:]), *ids, min(cached, default=0))


def zero_again(core: Core, name: str) -> None:
    """A load has failed behind the computed tokens: the blocks from there on are listed to be zeroed, if any are."""
    computed = core.requests[name].computed
    if computed % core.shape.least_scheduler_block_size:
        return
    for group, rule in enumerate(core.rules):
        if core.policy.lists(core, group):
            core.new_block_ids[group] += core.state.tables[group].get(name, [])[computed // rule.b :]
