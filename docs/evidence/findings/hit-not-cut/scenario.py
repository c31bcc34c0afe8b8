"""More blocks count as free than there are, after a request that loads from outside behind a hit.

Two groups of full attention of different kinds, as of a model and its draft model, a sliding window, and a connector
that loads while the request waits. The window shortens the common hit; the list of the second full group stays as it
was. That group then needs fewer blocks than it has, and a negative number is taken.
"""

from engine_without_device import death, layer, main, run, start, submit
from store_outside import loading

DIES = "AssertionError: prev_free_block of fake_free_list_tail should always exist"


def wrong(held: int) -> str:
    """How the count of free blocks is wrong at the end, or the exception that this leads to; empty if it is right.

    `held`: blocks that another request holds when the load begins.
    """
    mla = layer("MLAAttentionSpec", head_size=128)
    window = layer("SlidingWindowSpec", sliding_window=32)
    engine = start(
        {"full": layer("FullAttentionSpec"), "draft": mla, "window": window},
        blocks=70,
        length=256,
        batch=64,
        **loading(),
    )
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    submit(engine, "long", range(1, 181), answer=60)
    run(engine, 5)
    submit(engine, "holder", range(1001, 1000 + 16 * held), answer=30)
    run(engine, 4)
    submit(engine, "loaded", [*range(1, 67), *range(600, 620)], extra_args={"kv_transfer_params": {"stored": 16}})
    if how := death(engine, DIES):
        return how
    more = pool.get_num_free_blocks() - free
    return f"{more} more blocks are free than at the start" if more > 0 else ""


def case() -> tuple[str, str, bool]:
    """Several fill levels of the pool."""
    found = {held: what for held in range(1, 14) if (what := wrong(held))}
    held, what = next(iter(found.items()), (0, "the count is right"))
    if DIES in found.values():
        print(f"exception: {DIES}")
    return (
        "as many blocks are free at the end as at the start",
        f"wrong at {len(found)} of 13 fill levels: {what} (with {held} blocks held)" if found else what,
        bool(found),
    )


main(case)
