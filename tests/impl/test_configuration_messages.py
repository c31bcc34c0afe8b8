"""What the arithmetic of configurations tells its user: why it refuses and what to do, and what it logs."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import blockproof.impl as impl
import pytest
from blockproof.impl import kv_cache_utils

from .model_layers import GIB, LAYOUT, PAGE, config, full, hidden, latent, latent_window, named, sliding

# Messages say what is wrong, where, and what to do.


def configs_of(*workers: dict[str, impl.KVCacheSpec], memory: int = GIB, **settings: object) -> Any:
    return impl.get_kv_cache_configs(config(**settings), list(workers), [memory] * len(workers))


def groups_of(*specs: impl.KVCacheSpec) -> Any:
    return impl.get_kv_cache_groups(config(), named(*specs))


def resolved(*specs: impl.KVCacheSpec, **settings: object) -> Any:
    groups = [impl.KVCacheGroupSpec([str(index)], spec) for index, spec in enumerate(specs)]
    return impl.resolve_kv_cache_block_sizes(impl.KVCacheConfig(1, [], groups), config(**settings))


REFUSALS: list[tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = [
    (lambda: configs_of(named(full()), memory=0), ValueError, ("no memory is left", "gpu_memory_utilization")),
    (
        lambda: configs_of(named(full()), memory=10 * PAGE),
        ValueError,
        ("max_model_len 1024", f"({65 * PAGE} bytes)", f"({10 * PAGE} bytes)", "length that fits is 144", "lower"),
    ),
    (
        lambda: configs_of(named(full()), memory=PAGE - 1, original_max_model_len=-1),
        ValueError,
        ("not even one token", f"{PAGE - 1} bytes", "gpu_memory_utilization"),
    ),
    (
        lambda: configs_of(named(impl.CrossAttentionSpec(16, **LAYOUT)), memory=PAGE - 1),
        ValueError,
        (f"needs 0.00 GiB ({PAGE} bytes)", f"({PAGE - 1} bytes) are available", "gpu_memory_utilization"),
    ),
    (
        lambda: impl.get_kv_cache_configs(
            config(), [named(impl.CrossAttentionSpec(16, **LAYOUT))], [PAGE - 1], strict=False
        ),
        ValueError,
        ("worker 0", f"one block of {PAGE} bytes", "gpu_memory_utilization"),
    ),
    (
        lambda: configs_of({"a": full()}, {"a": full(32)}),
        AssertionError,
        ("layer 'a'", "on worker 1", "same spec on all workers"),
    ),
    (
        lambda: configs_of({"a": impl.EncoderOnlyAttentionSpec(16, **LAYOUT)}),
        ValueError,
        ("layer a", "EncoderOnlyAttentionSpec", "register_kv_cache_spec"),
    ),
    (
        lambda: impl.get_kv_cache_configs(config(), [{}, {}], [GIB]),
        ValueError,
        ("2 workers have layers but 1 have memory",),
    ),
    (
        lambda: impl.generate_scheduler_kv_cache_config([impl.KVCacheConfig(n, [], []) for n in (3, 4)]),
        AssertionError,
        ("[3, 4] blocks", "unify_kv_cache_configs"),
    ),
    (
        lambda: groups_of(full(), sliding(head_size=12)),
        NotImplementedError,
        ("layer 'layer.1'", f"page of {PAGE * 12 // 16} bytes", f"largest of {PAGE}", "page_size_padded"),
    ),
    (
        lambda: groups_of(full(), sliding(), hidden(5000)),
        ValueError,
        ("layer 'layer.2'", "10000 bytes", f"page of {PAGE}", "block size"),
    ),
    (
        lambda: groups_of(full(), sliding(), replace(hidden(512), kv_quant_mode=impl.KVQuantMode.INT8_PER_TOKEN_HEAD)),
        ValueError,
        ("layer 'layer.2'", f"2 hidden states take {PAGE + 8} bytes"),
    ),
    (
        lambda: groups_of(latent(), latent_window(577)),
        AssertionError,
        ("layer 'layer.1'", f"page of {64 * 577} bytes", f"[{64 * 576}]", "block size"),
    ),
    (
        lambda: groups_of(latent(), latent(100), latent_window(), latent_window(100), latent_window(100)),
        AssertionError,
        ("layer.2, layer.3, layer.4", "whole tuples", "equally many"),
    ),
    (
        lambda: resolved(full(), sliding(), decode_context_parallel_size=2),
        ValueError,
        ("2 KV cache groups", "2 ranks", "decode_context_parallel_size"),
    ),
    (
        lambda: resolved(full(), sliding(block_size=64), hash_block_size=12),
        ValueError,
        ("hash_block_size 12", "[16, 64]", "divisor of 16"),
    ),
    (lambda: impl.get_uniform_page_size([full(), full(32)]), AssertionError, (f"[{PAGE}, {2 * PAGE}]", "unify")),
    (lambda: kv_cache_utils._approximate_gcd([]), ValueError, ("[]", "at least one")),
]


@pytest.mark.parametrize(("call", "kind", "parts"), REFUSALS, ids=[parts[0] for _, _, parts in REFUSALS])
def test_a_refusal_says_what_is_wrong_and_what_to_do(
    call: Callable[[], object], kind: type[Exception], parts: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_page_that_does_not_grow_with_its_block_is_named() -> None:
    @dataclass(frozen=True)
    class Fixed(impl.KVCacheSpec):
        page_size_bytes: int = 512

    with pytest.raises(NotImplementedError, match=r"layer 'b'.*tokens its page is 512 bytes.*Fixed"):
        impl.unify_kv_cache_spec_page_size({"a": full(), "b": Fixed(16)})


# What is logged.


def logged(caplog: pytest.LogCaptureFixture, call: Callable[[], object]) -> list[str]:
    with caplog.at_level(logging.INFO, logger="blockproof.impl"):
        caplog.clear()
        call()
    return [record.getMessage() for record in caplog.records]


def test_capacity_is_logged_once_for_all_workers(caplog: pytest.LogCaptureFixture) -> None:
    layers = named(full(), full())
    messages = logged(caplog, lambda: impl.get_kv_cache_configs(config(), [{}, layers, layers], [0, 200 * PAGE, GIB]))
    assert messages == ["the KV cache holds 1,584 tokens", "it holds 1.55 requests of 1,024 tokens each at once"]


def test_an_override_and_a_fitted_length_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    layers, override = named(full()), config(num_gpu_blocks_override=65)
    (first, *_) = logged(caplog, lambda: impl.get_kv_cache_configs(override, [layers], [1]))
    assert first == "num_gpu_blocks_override sets the KV cache to 65 blocks, whatever fits"
    for memory, message in (
        (10 * PAGE, "max_model_len lowered from 1024 to 144, which fits into the KV cache"),
        (GIB, "max_model_len stays 1024, which fits into the KV cache"),
    ):
        fitted = config(original_max_model_len=-1)
        (first, *_) = logged(caplog, partial(impl.get_kv_cache_configs, fitted, [layers], [memory]))
        assert first == message


def test_wasted_slots_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = logged(caplog, lambda: groups_of(full(), full(), full(), sliding(), sliding()))
    assert message == ("1 of 6 layer slots stay empty, 16.7 % of the KV cache memory: the groups have 2, 1, 2 layers")
    assert logged(caplog, lambda: groups_of(full(), full(), sliding(), sliding())) == []


def test_counting_blocks_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, lambda: impl.get_num_blocks(config(num_gpu_blocks_override=5), 2, GIB, PAGE)) == []


def test_needing_nothing_is_reported_without_a_number(caplog: pytest.LogCaptureFixture) -> None:
    cross = named(impl.CrossAttentionSpec(16, **LAYOUT))
    (message,) = logged(caplog, lambda: impl.get_kv_cache_configs(config(), [cross], [GIB]))
    assert "needs no block" in message
