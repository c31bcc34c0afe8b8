"""The free queue and the references to blocks (T25, T26).

The model has no linked list, so it plays no role but `queue_orders`: how its queue reads, step by step.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...model.state import State
from ..pool_scene import names_decide
from ..real_pool import name_block

_GROUP, _REQUEST = 0, "r"


def _model_orders(blocks: int, steps: Sequence[Any]) -> list[list[int]]:
    """All blocks that are held stand in one table."""
    state = State(blocks + 1, 1)
    table = state.tables[_GROUP][_REQUEST] = []
    orders = [state.queue()]
    for step in steps:
        if step.does == "take":
            table += state.take(step.number)
        elif step.does == "hit":
            table.append(state.queue()[step.number])
        else:
            table[:] = [block for block in table if block not in step.blocks]
            state.let_go(step.blocks, front=step.does == "give to front")
        orders.append(state.queue())
    return orders


def _name(pool: Any, block: Any, named: bool) -> None:
    """Let a block have a name of its own, or none."""
    if (block.block_hash is not None) == named:
        return
    if named and hasattr(pool, "add_name"):
        pool.add_name(block, _GROUP, block.block_id.to_bytes(32, "big"), None)
    elif named:
        name_block(pool, block)
    else:
        getattr(pool, "unname", pool._maybe_evict_cached_block)(block)


def _pool_orders(names: Any) -> Callable[[int, Sequence[Any]], list[list[int]]]:
    kind, give_back = names("BlockPool"), _free_blocks(names)

    def orders(blocks: int, steps: Sequence[Any]) -> list[list[int]]:
        pool = kind(blocks + 1, True, 16)
        by_name = names_decide(kind) or hasattr(pool, "release_by_names")

        def queue() -> list[Any]:
            free: list[Any] = pool.free_block_queue.get_all_free_blocks()
            return free

        found = [[block.block_id for block in queue()]]
        for step in steps:
            if step.does == "take":
                pool.get_new_blocks(step.number)
            elif step.does == "hit":
                pool.touch([queue()[step.number]])
            else:
                given, front = [pool.blocks[block] for block in step.blocks], step.does == "give to front"
                for block in given if by_name else ():
                    _name(pool, block, not front)
                give_back(pool, given, front)
            found.append([block.block_id for block in queue()])
        return found

    return orders


MODEL: dict[str, Any] = {"queue_orders": _model_orders}


def _method(kind: str, name: str) -> Any:
    return lambda names: getattr(names(kind), name)


def _free_blocks(names: Any) -> Any:
    """`free_blocks`; where it is not told where blocks go, whoever calls it has named those that go to the back."""
    given: Any = names("BlockPool").free_blocks
    if not names_decide(names("BlockPool")):
        return given

    def free_blocks(pool: Any, blocks: Sequence[Any], prepend: Any = False) -> None:
        given(pool, blocks)

    return free_blocks


API: dict[str, Any] = {
    "block_kind": lambda names: names("KVCacheBlock"),
    "queue_kind": lambda names: names("FreeKVCacheBlockQueue"),
    "pool_kind": lambda names: names("BlockPool"),
    "queue_orders": _pool_orders,
    **{
        role: _method("FreeKVCacheBlockQueue", role)
        for role in ("popleft", "popleft_n", "remove", "append", "append_n", "prepend_n")
    },
    **{
        role: _method("BlockPool", role)
        for role in (
            "touch",
            "get_new_blocks",
            "evict_blocks",
            "cache_full_blocks",
            "reset_prefix_cache",
            "release",
            "_give_back",
            "_touch_many",
        )
    },
    "free_blocks": _free_blocks,
}
"""Methods are functions here: the queue or pool is their first argument."""
