"""The free queue and the references to blocks (T25, T26).

The model has no linked list, so it plays no role but `queue_orders`: how its queue reads, step by step.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...model.state import State

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
    if (block.content is not None) == named:
        return
    if named:
        pool.add_name(block, _GROUP, block.block_id.to_bytes(32, "big"), None)
    else:
        pool.unname(block)


def _pool_orders(names: Any) -> Callable[[int, Sequence[Any]], list[list[int]]]:
    kind = names("BlockPool")

    def orders(blocks: int, steps: Sequence[Any]) -> list[list[int]]:
        pool = kind(blocks + 1, True, 16)

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
                for block in given if hasattr(pool, "release_by_names") else ():  # a name decides, not who gives back
                    _name(pool, block, not front)
                pool.free_blocks(given, front)
            found.append([block.block_id for block in queue()])
        return found

    return orders


MODEL: dict[str, Any] = {"queue_orders": _model_orders}


def _method(kind: str, name: str) -> Any:
    return lambda names: getattr(names(kind), name)


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
            "free_blocks",
            "get_new_blocks",
            "evict_blocks",
            "cache_full_blocks",
            "reset_prefix_cache",
            "release",
            "_give_back",
            "_touch_many",
        )
    },
}
"""Methods are functions here: the queue or pool is their first argument."""
