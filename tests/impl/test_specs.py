"""Specs where the golden vectors do not reach: value semantics, refusals, the registry."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import blockproof.impl as impl
import pytest

LAYOUT: dict[str, Any] = {"num_kv_heads": 2, "head_size": 8, "dtype": type("D", (), {"itemsize": 2})()}


@dataclass(frozen=True)
class Renamed(impl.FullAttentionSpec):
    """A subclass that nobody registered."""


@dataclass(frozen=True)
class Flagged(impl.FullAttentionSpec):
    flag: int = 0


def test_specs_are_values() -> None:
    spec = impl.FullAttentionSpec(16, **LAYOUT)
    assert spec == impl.FullAttentionSpec(16, **LAYOUT)
    assert len({spec, impl.FullAttentionSpec(16, **LAYOUT), impl.MLAAttentionSpec(16, **LAYOUT)}) == 2
    with pytest.raises(FrozenInstanceError):
        spec.block_size = 8  # type: ignore[misc]


@pytest.mark.parametrize("kind", [impl.FullAttentionSpec, impl.MLAAttentionSpec])
def test_the_value_size_defaults_to_the_head_size(kind: Any) -> None:
    assert kind(16, **LAYOUT) == kind(16, head_size_v=8, **LAYOUT)
    window = impl.SlidingWindowMLASpec(16, sliding_window=4, **LAYOUT)
    assert window == impl.SlidingWindowMLASpec(16, sliding_window=4, head_size_v=8, **LAYOUT)


def test_nonsense_is_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="block_size is 0"):
        impl.FullAttentionSpec(0, **LAYOUT)
    for ratio in (0, 3):
        with pytest.raises(ValueError, match=f"compress_ratio {ratio}"):
            impl.MLAAttentionSpec(16, compress_ratio=ratio, **LAYOUT)


def test_states_without_a_dtype_have_no_page() -> None:
    spec = impl.MambaSpec(16, ((1,), (2,)), (LAYOUT["dtype"],))
    with pytest.raises(ValueError, match="2 shapes but 1 dtypes"):
        _ = spec.page_size_bytes


def test_base_classes_do_not_know_their_page() -> None:
    with pytest.raises(NotImplementedError, match="KVCacheSpec"):
        _ = impl.KVCacheSpec(16).page_size_bytes
    with pytest.raises(NotImplementedError, match="AttentionSpec"):
        impl.AttentionSpec(16, **LAYOUT).max_memory_usage_bytes(None)


def test_too_small_a_padding_is_refused_when_the_page_is_read() -> None:
    spec = impl.FullAttentionSpec(16, page_size_padded=100, **LAYOUT)
    with pytest.raises(AssertionError, match="100 bytes but a block stores 1024"):
        _ = spec.page_size_bytes


def test_an_aligned_page_keeps_a_larger_padding() -> None:
    spec = impl.MLAAttentionSpec(16, alignment=1000, page_size_padded=5001, **LAYOUT)
    assert spec.page_size_bytes == spec.page_size_padded == 6000
    assert spec.copy_with_new_block_size(32).page_size_bytes == 2000


def test_merging_keeps_every_field_of_a_subclass() -> None:
    specs = [Flagged(16, flag=3, sliding_window=window, **LAYOUT) for window in (None, 5, 5)]
    assert Flagged.merge(specs) == specs[1]
    assert Flagged.merge(specs[::-1]) == specs[1]
    with pytest.raises(AssertionError, match="flag"):
        Flagged.merge([specs[1], Flagged(16, flag=4, sliding_window=5, **LAYOUT)])


def test_windows_clash_when_merged() -> None:
    assert impl.FullAttentionSpec.merge_window_sizes({None, 4}) == 4
    with pytest.raises(ValueError, match=r"\[3, 4\]"):
        impl.FullAttentionSpec.merge_window_sizes({3, 4})
    both = impl.FullAttentionSpec(16, sliding_window=3, attention_chunk_size=4, **LAYOUT)
    with pytest.raises(AssertionError, match="not both"):
        impl.FullAttentionSpec.merge([both])


def test_a_uniform_group_keeps_its_own_mapping() -> None:
    layers: dict[str, impl.KVCacheSpec] = {"a": impl.FullAttentionSpec(16, **LAYOUT)}
    group = impl.UniformTypeKVCacheSpecs.from_specs(layers)
    layers["b"] = impl.KVCacheSpec(8)
    assert group is not None
    assert list(group.kv_cache_specs) == ["a"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(group)


def test_one_type_whatever_the_order() -> None:
    window = impl.SlidingWindowSpec(16, sliding_window=4, **LAYOUT)
    latent = impl.SlidingWindowMLASpec(16, sliding_window=4, **LAYOUT)
    full = impl.FullAttentionSpec(16, **LAYOUT)
    sinks = impl.SinkFullAttentionSpec(16, 32, **LAYOUT)
    other_sinks = impl.SinkFullAttentionSpec(16, 64, **LAYOUT)
    for pair in ([window, latent], [full, sinks], [full, window]):
        for a, b in (pair, pair[::-1]):
            assert not impl.UniformTypeKVCacheSpecs.is_uniform_type({"a": a, "b": b})
    assert impl.UniformTypeKVCacheSpecs.is_uniform_type({"a": full, "b": Renamed(16, **LAYOUT)})
    assert not impl.UniformTypeKVCacheSpecs.is_uniform_type({"a": sinks, "b": other_sinks})


def test_a_class_without_manager_is_of_no_type_that_has_one() -> None:
    encoder = impl.EncoderOnlyAttentionSpec(16, **LAYOUT)
    full = impl.FullAttentionSpec(16, **LAYOUT)
    for layers in ({"a": full, "b": encoder}, {"a": encoder, "b": full}):
        assert not impl.UniformTypeKVCacheSpecs.is_uniform_type(layers)
    with pytest.raises(AssertionError, match="EncoderOnlyAttentionSpec has no manager"):
        impl.UniformTypeKVCacheSpecs.is_uniform_type({"a": encoder})


def test_memory_beyond_one_context_parallel_rank_is_shared_or_refused() -> None:
    class Config:
        model_config = type("M", (), {"max_model_len": 100})
        parallel_config = type("P", (), {"decode_context_parallel_size": 2, "prefill_context_parallel_size": 1})
        scheduler_config = type("S", (), {"max_num_batched_tokens": 10})

    full = impl.FullAttentionSpec(16, **LAYOUT)
    assert full.max_memory_usage_bytes(Config) == 4 * full.page_size_bytes
    with pytest.raises(AssertionError, match="context parallelism over 2 ranks"):
        impl.SlidingWindowSpec(16, sliding_window=4, **LAYOUT).max_memory_usage_bytes(Config)


def test_caps_count_lookahead_tokens_when_told() -> None:
    window = impl.SlidingWindowSpec(4, sliding_window=5, **LAYOUT)
    assert window.max_admission_blocks_per_request(4, 100) == 3
    assert window.max_admission_blocks_per_request(4, 100, num_lookahead_tokens=5) == 5
    chunk = impl.ChunkedLocalAttentionSpec(5, attention_chunk_size=2, **LAYOUT)
    assert chunk.max_admission_blocks_per_request(7, 100) == 3


def test_has_mamba_layers_sees_into_uniform_groups() -> None:
    state = impl.MambaSpec(16, ((1,),), (LAYOUT["dtype"],))
    uniform = impl.UniformTypeKVCacheSpecs(16, {"a": state})
    for spec, expected in ((state, True), (uniform, True), (impl.FullAttentionSpec(16, **LAYOUT), False)):
        config = impl.KVCacheConfig(2, [], [impl.KVCacheGroupSpec(["a"], spec)])
        assert config.has_mamba_layers == config.needs_kv_cache_zeroing == expected


def test_an_unregistered_subclass_behaves_as_its_parent() -> None:
    assert impl.KVCacheSpecRegistry.get_manager_class(Renamed(16, **LAYOUT)) is impl.FullAttentionManager


def test_registering_twice_is_allowed_and_differently_is_not() -> None:
    register = impl.KVCacheSpecRegistry.register
    register(impl.FullAttentionSpec, impl.FullAttentionManager)
    with pytest.raises(AssertionError, match="FullAttentionSpec is registered already"):
        register(impl.FullAttentionSpec, impl.SlidingWindowManager)
    with pytest.raises(AssertionError, match="manager"):
        register(Renamed)
    with pytest.raises(AssertionError, match="does not inherit"):
        register(Renamed, impl.FullAttentionManager, impl.MambaSpec)


def test_an_unregistered_class_is_named_with_its_layer() -> None:
    encoder = impl.EncoderOnlyAttentionSpec(16, **LAYOUT)
    with pytest.raises(ValueError, match=r"layer enc: EncoderOnlyAttentionSpec .*register_kv_cache_spec"):
        impl.KVCacheSpecRegistry.check_kv_cache_spec_registry({"enc": encoder})
    with pytest.raises(AssertionError, match="EncoderOnlyAttentionSpec"):
        impl.UniformTypeKVCacheSpecs.is_uniform_type({"a": encoder})


def test_built_in_entries_are_there_whatever_is_registered_first() -> None:
    program = (
        "from dataclasses import dataclass\n"
        "from blockproof.impl.managers.spec_registry import KVCacheSpecRegistry, register_kv_cache_spec\n"
        "import blockproof.impl as impl\n"
        "@register_kv_cache_spec(manager_class=impl.FullAttentionManager)\n"
        "@dataclass(frozen=True)\n"
        "class Own(impl.FullAttentionSpec): pass\n"
        "spec = impl.MambaSpec(16, (), ())\n"
        "print(KVCacheSpecRegistry.get_manager_class(spec).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "MambaManager"


def test_the_package_needs_neither_torch_nor_the_other_rooms() -> None:
    program = (
        "import sys, blockproof.impl\n"
        "print([m for m in sys.modules if m == 'torch' or m.startswith(('blockproof.model', 'blockproof.fuzz'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
