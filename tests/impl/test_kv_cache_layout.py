"""Where everything lies in a page, and which configurations hold together; no torch."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from blockproof import impl
from blockproof.fuzz.adapters.vllm.configuration.question_json import vllm_config_from_json
from blockproof.impl import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor, plan_tensors

from .small_layers import FLOAT, HALF, INT8, config, full, mamba, mla

# What a page consists of.

LAYOUTS = [
    (full(), 48 * 2, {"keys": (0, (4, 2, 3)), "values": (48, (4, 2, 3))}),
    (full(head_size_v=1), 64, {"keys": (0, (4, 2, 3)), "values": (48, (4, 2, 1))}),
    (full(page_size_padded=128), 128, {"keys": (0, (4, 2, 3)), "values": (48, (4, 2, 3))}),
    (
        full(dtype=INT8, head_size=4, kv_quant_mode=impl.KVQuantMode.INT8_PER_TOKEN_HEAD),
        128,
        {"keys": (0, (4, 2, 4)), "values": (32, (4, 2, 4)), "key_scales": (64, (4, 2)), "value_scales": (96, (4, 2))},
    ),
    (
        full(dtype=INT8, head_size=20, head_size_v=16, kv_quant_mode=impl.KVQuantMode.NVFP4),
        4 * 2 * (12 + 9),
        {"keys": (0, (4, 2, 12)), "values": (96, (4, 2, 9))},
    ),
    (mla(), 96, {"latent": (0, (8, 1, 6))}),
    (mla(compress_ratio=4), 24, {"latent": (0, (2, 1, 6))}),
    (mla(compress_ratio=4, alignment=64), 64, {"latent": (0, (2, 1, 6))}),
    (mla(cache_dtype_str="fp8_ds_mla", compress_ratio=2), 8 * 656, {"packed": (0, (8, 1, 656))}),
    (
        mla(cache_dtype_str="fp8_ds_mla", model_version="deepseek_v4", compress_ratio=2),
        4 * 584,
        {"packed": (0, (4, 1, 584))},
    ),
    (
        mla(dtype=INT8, head_size=8, kv_quant_mode=impl.KVQuantMode.FP8_PER_TOKEN_HEAD, compress_ratio=2),
        4 * 8 + 4 * 4,
        {"latent": (0, (4, 1, 8)), "scales": (32, (4, 1))},
    ),
    (
        impl.SlidingWindowMLASpec(8, num_kv_heads=1, head_size=6, dtype=HALF, sliding_window=9),
        96,
        {"latent": (0, (8, 1, 6))},
    ),
    (
        impl.TQFullAttentionSpec(4, num_kv_heads=2, head_size=3, dtype=HALF, tq_slot_size=7),
        56,
        {"packed": (0, (4, 2, 7))},
    ),
    (
        impl.CrossAttentionSpec(2, num_kv_heads=1, head_size=3, dtype=HALF),
        24,
        {"keys": (0, (2, 1, 3)), "values": (12, (2, 1, 3))},
    ),
    (mamba(page_size_padded=64), 64, {"state0": (0, (3, 2)), "state1": (24, (5,))}),
]


@pytest.mark.parametrize(("spec", "page_size", "parts"), LAYOUTS)
def test_the_parts_of_a_page(spec, page_size, parts):
    layout = impl.page_layout("model.layers.0", spec)
    assert layout.page_size == page_size == spec.page_size_bytes
    assert {part.name: (part.offset, part.shape) for part in layout.parts} == parts


class RotatedSpec(impl.FullAttentionSpec):
    """A user's spec with a page of its own."""

    @property
    def real_page_size_bytes(self) -> int:
        return 100


class OpaqueSpec(impl.KVCacheSpec):
    @property
    def page_size_bytes(self) -> int:
        return 40


def test_a_layout_that_only_its_class_knows_is_bytes():
    rotated = RotatedSpec(4, num_kv_heads=1, head_size=1, dtype=HALF, page_size_padded=120)
    for spec, stored in ((rotated, 100), (OpaqueSpec(4), 40)):
        (part,) = impl.page_layout("layer", spec).parts
        assert (part.name, part.offset, part.shape, part.dtype) == ("raw", 0, (stored,), np.dtype(np.uint8))


class ShortSpec(impl.FullAttentionSpec):
    """A user's mistake: a page that does not hold what it stores."""

    @property
    def page_size_bytes(self) -> int:
        return 10


def test_nothing_may_lie_behind_the_end_of_a_page():
    spec = ShortSpec(2, num_kv_heads=1, head_size=2, dtype=HALF)
    with pytest.raises(ValueError, match=r"layer 'x': values would end behind the page, .* 8 \+ 8 = 16 > 10 bytes"):
        impl.page_layout("x", spec)


# Whether a configuration holds together.

A, B = full(), full(num_kv_heads=1)
PAGE = A.page_size_bytes


def wrong(**changes) -> KVCacheConfig:
    return replace(config({"a": A, "c": A}, {"m": mamba(page_size_padded=PAGE)}), **changes)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (wrong(num_blocks=0), "num_blocks is 0"),
        (wrong(num_blocks=2.0), "num_blocks is 2.0"),
        (wrong(num_blocks=6), "layer 'a': tensor 0 has 480 bytes (5 pages), but num_blocks * page = 6 * 96 = 576"),
        (
            wrong(kv_cache_tensors=[KVCacheTensor(481, ["a", "m"])]),
            "layer 'a': tensor 0 has 481 bytes (not a multiple of the page, 1 bytes over)",
        ),
        (wrong(kv_cache_tensors=[KVCacheTensor(480, ["a", "m"])]), "layer 'c' of group 0 is in no tensor"),
        (
            wrong(kv_cache_tensors=[KVCacheTensor(480, ["a", "m"]), KVCacheTensor(480, ["c", "m"])]),
            "layer 'm' is in tensors 0 and 1",
        ),
        (
            wrong(kv_cache_tensors=[KVCacheTensor(480, ["m", "m"]), KVCacheTensor(480, ["a"])]),
            "layer 'm' is in tensor 0 twice",
        ),
        (
            wrong(kv_cache_tensors=[KVCacheTensor(480, ["a", "c"])]),
            "layers 'a' and 'c', both of group 0, share tensor 0",
        ),
        (wrong(kv_cache_tensors=[KVCacheTensor(480, [])]), "tensor 0 of 480 bytes is shared by no layer"),
        (wrong(kv_cache_tensors=[KVCacheTensor(480, ["x"])]), "layer 'x' of tensor 0 is in no group"),
        (
            config({"a": A}, {"b": B}),
            "layers 'a' and 'b' share tensor 0 but their pages differ, 96 != 48 bytes",
        ),
        (
            wrong(kv_cache_groups=[KVCacheGroupSpec(["a"], A), KVCacheGroupSpec(["c", "a"], A)]),
            "layer 'a' is in group 0 and again in group 1",
        ),
        (
            wrong(kv_cache_groups=[KVCacheGroupSpec(["a", "z"], impl.UniformTypeKVCacheSpecs(4, {"a": A, "c": A}))]),
            "layer 'z' of group 0 has no spec",
        ),
        (
            config({"a": replace(A, page_size_padded=97)}),
            "layer 'a': its page of 97 bytes is not a multiple of the 2 bytes",
        ),
        (
            config({"m": mamba(((3,), (2,)), (HALF, FLOAT), page_size_padded=16)}),
            "layer 'm': state1 would start 6 bytes into the page, not at a multiple of the 4 bytes",
        ),
        (
            config({"a": full(1, 1, 1, INT8, kv_quant_mode=impl.KVQuantMode.INT8_PER_TOKEN_HEAD, page_size_padded=12)}),
            "layer 'a': key_scales would start 2 bytes into the page",
        ),
    ],
)
def test_a_configuration_that_does_not_hold_together_is_refused(broken, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        plan_tensors(broken)


def test_sizes_that_the_spec_itself_refuses_name_the_layer():
    for spec, says in (
        (full(page_size_padded=4), "layer 'x': page_size_padded is 4 bytes but a block stores 96"),
        (full(head_size=0), "layer 'x': page_size_bytes is 0"),
        (impl.KVCacheSpec(4), "layer 'x': KVCacheSpec does not say how large its page is"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            plan_tensors(KVCacheConfig(2, [], [KVCacheGroupSpec(["x"], spec)]))


def test_a_worker_without_layers_has_nothing_to_allocate():
    assert plan_tensors(KVCacheConfig(3, [], [KVCacheGroupSpec([], A)])) == {}


# Configurations as workers get them.


def window(sliding_window: int, **fields):
    return impl.SlidingWindowSpec(16, num_kv_heads=2, head_size=64, dtype=HALF, sliding_window=sliding_window, **fields)


LATENT: dict[str, Any] = {"cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4", "alignment": 576}
V4 = {
    **{f"{i}.ratio4": mla(256, 512, INT8, compress_ratio=4, **LATENT) for i in range(3)},
    **{f"{i}.ratio128": mla(256, 512, INT8, compress_ratio=128, **LATENT) for i in range(2)},
    **{
        f"{i}.window": impl.SlidingWindowMLASpec(
            64, num_kv_heads=1, head_size=512, dtype=INT8, sliding_window=128, **LATENT
        )
        for i in range(5)
    },
}
MODELS = {
    "full": {f"{i}": full(16, 2, 64) for i in range(3)},
    "windows": {f"{i}": full(16, 2, 64) if i % 6 == 5 else window(1024) for i in range(14)},
    "values of another size": {"0": full(16, 2, 64, head_size_v=32), "1": full(16, 2, 64), "2": full(16, 4, 64)},
    "states": {
        f"{i}": full(16, 2, 64) if i == 3 else mamba(((3, 70), (2, 16, 16)), (HALF, FLOAT), 64) for i in range(7)
    },
    "hidden states": {
        "0": full(16, 2, 64),
        "1": window(64),
        "2": impl.HiddenStateCacheSpec(16, num_kv_heads=1, head_size=300, dtype=HALF),
    },
    "several uniform types": V4,
}


@pytest.mark.parametrize("name", MODELS)
def test_what_the_configuration_arithmetic_makes_holds_together(name):
    model = MODELS[name]
    settings = vllm_config_from_json({"max_num_batched_tokens": 256})
    (made,) = impl.get_kv_cache_configs(settings, [dict(model)], [2**28])
    plans = plan_tensors(made)
    assert plans.keys() == model.keys()
    for index, tensor in enumerate(made.kv_cache_tensors):
        assert [name for name, plan in plans.items() if plan.tensor == index] == sorted(
            tensor.shared_by, key=list(plans).index
        )
        assert {plans[name].layout.page_size for name in tensor.shared_by} == {tensor.size // made.num_blocks}
