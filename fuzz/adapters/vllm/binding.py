"""`Binding`: how to build one core with vLLM's API, and the objects that its calls take. One for each such core.

`releases.py` lists what differs between releases of vLLM; everything else is called by the names of 0.23. This module
is imported in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from ....model.attention import RULES, Mamba
from ....model.features import inside
from ....model.kinds.pool_kinds import fits
from ....model.ops import Group, Item, Shape, Submit
from ...kinds import KINDS, OF_MOST
from . import pools
from .releases import Release, release_of
from .surroundings import Surroundings

RETENTION_VARIABLE = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
"""The environment variable from which vLLM 0.23 to 0.28 reads the retention interval, in tokens."""

ADAPTERS = "/adapters/"
"""Every version of an adapter is read from a path of its own: this, with the version behind it."""


@dataclass(frozen=True)
class Binding:
    """One core: its classes under the names of vLLM 0.23, and how to make their arguments."""

    version: str
    names: Callable[[str], Any]
    """Returns the core's class or function of that name. AttributeError if it has none."""
    dtype: object
    """Element type of all specs. Any will do: nothing that is tested depends on it."""
    adapter: Callable[[str, int, str], Any]
    """Makes a LoRA adapter of this name, read from this path; the number, from 1, belongs to the name."""
    item: Callable[[Item], Any]
    """Makes a multimodal feature at its place in the prompt."""
    embeddings: Callable[[tuple[int, ...]], Any]
    """Makes prompt embeddings, one row for each number."""
    sampling: object
    """Sampling parameters of every request."""
    hasher_options: Mapping[str, object]
    """Keyword arguments of the block hasher that vLLM does not have."""
    release: Release
    """How the core is called."""
    hasher_options_of: Callable[[Shape], Mapping[str, int]] = lambda shape: {}
    """The same that depend on the shape."""
    around: Callable[[Shape], Surroundings] = Surroundings
    """What is around calls on a core of a shape."""

    def spec(self, group: Group) -> Any:
        """The spec of a group; groups whose `Group.spec` is equal get equal specs."""
        if RULES[group.kind] is Mamba:
            spec = self.names(KINDS[group.kind].spec)(
                block_size=group.block_size,
                shapes=((group.num_heads,),),
                dtypes=(self.dtype,),
                **KINDS[group.kind].spec_fields(group),
            )
            # A worker that could leave states inside a step, but has no blocks for them, leaves none.
            able = hasattr(spec, "prefill_checkpoint_alignment") and not group.checkpoint
            return replace(spec, prefill_checkpoint_alignment=1) if able else spec
        return self.attention_spec(group, group.block_size, group.num_heads, 1, self.dtype)

    def attention_spec(self, group: Group, block_size: int, num_heads: int, head_size: int, dtype: object) -> Any:
        """The spec of a group of attention layers with these sizes, in tokens, heads and elements."""
        kind = KINDS[group.kind]
        if kind.own_fields is not None:
            return self.names(kind.spec)(block_size=block_size, **kind.own_fields(group))
        sizes = {"block_size": block_size, "num_kv_heads": num_heads, "head_size": head_size, "dtype": dtype}
        return self.names(kind.spec)(**sizes, **kind.spec_fields(group))

    def manager(self, shape: Shape) -> Any:
        """A new KVCacheManager of this shape. NotImplementedError for a shape that the release cannot have."""
        self._check(shape)
        release, interval = self.release, shape.retention_interval
        group_of = self.names("KVCacheGroupSpec")
        flags = [{} if release.eagle == "whole" else {"is_eagle_group": group.eagle} for group in shape.groups]
        groups = [
            group_of([f"layer.{index}"], self._chained(self.spec(one), shape), **flag, **pools.said(self.names, one))
            for index, (one, flag) in enumerate(zip(shape.groups, flags, strict=True))
        ]
        fields = {"prefix_cache_retention_interval": interval} if release.retention == "configuration" else {}
        if shape.host_blocks:
            fields["hisparse_host_num_blocks"] = shape.host_blocks
        with environment(RETENTION_VARIABLE, interval if release.retention == "environment" else None):
            return self.names("KVCacheManager")(
                self.names("KVCacheConfig")(
                    num_blocks=shape.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups, **fields
                ),
                max_model_len=shape.max_model_len,
                hash_block_size=shape.hash_block_size,
                enable_caching=shape.caching,
                log_stats=shape.stats,
                enable_kv_cache_events=shape.events,
                dcp_world_size=shape.decode_parallel,
                pcp_world_size=shape.prefill_parallel,
                **self._keywords(shape),
            )

    def _chained(self, spec: Any, shape: Shape) -> Any:
        """The spec, with what a window keeps for a chain of draft models."""
        extra = max(0, inside.drafts(shape) - 1) if self.release.eagle == "lookahead" else 0
        return replace(spec, extra_retained_tokens=extra) if extra and hasattr(spec, "extra_retained_tokens") else spec

    def _check(self, shape: Shape) -> None:
        """NotImplementedError if the shape has something that the release lacks."""
        has = {
            "Shape.scheduler_block_size": shape.scheduler_block_size != shape.least_scheduler_block_size,
            "Shape.retention_interval": shape.retention_interval is not None,
            "Shape.prefill_parallel": shape.prefill_parallel > 1,
            "Group.mamba_mode": shape.caching
            and any(RULES[group.kind] is Mamba and group.mamba_mode != "align" for group in shape.groups),
            "Group.eagle": any(group.eagle for group in shape.groups),
            **{f"Group.kind={group.kind}": True for group in shape.groups},
        }
        if missing := sorted(name for name in self.release.lacks if has.get(name)):
            raise NotImplementedError(f"vLLM {self.version} has no {missing[0]}; leave it out of the shape")
        if not fits(shape):
            raise NotImplementedError(
                "a pool of the host is there with all of its kinds, or not at all (pool_kinds.fits)"
            )
        for kind in {group.kind: KINDS[group.kind] for group in shape.groups if group.kind not in OF_MOST}.values():
            try:
                self.names(kind.spec)
            except AttributeError:
                raise NotImplementedError(f"this core has no {kind.spec}; leave {kind.name} out of the shape") from None

    def _keywords(self, shape: Shape) -> dict[str, object]:
        """Keyword arguments of the manager that not every release has."""
        release = self.release
        keywords: dict[str, object] = {"use_eagle": shape.eagle}
        if release.eagle == "lookahead":
            old = shape.old_names and inside.drafts(shape) > 0
            keywords |= {"use_eagle": old, "num_hash_lookahead_tokens": self._hash_lookahead(shape)}
            keywords["num_prefill_lookahead"] = inside.drafts(shape)
        if release.token_limit:
            keywords[release.token_limit] = shape.max_num_batched_tokens
        if release.scheduler_block_size:
            keywords["scheduler_block_size"] = shape.scheduler_block_size
        if release.retention == "keyword":
            keywords["retention_interval"] = shape.retention_interval
        if shape.names_junctions:
            keywords["enable_mamba_shared_prefix_checkpoint"] = True
        if release.watermark:
            keywords["watermark"] = (shape.watermark + 0.5) / shape.num_blocks if shape.watermark else 0.0
        if shape.sampling:
            keywords["metrics_collector"] = self.names("KVCacheMetricsCollector")(1 / shape.sampling)
        return keywords

    def _hash_lookahead(self, shape: Shape) -> int:
        """How many tokens behind a block its hash covers, too."""
        drafts = shape.eagle or any(group.eagle for group in shape.groups)
        ahead = self.release.eagle == "lookahead" and shape.caching and drafts and not shape.old_names
        return shape.reads_ahead * ahead

    def block_hasher(self, shape: Shape) -> Any:
        """The function that computes the hashes of a request's full blocks."""
        lookahead = self._hash_lookahead(shape)
        options = {**self.hasher_options, **self.hasher_options_of(shape)}
        options |= {"num_hash_lookahead_tokens": lookahead} if lookahead else {}
        return self.names("get_request_block_hasher")(shape.hash_block_size, self.names("sha256"), **options)

    def request(self, submit: Submit, block_hasher: object, adapter_number: Callable[[str], int]) -> Any:
        """A new request."""
        request = self.new_request(self.request_fields(submit, block_hasher, adapter_number))
        if submit.skip_lookup:
            request.skip_reading_prefix_cache = True
        if submit.reports_hits:
            request.kv_cache_report_mode = "full"
        return request

    def new_request(self, fields: Mapping[str, Any]) -> Any:
        """A new request of these fields."""
        return self.names("Request")(**fields)

    def request_fields(
        self, submit: Submit, block_hasher: object, adapter_number: Callable[[str], int]
    ) -> dict[str, Any]:
        """The fields of a new request. Names are interned, since a hash over pickled keys depends on whether equal
        texts are one object."""
        return {
            "request_id": submit.request,
            "sampling_params": self.sampling,
            "pooling_params": None,
            **self._prompt(submit),
            "mm_features": [self.item(item) for item in submit.items],
            "lora_request": self._adapter(submit, adapter_number),
            "cache_salt": sys.intern(submit.salt) if submit.salt is not None else None,
            "block_hasher": block_hasher,
        }

    def _prompt(self, submit: Submit) -> dict[str, object]:
        """Tokens, or embeddings, or both with what says which of them counts; a row that is not read is 0."""
        if submit.embeds is None:
            return {"prompt_token_ids": list(submit.prompt)}
        rows = self.embeddings(tuple(row or 0 for row in submit.embeds))
        if None not in submit.embeds:
            return {"prompt_token_ids": None, "prompt_embeds": rows}
        is_token = [row is None for row in submit.embeds]
        return {"prompt_token_ids": list(submit.prompt), "prompt_embeds": rows, "prompt_is_token_ids": is_token}

    def _adapter(self, submit: Submit, adapter_number: Callable[[str], int]) -> Any:
        if submit.adapter is None:
            return None
        path = sys.intern(f"{ADAPTERS}{submit.adapter_version}")
        return self.adapter(sys.intern(submit.adapter), adapter_number(submit.adapter), path)


@contextmanager
def environment(variable: str, value: int | str | None) -> Iterator[None]:
    """Context manager: sets an environment variable, or removes it for None; restores it afterwards."""
    before = os.environ.pop(variable, None)
    if value is not None:
        os.environ[variable] = str(value)
    try:
        yield
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before


def names_of(*modules: str) -> Callable[[str], Any]:
    """A function that looks a name up in these modules, in this order, and caches the result."""
    loaded = [import_module(module) for module in modules]

    @cache
    def find(name: str) -> Any:
        for module in loaded:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"none of the modules {', '.join(modules)} has {name!r}, which the adapter needs")

    return find


@cache
def bind_vllm() -> Binding:
    """The binding of the vLLM release in this Python environment. ImportError if there is none."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    planning = "vllm.v1.core.kv_cache_planning"
    today = (planning, "vllm.v1.core.kv_cache_config_builder", "vllm.v1.core.kv_cache_coordinator")
    names = names_of(
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_utils",
        *(today if find_spec(planning) else ()),
        "vllm.v1.core.kv_cache_metrics",
        "vllm.v1.core.block_pool",
        "vllm.v1.core.single_type_kv_cache_manager",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.metrics.stats",
        "vllm.v1.request",
        "vllm.utils.hashing",
        "vllm.lora.request",
        "vllm.multimodal.inputs",
        "vllm.sampling_params",
    )
    torch = import_module("torch")
    feature, place = names("MultiModalFeatureSpec"), names("PlaceholderRange")
    names("init_none_hash")(names("sha256"))
    version = metadata.version("vllm")
    return Binding(
        version=version,
        names=names,
        dtype=torch.float32,
        adapter=cache(names("LoRARequest")),
        item=lambda item: feature(
            data=None,
            modality="image",
            identifier=sys.intern(item.identifier),
            mm_position=place(offset=item.offset, length=item.length),
        ),
        embeddings=lambda numbers: torch.tensor(numbers, dtype=torch.int64).reshape(len(numbers), 1),
        sampling=names("SamplingParams")(max_tokens=1 << 30),
        hasher_options={},
        release=release_of(version),
    )
