"""Which layers share a block table (specs-and-config.md §10)."""

import logging
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from ..specs.base import cdiv
from ..specs.interface import (
    HiddenStateCacheSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)
from .page_unification import unify_kv_cache_spec_page_size
from .uniformity import (
    Layers,
    get_uniform_page_size,
    is_kv_cache_spec_uniform,
    is_kv_cache_type_attention_free,
    unify_hybrid_kv_cache_specs,
)

logger = logging.getLogger(__name__)


def get_kv_cache_groups(vllm_config: Any, kv_cache_spec: MutableMapping[str, KVCacheSpec]) -> list[KVCacheGroupSpec]:
    """The groups of a model, each layer in exactly one. The mapping changes only if hybrid memory is switched off.

    ValueError for layers that cannot be one kind then and for hidden states that do not fit into a page,
    NotImplementedError for pages that cannot be made equal, AssertionError for window layers that match no page of the
    MLA layers beside them (K-9).
    """
    if vllm_config.scheduler_config.disable_hybrid_kv_cache_manager:
        unify_hybrid_kv_cache_specs(kv_cache_spec)
    if is_kv_cache_type_attention_free(kv_cache_spec):
        return []
    if is_kv_cache_spec_uniform(kv_cache_spec):
        return _get_kv_cache_groups_uniform_spec(kv_cache_spec)
    if uniform := UniformTypeKVCacheSpecs.from_specs(kv_cache_spec):
        return _get_kv_cache_groups_uniform_type(uniform)
    if grouped := group_and_unify_kv_cache_specs(kv_cache_spec):
        groups = _get_kv_cache_groups_uniform_groups(grouped)
        _annotate_eagle_groups_deepseek_v4(vllm_config, kv_cache_spec, groups)
        return groups
    return _groups_of_one_page_size(kv_cache_spec)


def create_kv_cache_group_specs(
    kv_cache_spec: Layers, grouped_layer_names: Sequence[Sequence[str]]
) -> list[KVCacheGroupSpec]:
    """One group per list of names, with the merged spec. Errors as of `merge`."""
    groups = []
    for names in grouped_layer_names:
        specs = [kv_cache_spec[name] for name in names]
        groups.append(KVCacheGroupSpec(list(names), type(specs[0]).merge(specs)))
    return groups


def _get_kv_cache_groups_uniform_spec(kv_cache_specs: Layers) -> list[KVCacheGroupSpec]:
    """One group of all layers, which have mergeable specs."""
    return create_kv_cache_group_specs(kv_cache_specs, [list(kv_cache_specs)])


def _get_kv_cache_groups_uniform_type(spec: UniformTypeKVCacheSpecs) -> list[KVCacheGroupSpec]:
    """One group of all layers, whose pages differ."""
    return [KVCacheGroupSpec(list(spec.kv_cache_specs), spec)]


# Layers of several types, made to have one page size.


def _groups_of_one_page_size(layers: Layers) -> list[KVCacheGroupSpec]:
    """Groups of equal pages; each layer of hidden states is a group of its own beside them [C-05]."""
    hidden: dict[str, HiddenStateCacheSpec] = {
        name: spec for name, spec in layers.items() if isinstance(spec, HiddenStateCacheSpec)
    }
    if len(hidden) == len(layers):
        hidden = {}
    others = {name: spec for name, spec in layers.items() if name not in hidden}
    unified = unify_kv_cache_spec_page_size(others)
    groups = _get_kv_cache_groups_uniform_page_size(unified)
    page_size = get_uniform_page_size(unified)
    return groups + [KVCacheGroupSpec([name], _fitted(name, spec, page_size)) for name, spec in hidden.items()]


def _fitted(layer: str, spec: HiddenStateCacheSpec, page_size: int) -> HiddenStateCacheSpec:
    """The spec with as many tokens per block as fit into a page of so many bytes. ValueError if not even one does."""
    row = spec.num_kv_heads * spec.head_size * spec.dtype.itemsize
    block_size = max(page_size // row, 1)
    fitted = replace(spec, block_size=block_size, page_size_padded=None, alignment=None)
    if row > page_size or fitted.page_size_bytes > page_size:
        raise ValueError(
            f"layer {layer!r}: {block_size} hidden states take {max(row, fitted.page_size_bytes)} bytes, more than the "
            f"page of {page_size} that the other layers have: enlarge the block size"
        )
    return replace(fitted, page_size_padded=page_size)


def _get_kv_cache_groups_uniform_page_size(kv_cache_spec: Layers) -> list[KVCacheGroupSpec]:
    """Groups of about equal size, each of layers with equal specs."""
    types: dict[KVCacheSpec, list[str]] = {}
    for name, spec in kv_cache_spec.items():
        types.setdefault(spec, []).append(name)
    fewest, most = min(map(len, types.values())), max(map(len, types.values()))
    # Padding a somewhat smaller type up to the largest costs less than one group more for every type (K-4).
    size = most if 2 * most < 3 * fewest else fewest
    grouped: list[list[str]] = []
    for names in types.values():
        count = cdiv(len(names), size)
        # Strided: a pipeline stage owns a run of layers, which are then spread evenly over the groups.
        grouped += [names[start::count] for start in range(count)]
    _warn_of_waste(grouped)
    return create_kv_cache_group_specs(kv_cache_spec, grouped)


def _warn_of_waste(grouped: Sequence[Sequence[str]]) -> None:
    depth = max(map(len, grouped))
    slots, used = depth * len(grouped), sum(map(len, grouped))
    if used < slots:
        logger.warning(
            "%d of %d layer slots stay empty, %.1f %% of the KV cache memory: the groups have %s layers",
            slots - used,
            slots,
            100 * (slots - used) / slots,
            ", ".join(str(len(names)) for names in grouped),
        )


# Several uniform types side by side, as in DeepSeek-V4.


def group_and_unify_kv_cache_specs(kv_cache_spec: Layers) -> list[UniformTypeKVCacheSpecs] | None:
    """The MLA layers as one uniform type, then one for each block size and window of the sliding-window MLA layers.

    None unless there are layers of both and no others, and the MLA layers are of one type [C-06].
    """
    mla: dict[str, KVCacheSpec] = {
        name: spec for name, spec in kv_cache_spec.items() if isinstance(spec, MLAAttentionSpec)
    }
    windowed: dict[tuple[int, int], dict[str, KVCacheSpec]] = {}
    for name, spec in kv_cache_spec.items():
        if isinstance(spec, SlidingWindowMLASpec):
            windowed.setdefault((spec.block_size, spec.sliding_window), {})[name] = spec
    if not mla or not windowed or len(mla) + sum(map(len, windowed.values())) != len(kv_cache_spec):
        return None
    uniform = [UniformTypeKVCacheSpecs.from_specs(layers) for layers in (mla, *windowed.values())]
    found = [spec for spec in uniform if spec is not None]
    return found if len(found) == len(uniform) else None


def _get_kv_cache_groups_uniform_groups(grouped_specs: Sequence[UniformTypeKVCacheSpecs]) -> list[KVCacheGroupSpec]:
    """Groups of about as many layer tuples (one layer of each page size) as the first entry has.

    AssertionError for layers whose page matches none of the first entry's, or that do not make whole tuples (K-9).
    """
    first, *others = grouped_specs
    counts = [spec.get_num_layer_tuples() for spec in grouped_specs]
    size = _approximate_gcd(counts, lower_bound=counts[0])
    pages = sorted(first.get_page_sizes())
    groups = _get_kv_cache_groups_uniform_type(first)
    for spec in others:
        tuples = _layer_tuples(spec.kv_cache_specs, pages)
        count = cdiv(len(tuples), size)
        for start in range(count):
            members = {name: member for layers in tuples[start::count] for name, member in layers}
            groups += _get_kv_cache_groups_uniform_type(UniformTypeKVCacheSpecs(spec.block_size, members))
    return groups


def _layer_tuples(layers: Layers, pages: Sequence[int]) -> list[tuple[tuple[str, KVCacheSpec], ...]]:
    """One layer of each of these ascending page sizes that occur, side by side, padded copies where need be [C-07].

    A layer with an alignment of its own may get a larger page than that; it then shares no buffer.
    """
    by_page: dict[int, list[tuple[str, KVCacheSpec]]] = {}
    for name, spec in layers.items():
        page = next((page for page in pages if page >= spec.page_size_bytes), None)
        if page is None:
            raise AssertionError(
                f"layer {name!r}: its page of {spec.page_size_bytes} bytes is larger than all pages {list(pages)} of "
                "the MLA layers: make its block size smaller"
            )
        by_page.setdefault(page, []).append((name, spec if spec.page_size_bytes == page else _padded(spec, page)))
    counts = {page: len(members) for page, members in by_page.items()}
    if len(set(counts.values())) != 1:
        raise AssertionError(
            f"layers {', '.join(layers)} do not make whole tuples: there are {counts} of them by page size in bytes, "
            "and there must be equally many of each"
        )
    return list(zip(*by_page.values(), strict=True))


def _padded(spec: Any, page_size: int) -> KVCacheSpec:
    padded: KVCacheSpec = replace(spec, page_size_padded=page_size)
    return padded


def _annotate_eagle_groups_deepseek_v4(
    vllm_config: Any, kv_cache_spec: Layers, kv_cache_groups: Sequence[KVCacheGroupSpec]
) -> None:
    """Mark the group of the last layer, which is the draft model's, if a draft model of this kind is used."""
    speculative = vllm_config.speculative_config
    if speculative is None or not speculative.use_eagle():
        return
    if not any(getattr(spec, "model_version", None) == "deepseek_v4" for spec in kv_cache_spec.values()):
        return
    last = next(reversed(list(kv_cache_spec)))
    for group in kv_cache_groups:
        if last in group.layer_names:
            group.is_eagle_group = True


def _approximate_gcd(values: Sequence[int], *, lower_bound: int | None = None) -> int:
    """The size that pads the values least when each is filled up to a multiple of it; the largest such one.

    It is at least `lower_bound` and, unless that is larger, at most the largest value. ValueError for no values and for
    values below 1.
    """
    if not values or min(values) < 1:
        raise ValueError(f"cannot find a common size of {list(values)}: give at least one number, all above 0")
    least, most = max(1, lower_bound or 1), max(values)

    def padding(size: int) -> int:
        return sum(-value % size for value in values)

    return min(range(most, least - 1, -1), key=padding, default=least)
