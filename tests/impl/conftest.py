"""Small cores and requests to test with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import blockproof.impl as impl
import pytest


@dataclass(frozen=True)
class Float32:
    """A dtype without a library."""

    itemsize: int = 4


LAYOUT: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1, "dtype": Float32()}


class Core:
    """Builds specs, managers and requests over blocks of few tokens."""

    BLOCK = 4

    def __init__(self) -> None:
        impl.init_none_hash(impl.sha256)

    def full(self, block_size: int = BLOCK, **fields: Any) -> impl.FullAttentionSpec:
        return impl.FullAttentionSpec(block_size, **{**LAYOUT, **fields})

    def sliding(self, window: int, block_size: int = BLOCK, **fields: Any) -> impl.SlidingWindowSpec:
        return impl.SlidingWindowSpec(block_size, sliding_window=window, **{**LAYOUT, **fields})

    def mla(self, block_size: int = BLOCK) -> impl.MLAAttentionSpec:
        return impl.MLAAttentionSpec(block_size, **LAYOUT)

    def sliding_mla(self, window: int, block_size: int = BLOCK) -> impl.SlidingWindowMLASpec:
        return impl.SlidingWindowMLASpec(block_size, sliding_window=window, **LAYOUT)

    def chunked(self, chunk: int, block_size: int = BLOCK) -> impl.ChunkedLocalAttentionSpec:
        return impl.ChunkedLocalAttentionSpec(block_size, attention_chunk_size=chunk, **LAYOUT)

    def mamba(self, mode: str, speculative: int = 0, block_size: int = BLOCK) -> impl.MambaSpec:
        return impl.MambaSpec(
            block_size, ((1,),), (Float32(),), mamba_cache_mode=mode, num_speculative_blocks=speculative
        )

    def sink(self, sink_len: int | None, block_size: int = BLOCK) -> impl.SinkFullAttentionSpec:
        return impl.SinkFullAttentionSpec(block_size, sink_len, **LAYOUT)

    def cross(self, block_size: int = BLOCK) -> impl.CrossAttentionSpec:
        return impl.CrossAttentionSpec(block_size, **LAYOUT)

    def manager(
        self, *specs: impl.KVCacheSpec, num_blocks: int = 20, eagle: Sequence[int] = (), **options: Any
    ) -> impl.KVCacheManager:
        groups = [impl.KVCacheGroupSpec([f"layer{i}"], spec, i in eagle) for i, spec in enumerate(specs)]
        settings = {"max_model_len": 64, "scheduler_block_size": self.BLOCK, "hash_block_size": self.BLOCK, **options}
        return impl.KVCacheManager(impl.KVCacheConfig(num_blocks, [], groups), **settings)

    def request(self, name: str, tokens: int | list[int], **details: Any) -> impl.Request:
        """A request whose prompt is 0, 1, 2, ... where only a length is given."""
        prompt = list(range(tokens)) if isinstance(tokens, int) else tokens
        hasher = details.pop("block_hasher", impl.get_request_block_hasher(self.BLOCK, impl.sha256))
        return impl.Request(name, prompt, block_hasher=hasher, **details)

    def run(self, manager: impl.KVCacheManager, request: impl.Request, **options: Any) -> impl.KVCacheBlocks | None:
        """Look up, allocate and compute all tokens there are. The new blocks, or None for a refusal."""
        hit, num_hits = manager.get_computed_blocks(request)
        new_tokens = request.num_tokens - num_hits
        new = manager.allocate_slots(request, new_tokens, num_hits, hit, **options)
        if new is not None:
            request.num_computed_tokens = request.num_tokens
        manager.check()
        return new

    def state(self, manager: impl.KVCacheManager) -> Any:
        """Everything that a call that must change nothing could have changed."""
        pool = manager.block_pool
        return (
            [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            [(block.ref_cnt, block.block_hash) for block in pool.blocks],
            [
                (dict(single.req_to_blocks), dict(single.num_cached_block), list(single.new_block_ids))
                for single in manager.coordinator.single_type_managers
            ],
            len(pool.kv_event_queue),
        )


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def raises_unchanged() -> Callable[..., str]:
    """Assert that a call raises this kind of error and leaves what `look` shows as it was; returns the message."""

    def check(kind: type[Exception], look: Callable[[], Any], call: Callable[[], Any]) -> str:
        before = look()
        with pytest.raises(kind) as caught:
            call()
        assert look() == before
        return str(caught.value)

    return check
