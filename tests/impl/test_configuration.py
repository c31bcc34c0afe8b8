"""Arithmetic of configurations where the golden vectors do not reach: side effects, idle workers, `strict`, names."""

import copy
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import blockproof.impl as impl
import pytest
from blockproof.fuzz.adapters.vllm.configuration.question_json import DType
from blockproof.impl import kv_cache_utils
from blockproof.impl.specs.entries import ENTRIES

from .model_layers import GIB, LAYOUT, PAGE, config, full, hidden, latent, latent_window, named, sliding


@dataclass(frozen=True)
class CountingSpec(impl.FullAttentionSpec):
    """Needs memory for no length but those in a range, and refuses to say for others from `broken_from` on."""

    fits_from: int = 0
    broken_from: int = 1 << 30

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        length = vllm_config.model_config.max_model_len
        if length >= self.broken_from:
            raise OverflowError(f"no idea at {length}")
        return 0 if length >= self.fits_from else GIB


@pytest.fixture
def counting() -> Iterator[type[CountingSpec]]:
    """A spec class of the user's own, known to the registry while the test runs."""
    registered = dict(ENTRIES)
    impl.register_kv_cache_spec(impl.FullAttentionManager)(CountingSpec)
    yield CountingSpec
    ENTRIES.clear()
    ENTRIES.update(registered)


# What is left as it was.


MODELS = {
    "one kind": named(full(), full()),
    "pages differ": named(full(), sliding(head_size=8), full()),
    "a state": named(full(), impl.MambaSpec(64, ((5,),), (DType(4),))),
    "hidden states": named(full(), sliding(), hidden(100)),
    "uniform type": named(full(), full(head_size=8)),
    "several types": named(latent(alignment=576), latent(100, alignment=576), latent_window(90, alignment=576)),
}


@pytest.mark.parametrize("layers", MODELS.values(), ids=MODELS)
def test_no_function_changes_what_it_is_given(layers: dict[str, impl.KVCacheSpec]) -> None:
    settings, before = config(), copy.deepcopy(layers)
    specs = list(layers.values())
    with suppress(NotImplementedError):  # not all of these can have one page size
        impl.unify_kv_cache_spec_page_size(layers)
    groups = impl.get_kv_cache_groups(settings, layers)
    impl.get_kv_cache_configs(settings, [layers, layers], [GIB, GIB // 2])
    impl.estimate_max_model_len(settings, layers, GIB)
    assert layers == before
    assert [id(spec) for spec in layers.values()] == [id(spec) for spec in specs]
    assert [hash(spec) for spec in specs] == [hash(spec) for spec in before.values()]
    assert sorted(name for group in groups for name in group.layer_names) == sorted(layers)


def test_one_object_may_serve_several_layers() -> None:
    window = latent_window(90)
    layers: dict[str, impl.KVCacheSpec] = {"a": latent(), "b": window, "c": window}
    groups = impl.get_kv_cache_groups(config(), layers)
    assert [group.layer_names for group in groups] == [["a"], ["b"], ["c"]]
    assert {group.kv_cache_spec.page_size_bytes for group in groups} == {64 * 576}
    assert window == latent_window(90)


def test_a_merged_spec_is_a_new_one() -> None:
    spec = full()
    (group,) = impl.get_kv_cache_groups(config(), {"a": spec, "b": spec})
    assert group.kv_cache_spec == spec
    assert group.kv_cache_spec is not spec


def test_a_failed_conversion_leaves_the_mapping(raises_unchanged: Callable[..., str]) -> None:
    layers = named(full(), sliding(), full(32))
    message = raises_unchanged(ValueError, lambda: dict(layers), lambda: impl.unify_hybrid_kv_cache_specs(layers))
    assert "FullAttentionSpec, SlidingWindowSpec" in message
    assert "disable_hybrid_kv_cache_manager" in message


def test_switching_hybrid_memory_off_replaces_layers_only_in_the_mapping() -> None:
    window = sliding(40, kv_quant_mode=impl.KVQuantMode.FP8_PER_TOKEN_HEAD, page_size_padded=5000)
    layers = named(full(), window)
    (group,) = impl.get_kv_cache_groups(config(disable_hybrid_kv_cache_manager=True), layers)
    assert isinstance(group.kv_cache_spec, impl.UniformTypeKVCacheSpecs)
    converted = full(sliding_window=40, kv_quant_mode=impl.KVQuantMode.FP8_PER_TOKEN_HEAD, page_size_padded=5000)
    assert layers["layer.1"] == converted
    assert isinstance(window, impl.SlidingWindowSpec)


def test_padding_of_a_latent_window_grows_with_its_block() -> None:
    layers: dict[str, impl.KVCacheSpec] = {
        "a": replace(latent(), block_size=256),
        "b": latent_window(page_size_padded=64 * 600),
    }
    impl.unify_hybrid_kv_cache_specs(layers)
    assert layers["b"].page_size_bytes == 256 * 600
    assert isinstance(layers["b"], impl.MLAAttentionSpec)


def test_max_model_len_is_restored_when_a_spec_fails(counting: Any, raises_unchanged: Callable[..., str]) -> None:
    settings = config(max_model_len=5000, original_max_model_len=-1)
    layers = {"a": counting(16, broken_from=300, **LAYOUT)}
    groups = impl.get_kv_cache_groups(settings, layers)
    length = lambda: settings.model_config.max_model_len  # noqa: E731
    for call in (
        lambda: impl.estimate_max_model_len(settings, layers, GIB),
        lambda: kv_cache_utils._estimate_max_model_len_from_groups(settings, groups, GIB),
        lambda: impl.get_kv_cache_configs(settings, [layers], [GIB]),
    ):
        assert raises_unchanged(OverflowError, length, call).startswith("no idea at ")


def test_an_estimate_fits_even_if_needs_fall_with_the_length(counting: Any) -> None:
    settings = config(max_model_len=1000)
    assert impl.estimate_max_model_len(settings, {"a": counting(16, fits_from=900, **LAYOUT)}, PAGE) == 1000
    assert impl.estimate_max_model_len(settings, {"a": counting(16, fits_from=1001, **LAYOUT)}, PAGE) == 0
    assert settings.model_config.max_model_len == 1000


def test_auto_fit_writes_only_a_smaller_length() -> None:
    layers = named(full(), full())
    settings = config(max_model_len=4096, original_max_model_len=-1)
    impl.get_kv_cache_configs(settings, [layers, layers], [64 * 2 * PAGE, 51 * 2 * PAGE])
    assert settings.model_config.max_model_len == 800
    impl.get_kv_cache_configs(settings, [layers], [GIB])
    assert settings.model_config.max_model_len == 800


def test_the_scheduler_configuration_shares_nothing_with_the_workers() -> None:
    layers = named(full(), full(head_size=8))
    configs = impl.get_kv_cache_configs(config(), [layers, layers], [GIB, GIB])
    before = copy.deepcopy(configs)
    told = impl.generate_scheduler_kv_cache_config(configs)
    told.kv_cache_groups[0].layer_names.append("x")
    told.kv_cache_tensors[0].size = 0
    assert configs == before
    assert told.kv_cache_groups[0].kv_cache_spec == full()


# Groups.


def test_an_aligned_page_is_padded_where_larger_blocks_fall_short() -> None:
    """100 bytes a token: 64 tokens take 8192 bytes aligned, but 256 take 28672, not four times as many."""
    layers = {"a": latent(512), "b": latent(100, alignment=4096)}
    unified = impl.unify_kv_cache_spec_page_size(layers)
    assert unified["b"] == replace(latent(100, alignment=4096), block_size=256, page_size_padded=32768)
    assert impl.get_uniform_page_size(unified) == 32768


def test_a_window_layer_keeps_its_alignment_when_it_is_padded() -> None:
    """Its page is then larger than those of the latent layers, so it has a buffer of its own."""
    layers = {"a": latent(), "b": latent(100), "c": latent_window(90, alignment=1000)}
    (made,) = impl.get_kv_cache_configs(config(), [layers], [GIB])
    pages = [tensor.size // made.num_blocks for tensor in made.kv_cache_tensors]
    assert pages == [64 * 576, 64 * 100, 7000]
    assert [tensor.shared_by for tensor in made.kv_cache_tensors] == [["a"], ["b"], ["c"]]


# Workers.


@pytest.mark.parametrize("settings", [{}, {"num_gpu_blocks_override": 300}, {"original_max_model_len": -1}])
@pytest.mark.parametrize("layers", MODELS.values(), ids=MODELS)
def test_a_worker_without_layers_does_not_count(layers: dict[str, impl.KVCacheSpec], settings: dict[str, int]) -> None:
    both = impl.get_kv_cache_configs(config(**settings), [layers, {}, layers], [GIB, 0, GIB // 3])
    alone = impl.get_kv_cache_configs(config(**settings), [layers, layers], [GIB, GIB // 3])
    assert [both[0], both[2]] == alone
    assert (both[1].num_blocks, both[1].kv_cache_tensors) == (alone[0].num_blocks, [])
    assert [group.layer_names for group in both[1].kv_cache_groups] == [[] for _ in alone[0].kv_cache_groups]


def test_a_model_without_layers_has_the_null_block_only() -> None:
    settings = config(original_max_model_len=-1, num_gpu_blocks_override=7)
    assert impl.get_kv_cache_configs(settings, [{}, {}], [0, -1]) == [impl.KVCacheConfig(1, [], [])] * 2
    assert settings.model_config.max_model_len == 1024
    assert impl.get_kv_cache_configs(config(), [], []) == []


def test_sizes_are_whole_numbers_whatever_the_memory_is() -> None:
    (made,) = impl.get_kv_cache_configs(config(), [named(full(), full(head_size=8))], [1e9])  # type: ignore[list-item]
    sizes = [tensor.size for tensor in made.kv_cache_tensors]
    assert {type(number) for number in (made.num_blocks, *sizes)} == {int}


# The null block.


def test_a_pool_of_exactly_what_is_needed_is_refused_unless_the_null_block_is_left_out() -> None:
    """Sixteen blocks of 4 tokens for 64 tokens: one of them is the null block [C-17]."""
    layers = named(full(4), full(4))
    settings, block = config(max_model_len=64), 2 * PAGE // 4
    (made,) = impl.get_kv_cache_configs(settings, [layers], [16 * block], strict=False)
    assert made.num_blocks == 16
    with pytest.raises(ValueError, match="largest length that fits is 60"):
        impl.get_kv_cache_configs(settings, [layers], [16 * block])
    with pytest.raises(ValueError, match="largest length that fits is 60"):
        impl.get_kv_cache_configs(settings, [layers], [16 * block - 1], strict=False)
    (made,) = impl.get_kv_cache_configs(settings, [layers], [17 * block])
    assert made.num_blocks == 17
    impl.check_enough_kv_cache_memory(settings, layers, 16 * block, strict=False)
    with pytest.raises(ValueError, match="largest length that fits is 60"):
        impl.check_enough_kv_cache_memory(settings, layers, 16 * block)
    impl.check_enough_kv_cache_memory(settings, layers, 17 * block)
    assert impl.estimate_max_model_len(settings, layers, 16 * block) == 60
    assert impl.get_max_concurrency_for_kv_cache_config(settings, made) == 1


@pytest.mark.parametrize("layers", MODELS.values(), ids=MODELS)
def test_every_model_needs_one_block_more_than_a_request_has(layers: dict[str, impl.KVCacheSpec]) -> None:
    settings = config(max_model_len=300)
    groups = impl.get_kv_cache_groups(settings, layers)
    needed = kv_cache_utils._max_memory_usage_bytes_from_groups(settings, groups)
    block = kv_cache_utils._pool_bytes_per_block(groups)
    impl.get_kv_cache_configs(settings, [layers], [needed])
    with pytest.raises(ValueError, match="needs"):
        impl.get_kv_cache_configs(settings, [layers], [needed - 1])
    impl.get_kv_cache_configs(settings, [layers], [needed - block], strict=False)


def test_auto_fit_leaves_room_for_the_null_block() -> None:
    layers = named(full(4), full(4))
    settings = config(max_model_len=64, original_max_model_len=-1)
    impl.get_kv_cache_configs(settings, [layers], [10 * 2 * PAGE // 4])
    assert settings.model_config.max_model_len == 36
    with pytest.raises(ValueError, match="not even one token"):
        impl.get_kv_cache_configs(settings, [layers], [2 * PAGE // 4])
    settings = config(max_model_len=64, original_max_model_len=-1)
    impl.get_kv_cache_configs(settings, [layers], [10 * 2 * PAGE // 4], strict=False)
    assert settings.model_config.max_model_len == 40


def test_the_null_block_counts_in_an_override() -> None:
    layers = named(full(4))
    settings = config(max_model_len=64, num_gpu_blocks_override=16)
    assert impl.get_kv_cache_configs(settings, [layers], [1], strict=False)[0].num_blocks == 16
    with pytest.raises(ValueError, match="max_model_len 64"):
        impl.get_kv_cache_configs(settings, [layers], [GIB])


# Names of older releases, and names that only tests import.


def test_older_entry_points() -> None:
    layers = named(full(), sliding(head_size=8))
    (made,) = impl.get_kv_cache_configs(config(), [layers], [GIB])
    assert kv_cache_utils.get_kv_cache_config(config(), layers, GIB) == made
    assert kv_cache_utils.is_kv_cache_type_uniform({})
    assert not kv_cache_utils.is_kv_cache_type_uniform(layers)
    assert impl.get_uniform_page_size(named(full())) == PAGE
    assert impl.PrefixCachingMetrics is impl.CachingMetrics


def config_with(num_blocks: int, *specs: impl.KVCacheSpec) -> impl.KVCacheConfig:
    groups = [impl.KVCacheGroupSpec([str(index)], spec) for index, spec in enumerate(specs)]
    return impl.KVCacheConfig(num_blocks, [impl.KVCacheTensor(num_blocks * PAGE, ["0"])], groups)


def test_given_configurations_shrink_in_place() -> None:
    configs = [config_with(9, full()), config_with(5, full()), config_with(7, full())]
    assert kv_cache_utils.unify_kv_cache_configs(configs) is configs
    assert configs == [config_with(5, full())] * 3
    assert kv_cache_utils.unify_kv_cache_configs([]) == []


def test_given_configurations_must_have_the_same_groups() -> None:
    for others, message in (((full(), sliding()), "worker 1 has 2"), ((sliding(),), "group 0 is SlidingWindowSpec")):
        with pytest.raises(AssertionError, match=message):
            kv_cache_utils.unify_kv_cache_configs([config_with(9, full()), config_with(5, *others)])
    uniform = [impl.UniformTypeKVCacheSpecs(16, {spec.__class__.__name__: spec}) for spec in (full(), sliding())]
    with pytest.raises(AssertionError, match="group 0 is UniformTypeKVCacheSpecs"):
        kv_cache_utils.unify_kv_cache_configs([config_with(9, spec) for spec in uniform])
    for specs in ((uniform[0], full()), (full(), uniform[0])):
        with pytest.raises(AssertionError, match="group 0 is"):
            kv_cache_utils.unify_kv_cache_configs([config_with(9, spec) for spec in specs])


def test_given_configurations_may_have_their_own_layers_of_a_uniform_group() -> None:
    second: dict[str, impl.KVCacheSpec] = {"x": full(), "y": full(head_size=8)}
    stages = [named(full(), full(head_size=8)), second]
    configs = impl.get_kv_cache_configs(config(), stages, [GIB, GIB])
    assert kv_cache_utils.unify_kv_cache_configs(copy.deepcopy(configs)) == configs


PARAMETERS = {
    "_annotate_eagle_groups_deepseek_v4": "vllm_config, kv_cache_spec, kv_cache_groups",
    "_approximate_gcd": "values, *, lower_bound=None",
    "_auto_fit_max_model_len": "vllm_config, projected_groups_per_worker, available_memory",
    "_bucket_layers_by_page_size": "kv_cache_groups",
    "_check_enough_kv_cache_memory": "available_memory, get_needed_memory, max_model_len, estimate_max_model_len",
    "_estimate_max_model_len_from_groups": "vllm_config, kv_cache_groups, available_memory",
    "_get_kv_cache_config_deepseek_v4": "vllm_config, kv_cache_groups, available_memory",
    "_get_kv_cache_groups_uniform_groups": "grouped_specs",
    "_get_kv_cache_groups_uniform_page_size": "kv_cache_spec",
    "_get_kv_cache_groups_uniform_spec": "kv_cache_specs",
    "_get_kv_cache_groups_uniform_type": "spec",
    "_max_memory_usage_bytes_from_groups": "vllm_config, kv_cache_groups",
    "_pool_bytes_per_block": "kv_cache_groups",
    "_project_kv_cache_groups_to_worker": "global_kv_cache_groups, worker_spec",
    "_report_kv_cache_config": "vllm_config, kv_cache_config",
    "check_enough_kv_cache_memory": "vllm_config, kv_cache_spec, available_memory, *, strict=True",
    "create_kv_cache_group_specs": "kv_cache_spec, grouped_layer_names",
    "get_kv_cache_configs": "vllm_config, kv_cache_specs, available_memory, *, strict=True",
    "get_num_blocks": "vllm_config, num_layers, available_memory, page_size",
    "is_kv_cache_type_attention_free": "kv_cache_spec",
    "max_memory_usage_bytes": "vllm_config, kv_cache_specs",
    "resolve_kv_cache_block_sizes": "kv_cache_config, vllm_config",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_have_the_names_of_the_reference(name: str) -> None:
    signature = inspect.signature(getattr(kv_cache_utils, name))
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    expected = PARAMETERS[name]
    assert str(inspect.Signature(bare)) == f"({expected})"


def test_configurations_are_made_without_torch_and_numpy() -> None:
    program = (
        "import sys, blockproof.impl as impl\n"
        "from blockproof.fuzz.adapters.vllm.configuration.calculator import answer\n"
        "spec = {'type': 'FullAttentionSpec', 'block_size': 16, 'num_kv_heads': 1, 'head_size': 8, "
        "'dtype': {'itemsize': 2}}\n"
        "inputs = {'specs': {'f': spec}, 'workers': [[['a', 'f']]], 'available_memory': [1 << 30], 'vllm_config': {}}\n"
        "output = answer(lambda name: getattr(impl, name), 'configs', inputs)['output']\n"
        "print(output['workers'][0]['num_blocks'], sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == [str((1 << 30) // 512), "[]"]
