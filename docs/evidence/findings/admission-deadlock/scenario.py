"""A prompt that the start-up check has room for is never scheduled, and nothing behind it is.

Full attention and a window of 64 tokens in a pool of 79 blocks. The start-up check knows that a window gives blocks
back; the scheduler wants the blocks of the whole prompt in both groups to be free before it lets a request in.
"""

from engine_without_device import layer, main, run, start, submit


def case() -> tuple[str, str, bool]:
    """One prompt of 1000 tokens, and nothing else in the engine."""
    layers = {"full": layer("FullAttentionSpec"), "window": layer("SlidingWindowSpec", sliding_window=64)}
    engine = start(layers, blocks=80, length=1024, batch=64)
    submit(engine, "long", range(1, 1001))
    submit(engine, "short", range(2000, 2010))
    run(engine, 300)
    left = list(engine.scheduler.requests)
    usage = engine.scheduler.kv_cache_manager.usage
    return (
        "both requests end: the engine started with room for a request of 1024 tokens",
        f"after 300 steps {len(left)} of 2 requests have not ended {left}; the cache is used to {usage:.0%}",
        bool(left),
    )


main(case)
