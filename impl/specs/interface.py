"""The specs by their public names, their kinds, uniform groups, and the configuration that a pool is built from.

specs-and-config.md §§2-5.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from .attention import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from .base import KVCacheSpec, MambaAttentionBackendEnum, MambaSpec, cdiv
from .entries import how_to_register, uniform_base_of
from .quant_mode import (
    KVQuantMode,
    get_kv_quant_mode,
    is_quantized_kv_cache,
    kv_cache_uses_per_token_head_scales,
)

__all__ = [
    "AttentionSpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FullAttentionSpec",
    "HiddenStateCacheSpec",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheSpec",
    "KVCacheSpecKind",
    "KVCacheTensor",
    "KVQuantMode",
    "MLAAttentionSpec",
    "MambaAttentionBackendEnum",
    "MambaSpec",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "TQFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
    "get_kv_cache_spec_kind",
    "get_kv_cache_spec_sliding_window",
    "get_kv_quant_mode",
    "is_quantized_kv_cache",
    "kv_cache_uses_per_token_head_scales",
]


@dataclass(frozen=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    """Layers of one type whose pages differ, sharing one block table. Keeps its own copy of the mapping; unhashable."""

    kv_cache_specs: Mapping[str, KVCacheSpec]

    __hash__ = None  # type: ignore[assignment]  # a mapping has no hash

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kv_cache_specs", dict(self.kv_cache_specs))

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block of all layers together."""
        return sum(spec.page_size_bytes for spec in self.kv_cache_specs.values())

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes that one request needs at most in all layers together."""
        return self.max_memory_usage_pages(vllm_config) * self.page_size_bytes

    def max_memory_usage_pages(self, vllm_config: Any) -> int:
        """Blocks that one request needs at most: as many as the layer that needs most."""
        return max(
            cdiv(spec.max_memory_usage_bytes(vllm_config), spec.page_size_bytes)
            for spec in self.kv_cache_specs.values()
        )

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """The same layers with other blocks, every one of them [S-12]."""
        members = {name: spec.copy_with_new_block_size(block_size) for name, spec in self.kv_cache_specs.items()}
        return replace(self, block_size=block_size, kv_cache_specs=members)

    @classmethod
    def is_uniform_type(cls, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether these layers may share one block table: equal block sizes, and every layer accepts all [S-08].

        False for no layers. AssertionError if only the class of a layer that is not registered stands against it.
        """
        specs = kv_cache_specs.values()
        if len({spec.block_size for spec in specs}) != 1:
            return False
        unknown = [spec for spec in specs if uniform_base_of(spec) is None]
        known = [spec for spec in specs if spec not in unknown]
        if not all(spec.is_uniform_with_collection(kv_cache_specs) for spec in known):
            return False
        if unknown:
            raise AssertionError(how_to_register(unknown[0]))
        return True

    @classmethod
    def from_specs(cls, kv_cache_specs: Mapping[str, KVCacheSpec]) -> Self | None:
        """These layers as one spec, or None if they are not of one type."""
        if not cls.is_uniform_type(kv_cache_specs):
            return None
        return cls(next(iter(kv_cache_specs.values())).block_size, kv_cache_specs)

    def get_page_sizes(self) -> list[int]:
        """The distinct page sizes of the layers, in bytes."""
        return list(self._layers_by_page_size())

    def get_num_layer_tuples(self) -> int:
        """How many layers have the most frequent page size."""
        return max(self._layers_by_page_size().values())

    def _layers_by_page_size(self) -> Counter[int]:
        return Counter(spec.page_size_bytes for spec in self.kv_cache_specs.values())


class KVCacheSpecKind(StrEnum):
    """What events call the type of a group."""

    FULL_ATTENTION = "full_attention"
    MLA_ATTENTION = "mla_attention"
    SLIDING_WINDOW = "sliding_window"
    SLIDING_WINDOW_MLA = "sliding_window_mla"
    MAMBA = "mamba"
    CHUNKED_LOCAL_ATTENTION = "chunked_local_attention"
    SINK_FULL_ATTENTION = "sink_full_attention"
    ENCODER_ONLY_ATTENTION = "encoder_only_attention"
    CROSS_ATTENTION = "cross_attention"
    UNKNOWN = "unknown"


_KINDS: Mapping[type, KVCacheSpecKind] = {
    FullAttentionSpec: KVCacheSpecKind.FULL_ATTENTION,
    MLAAttentionSpec: KVCacheSpecKind.MLA_ATTENTION,
    SlidingWindowSpec: KVCacheSpecKind.SLIDING_WINDOW,
    SlidingWindowMLASpec: KVCacheSpecKind.SLIDING_WINDOW_MLA,
    MambaSpec: KVCacheSpecKind.MAMBA,
    ChunkedLocalAttentionSpec: KVCacheSpecKind.CHUNKED_LOCAL_ATTENTION,
    SinkFullAttentionSpec: KVCacheSpecKind.SINK_FULL_ATTENTION,
    EncoderOnlyAttentionSpec: KVCacheSpecKind.ENCODER_ONLY_ATTENTION,
    CrossAttentionSpec: KVCacheSpecKind.CROSS_ATTENTION,
}


def get_kv_cache_spec_kind(kv_cache_spec: KVCacheSpec) -> KVCacheSpecKind:
    """The kind of the most specific class known; of a uniform group the kind all members share, else UNKNOWN."""
    if isinstance(kv_cache_spec, UniformTypeKVCacheSpecs):
        kinds = {get_kv_cache_spec_kind(spec) for spec in kv_cache_spec.kv_cache_specs.values()}
        return kinds.pop() if len(kinds) == 1 else KVCacheSpecKind.UNKNOWN
    return next((_KINDS[base] for base in type(kv_cache_spec).__mro__ if base in _KINDS), KVCacheSpecKind.UNKNOWN)


def get_kv_cache_spec_sliding_window(kv_cache_spec: KVCacheSpec) -> int | None:
    """The window of a sliding-window spec in tokens, of a uniform group the window all members share, else None."""
    if isinstance(kv_cache_spec, UniformTypeKVCacheSpecs):
        windows = {get_kv_cache_spec_sliding_window(spec) for spec in kv_cache_spec.kv_cache_specs.values()}
        return windows.pop() if len(windows) == 1 else None
    return kv_cache_spec.sliding_window if isinstance(kv_cache_spec, SlidingWindowSpec) else None


@dataclass
class KVCacheTensor:
    """One buffer of `size` bytes and the layers that share it."""

    size: int
    shared_by: list[str]


@dataclass
class KVCacheGroupSpec:
    """Layers with one block table and one spec; `is_eagle_group` marks those of a draft model."""

    layer_names: list[str]
    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool = False


@dataclass
class KVCacheConfig:
    """What a pool is built from: its blocks (the null block counted), its buffers and its groups."""

    num_blocks: int
    kv_cache_tensors: Sequence[KVCacheTensor]
    kv_cache_groups: Sequence[KVCacheGroupSpec]

    @property
    def has_mamba_layers(self) -> bool:
        """Whether some group keeps Mamba states, also as a uniform group [C-12]."""
        return any(
            isinstance(spec, MambaSpec) for group in self.kv_cache_groups for spec in _members(group.kv_cache_spec)
        )

    @property
    def needs_kv_cache_zeroing(self) -> bool:
        """Whether new blocks must be zeroed before use, as Mamba states must."""
        return self.has_mamba_layers


def _members(spec: KVCacheSpec) -> Sequence[KVCacheSpec]:
    return list(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
