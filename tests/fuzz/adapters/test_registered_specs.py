"""Specs and managers of somebody else's, registered with our core and then fuzzed like those that come with it."""

from dataclasses import dataclass, replace

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.reports.summary import Summary
from blockproof.impl import (
    KVCacheSpecRegistry,
    SlidingWindowManager,
    SlidingWindowSpec,
    register_kv_cache_spec,
)


class CountingManager(SlidingWindowManager):
    """A sliding window that counts its allocations."""

    allocations = 0

    def allocate_new_blocks(self, request_id, num_tokens, num_tokens_main_model):  # type: ignore[override]
        type(self).allocations += 1
        return super().allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)


@register_kv_cache_spec(manager_class=CountingManager, uniform_type_base_spec=SlidingWindowSpec)
@dataclass(frozen=True)
class CountedSpec(SlidingWindowSpec):
    pass


class ShortSightedManager(SlidingWindowManager):
    """Gives blocks back one token too early."""

    def get_num_skipped_tokens(self, num_computed_tokens):
        return super().get_num_skipped_tokens(num_computed_tokens) + (num_computed_tokens > self.sliding_window)


@register_kv_cache_spec(manager_class=ShortSightedManager)
@dataclass(frozen=True)
class ShortSightedSpec(SlidingWindowSpec):
    pass


def make_target(**classes):
    """What a user's factory does: our core, but these classes instead of those of the same role."""
    ours = bind_impl()
    return VllmStyleTarget("mine", replace(ours, names=lambda name: classes.get(name) or ours.names(name)))


def fuzz(target, *attention, oracles=("lockstep", "shadow")):
    summary = Summary("mine", "random", 1)
    run_random(target, Plan(1, operations=8_000, attention=attention, oracles=oracles), summary)
    return summary


def test_a_registered_manager_is_the_one_that_runs():
    summary = fuzz(make_target(SlidingWindowSpec=CountedSpec), "sliding", "full+sliding", "sliding+mamba")
    assert summary.finding is None, summary.finding
    assert CountingManager.allocations > 100


@pytest.mark.parametrize("oracle", ["lockstep", "shadow"])
def test_a_mistake_of_a_registered_manager_is_found(oracle):
    target = make_target(SlidingWindowSpec=ShortSightedSpec)
    summary = fuzz(target, "sliding", "full+sliding", oracles=(oracle,))
    assert summary.finding is not None
    assert (
        KVCacheSpecRegistry.get_manager_class(
            ShortSightedSpec(1, num_kv_heads=1, head_size=1, dtype=None, sliding_window=2)
        )
        is ShortSightedManager
    )
