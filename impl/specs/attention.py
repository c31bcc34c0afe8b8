"""Specs of attention layers (specs-and-config.md §§2-5).

Sizes in bytes are those of one block of one layer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import gcd
from typing import Any, Self

from .base import DType, KVCacheSpec, cdiv, padded_page_size
from .quant_mode import KVQuantMode

SCALE_BYTES = 4
"""A float32, in a per-token-head mode for every vector that is stored: key or value of a token and head, or both."""


@dataclass(frozen=True)
class AttentionSpec(KVCacheSpec):
    """A layer that stores a key and a value per token and head."""

    _: KW_ONLY
    num_kv_heads: int
    head_size: int
    dtype: DType
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    page_size_padded: int | None = None

    @property
    def page_size_bytes(self) -> int:
        """Bytes reserved: what is stored and its scales, or the padding given. AssertionError for too small a one."""
        return padded_page_size(self.least_page_size, self.page_size_padded)

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of keys and values, without scales and padding."""
        return self._key_value_bytes(self.head_size)

    @property
    def least_page_size(self) -> int:
        """Bytes of keys, values and scales, without padding."""
        vectors = self.stored_vectors * self.num_kv_heads if self.kv_quant_mode.is_per_token_head else 0
        return self.real_page_size_bytes + SCALE_BYTES * vectors

    @property
    def stored_vectors(self) -> int:
        """Keys and values that a block stores for one head."""
        return 2 * self.block_size

    def _key_value_bytes(self, value_size: int) -> int:
        elements = self.stored_elements(self.head_size) + self.stored_elements(value_size)
        return self.block_size * self.num_kv_heads * elements * self.dtype.itemsize

    def stored_elements(self, size: int) -> int:
        """Elements that `size` numbers take; NVFP4 packs two and adds a scale for every 16, a last odd one included."""
        return cdiv(size, 2) + cdiv(size, 16) if self.kv_quant_mode.is_nvfp4 else size


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    """Every token attends to all tokens before it.

    `sliding_window` and `attention_chunk_size` only record what the layer itself does: the blocks are held for the
    whole sequence. `head_size_v` left out is `head_size`.
    """

    _: KW_ONLY
    head_size_v: int | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _default_value_size(self)

    @classmethod
    def merge_window_sizes(cls, window_sizes: Iterable[int | None]) -> int | None:
        """The one window in the set, None aside; None if there is none. ValueError if there are several."""
        sizes = sorted({size for size in window_sizes if size is not None})
        if len(sizes) > 1:
            raise ValueError(f"layers of one group have windows {sizes}: layers with different windows need own groups")
        return sizes[0] if sizes else None

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of keys and values, without scales and padding."""
        return self._key_value_bytes(self.head_size if self.head_size_v is None else self.head_size_v)

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes of a request of `max_model_len` tokens, of which each context-parallel rank holds its share."""
        tokens = cdiv(vllm_config.model_config.max_model_len, _context_parallel_size(vllm_config))
        return cdiv(tokens, self.block_size) * self.page_size_bytes

    def _merge_windows(self, specs: Sequence[Any]) -> dict[str, Any]:
        names = ("sliding_window", "attention_chunk_size")
        merged = {name: self.merge_window_sizes(getattr(spec, name) for spec in specs) for name in names}
        if None not in merged.values():
            raise AssertionError(f"a layer has a window or a chunk, not both: {merged}")
        return merged


@dataclass(frozen=True)
class TQFullAttentionSpec(FullAttentionSpec):
    """Full attention whose keys and values share a packed slot of `tq_slot_size` bytes per token and head."""

    _: KW_ONLY
    tq_slot_size: int = 0

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of the slots; as full attention where no slot size is given."""
        if self.tq_slot_size > 0:
            return self.block_size * self.num_kv_heads * self.tq_slot_size
        return super().real_page_size_bytes


@dataclass(frozen=True)
class SinkFullAttentionSpec(FullAttentionSpec):
    """Full attention that also attends to `sink_len` tokens set aside once for all requests."""

    sink_len: int | None = None

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether all layers have as many sink tokens [S-16]."""
        return super().is_uniform_with_collection(kv_cache_specs) and all(
            isinstance(spec, SinkFullAttentionSpec) and spec.sink_len == self.sink_len
            for spec in kv_cache_specs.values()
        )


@dataclass(frozen=True)
class RecentPastSpec(AttentionSpec):
    """A layer that gives blocks back while a request runs, so that a request holds a bounded number at once."""

    def max_admission_blocks_per_request(
        self, max_num_batched_tokens: int, max_model_len: int, num_lookahead_tokens: int = 0
    ) -> int:
        """Most blocks that a request holds at once, when blocks out of sight are given back before each step."""
        raise NotImplementedError

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes of the admission cap. AssertionError with context parallelism, which no manager serves [S-15]."""
        ranks = _context_parallel_size(vllm_config)
        if ranks != 1:
            raise AssertionError(
                f"{type(self).__name__} does not go with context parallelism over {ranks} ranks: use 1"
            )
        blocks = self.max_admission_blocks_per_request(
            vllm_config.scheduler_config.max_num_batched_tokens, vllm_config.model_config.max_model_len
        )
        return blocks * self.page_size_bytes


@dataclass(frozen=True)
class ChunkedLocalAttentionSpec(RecentPastSpec):
    """Every token attends to the tokens before it in its chunk of `attention_chunk_size` tokens."""

    _: KW_ONLY
    attention_chunk_size: int

    def max_admission_blocks_per_request(
        self, max_num_batched_tokens: int, max_model_len: int, num_lookahead_tokens: int = 0
    ) -> int:
        """Most blocks that a request holds at once, when blocks of past chunks are given back before each step.

        A chunk may begin inside a block; the block then still counts [S-13].
        """
        astride = self.block_size - gcd(self.block_size, self.attention_chunk_size)
        tokens = self.attention_chunk_size + max_num_batched_tokens + num_lookahead_tokens + astride
        return cdiv(min(tokens, max_model_len), self.block_size)

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether all layers have the same chunk."""
        return all(
            isinstance(spec, ChunkedLocalAttentionSpec) and spec.attention_chunk_size == self.attention_chunk_size
            for spec in kv_cache_specs.values()
        )


@dataclass(frozen=True)
class SlidingWindowSpec(RecentPastSpec):
    """Every token attends to itself and the `sliding_window - 1` tokens before it."""

    _: KW_ONLY
    sliding_window: int
    head_size_v: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _default_value_size(self)

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of keys and values, without scales and padding."""
        return self._key_value_bytes(self.head_size if self.head_size_v is None else self.head_size_v)

    def max_admission_blocks_per_request(
        self, max_num_batched_tokens: int, max_model_len: int, num_lookahead_tokens: int = 0
    ) -> int:
        """Most blocks that a request holds at once, when blocks behind the window are given back before each step.

        One block more than the tokens fill, since the window may begin inside a block (K-3: sometimes one too many).
        """
        tokens = self.sliding_window - 1 + max_num_batched_tokens + num_lookahead_tokens
        return cdiv(min(tokens, max_model_len), self.block_size) + 1

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether all layers have the same window and the same layout (that of SlidingWindowMLASpec or not)."""
        own_layout = isinstance(self, SlidingWindowMLASpec)
        return all(
            isinstance(spec, SlidingWindowSpec)
            and isinstance(spec, SlidingWindowMLASpec) == own_layout
            and spec.sliding_window == self.sliding_window
            for spec in kv_cache_specs.values()
        )


@dataclass(frozen=True)
class EncoderOnlyAttentionSpec(AttentionSpec):
    """Attention of an encoder, which needs no cache across steps."""

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Always 0."""
        return 0


@dataclass(frozen=True)
class CrossAttentionSpec(AttentionSpec):
    """A decoder's attention to the encoder's output, allocated once per request."""

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes of the longest encoder input."""
        return cdiv(vllm_config.scheduler_config.max_num_encoder_input_tokens, self.block_size) * self.page_size_bytes


@dataclass(frozen=True)
class _LatentSpec(AttentionSpec):
    """A layer that stores one compressed vector per `compress_ratio` tokens instead of keys and values.

    With `alignment` the page is rounded up to a multiple of so many bytes. ValueError for a ratio that does not divide
    the block size [S-10].
    """

    _: KW_ONLY
    cache_dtype_str: str | None = None
    alignment: int | None = None
    compress_ratio: int = 1
    model_version: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ratio = self.compress_ratio
        if ratio < 1 or self.block_size % ratio:
            raise ValueError(f"compress_ratio {ratio} does not divide block_size {self.block_size}: choose a divisor")
        if self.alignment is not None and self.page_size_bytes != self.real_page_size_bytes:
            object.__setattr__(self, "page_size_padded", self.page_size_bytes)

    @property
    def page_size_bytes(self) -> int:
        """Bytes reserved: what is stored and its scales, padded and aligned."""
        if self.alignment is None:
            return padded_page_size(self.least_page_size, self.page_size_padded)
        return self.alignment * cdiv(max(self.least_page_size, self.page_size_padded or 0), self.alignment)

    @property
    def storage_block_size(self) -> int:
        """Compressed vectors per block."""
        return self.block_size // self.compress_ratio

    @property
    def stored_vectors(self) -> int:
        """Compressed vectors that a block stores for one head.

        Each has one scale, where vLLM 0.23.0 reserves two for every token [S-20]. None of its kernels for latent layers
        writes such scales, and a backend that does takes as many as `page_layout` has.
        """
        return self.storage_block_size

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """The same spec for other blocks; with an alignment the padding is found anew from it alone [S-06]."""
        padded = self.page_size_padded if self.alignment is None else None
        return replace(self, block_size=block_size, page_size_padded=padded)


@dataclass(frozen=True)
class MLAAttentionSpec(_LatentSpec, FullAttentionSpec):
    """Full attention to compressed vectors (multi-head latent attention)."""

    @property
    def stored_vectors(self) -> int:
        """Compressed vectors that a block stores for one head; the layout of 656 bytes a token compresses nothing."""
        whole = self.cache_dtype_str == "fp8_ds_mla" and self.model_version != "deepseek_v4"
        return self.block_size if whole else self.storage_block_size

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of the vectors: 584 each or 656 per token in the packed "fp8_ds_mla" layouts."""
        if self.cache_dtype_str == "fp8_ds_mla":
            return self.storage_block_size * 584 if self.model_version == "deepseek_v4" else self.block_size * 656
        return self.storage_block_size * self.num_kv_heads * self.head_size * self.dtype.itemsize


@dataclass(frozen=True)
class HiddenStateCacheSpec(MLAAttentionSpec):
    """Hidden states of a layer, kept like compressed vectors."""


@dataclass(frozen=True)
class SlidingWindowMLASpec(_LatentSpec, SlidingWindowSpec):
    """A sliding window over compressed vectors."""

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of the vectors. AssertionError for a model version that nobody has laid out."""
        if self.cache_dtype_str == "fp8_ds_mla" and self.model_version == "deepseek_v4":
            return self.storage_block_size * 584
        if self.model_version not in (None, "deepseek_v4"):
            raise AssertionError(f"model_version {self.model_version!r} has no known layout: use None or 'deepseek_v4'")
        return self.storage_block_size * self.num_kv_heads * self.head_size * self.dtype.itemsize


def _default_value_size(spec: FullAttentionSpec | SlidingWindowSpec) -> None:
    if spec.head_size_v is None:
        object.__setattr__(spec, "head_size_v", spec.head_size)


def _context_parallel_size(vllm_config: Any) -> int:
    parallel = vllm_config.parallel_config
    size: int = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
    return size
