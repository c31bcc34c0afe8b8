"""The tests of vLLM 0.23.0 and 0.33.0 themselves: which are about the core and its users, what they need, and which
ours fails.

The tests come with the source distribution; nothing of it is kept here.
"""

import json
from collections.abc import Mapping

from ...targets.family import OwnTests
from .own_tests_0330 import DECLARED as DECLARED_0330
from .own_tests_plugin import OUTCOMES, OVER_OURS
from .releases import REFERENCE

_CORE = "tests/v1/core/test_"

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "torch_dtype": "float16",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}


def _qwen(kind: str, version: int, layers: int, heads: tuple[int, int], size: int, length: int) -> dict[str, object]:
    """A model of `kind` with so many layers and heads of 128 (or, in version 3, said to be 128) elements."""
    return {
        "architectures": [kind],
        "model_type": f"qwen{version}",
        "torch_dtype": "bfloat16",
        "vocab_size": 151936,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": 128,
        "hidden_size": size,
        "intermediate_size": 11008,
        "max_position_embeddings": length,
    }


MODELS: Mapping[str, Mapping[str, object]] = {
    "facebook/opt-125m": _OPT,
    "facebook/opt-350m": _OPT,
    "llava-hf/llava-1.5-7b-hf": {**_OPT, "max_position_embeddings": 4096},
    "Qwen/Qwen2.5-VL-3B-Instruct": {**_OPT, "max_position_embeddings": 128000},
    "Qwen/Qwen1.5-7B": _qwen("Qwen2ForCausalLM", 2, 32, (32, 32), 4096, 32768),
    "Qwen/Qwen3-0.6B": _qwen("Qwen3ForCausalLM", 3, 28, (16, 8), 1024, 40960),
    "meta-llama/Llama-3.2-1B-Instruct": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "vocab_size": 128256,
    },
}
"""Configurations of the models that the tests name: what of them matters to a scheduler. The multimodal ones are plain
here; the plugin says what their processors would."""

_UTILS, _PREFIX, _REGISTRY = f"{_CORE}kv_cache_utils.py", f"{_CORE}prefix_caching.py", "test_kv_cache_spec_registry.py"
_UNTAGGED = "untagged-extra-keys: the test wants digests or keys in which a salt, an adapter or an item looks alike"
_NULL_BLOCK = "C-17: the test counts the null block as room for a request"
DECLARED: Mapping[str, str] = {
    **{
        f"{_UTILS}::test_{name}": _UNTAGGED
        for name in (
            "generate_block_hash_extra_keys",
            "generate_block_hash_extra_keys_cache_salt",
            "generate_block_hash_extra_keys_prompt_embeds",
            "generate_block_hash_extra_keys_prompt_embeds_cached",
            "generate_block_hash_extra_keys_lora",
            "request_block_hasher[sha256]",
            "request_block_hasher[sha256_cbor]",
            "request_block_hasher_with_prompt_embeds[sha256]",
            "request_block_hasher_with_prompt_embeds[sha256_cbor]",
            "request_with_prompt_embeds_and_mm_inputs[sha256]",
            "request_with_prompt_embeds_and_mm_inputs[sha256_cbor]",
        )
    },
    f"{_PREFIX}::test_mm_prefix_caching": _UNTAGGED,
    f"{_PREFIX}::test_cache_key_salting": _UNTAGGED,
    **{
        f"{_UTILS}::test_{name}": _NULL_BLOCK
        for name in (
            "estimate_max_model_len[Qwen/Qwen1.5-7B-16385-16384]",
            "estimate_max_model_len[Qwen/Qwen1.5-7B-16383-16383]",
            "get_max_concurrency_for_kv_cache_config",
            "auto_fit_max_model_len_with_hybrid",
        )
    },
    f"{_PREFIX}::test_eagle_enabled_removes_last_block": (
        "eagle-last-block: the test wants a hit one block shorter than what a draft model can use"
    ),
    f"tests/v1/{_REGISTRY}::TestKVCacheSpecRegistry::test_full_attention_family_specs_are_uniform": (
        "S-16: the test wants a layer with sinks to share a table with layers that have none"
    ),
    f"{_UTILS}::test_free_kv_cache_block_queue_append_n": (
        "no-links: the test breaks the free queue by its links, which ours has not"
    ),
}

_SUITES: Mapping[str, tuple[str, ...]] = {
    "core": (
        *(f"{_CORE}{name}.py" for name in ("kv_cache_utils", "prefix_caching", "single_type_kv_cache_manager")),
        *(f"{_CORE}{name}.py" for name in ("kv_cache_metrics", "kv_sharing", "encoder_cache_manager")),
        *(f"{_CORE}{name}.py" for name in ("scheduler", "async_scheduler")),
        f"tests/v1/{_REGISTRY}",
    ),
    "connectors": (
        "tests/v1/kv_connector/unit",
        "tests/v1/simple_kv_offload/test_scheduler.py",
    ),
    "priorities": (f"{_CORE}priority_scheduler_random.py",),
}


def own_tests_of(version: str) -> OwnTests:
    """The tests of a release whose core ours can stand in for."""
    return OwnTests(
        suites=_SUITES,
        unpacked=("tests/", "pyproject.toml"),
        roots="tests/v1",
        plugin=f"{__package__}.own_tests_plugin",
        build_needs=("setuptools<81", "setuptools_scm", "setuptools-rust", "wheel"),
        test_needs=("pytest", "pytest-asyncio", "tblib"),
        build_environment={"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version},
        files={f"{name}/config.json": json.dumps(model) for name, model in MODELS.items()},
        outcomes_variable=OUTCOMES,
        over_ours_variable=OVER_OURS,
        declared=DECLARED if version == REFERENCE else DECLARED_0330,
    )
