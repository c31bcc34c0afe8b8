"""The engine dies at the first request of a model with sliding windows and Mamba if prompts are matched in small units.

`--prefix-match-unit 16` with blocks of 32 tokens, and Mamba in mode align. Since Mamba's blocks are larger than the
unit, hits may end inside a block, so every group is asked for hits in whole units. The window group can look up whole
blocks only, and asserts that a unit is as large as a block.
"""

from inspect import signature

from engine_without_device import death, layer, main, mamba, start, submit
from vllm.config import CacheConfig

WANTED = "AssertionError: SlidingWindowManager does not support fine-grained (partial) cache hits"


def first_request(unit: int) -> str:
    """Type and text of the exception that ends the engine at its first request; empty if none does."""
    layers = {
        "full": layer("FullAttentionSpec", 32, head_size=32),
        "window": layer("SlidingWindowSpec", 32, head_size=32, sliding_window=64),
        "mamba": mamba(32),
    }
    cache = {"block_size": 32, "mamba_cache_mode": "align", "prefix_match_unit": unit}
    engine = start(layers, blocks=64, length=512, batch=256, cache=cache)
    submit(engine, "first", range(1, 150))
    return death(engine, WANTED)


def case() -> tuple[str, str, bool]:
    """Matched in units of half a block, and in whole blocks."""
    if "prefix_match_unit" not in signature(CacheConfig).parameters:
        raise NotImplementedError("this release has no --prefix-match-unit")
    half, whole = first_request(16), first_request(32)
    if half:
        print(f"exception: {half}")
    return (
        "the first request runs, or the engine refuses the option when it starts",
        f"in units of 16 tokens: {half or 'it runs'}; in units of 32: {whole or 'it runs'}",
        bool(half),
    )


main(case)
