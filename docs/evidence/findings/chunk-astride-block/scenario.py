"""A request reads thousands of tokens that nobody computed, out of an empty cache: chunked attention, blocks of 48.

Chunked local attention with chunks of 8192 tokens (Llama 4) and `--block-size 48`. A lookup takes the blocks before the
chunk that the last possible token is in for found, as the null block, since no later query reads them. But 48 does not
divide 8192, so the hit is cut to whole blocks and ends before the chunk begins: its first query reads the null blocks.

The attention code asserts that the block size divides the chunk, but it sees the block size of the kernel: on a
backend whose kernels take 16, 32 or 64, a block of 48 tokens is three kernel blocks of 16, which divides 8192.
"""

from typing import Any

from engine_without_device import layer, main, run, start, submit
from fix import fix
from vllm.v1.worker.utils import select_common_block_size


class Backend:
    """What an attention backend says of its kernels."""

    @staticmethod
    def get_supported_kernel_block_sizes(*given: Any) -> list[int]:
        """In tokens."""
        return [16, 32, 64]

    get_name = staticmethod(lambda: "backend")


def case() -> tuple[str, str, bool]:
    """The first request of an engine."""
    chunked = layer("ChunkedLocalAttentionSpec", 48, attention_chunk_size=8192)
    engine = start({"chunked": chunked}, blocks=1024, length=16_384, batch=4096, cache={"block_size": 48})
    kernel = select_common_block_size(48, [Backend])
    submit(engine, "first", range(1, 8300))
    run(engine, 1)
    new = engine.model_executor.steps[0].scheduled_new_reqs[0]
    table = new.block_ids[0]
    null = 48 * sum(block == 0 for block in table[: new.num_computed_tokens // 48])
    read = null if new.num_computed_tokens < 8192 else 0
    return (
        "a request that finds an empty cache computes all its tokens",
        f"{new.num_computed_tokens} tokens count as computed, and the next query reads {read} of them from the null "
        f"block; the kernel's block size is {kernel}, and 8192 % {kernel} = {8192 % kernel}",
        read > 0 and 8192 % kernel == 0,
    )


main(case, fix)
