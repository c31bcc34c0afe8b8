"""The engine dies when a Mamba state is loaded from outside into a pool that is nearly full.

Full attention and Mamba (mode align), with the DecodeBenchConnector that ships with the engine: it loads all tokens of
a prompt but the last within the step. With 97 tokens, the state behind token 96 ends a block and the last token needs
the next one. The scheduler counts one block for both states; if just so many are free, the second cannot be taken.
"""

from engine_without_device import connected, death, layer, main, mamba, run, start, submit
from fix import fix

WANTED = "ValueError: Cannot get 1 free blocks from the pool"


def load_beside(held: int) -> str:
    """Type and text of the exception that ends the engine if a request holds so many blocks; empty if none does."""
    engine = start(
        {"full": layer("FullAttentionSpec"), "mamba": mamba()},
        blocks=40,
        length=512,
        batch=512,
        cache={"mamba_cache_mode": "align"},
        **connected("DecodeBenchConnector"),
    )
    submit(engine, "running", range(1, 16 * held), answer=200)
    run(engine, 1)
    submit(engine, "loaded", range(1000, 1097))
    return death(engine, WANTED)


def case() -> tuple[str, str, bool]:
    """One request runs, another one is loaded."""
    deaths = {held: how for held in range(26, 32) if (how := load_beside(held))}
    if deaths:
        print(f"exception: {WANTED}")
    return (
        "the loaded request waits until its blocks are there",
        "; ".join(f"with {held} blocks held: {how}" for held, how in deaths.items()) or "it waits",
        bool(deaths),
    )


main(case, fix)
