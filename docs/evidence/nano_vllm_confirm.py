"""Four defects of nano-vllm, shown with its own scheduler and without blockproof.

    python docs/evidence/nano_vllm_confirm.py CHECKOUT

Needs numpy and xxhash; and torch, on a CPU, for the last one, looked for with its own model runner. Prints a line
for each defect. The exit status is 1 if the checkout has one of them.
"""

import sys
from contextlib import nullcontext
from importlib.util import find_spec
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


def runner_of(max_model_len: int) -> Any:
    """Its `ModelRunner` with captured graphs, over torch on the CPU and a model that computes nothing; the checkout is
    imported already."""
    import torch

    for name in ("nanovllm.models.qwen3", "nanovllm.layers.sampler", "nanovllm.utils.loader"):
        stand_in: Any = ModuleType(name)  # they import triton and flash-attn
        stand_in.Qwen3ForCausalLM = stand_in.Sampler = stand_in.load_model = object
        sys.modules[name] = stand_in
    from nanovllm.engine.model_runner import ModelRunner

    class Model:
        """Its hidden states and logits are zeros."""

        def __call__(self, input_ids: Any, positions: Any) -> Any:
            return torch.zeros(len(input_ids), 1)

        def compute_logits(self, hidden: Any) -> Any:
            return hidden

    graph = SimpleNamespace(pool=lambda: None, replay=lambda: None)
    cuda, tensor = torch.cuda, torch.tensor
    cuda.CUDAGraph, cuda.graph, cuda.synchronize = lambda: graph, lambda *_: nullcontext(), lambda: None
    torch.Tensor.cuda = lambda self, **_: self
    torch.tensor = lambda values, pin_memory=False, **more: tensor(values, **more)
    runner = ModelRunner.__new__(ModelRunner)  # its own __init__ begins with a GPU
    config = {"max_num_seqs": 4, "max_model_len": max_model_len, "hf_config": SimpleNamespace(hidden_size=1)}
    runner.config, runner.block_size, runner.enforce_eager = SimpleNamespace(**config), BLOCK, False
    runner.rank, runner.world_size, runner.model = 0, 1, Model()
    runner.sampler = lambda logits, temperatures: torch.full(temperatures.shape, 7)
    runner.capture_cudagraph()
    return runner


def too_long_ends_for_all(checkout: str) -> bool:
    """A request of more tokens than `max_model_len`, here 512: tables of blocks of the captured graphs have no column
    for its third block."""
    if find_spec("torch") is None:
        print("engine ended: not looked at, torch cannot be imported")
        return False
    engine = Engine(checkout)
    long = engine.submit([1] * (2 * BLOCK), max_tokens=2)
    other = engine.submit([2], max_tokens=9)
    runner = runner_of(2 * BLOCK)
    try:
        while engine.scheduler.running or engine.scheduler.waiting:
            scheduled, is_prefill = engine.scheduler.schedule()
            engine.scheduler.postprocess(scheduled, runner.run(scheduled, is_prefill), is_prefill)
    except RuntimeError as error:
        lost = sum(not one.is_finished for one in (long, other))
        what = str(error).replace("must match ", "must match\n              ")
        print(f"engine ended: RuntimeError in run_model, {lost} requests are lost: {what}")
        return True
    print("engine ended: no, all requests end")
    return False


if __name__ == "__main__":
    looks = (hit_is_lost, content_is_wrong, ends_for_all, too_long_ends_for_all)
    defects = [look(sys.argv[1]) for look in looks]
    sys.exit(any(defects))
