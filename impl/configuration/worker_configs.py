"""The configuration of every worker and of the scheduler (specs-and-config.md §§13 and 14)."""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf
from typing import Any

from ..managers.spec_registry import KVCacheSpecRegistry
from ..specs.interface import KVCacheConfig, KVCacheGroupSpec, KVCacheSpec, UniformTypeKVCacheSpecs
from .capacity import (
    _check_enough_kv_cache_memory,
    _estimate_max_model_len_from_groups,
    _max_memory_usage_bytes_from_groups,
    _pool_bytes_per_block,
    get_kv_cache_config_from_groups,
    get_max_concurrency_for_kv_cache_config,
    may_override_num_blocks,
)
from .grouping import get_kv_cache_groups
from .uniformity import Layers, is_kv_cache_spec_uniform

logger = logging.getLogger(__name__)


def get_kv_cache_configs(
    vllm_config: Any, kv_cache_specs: Sequence[Layers], available_memory: Sequence[int], *, strict: bool = True
) -> list[KVCacheConfig]:
    """The configuration of every worker, from its layers and its memory in bytes; all have as many blocks.

    With `original_max_model_len` -1 `max_model_len` is lowered to what fits on every worker. The null block counts,
    too, where a request of that length must fit [C-17]; without `strict` it does not, as in vLLM 0.23.0, and such a
    request may stall. A worker without layers, where others have some, gets the common number of blocks and groups
    without layers [C-10].

    ValueError if a layer's spec has no manager, if a request does not fit, or if the lists differ in length [C-14];
    AssertionError if workers disagree about a layer.
    """
    if len(kv_cache_specs) != len(available_memory):
        raise ValueError(
            f"{len(kv_cache_specs)} workers have layers but {len(available_memory)} have memory: "
            "give one mapping of layers and one number of bytes for every worker"
        )
    layers = _joined(kv_cache_specs)
    KVCacheSpecRegistry.check_kv_cache_spec_registry(layers)
    groups = get_kv_cache_groups(vllm_config, layers)
    projected = [_project_kv_cache_groups_to_worker(groups, own) for own in kv_cache_specs]
    working = [worker for worker, own in enumerate(kv_cache_specs) if own]
    memory = {worker: _budget(vllm_config, projected[worker], available_memory[worker]) for worker in working}
    uncounted = {worker: 0 if strict else _pool_bytes_per_block(projected[worker]) for worker in working}
    if vllm_config.model_config.original_max_model_len == -1:
        _auto_fit_max_model_len(
            vllm_config,
            [projected[worker] for worker in working],
            [memory[worker] + uncounted[worker] for worker in working],
        )
    for worker in working:
        _check_worker(vllm_config, projected[worker], memory[worker], uncounted[worker])
    configs = [
        _worker_config(vllm_config, worker, own, projected[worker], memory.get(worker, 0))
        for worker, own in enumerate(kv_cache_specs)
    ]
    _make_blocks_equal(configs)
    override = vllm_config.cache_config.num_gpu_blocks_override
    if working and override is not None:
        logger.info("num_gpu_blocks_override sets the KV cache to %d blocks, whatever fits", override)
    if working:
        _report_kv_cache_config(vllm_config, configs[working[0]])  # as many blocks and groups as all the others
    return configs


def _joined(kv_cache_specs: Sequence[Layers]) -> dict[str, KVCacheSpec]:
    joined: dict[str, KVCacheSpec] = {}
    for worker, layers in enumerate(kv_cache_specs):
        for name, spec in layers.items():
            known = joined.setdefault(name, spec)
            if known != spec:
                raise AssertionError(
                    f"layer {name!r} is {spec} on worker {worker} but {known} on one before: "
                    "a layer has the same spec on all workers"
                )
    return joined


def _project_kv_cache_groups_to_worker(
    global_kv_cache_groups: Sequence[KVCacheGroupSpec], worker_spec: Mapping[str, KVCacheSpec]
) -> list[KVCacheGroupSpec]:
    """The same groups with the worker's own layers only; a uniform spec is cut to them, or whole where there are none.

    A group without local layers loses its eagle mark.
    """
    projected = []
    for group in global_kv_cache_groups:
        names = [name for name in group.layer_names if name in worker_spec]
        spec = group.kv_cache_spec
        if names and isinstance(spec, UniformTypeKVCacheSpecs):
            spec = replace(spec, kv_cache_specs={name: spec.kv_cache_specs[name] for name in names})
        projected.append(KVCacheGroupSpec(names, spec, group.is_eagle_group and bool(names)))
    return projected


def _budget(vllm_config: Any, groups: Sequence[KVCacheGroupSpec], available_memory: int) -> int:
    """Bytes to share out: with an override what its blocks cost, whatever was measured."""
    if vllm_config.cache_config.num_gpu_blocks_override is None:
        return available_memory
    return may_override_num_blocks(vllm_config, 0) * _pool_bytes_per_block(groups)


def _auto_fit_max_model_len(
    vllm_config: Any, projected_groups_per_worker: Sequence[Sequence[KVCacheGroupSpec]], available_memory: Sequence[int]
) -> None:
    """Lower `max_model_len` to what fits into the memory (bytes) of every worker. ValueError if not one token does."""
    limits = [
        _estimate_max_model_len_from_groups(vllm_config, groups, memory)
        for groups, memory in zip(projected_groups_per_worker, available_memory, strict=True)
        if groups
    ]
    if not limits:
        return
    worker, longest = min(enumerate(limits), key=lambda limit: limit[1])
    if longest <= 0:
        raise ValueError(
            f"no max_model_len fits: not even one token does into the {available_memory[worker]} bytes that one worker "
            "has for its KV cache: raise gpu_memory_utilization"
        )
    model = vllm_config.model_config
    if longest < model.max_model_len:
        logger.info("max_model_len lowered from %d to %d, which fits into the KV cache", model.max_model_len, longest)
        model.max_model_len = longest
    else:
        logger.info("max_model_len stays %d, which fits into the KV cache", model.max_model_len)


def _check_worker(vllm_config: Any, groups: Sequence[KVCacheGroupSpec], memory: int, uncounted: int) -> None:
    """ValueError unless a request of `max_model_len` tokens fits into so many bytes, those that do not count aside."""
    _check_enough_kv_cache_memory(
        memory,
        lambda: _max_memory_usage_bytes_from_groups(vllm_config, groups) - uncounted,
        vllm_config.model_config.max_model_len,
        lambda available: _estimate_max_model_len_from_groups(vllm_config, groups, available + uncounted),
    )


def _worker_config(
    vllm_config: Any, worker: int, layers: Layers, groups: Sequence[KVCacheGroupSpec], memory: int
) -> KVCacheConfig:
    grouped = {name for group in groups for name in group.layer_names}
    if grouped != set(layers):
        raise AssertionError(f"worker {worker}: layers {sorted(set(layers) - grouped)} are in no group")
    config = get_kv_cache_config_from_groups(vllm_config, groups, memory)
    if config.num_blocks < 1:
        raise ValueError(
            f"worker {worker}: {memory} bytes do not hold one block of {_pool_bytes_per_block(groups)} bytes: "
            "raise gpu_memory_utilization or lower block_size"
        )
    return config


def _make_blocks_equal(configs: Sequence[KVCacheConfig]) -> None:
    """Give all the least number of blocks among those with tensors, and shrink the tensors to it."""
    counts = [config.num_blocks for config in configs if config.kv_cache_tensors]
    if not counts:
        return
    least = min(counts)
    for config in configs:
        if config.num_blocks != least:
            for tensor in config.kv_cache_tensors:
                tensor.size = tensor.size // config.num_blocks * least
            config.num_blocks = least


def _report_kv_cache_config(vllm_config: Any, kv_cache_config: KVCacheConfig) -> None:
    """Log how many tokens the KV cache holds and how many requests of `max_model_len` tokens at once."""
    length = vllm_config.model_config.max_model_len
    concurrency = get_max_concurrency_for_kv_cache_config(vllm_config, kv_cache_config)
    if concurrency == inf:
        logger.info("a request needs no block of the KV cache, whatever its length")
        return
    logger.info("the KV cache holds %s tokens", f"{int(concurrency * length):,}")
    logger.info("it holds %.2f requests of %s tokens each at once", concurrency, f"{length:,}")


def generate_scheduler_kv_cache_config(kv_cache_configs: Sequence[KVCacheConfig]) -> KVCacheConfig:
    """The scheduler's configuration: the first worker's, with one spec for every group.

    An eagle mark of any worker counts [C-09]. The inputs stay as they are. AssertionError unless all workers have as
    many blocks.
    """
    counts = [config.num_blocks for config in kv_cache_configs]
    if len(set(counts)) != 1:
        raise AssertionError(f"workers have {counts} blocks: make them equal first (unify_kv_cache_configs)")
    made = deepcopy(kv_cache_configs[0])
    for index, group in enumerate(made.kv_cache_groups):
        if isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs):
            group.kv_cache_spec = next(iter(group.kv_cache_spec.kv_cache_specs.values()))
        group.is_eagle_group = any(config.kv_cache_groups[index].is_eagle_group for config in kv_cache_configs)
    return made


# Names of older releases.


def is_kv_cache_type_uniform(kv_cache_spec: Layers) -> bool:
    """`is_kv_cache_spec_uniform` by its older name."""
    return is_kv_cache_spec_uniform(kv_cache_spec)


def get_kv_cache_config(
    vllm_config: Any, kv_cache_spec: MutableMapping[str, KVCacheSpec], available_memory: int
) -> KVCacheConfig:
    """`get_kv_cache_configs` for a single worker."""
    return get_kv_cache_configs(vllm_config, [kv_cache_spec], [available_memory])[0]


def unify_kv_cache_configs(kv_cache_configs: list[KVCacheConfig]) -> list[KVCacheConfig]:
    """Give the workers' configurations, in place, the least number of blocks; returns them.

    AssertionError unless they have the same groups in the same order.
    """
    for worker, config in enumerate(kv_cache_configs):
        first, own = kv_cache_configs[0].kv_cache_groups, config.kv_cache_groups
        if len(own) != len(first):
            raise AssertionError(f"worker {worker} has {len(own)} KV cache groups, the first has {len(first)}")
        for index, (group, other) in enumerate(zip(own, first, strict=True)):
            if not _agree(group.kv_cache_spec, other.kv_cache_spec):
                raise AssertionError(
                    f"group {index} is {group.kv_cache_spec} on worker {worker} but {other.kv_cache_spec} on the first"
                )
    _make_blocks_equal(kv_cache_configs)
    return kv_cache_configs


def _agree(spec: KVCacheSpec, other: KVCacheSpec) -> bool:
    """Whether these can be the specs of one group on two workers. Uniform ones hold each worker's own layers only."""
    if isinstance(spec, UniformTypeKVCacheSpecs) and isinstance(other, UniformTypeKVCacheSpecs):
        return UniformTypeKVCacheSpecs.is_uniform_type({**spec.kv_cache_specs, **other.kv_cache_specs})
    return spec == other
