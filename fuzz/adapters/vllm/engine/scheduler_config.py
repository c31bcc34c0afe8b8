"""Builds the configuration that a release's scheduler reads, without a model on disk.

Works in the Python environment of the release. Parts of the configuration are the release's own classes if these can be
built without a model; the rest are the plain fields in `_MODEL` and `_ENGINE`. Properties that the release computes
from these fields are the release's own code.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from math import gcd, lcm
from types import SimpleNamespace
from typing import Any

from .....model.attention import RULES, Mamba
from .....model.ops import Group, Shape
from ....kinds import KINDS
from ....simulation.protocol import EngineShape
from ..binding import RETENTION_VARIABLE

_MODEL: Mapping[str, object] = {
    "is_encoder_decoder": False,
    "is_diffusion": False,
    "is_multimodal_model": False,
    "supports_multimodal_inputs": False,
    "enable_return_routed_experts": False,
    "return_sampling_mask": False,
    "runner_type": "generate",
    "uses_mrope": False,
    "uses_xdrope": False,
    "multimodal_config": None,
}
"""Fields of the model's configuration that schedulers read."""
_ENGINE: Mapping[str, object] = {
    "lora_config": None,
    "kv_events_config": None,
    "kv_transfer_config": None,
    "ec_transfer_config": None,
    "diffusion_config": None,
    "use_v2_model_runner": False,
}
"""Fields of the engine's configuration that they read, besides the parts that are the release's own classes."""
_LATE_PARTS: Mapping[str, tuple[str, str]] = {
    "ec_manager_config": ("ec_manager_config", "EncoderCacheManagerConfig"),
    "aux_output_config": ("aux_output", "AuxOutputConfig"),
}
"""Fields that were added after 0.23, each with its module and its class."""
RETENTION_FIELD = "prefix_cache_retention_interval"
"""The field for the retention interval in the cache's configuration, from 0.29 on; before, `RETENTION_VARIABLE`."""


@dataclass(frozen=True)
class Setup:
    """An engine to be built: the shape of its cache, and its options."""

    shape: Shape
    max_num_seqs: int = 8
    drafts: int = 0
    """Number of draft tokens; `method` names the drafter."""
    method: str = "eagle"
    asynchronous: bool = False
    connector: str = ""
    """Name of its connector (`loads`, or of `connectors.WORKERS`); empty for none."""
    policy: str = "fcfs"
    """In which order requests wait and are preempted: "fcfs" or "priority"."""
    adapters_in_place: bool = False
    """True if all versions of an adapter have the same path."""
    retention: int | None = None
    """Retention interval: tokens between the states and windows that are kept; 0 to keep only those for a replay of the
    whole prompt."""


class _Engine:
    """A configuration with these fields, and with the properties of the release's class `kind`."""

    def __init__(self, kind: type, fields: Mapping[str, object]) -> None:
        self.__dict__.update(fields)
        self.__dict__["_kind"] = kind

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__") and isinstance(found := getattr(self._kind, name, None), property) and found.fget:
            return found.fget(self)
        raise AttributeError(f"the scheduler reads {name!r} of the configuration, which has no stand-in here")


@cache
def module(name: str) -> Any:
    """A module of the installed release. ImportError if there is none."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    return import_module(f"vllm.{name}")


def make(kind: Any, **keywords: object) -> Any:
    """Calls `kind` with those of the keyword arguments that it has in this release."""
    known = _keywords_of(kind)
    return kind(**{name: value for name, value in keywords.items() if name in known})


@cache
def _keywords_of(kind: Any) -> frozenset[str]:
    """The keyword arguments that `kind` has; signatures are slow to read, and a run makes one record a step."""
    known: set[str] = set()
    for base in getattr(kind, "__mro__", (kind,)):
        parameters = signature(base).parameters
        known |= set(parameters)
        if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters.values()):
            break  # else it passes unknown keywords on to its base class
    return frozenset(known)


def spec_of(group: Group) -> Any:
    """The release's spec of a group."""
    interface, torch = module("v1.kv_cache_interface"), import_module("torch")
    kind, heads = KINDS[group.kind], group.num_heads
    sizes: dict[str, object] = {"num_kv_heads": heads, "head_size": 1, "dtype": torch.float32}
    if RULES[group.kind] is Mamba:
        sizes = {"shapes": ((heads,),), "dtypes": (torch.float32,)}
    return getattr(interface, kind.spec)(block_size=group.block_size, **sizes, **kind.spec_fields(group))


def _late_parts() -> dict[str, object]:
    """Parts of the configuration that only later releases have, with default values."""
    parts: dict[str, object] = {}
    for name, (place, kind) in _LATE_PARTS.items():
        try:
            parts[name] = getattr(module(f"config.{place}"), kind)()
        except ModuleNotFoundError:
            continue
    return parts


def configuration(setup: Setup) -> Any:
    """The configuration for the scheduler of an engine. NotImplementedError if the release lacks an option."""
    shape, config = setup.shape, module("config")
    scheduling = make(
        config.SchedulerConfig,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        max_model_len=shape.max_model_len,
        is_encoder_decoder=False,
        enable_chunked_prefill=True,
        async_scheduling=setup.asynchronous,
        policy=setup.policy,
    )
    states = [group for group in shape.groups if RULES[group.kind] is Mamba]
    smallest = min(group.block_size for group in shape.groups)
    caching = make(config.CacheConfig, block_size=16, enable_prefix_caching=shape.caching)
    caching.block_size = states[0].block_size if states and states[0].mamba_mode == "align" else smallest
    caching.num_gpu_blocks = shape.num_blocks
    if setup.retention is not None:
        if hasattr(caching, RETENTION_FIELD):
            setattr(caching, RETENTION_FIELD, setup.retention)
        elif RETENTION_VARIABLE not in module("envs").environment_variables:
            raise NotImplementedError("this release has no retention interval")
    if states:
        caching.mamba_cache_mode = states[0].mamba_mode
    return _Engine(
        config.VllmConfig,
        {
            **_ENGINE,
            "scheduler_config": scheduling,
            "cache_config": caching,
            "model_config": SimpleNamespace(**_MODEL, max_model_len=shape.max_model_len),
            "parallel_config": config.ParallelConfig(),
            "observability_config": config.ObservabilityConfig(),
            "speculative_config": _speculation(setup) if setup.drafts else None,
            **_late_parts(),
        },
    )


def setup_of(shape: EngineShape) -> Setup:
    """The engine that vLLM would build: asynchronous scheduling needs Eagle for drafts, and up to 0.32 Eagle is not to
    be had with chunks."""
    options, core = shape.options, shape.core
    chunked = any(group.chunk for group in core.groups)
    if chunked and len({group.block_size for group in core.groups}) > 1:
        raise NotImplementedError("chunks beside blocks of another size")
    asynchronous = bool(options.get("asynchronous")) and not (chunked and shape.drafts)
    eagle = bool(shape.drafts) and not chunked and (asynchronous or options.get("drafter") == "eagle")
    states = [group.block_size for group in core.groups if group.kind == "mamba"]
    if states and min(states) < 1 + shape.drafts:
        raise NotImplementedError("drafts of a step that fill more than a block of states")
    if states and max(states) > core.max_num_batched_tokens:
        raise NotImplementedError("a step that is smaller than a block of states")
    return Setup(
        replace(core, eagle=eagle),
        max_num_seqs=shape.max_requests,
        drafts=shape.drafts,
        method="eagle" if eagle else "ngram",
        asynchronous=asynchronous,
        connector=str(options.get("connector", "")),
        policy=str(options.get("policy", "fcfs")),
        adapters_in_place=bool(options.get("adapters_in_place")),
        retention=retention if isinstance(retention := options.get("retention"), int) else None,
    )


def _speculation(setup: Setup) -> Any:
    """An object of the release's class, made without its constructor, which would read model files."""
    kind = module("config").SpeculativeConfig
    speculation = object.__new__(kind)
    fields = {
        "method": setup.method,
        "num_speculative_tokens": setup.drafts,
        "num_speculative_tokens_per_batch_size": None,
        "disable_eagle_block_drop": False,
        "disable_lookahead_block_hashes": False,
        "parallel_drafting": False,
        "draft_model_config": SimpleNamespace(hf_config=SimpleNamespace(), hf_text_config=SimpleNamespace()),
    }
    for name, value in fields.items():
        object.__setattr__(speculation, name, value)
    return speculation


def shape_of(
    groups: tuple[Group, ...], num_blocks: int, max_model_len: int, batched: int, caching: bool = True, **more: Any
) -> Shape:
    """A shape with the largest hash block size and the smallest scheduler block size that its groups allow.

    `num_blocks` in blocks, `max_model_len` and `batched` (tokens per step) in tokens.
    """
    sizes = [group.block_size for group in groups]
    return Shape(groups, num_blocks, max_model_len, gcd(*sizes), lcm(*sizes), batched, caching=caching, **more)
