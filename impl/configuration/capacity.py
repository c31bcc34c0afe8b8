"""How many blocks fit, the tensors they live in, and how long a request may be (specs-and-config.md §§11 and 12)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from ..specs.base import cdiv
from ..specs.interface import KVCacheConfig, KVCacheGroupSpec, KVCacheSpec, KVCacheTensor, UniformTypeKVCacheSpecs
from .uniformity import Layers, get_uniform_page_size

GIB = 1 << 30


# Blocks and tensors.


def may_override_num_blocks(vllm_config: Any, num_blocks: int) -> int:
    """`num_gpu_blocks_override` if it is set, else the number given."""
    override: int | None = vllm_config.cache_config.num_gpu_blocks_override
    return num_blocks if override is None else override


def get_num_blocks(vllm_config: Any, num_layers: int, available_memory: int, page_size: int) -> int:
    """Blocks that fit into so many bytes when each takes a page in so many layers; at least 0. Or the override."""
    return may_override_num_blocks(vllm_config, max(0, int(available_memory // page_size // num_layers)))


def _pool_bytes_per_block(kv_cache_groups: Sequence[KVCacheGroupSpec]) -> int:
    """Bytes that one block id costs on a worker with these groups."""
    if not kv_cache_groups:
        return 0
    uniform = _uniform_specs(kv_cache_groups)
    if uniform is None:
        page_size = get_uniform_page_size(group.kv_cache_spec for group in kv_cache_groups)
        return page_size * max(len(group.layer_names) for group in kv_cache_groups)
    if len(uniform) == 1:
        return uniform[0].page_size_bytes
    return sum(page * len(slots) for page, slots in _bucket_layers_by_page_size(kv_cache_groups).items())


def _bucket_layers_by_page_size(kv_cache_groups: Sequence[KVCacheGroupSpec]) -> dict[int, list[list[str]]]:
    """Page size to slots; the i-th layer of that page size in every group shares slot i. For uniform groups only."""
    buckets: dict[int, list[list[str]]] = {}
    for group in kv_cache_groups:
        filled: dict[int, int] = {}
        for name in group.layer_names:
            page = _members(group)[name].page_size_bytes
            slots, index = buckets.setdefault(page, []), filled.get(page, 0)
            filled[page] = index + 1
            if index == len(slots):
                slots.append([])
            slots[index].append(name)
    return buckets


def get_kv_cache_config_from_groups(
    vllm_config: Any, kv_cache_groups: Sequence[KVCacheGroupSpec], available_memory: int
) -> KVCacheConfig:
    """The blocks that fit into so many bytes (or the override) and the tensors that hold them.

    Without layers one block, the null block, and no tensors.
    """
    if not any(group.layer_names for group in kv_cache_groups):
        return KVCacheConfig(1, [], kv_cache_groups)
    uniform = _uniform_specs(kv_cache_groups)
    if uniform is not None and len(uniform) > 1:
        num_blocks, tensors = _get_kv_cache_config_deepseek_v4(vllm_config, kv_cache_groups, available_memory)
        return KVCacheConfig(num_blocks, tensors, kv_cache_groups)
    num_blocks = _blocks_that_fit(vllm_config, kv_cache_groups, available_memory)
    if uniform is not None:
        (group,) = kv_cache_groups
        pages = [(_members(group)[name].page_size_bytes, [name]) for name in group.layer_names]
    else:
        page = get_uniform_page_size(group.kv_cache_spec for group in kv_cache_groups)
        depth = max(len(group.layer_names) for group in kv_cache_groups)
        slots = [[name for group in kv_cache_groups for name in group.layer_names[i : i + 1]] for i in range(depth)]
        pages = [(page, names) for names in slots]
    tensors = [KVCacheTensor(page * num_blocks, names) for page, names in pages]
    return KVCacheConfig(num_blocks, tensors, kv_cache_groups)


def _get_kv_cache_config_deepseek_v4(
    vllm_config: Any, kv_cache_groups: Sequence[KVCacheGroupSpec], available_memory: int
) -> tuple[int, list[KVCacheTensor]]:
    """Blocks and tensors of several uniform groups: one tensor per slot of `_bucket_layers_by_page_size`."""
    num_blocks = _blocks_that_fit(vllm_config, kv_cache_groups, available_memory)
    buckets = _bucket_layers_by_page_size(kv_cache_groups)
    return num_blocks, [KVCacheTensor(page * num_blocks, names) for page, slots in buckets.items() for names in slots]


def _blocks_that_fit(vllm_config: Any, groups: Sequence[KVCacheGroupSpec], available_memory: int) -> int:
    """At least 0, and an int even of a float memory [C-11]; or the override."""
    return may_override_num_blocks(vllm_config, max(0, int(available_memory // _pool_bytes_per_block(groups))))


def _uniform_specs(groups: Sequence[KVCacheGroupSpec]) -> list[UniformTypeKVCacheSpecs] | None:
    """The groups' specs if all of them are uniform types."""
    specs = [group.kv_cache_spec for group in groups if isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs)]
    return specs if len(specs) == len(groups) else None


def _members(group: KVCacheGroupSpec) -> Mapping[str, KVCacheSpec]:
    if not isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs):
        raise AssertionError(f"not a uniform group: {group.layer_names}")
    return group.kv_cache_spec.kv_cache_specs


# What a request needs.


def max_memory_usage_bytes(vllm_config: Any, kv_cache_specs: Iterable[KVCacheSpec]) -> int:
    """Bytes that one request of `max_model_len` tokens needs in these layers, without what grouping pads (K-2)."""
    return sum(spec.max_memory_usage_bytes(vllm_config) for spec in kv_cache_specs)


def _request_blocks(vllm_config: Any, groups: Sequence[KVCacheGroupSpec]) -> int:
    """Blocks that one request of `max_model_len` tokens needs in all groups, local layers or not."""
    return sum(_blocks_in_group(vllm_config, group.kv_cache_spec) for group in groups)


def _blocks_in_group(vllm_config: Any, spec: KVCacheSpec) -> int:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return spec.max_memory_usage_pages(vllm_config)
    return cdiv(spec.max_memory_usage_bytes(vllm_config), spec.page_size_bytes)


def _max_memory_usage_bytes_from_groups(vllm_config: Any, kv_cache_groups: Sequence[KVCacheGroupSpec]) -> int:
    """Bytes of the blocks that one request needs on a worker with these groups, padding included [C-08], and of the
    null block, which no request can use [C-17]."""
    return _pool_bytes_per_block(kv_cache_groups) * (_request_blocks(vllm_config, kv_cache_groups) + 1)


def get_max_concurrency_for_kv_cache_config(vllm_config: Any, kv_cache_config: KVCacheConfig) -> float:
    """Requests of `max_model_len` tokens that the blocks beside the null block suffice for [C-08, C-17]; infinity if
    one needs none [C-16]."""
    blocks = _request_blocks(vllm_config, kv_cache_config.kv_cache_groups)
    return max(0, kv_cache_config.num_blocks - 1) / blocks if blocks else inf


# Lengths that fit.


def estimate_max_model_len(vllm_config: Any, kv_cache_spec: Layers, available_memory: int) -> int:
    """The largest length in tokens, up to `max_model_len`, at which one request fits; 0 if none does [C-15].

    Counts as `check_enough_kv_cache_memory`. `max_model_len` is the same afterwards, also when a spec raises.
    """
    return _largest_length(vllm_config, lambda: _bytes_without_groups(vllm_config, kv_cache_spec) <= available_memory)


def _bytes_without_groups(vllm_config: Any, layers: Layers) -> int:
    """What `max_memory_usage_bytes` says, and the null block [C-17]."""
    return max_memory_usage_bytes(vllm_config, layers.values()) + _null_block(layers)


def _null_block(layers: Layers) -> int:
    """Bytes of one block of every layer."""
    return sum(spec.page_size_bytes for spec in layers.values())


def _estimate_max_model_len_from_groups(
    vllm_config: Any, kv_cache_groups: Sequence[KVCacheGroupSpec], available_memory: int
) -> int:
    """As `estimate_max_model_len`, for a worker with these groups, padding included."""
    return _largest_length(
        vllm_config, lambda: _max_memory_usage_bytes_from_groups(vllm_config, kv_cache_groups) <= available_memory
    )


def _largest_length(vllm_config: Any, fits: Callable[[], bool]) -> int:
    """Halving, since needs never fall when the length grows; whatever a registered class does, the answer fits."""
    with _restored_max_model_len(vllm_config) as limit:
        fitting, too_long = 0, max(limit, 0) + 1
        middle = too_long - 1  # most often all of it fits
        while too_long - fitting > 1:
            vllm_config.model_config.max_model_len = middle
            if fits():
                fitting = middle
            else:
                too_long = middle
            middle = (fitting + too_long) // 2
        return fitting


@contextmanager
def _restored_max_model_len(vllm_config: Any) -> Iterator[int]:
    before: int = vllm_config.model_config.max_model_len
    try:
        yield before
    finally:
        vllm_config.model_config.max_model_len = before


# Checks.


def check_enough_kv_cache_memory(
    vllm_config: Any, kv_cache_spec: Layers, available_memory: int, *, strict: bool = True
) -> None:
    """ValueError, with the length that would fit, unless a request of `max_model_len` tokens does; no layers always do.

    Counts as `max_memory_usage_bytes`, and one block of every layer more, for the null block [C-17]; without `strict`
    that block does not count, as in vLLM 0.23.0.
    """
    if not kv_cache_spec:
        return
    uncounted = 0 if strict else _null_block(kv_cache_spec)
    _check_enough_kv_cache_memory(
        available_memory,
        lambda: _bytes_without_groups(vllm_config, kv_cache_spec) - uncounted,
        vllm_config.model_config.max_model_len,
        lambda memory: estimate_max_model_len(vllm_config, kv_cache_spec, memory + uncounted),
    )


def _check_enough_kv_cache_memory(
    available_memory: int,
    get_needed_memory: Callable[[], int],
    max_model_len: int,
    estimate_max_model_len: Callable[[int], int],
) -> None:
    """ValueError, saying what to do, for no memory (bytes) at all and for less than is needed."""
    if available_memory <= 0:
        raise ValueError(
            f"no memory is left for the KV cache ({available_memory} bytes): raise gpu_memory_utilization, "
            "or use a device with more memory"
        )
    needed = get_needed_memory()
    if needed <= available_memory:
        return
    longest = estimate_max_model_len(available_memory)
    advice = f"; the largest length that fits is {longest}" if longest > 0 else ""
    raise ValueError(
        f"one request of the max seq len, max_model_len {max_model_len}, needs {_size(needed)} of KV cache, but only "
        f"{_size(available_memory)} are available{advice}: raise gpu_memory_utilization or lower max_model_len"
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB ({num_bytes} bytes)"
