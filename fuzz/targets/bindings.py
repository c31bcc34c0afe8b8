"""What differs between the cores that one adapter serves: a record for each.

Everything else that the adapter calls, it calls by the names of vLLM 0.23. This module and the adapter are imported in
the Python environment of the target, where only the standard library and the target itself can be relied upon.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

from ...model.ops import Group, Item, Kind, Shape, Submit

RETENTION_VARIABLE = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
"""Where real vLLM 0.23 reads the retention interval, in tokens."""

_SPECS: Mapping[Kind, tuple[str, Callable[[Group], dict[str, object]]]] = {
    "full": ("FullAttentionSpec", lambda group: {}),
    "mla": ("MLAAttentionSpec", lambda group: {}),
    "tq": ("TQFullAttentionSpec", lambda group: {}),
    "sink": ("SinkFullAttentionSpec", lambda group: {"sink_len": group.sink_len}),
    "sliding": ("SlidingWindowSpec", lambda group: {"sliding_window": group.window}),
    "sliding_mla": ("SlidingWindowMLASpec", lambda group: {"sliding_window": group.window}),
    "chunked": ("ChunkedLocalAttentionSpec", lambda group: {"attention_chunk_size": group.chunk}),
    "cross": ("CrossAttentionSpec", lambda group: {}),
}


@dataclass(frozen=True)
class Binding:
    """One core: its classes under the names of vLLM 0.23, and how to make what they are called with."""

    version: str
    names: Callable[[str], Any]
    """The core's class or function of that name. AttributeError if it has none."""
    dtype: object
    """Any element type of the core's specs; no rule reads it."""
    adapter: Callable[[str, int], Any]
    """A LoRA adapter from its name and a number of its own, from 1."""
    item: Callable[[Item], Any]
    """A multimodal feature at its place in the prompt."""
    embeddings: Callable[[tuple[int, ...]], Any]
    """Prompt embeddings, one row for each number."""
    sampling: object
    """Sampling parameters of every request."""
    hasher_options: Mapping[str, object]
    """Keyword arguments of the block hasher beyond vLLM's."""
    retention_by_environment: bool
    """The retention interval is an environment variable at construction, not a keyword."""

    def spec(self, group: Group) -> Any:
        """The spec of a group; groups whose `Group.spec` is equal get equal specs."""
        if group.kind == "mamba":
            return self.names("MambaSpec")(
                block_size=group.block_size,
                shapes=((group.num_heads,),),
                dtypes=(self.dtype,),
                mamba_cache_mode=group.mamba_mode,
                num_speculative_blocks=group.speculative_blocks,
            )
        return self.attention_spec(group, group.block_size, group.num_heads, 1, self.dtype)

    def attention_spec(self, group: Group, block_size: int, num_heads: int, head_size: int, dtype: object) -> Any:
        """The spec of a group of attention layers with these sizes, in tokens, heads and elements."""
        name, own_fields = _SPECS[group.kind]
        return self.names(name)(
            block_size=block_size, num_kv_heads=num_heads, head_size=head_size, dtype=dtype, **own_fields(group)
        )

    def manager(self, shape: Shape) -> Any:
        """A new KVCacheManager of this shape."""
        group_of = self.names("KVCacheGroupSpec")
        groups = [
            group_of([f"layer.{index}"], self.spec(group), is_eagle_group=group.eagle)
            for index, group in enumerate(shape.groups)
        ]
        retention = shape.retention_interval
        keywords = {} if self.retention_by_environment else {"retention_interval": retention}
        with _environment(RETENTION_VARIABLE, retention if self.retention_by_environment else None):
            return self.names("KVCacheManager")(
                self.names("KVCacheConfig")(num_blocks=shape.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
                max_model_len=shape.max_model_len,
                scheduler_block_size=shape.scheduler_block_size,
                hash_block_size=shape.hash_block_size,
                max_num_batched_tokens=shape.max_num_batched_tokens,
                enable_caching=shape.caching,
                use_eagle=shape.eagle,
                log_stats=shape.stats,
                enable_kv_cache_events=shape.events,
                dcp_world_size=shape.decode_parallel,
                pcp_world_size=shape.prefill_parallel,
                **keywords,
            )

    def block_hasher(self, hash_block_size: int) -> Any:
        """The function that names the content of a request's full blocks."""
        return self.names("get_request_block_hasher")(hash_block_size, self.names("sha256"), **self.hasher_options)

    def request(self, submit: Submit, block_hasher: object, adapter_number: Callable[[str], int]) -> Any:
        """A request. Names are interned: a hash over pickled keys depends on whether equal texts are one object."""
        request = self.names("Request")(
            request_id=submit.request,
            prompt_token_ids=list(submit.prompt) if submit.embeds is None else None,
            sampling_params=self.sampling,
            pooling_params=None,
            prompt_embeds=None if submit.embeds is None else self.embeddings(submit.embeds),
            mm_features=[self.item(item) for item in submit.items],
            lora_request=self.adapter(sys.intern(submit.adapter), adapter_number(submit.adapter))
            if submit.adapter is not None
            else None,
            cache_salt=sys.intern(submit.salt) if submit.salt is not None else None,
            block_hasher=block_hasher,
        )
        if submit.skip_lookup:
            request.skip_reading_prefix_cache = True
        return request


@contextmanager
def _environment(variable: str, value: int | None) -> Iterator[None]:
    """The variable has this value inside, or none at all; afterwards it is as before."""
    before = os.environ.pop(variable, None)
    if value is not None:
        os.environ[variable] = str(value)
    try:
        yield
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before


def _names_of(*modules: str) -> Callable[[str], Any]:
    """Looks a name up in these modules, in turn, and remembers it."""
    loaded = [import_module(module) for module in modules]

    @cache
    def find(name: str) -> Any:
        for module in loaded:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"none of the modules {', '.join(modules)} has {name!r}, which vLLM 0.23.0 has")

    return find


@cache
def bind_vllm() -> Binding:
    """A vLLM release installed in this Python environment. ImportError if there is none."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    names = _names_of(
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_utils",
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
    return Binding(
        version=metadata.version("vllm"),
        names=names,
        dtype=torch.float32,
        adapter=cache(lambda name, number: names("LoRARequest")(name, number, "/adapter")),
        item=lambda item: feature(
            data=None,
            modality="image",
            identifier=sys.intern(item.identifier),
            mm_position=place(offset=item.offset, length=item.length),
        ),
        embeddings=lambda numbers: torch.tensor(numbers, dtype=torch.int64).reshape(len(numbers), 1),
        sampling=names("SamplingParams")(max_tokens=1 << 30),
        hasher_options={},
        retention_by_environment=True,
    )


@cache
def bind_impl() -> Binding:
    """Our own core. ImportError if it is not installed beside the harness."""
    package = f"{__name__.split('.')[0]}.impl"
    names = _names_of(package, f"{package}.kv_cache_utils")
    numpy = import_module("numpy")
    logging.getLogger(package).setLevel(logging.ERROR)
    names("init_none_hash")(names("sha256"))
    return Binding(
        version=metadata.version("blockproof"),
        names=names,
        dtype=numpy.dtype("float32"),
        adapter=cache(
            lambda name, number: SimpleNamespace(lora_name=name, name=name, lora_int_id=number, adapter_id=number)
        ),
        item=lambda item: SimpleNamespace(
            identifier=sys.intern(item.identifier),
            mm_position=SimpleNamespace(offset=item.offset, length=item.length),
        ),
        embeddings=lambda numbers: numpy.array(numbers, dtype=numpy.int64).reshape(len(numbers), 1),
        sampling=None,
        hasher_options={"tag_extra_keys": True},
        retention_by_environment=False,
    )
