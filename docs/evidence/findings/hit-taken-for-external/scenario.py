"""A request that loads from outside gets one block twice: as part of its hit in one group, and as room in another.

Full attention in blocks of 32, a window of 48 in blocks of 16, and a connector that loads while the request waits. Room
for the tokens that will be loaded is taken group by group, before the hits of the groups behind are held; what was hit
there is free, so it can be taken. Full attention then writes into the block that the window group reads.
"""

from engine_without_device import layer, main, run, start, submit
from store_outside import loading


def twice(blocks: int) -> list[int]:
    """Blocks that the loading request has in both of its tables."""
    window = layer("SlidingWindowSpec", num_kv_heads=2, sliding_window=48)
    # twice the heads, so that its pages have the size of the others
    engine = start(
        {"full": layer("FullAttentionSpec", 32), "window": window},
        blocks,
        length=256,
        batch=128,
        **loading(),
    )
    for name, tokens, answer, steps in (
        ("before", range(1001, 1065), 12, 8),
        ("long", range(1, 192), 16, 1),
        ("next", range(1, 189), 26, 6),
    ):
        submit(engine, name, tokens, answer)
        run(engine, steps)
    submit(engine, "loaded", [*range(1, 65), *range(600, 652)], extra_args={"kv_transfer_params": {"stored": 96}})
    run(engine, 1)
    full, other = (set(ids) - {0} for ids in engine.scheduler.kv_cache_manager.get_block_ids("loaded"))
    return sorted(full & other)


def case() -> tuple[str, str, bool]:
    """Pools of several sizes."""
    found = {blocks: both for blocks in range(23, 64) if (both := twice(blocks))}
    blocks, both = next(iter(found.items()), (0, []))
    told = f"in {len(found)} of 41 pools a block stands in two tables"
    return (
        "each block of a request belongs to one of its groups",
        told + (f" (with {blocks} blocks: {both})" if found else ""),
        bool(found),
    )


main(case)
