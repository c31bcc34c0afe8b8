"""Which layers are alike, and making them alike when hybrid memory is switched off (specs-and-config.md §§5 and 9)."""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import fields
from typing import Any, TypeAlias

from ..specs.attention import RecentPastSpec
from ..specs.interface import (
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)

Layers: TypeAlias = Mapping[str, KVCacheSpec]
"""Layer name to spec, in the order of the model."""


def is_kv_cache_spec_uniform(kv_cache_spec: Layers) -> bool:
    """Whether the layers' specs can be merged into one; True for no layers [S-05]."""
    specs = list(kv_cache_spec.values())
    if not specs:
        return True
    try:
        type(specs[0]).merge(specs)
    except (AssertionError, ValueError):
        return False
    return True


def is_kv_cache_page_size_uniform(kv_cache_spec: Layers) -> bool:
    """Whether the layers have one page size; False for no layers."""
    return len({spec.page_size_bytes for spec in kv_cache_spec.values()}) == 1


def is_kv_cache_type_attention_free(kv_cache_spec: Layers) -> bool:
    """Whether no layer has a KV cache."""
    return not kv_cache_spec


def get_uniform_page_size(kv_cache_specs: Iterable[KVCacheSpec] | Layers) -> int:
    """The one page size in bytes. AssertionError unless there is exactly one. Takes a mapping, too."""
    specs = kv_cache_specs.values() if isinstance(kv_cache_specs, Mapping) else kv_cache_specs
    sizes = {spec.page_size_bytes for spec in specs}
    if len(sizes) != 1:
        raise AssertionError(f"layers have page sizes {sorted(sizes)} in bytes: unify them first")
    return sizes.pop()


def unify_hybrid_kv_cache_specs(kv_cache_spec: MutableMapping[str, KVCacheSpec]) -> None:
    """Turn windowed and chunked layers into full-attention layers, in place, unless all layers are alike already.

    Their blocks are then held for the whole sequence. ValueError if the layers cannot be made alike; the mapping is
    then as it was [C-13].
    """
    if _is_one_kind(kv_cache_spec):
        return
    specs = kv_cache_spec.values()
    full = next((spec for spec in specs if isinstance(spec, FullAttentionSpec)), None)
    alike = {layer: _as_full(spec, full.block_size) for layer, spec in kv_cache_spec.items()} if full else {}
    if not alike or not _is_one_kind(alike):
        kinds = ", ".join(sorted({type(spec).__name__ for spec in specs}))
        raise ValueError(
            f"layers of {kinds} cannot be turned into one kind: "
            "leave disable_hybrid_kv_cache_manager off for this model"
        )
    kv_cache_spec.update(alike)


def _is_one_kind(layers: Layers) -> bool:
    return is_kv_cache_spec_uniform(layers) or UniformTypeKVCacheSpecs.is_uniform_type(layers)


def _as_full(spec: KVCacheSpec, full_block_size: int) -> KVCacheSpec:
    """The full-attention spec that stores the same per token; other than windowed and chunked specs stay."""
    if isinstance(spec, SlidingWindowMLASpec):
        return _as_mla(spec, full_block_size)
    if isinstance(spec, RecentPastSpec):
        return FullAttentionSpec(**_fields_of(FullAttentionSpec, spec))
    return spec


def _as_mla(spec: SlidingWindowMLASpec, block_size: int) -> MLAAttentionSpec:
    """The padding follows the alignment; without one it grows with the block."""
    padded = None
    if spec.page_size_padded is not None and spec.alignment is None:
        padded = spec.page_size_padded * block_size // spec.block_size
    changed = {"block_size": block_size, "page_size_padded": padded, "head_size_v": None}
    return MLAAttentionSpec(**_fields_of(MLAAttentionSpec, spec) | changed)


def _fields_of(spec_class: type[KVCacheSpec], spec: KVCacheSpec) -> dict[str, Any]:
    """The values that a spec has for the fields of another class."""
    return {field.name: getattr(spec, field.name) for field in fields(spec_class) if hasattr(spec, field.name)}
