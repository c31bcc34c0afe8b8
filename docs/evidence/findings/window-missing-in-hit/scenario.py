"""A hit ends behind a hole: the next query of a request reads sliding-window keys and values that are not there.

Full attention in blocks of 32 tokens, a window in blocks of 16, and an Eagle head of 2 draft tokens. The window group
looks for as many blocks in a row as its window needs, the last of which ends at a multiple of 32. Eagle drops one, and
then blocks are dropped until the length is a multiple of 32 again: the blocks in front of these were not looked for.
"""

from engine_without_device import group, layer, main, run, served, start, submit


def missing(window: int, length: int) -> tuple[int, int]:
    """Tokens that a second request with the same first `length` tokens finds in the cache, and how many of those that
    its next query reads are in the null block."""
    small = layer("SlidingWindowSpec", num_kv_heads=2, sliding_window=window)
    # twice the heads, so that the pages have the size of the others
    layers = {"full": layer("FullAttentionSpec", 32), "window": small}
    engine = start(layers, blocks=1024, length=8192, batch=2048, drafts=2)
    for name, more in (("first", 0), ("second", 30)):
        submit(engine, name, [*range(1, length + 1), *range(50_000, 50_000 + more)])
        run(engine)
    tokens = served(engine, "second")
    begun = [new for step in engine.model_executor.steps for new in step.scheduled_new_reqs if new.req_id == "second"]
    table = begun[0].block_ids[group(engine, "SlidingWindowSpec")]
    read = range(max(0, tokens - window + 1), tokens)
    return tokens, sum(table[position // 16] == 0 for position in read)


def case() -> tuple[str, str, bool]:
    """A small window, and one as Gemma has it."""
    seen = {(window, length): missing(window, length) for window, length in ((33, 96), (1024, 4096))}
    return (
        "all that the next query reads behind a hit is in the cache",
        "; ".join(
            f"window of {window}, {length} equal tokens: {tokens} are hit, and the next query reads {null} of "
            "them from the null block"
            for (window, length), (tokens, null) in seen.items()
        ),
        any(null for _, null in seen.values()),
    )


main(case)
