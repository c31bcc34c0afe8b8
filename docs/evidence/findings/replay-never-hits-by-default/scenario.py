"""A repeated prompt never hits the cache with an Eagle head and sliding windows.

With default settings. Where the retention interval is 0 by default, only the tail of each prompt is kept of a window
group. With Eagle the lookup gives up the last block, so it needs a tail that ends one block earlier.
"""

from engine_without_device import layer, main, repeated, start, with_eagle


def hit(drafts: int) -> int:
    """Tokens of a prompt of 300 that are served from the cache when it comes a second time."""
    layers = {"full": layer("FullAttentionSpec"), "window": layer("SlidingWindowSpec", sliding_window=32)}
    engine = start(layers, blocks=128, length=1024, batch=256, drafts=drafts)
    return repeated(engine, 300)


def case() -> tuple[str, str, bool]:
    """With and without an Eagle head."""
    return with_eagle(hit, 300, 16)


main(case)
