"""The second turn of a conversation counts keys and values as computed that nobody wrote.

Full attention and Mamba (mode align) with an Eagle head of 2 draft tokens. The hit of full attention gives up its last
block for Eagle; the Mamba state is looked up one block further, and the longer length wins. The block table is then
filled up with new blocks, whose contents count as computed.
"""

from engine_without_device import group, layer, main, mamba, run, served, start, submit, tables


def case() -> tuple[str, str, bool]:
    """A prompt of 40 tokens, an answer of 26, and a second turn that repeats both."""
    layers = {"full": layer("FullAttentionSpec"), "mamba": mamba(num_speculative_blocks=2)}
    engine = start(layers, blocks=64, length=256, batch=256, drafts=2, cache={"mamba_cache_mode": "align"})
    submit(engine, "turn 1", range(1, 41), answer=26)
    run(engine)
    submit(engine, "turn 2", [*range(1, 41), *[7] * 26, *range(300, 330)])
    run(engine)
    full = group(engine, "FullAttentionSpec")
    tokens = served(engine, "turn 2")
    written = set(tables(engine, "turn 1")[full])
    new = [block for block in tables(engine, "turn 2")[full][: tokens // 16] if block not in written]
    return (
        "every block that counts as computed was written in the first turn",
        f"{tokens} tokens count as computed; of their blocks, {len(new)} were written by nobody {new}",
        bool(new),
    )


main(case)
