"""A prompt that fits into an empty pool waits for ever because a part of it is cached.

Full attention and Mamba (mode align) with blocks of 32 tokens, prompts matched in units of 16, in the smallest pool
that the start-up check accepts. A hit ends within a block: what is behind it goes into copies, and the cached blocks
are held beside them until the copies are made. So with the hit the request needs more blocks than without it, more
than there are, and nobody takes the hit back.
"""

from inspect import signature
from typing import Any

from engine_without_device import layer, main, mamba, run, start, submit
from fix import fix
from vllm.config import CacheConfig

LENGTH = 64
"""Tokens of the longest request."""


def smallest(unit: int) -> Any:
    """The engine with the fewest blocks with which it starts."""
    layers = {"full": layer("FullAttentionSpec", 32, head_size=32), "mamba": mamba(32)}
    cache = {"block_size": 32, "mamba_cache_mode": "align", "prefix_match_unit": unit}
    for blocks in range(2, 12):
        try:
            return start(layers, blocks=blocks, length=LENGTH, batch=128, cache=cache)
        except ValueError as refused:
            if "blocks" not in str(refused) and "memory" not in str(refused):
                raise
    raise RuntimeError("no pool is accepted")


def left(unit: int, before: int) -> int:
    """Requests that have not ended: the longest one, behind one of its first tokens, if there is any."""
    engine = smallest(unit)
    if before:
        submit(engine, "begin", range(1, before + 1), answer=1)
        run(engine)
    submit(engine, "whole", range(1, LENGTH), answer=1)
    run(engine, 300)
    return len(engine.scheduler.requests)


def case() -> tuple[str, str, bool]:
    """The same request with and without a hit, and with a hit of whole blocks only."""
    if "prefix_match_unit" not in signature(CacheConfig).parameters:
        raise NotImplementedError("this release has no --prefix-match-unit")
    alone, behind, whole = left(16, 0), left(16, 20), left(32, 40)
    return (
        "the request ends: the engine started with room for one of this length, and nothing else runs",
        f"requests left after 300 steps: {behind} with a hit of 16 tokens, {alone} without a hit, "
        f"{whole} with a hit of a whole block",
        behind > 0 and not alone,
    )


main(case, fix)
