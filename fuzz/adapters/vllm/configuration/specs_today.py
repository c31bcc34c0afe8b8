"""Specs of a core that plans configurations in a module of their own, as vLLM does today, in the words of questions.

There a ratio of compression is called the tokens of a state, and the bytes of a state are no formula of the spec: the
attention backend publishes them. Backends register operators when they are imported, which can be done once only, so
what they publish is written down here; `test_configuration_today` asks them whether it is so.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from .....model.config_json import LATENT

Names: TypeAlias = Callable[[str], Any]

PACKED_STATES = {None: 656, "deepseek_v4": 584}
"""Bytes of a state in the layout `fp8_ds_mla`, which a layer says itself, by the version of its model."""
SAID_BY_RULE = ("dcp_sharded",)
"""Fields of a uniform type that follow from its members."""


@cache
def is_planned(names: Names) -> bool:
    """Whether this core plans configurations in a module of its own."""
    try:
        return bool(names("DefaultKVCacheConfigBuilder"))
    except AttributeError:
        return False


def fields_today(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec of this class under the names of today."""
    today = dict(fields)
    if "compress_ratio" in today:
        today["tokens_per_state"] = today.pop("compress_ratio")
    if name in LATENT and today.get("cache_dtype_str") == "fp8_ds_mla" and "state_content_bytes" not in today:
        today["state_content_bytes"] = PACKED_STATES.get(today.get("model_version"), 656)
    return today


def published(spec: Any) -> Any:
    """The spec as the backend of its layer makes it: that of NVFP4 by the release's own function, that of modes with
    scales for each token and head with two of these, also where a latent layer stores one vector."""
    mode = getattr(spec, "kv_quant_mode", None)
    latent = type(spec).__name__ in LATENT
    if mode is None or spec.state_content_bytes is not None:
        return spec
    if mode.is_nvfp4 and not latent:
        width = importlib.import_module("vllm.utils.torch_utils").nvfp4_kv_cache_full_dim
        content = (width(spec.head_size) + width(spec.head_size_v)) * spec.dtype.itemsize
        return dataclasses.replace(spec, state_content_bytes=content)
    if not mode.is_per_token_head:
        return spec
    width = spec.head_size if latent else spec.head_size + spec.head_size_v
    return dataclasses.replace(spec, state_content_bytes=width * spec.dtype.itemsize + 8)


def named_as_asked(shown: Mapping[str, Any]) -> dict[str, Any]:
    """JSON of a spec under the names of the questions."""
    renamed = {"compress_ratio" if name == "tokens_per_state" else name: value for name, value in shown.items()}
    if renamed["type"] == "UniformTypeKVCacheSpecs":
        for name in SAID_BY_RULE:
            renamed.pop(name, None)
    return renamed


def layout_named(name: str | None) -> Any:
    """How the allocation is cut; layer after layer where nothing is said."""
    return importlib.import_module("vllm.v1.kv_cache_layout").KVCacheLayout[name or "LBNHC"]
