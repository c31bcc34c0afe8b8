"""Three defects of nano-vllm, shown with its own scheduler and without blockproof.

    python docs/evidence/nano_vllm_confirm.py CHECKOUT

Needs numpy and xxhash. Prints a line for each defect. The exit status is 1 if the checkout has one of them.
"""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

BLOCK = 256
"""Tokens of a block: the only sizes that nano-vllm takes are its multiples."""


def scheduler_of(checkout: str) -> tuple[Any, Any, Any]:
    """`Scheduler`, `Sequence` and `SamplingParams` of a checkout."""
    package = ModuleType("nanovllm")
    package.__path__ = [f"{checkout}/nanovllm"]  # its own __init__ imports torch, triton and flash-attn
    configuration: Any = ModuleType("nanovllm.config")  # imports transformers; the scheduler only reads attributes
    configuration.Config = SimpleNamespace
    sys.modules |= {"nanovllm": package, "nanovllm.config": configuration}
    from nanovllm.engine.scheduler import Scheduler
    from nanovllm.engine.sequence import Sequence
    from nanovllm.sampling_params import SamplingParams

    return Scheduler, Sequence, SamplingParams


class Engine:
    """A scheduler with 8 blocks, and a model that always answers with the token 7."""

    def __init__(self, checkout: str) -> None:
        scheduler, self._sequence, self._sampling = scheduler_of(checkout)
        limits = {"max_num_seqs": 4, "max_num_batched_tokens": 4096, "eos": -1}
        self.scheduler = scheduler(SimpleNamespace(**limits, kvcache_block_size=BLOCK, num_kvcache_blocks=8))

    def submit(self, prompt: list[int], max_tokens: int) -> Any:
        """A request in the waiting queue."""
        sequence = self._sequence(prompt, self._sampling(max_tokens=max_tokens, ignore_eos=True))
        self.scheduler.add(sequence)
        return sequence

    def step(self, watched: Any = None) -> tuple[int, list[int]]:
        """One step. Returns how many tokens of a request count as cached when it is scheduled, and its blocks."""
        scheduled, is_prefill = self.scheduler.schedule()
        seen = (watched.num_cached_tokens, list(watched.block_table)) if watched else (0, [])
        self.scheduler.postprocess(scheduled, [7] * len(scheduled), is_prefill)
        return seen


def hit_is_lost(checkout: str) -> bool:
    """Two requests compute the same block in one step, and the table of hashes keeps the later one. That request ends,
    its block is reused, and the entry is removed: the block of the other one can no longer be found."""
    engine, prompt = Engine(checkout), [1] * (BLOCK + 1)
    first = engine.submit(prompt, max_tokens=100)
    engine.submit(prompt, max_tokens=1)
    _, held = engine.step(first)
    engine.submit([2] * (6 * BLOCK), max_tokens=1)  # takes every free block
    engine.step()
    cached, _ = engine.step(engine.submit(prompt, max_tokens=1))
    print(f"lost hit: block {held[0]} holds the first {BLOCK} tokens of the prompt; the same prompt hits {cached}")
    return cached < BLOCK


def content_is_wrong(checkout: str) -> bool:
    """A free block that is hit loses its hash, so that the block behind it is registered as the first of a prompt."""
    engine, first, second = Engine(checkout), [1] * BLOCK, [2] * BLOCK
    engine.submit([*first, 0], max_tokens=1)
    engine.step()
    long = engine.submit([*first, *second, 0], max_tokens=100)
    _, held = engine.step(long)
    cached, table = engine.step(engine.submit([*second, 0], max_tokens=1))
    print(f"wrong content: block {held[1]} holds tokens {BLOCK} to {2 * BLOCK - 1} of a prompt, computed behind others")
    print(f"               a prompt that begins with these tokens hits {cached} of them, in {table[: cached // BLOCK]}")
    return cached > 0


def ends_for_all(checkout: str) -> bool:
    """A request that is larger than the pool of 8 blocks: `assert scheduled_seqs` ends the engine for whoever waits."""
    engine = Engine(checkout)
    engine.submit([1] * (8 * BLOCK + 1), max_tokens=1)
    engine.submit([2], max_tokens=1)
    try:
        engine.step()
    except AssertionError:
        print("engine ended: AssertionError in schedule, 2 requests wait, 1 of them of one token")
        return True
    print("engine ended: no, a step was made")
    return False


if __name__ == "__main__":
    defects = [hit_is_lost(sys.argv[1]), content_is_wrong(sys.argv[1]), ends_for_all(sys.argv[1])]
    sys.exit(any(defects))
