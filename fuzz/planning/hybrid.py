"""The block size of a model that mixes attention with mamba layers.

All groups share one pool, so a block of attention and a mamba state must take the same bytes. A state has one size; the
bytes of an attention block grow with its tokens. So the attention block is raised to the least size whose page holds
the state, and the state is padded to that page. The size is a multiple of

* the block size asked for, and at least 16 tokens, which the attention kernels work on; and,
* where every block keeps a state (cache mode `all`), of the tokens the mamba kernels work on at a time.

A mamba block stands for that many tokens where states are cached (`all`, `align`), else for the whole sequence. These
are the rules of vLLM 0.23.0 with FlashAttention; other kernels may ask for other multiples.
"""

from collections.abc import Callable
from dataclasses import replace
from math import lcm

from .parts import Layers, Serving, Spec

LEAST_KERNEL_BLOCK = 16
"""Tokens in the smallest block of the attention kernels."""


def settle_block_size(layers: Layers, serving: Serving, page: Callable[[Spec], int]) -> Layers:
    """The layers with their final block sizes and the states padded. `page` tells the bytes of a block of a spec."""
    specs = [spec for caches in layers.stack for _, spec in caches]
    state = max((page(spec) for spec in specs if spec["type"] == "MambaSpec"), default=0)
    token = max((page({**spec, "block_size": 1}) for spec in specs if spec["type"] != "MambaSpec"), default=0)
    length = serving.max_model_len or layers.longest
    if not state or layers.state_chunk is None:
        return layers
    size = attention_block_size(serving, state, token, layers.state_chunk) if token else serving.block_size
    padded = size * token

    def settled(spec: Spec) -> Spec:
        if spec["type"] != "MambaSpec":
            return {**spec, "block_size": size}
        tokens = length if serving.mamba_cache_mode == "none" else size
        padding = {} if padded in (0, page(spec)) else {"page_size_padded": padded}
        return {**spec, "block_size": tokens, **padding}

    stack = tuple(tuple((name, settled(spec)) for name, spec in caches) for caches in layers.stack)
    return replace(layers, stack=stack, block_size=size)


def attention_block_size(serving: Serving, state_bytes: int, token_bytes: int, chunk: int) -> int:
    """Tokens in a block of attention whose page holds a state; `token_bytes` is what one token of a layer takes.

    >>> attention_block_size(Serving(block_size=16), 4_244_992, 4096, 256)
    1040
    >>> attention_block_size(Serving(block_size=16, mamba_cache_mode="all"), 4_244_992, 4096, 256)
    1280
    """
    step = max(LEAST_KERNEL_BLOCK, serving.block_size)
    if serving.mamba_cache_mode == "all":
        step = lcm(step, chunk)
    return max(serving.block_size, step * -(-state_bytes // (step * token_bytes)))
