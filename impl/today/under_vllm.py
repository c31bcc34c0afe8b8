"""What the scheduler of vLLM 0.33 gets in place of its own core: `compat.install()` puts it there.

Specs, layouts, planning and the names of blocks stay vLLM's, as do the modules of managers and pools, which its
connectors use for pools of their own; the pool that a scheduler allocates from is ours. vLLM's specs are read, not
used: of each, what a core asks stands in a spec of ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from ..managers import kv_cache_manager as older
from ..managers import stats
from ..pool import events, metrics
from ..specs.base import KVCacheSpec
from ..specs.interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheGroupSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
)
from . import kv_cache_manager as own
from . import request
from .checkpoints import TodayMambaSpec
from .coordinator import NoPrefixCacheToday, UnitaryToday
from .hybrid import HybridToday
from .managers import OF_TODAY
from .reference_window import ReferenceWindowManager, RSWASpec
from .rings import CircularBufferSpec, RingManager
from .windows import TodayWindowMLASpec, TodayWindowSpec

MANAGER, UTILS = "vllm.v1.core.kv_cache_manager", "vllm.v1.core.kv_cache_utils"
SPECS: Mapping[str, type[KVCacheSpec]] = {
    "FullAttentionSpec": FullAttentionSpec,
    "MLAAttentionSpec": MLAAttentionSpec,
    "HiddenStateCacheSpec": HiddenStateCacheSpec,
    "SinkFullAttentionSpec": SinkFullAttentionSpec,
    "RSWASpec": RSWASpec,
    "SlidingWindowSpec": TodayWindowSpec,
    "SlidingWindowMLASpec": TodayWindowMLASpec,
    "ChunkedLocalAttentionSpec": ChunkedLocalAttentionSpec,
    "CircularBufferSpec": CircularBufferSpec,
    "CrossAttentionSpec": CrossAttentionSpec,
    "MambaSpec": TodayMambaSpec,
}
"""Our spec for each of vLLM's, by its name."""
_READ = frozenset(
    {
        *("block_size", "num_kv_heads", "head_size", "dtype", "sliding_window", "attention_chunk_size", "sink_len"),
        *("extra_retained_tokens", "rswa_window", "shapes", "dtypes", "mamba_cache_mode", "num_speculative_blocks"),
        *("num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"),
    }
)
"""Fields that a core asks for. Bytes of pages are planned before there is one."""
_REFUSED = {"bounded_replay": False}
"""Fields of windows that our core does not know, with what they have to be."""


@dataclass
class GroupForVllm(KVCacheGroupSpec):
    """A group, and what vLLM says of it."""

    told: object = None
    """Its spec there: groups that differ in a field that a core never asks for are looked up apart all the same."""


def spec_of(theirs: Any) -> KVCacheSpec:
    """Our spec of what vLLM's says. NotImplementedError for one that our core cannot serve."""
    if (members := getattr(theirs, "kv_cache_specs", None)) is not None:
        theirs = next(iter(members.values()))  # of layers that share a table, whose pages alone differ
    for name, plain in _REFUSED.items():
        if getattr(theirs, name, plain) != plain:
            raise NotImplementedError(f"{type(theirs).__name__} with {name}: our core has no such window")
    ours = next((SPECS[kind.__name__] for kind in type(theirs).__mro__ if kind.__name__ in SPECS), None)
    if ours is None or not is_dataclass(ours):
        raise NotImplementedError(f"{type(theirs).__name__}: our core has no manager for such a spec")
    told = {field.name for field in fields(ours)} & _READ
    return ours(**{name: getattr(theirs, name) for name in sorted(told) if hasattr(theirs, name)})


def config_of(theirs: Any) -> own.TodayConfig:
    """The same of a configuration."""
    groups = [
        GroupForVllm(
            list(group.layer_names), spec_of(group.kv_cache_spec), group.is_eagle_group, told=group.kv_cache_spec
        )
        for group in theirs.kv_cache_groups
    ]
    interval = theirs.prefix_cache_retention_interval
    return own.TodayConfig(theirs.num_blocks, [], groups, prefix_cache_retention_interval=interval)


class ManagerForVllm(own.TodayManager):
    """Our core, built from vLLM's configuration, and with what its scheduler and connectors look for in one."""

    def __init__(self, kv_cache_config: Any, *given: Any, **named: Any) -> None:
        super().__init__(config_of(kv_cache_config), *given, **named)
        self.kv_cache_config = kv_cache_config
        managers = self.coordinator.single_type_managers
        for manager, group in zip(managers, kv_cache_config.kv_cache_groups, strict=True):
            manager.kv_cache_spec = group.kv_cache_spec
        self.mamba_shared_prefix_checkpoint = (
            self.coordinator.names_junctions and self.coordinator.enable_partial_hash_hits
        )

    def prefix_cache_lookup_enabled(self, request: Any) -> bool:
        """Whether a request is looked up."""
        return self._looks_up(request)


SHOWN: Mapping[str, Mapping[str, object]] = {
    MANAGER: {"KVCacheManager": ManagerForVllm, "KVCacheBlocks": older.KVCacheBlocks}
}
"""By module of vLLM, what stands in it in place of its own."""

ADOPTED: Mapping[str, Sequence[tuple[ModuleType, str, Sequence[str]]]] = {
    MANAGER: (
        (own, UTILS, ("KVCacheBlockCopy",)),
        (request, "vllm.v1.request", ("RequestStatus",)),
        (events, "vllm.distributed.kv_events", ("KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared")),
        (stats, "vllm.v1.metrics.stats", ("PrefixCacheStats",)),
        (metrics, "vllm.v1.metrics.stats", ("KVCacheEvictionEvent",)),
    ),
}
"""With which module the core takes classes over that it makes objects of: where ours are, and where vLLM's."""


def be_known() -> None:
    """Let vLLM's abstract classes of managers and coordinators have ours among their kinds: some who are given a core
    ask of what kind its parts are."""
    managers = import_module("vllm.v1.core.single_type_kv_cache_manager")
    kinds: dict[str, type] = {kind.__name__: ours for kind, ours in OF_TODAY.items()}
    for name, ours in {**kinds, "RSWAManager": ReferenceWindowManager, "CircularBufferManager": RingManager}.items():
        getattr(managers, name).register(ours)
    coordinators = import_module("vllm.v1.core.kv_cache_coordinator")
    for made in (NoPrefixCacheToday, UnitaryToday, HybridToday):
        getattr(coordinators, made.__mro__[2].__name__).register(made)
