"""Requests that load from outside are admitted together and then wait for each other's blocks for ever.

Full attention and a sliding window, and a connector that loads while the request waits. Both requests are admitted
because, for a window, the scheduler takes the blocks that are still needed to be the blocks that are needed at most
less the length of the block table; that length includes the null blocks which the loaded prefix left behind. When the
loads are in, each request needs more than is free, and neither can be preempted, since neither runs.

First a small engine, then one like gpt-oss: windows of 128, 2 requests of 60,000 loaded and 6,000 new tokens, steps of
8192 tokens. With `--sweep` also more pools, and engines like Gemma 3: five windows of 1024, 8 requests of 12,000 loaded
and a few hundred to 2,800 new tokens, steps of 2048 tokens.
"""

import random
import sys
from collections.abc import Sequence

from engine_without_device import layer, main, run, start, submit
from fix import fix
from store_outside import loading

Mix = tuple[Sequence[int], tuple[int, int], tuple[int, int], Sequence[tuple[int, int]]]
"""Pools in blocks; window and number of window layers; max_model_len and max_num_batched_tokens; the requests, each
with its tokens (loaded, new)."""


def left(mix: Mix, blocks: int, requests: Sequence[tuple[int, int]]) -> list[str]:
    """The requests that have not ended after 400 steps, in a pool of so many blocks."""
    _, (window, count), (length, batch), _ = mix
    layers = {"full": layer("FullAttentionSpec")}
    layers |= {f"window {number}": layer("SlidingWindowSpec", sliding_window=window) for number in range(count)}
    engine = start(layers, blocks, length, batch, **loading())
    for number, (stored, new) in enumerate(requests):
        first = 1 + 10_000 * (number % 8)
        more = {"kv_transfer_params": {"stored": stored}}
        submit(engine, f"request {number}", range(first, first + stored + new), extra_args=more)
    run(engine, 400)
    return [f"{name} ({request.status.name})" for name, request in engine.scheduler.requests.items()]


def starve(mix: Mix, blocks: int) -> list[str]:
    """The requests that block each other for ever, though each of them ends if it is alone. Else nothing."""
    names = left(mix, blocks, mix[3])
    alone = names and [name for request in dict.fromkeys(mix[3]) for name in left(mix, blocks, [request])]
    return names if not alone else []


def mixes() -> dict[str, Mix]:
    """What is tried; with `--sweep` more of it."""
    tried: dict[str, Mix] = {
        "small": (range(48, 80, 2), (64, 1), (512, 128), [(256, 144), (320, 180)]),
        "like gpt-oss": (range(7700, 8301, 40), (128, 1), (67_000, 8192), 2 * [(60_000, 6_000)]),
    }
    if "--sweep" not in sys.argv:
        return tried
    tried["like gpt-oss, more pools"] = (range(5000, 8901, 300), *tried["like gpt-oss"][1:])
    gemma = (range(4000, 8801, 400), (1024, 5), (20_000, 2048))
    for seed in range(5):
        new = [random.Random(f"{seed}/{number}").randrange(200, 2800) for number in range(8)]
        tried[f"like Gemma 3, new text of {new}"] = (*gemma, [(12_000, tokens) for tokens in new])
    return tried


def case() -> tuple[str, str, bool]:
    """Requests at a time, in pools of many sizes."""
    found = []
    for name, mix in mixes().items():
        stuck = {blocks: names for blocks in mix[0] if (names := starve(mix, blocks))}
        told = f": {[*stuck]}, for ever: {', '.join(next(iter(stuck.values())))}" if stuck else ""
        found.append((len(stuck), f"{name}: nothing moves any more in {len(stuck)} of {len(mix[0])} pools{told}"))
        if "--sweep" in sys.argv:
            print(found[-1][1], flush=True)
    return (
        "the requests end, in every pool in which each of them does",
        "; ".join(text for _, text in found),
        any(count for count, _ in found),
    )


main(case, fix)
