"""With an Eagle head, a prompt that is shorter than the window hits less than it must.

Full attention in blocks of 64 tokens, a window of 512 in blocks of 16, a prompt of 200 tokens. The window group drops
64 tokens for Eagle where one of its own blocks would do, and then the common length is rounded down to 64 once more.
"""

from engine_without_device import layer, main, repeated, start, with_eagle


def hit(drafts: int) -> int:
    """Tokens of a prompt of 200 that are served from the cache when it comes a second time."""
    window = layer("SlidingWindowSpec", num_kv_heads=4, sliding_window=512)
    # four times the heads, so that the pages have the size of the others
    layers = {"full": layer("FullAttentionSpec", 64), "window": window}
    engine = start(layers, blocks=256, length=1024, batch=256, drafts=drafts)
    return repeated(engine, 200)


def case() -> tuple[str, str, bool]:
    """With and without an Eagle head."""
    return with_eagle(hit, 200, 64)


main(case)
