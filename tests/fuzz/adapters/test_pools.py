"""A pool that stands in for a release's own: what is read of it, and what counts as hidden."""

from types import SimpleNamespace

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.observe import NAMES, unseen_in
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.base import check_declarations, hidden_fields, likeness
from blockproof.fuzz.traces.replay import replay
from blockproof.model.ops import Allocate, Free, Group, Lookup, Reset, Shape, Submit

SHAPE = Shape((Group("full", 1),), 4, 3, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=3)
STORY = (Submit("a", (0, 0, 0)), Lookup("a"), Allocate("a", 3), Free("a"), Reset(), Submit("b", (0, 0, 0)), Lookup("b"))


@pytest.mark.parametrize(
    ("has", "hidden"),
    [
        ((), {"free", *NAMES}),
        (("free_ids",), NAMES),
        (("free_block_queue", "cached_block_hash_to_block"), frozenset()),
    ],
)
def test_what_a_pool_does_not_offer_is_hidden(has: tuple[str, ...], hidden: frozenset[str]) -> None:
    assert unseen_in(SimpleNamespace(blocks=[], **dict.fromkeys(has))) == frozenset(hidden)


class Bare:
    """The pool of our core with the least that a pool must have."""

    def __init__(self, pool: object) -> None:
        self._real = pool

    def __getattr__(self, name: str) -> object:
        if name in ("free_ids", "identities", "ref_counts", "free_block_queue", "cached_block_hash_to_block"):
            raise AttributeError(name)
        return getattr(self._real, name)


def test_a_bare_pool_is_read_and_judged() -> None:
    target = VllmStyleTarget("bare", bind_impl(), hides=("usage",), lacks=("Take",), like="impl")
    check_declarations(target)
    binding = target._binding
    real = binding.manager

    def bare(shape: Shape) -> object:
        manager = real(shape)
        manager.block_pool = Bare(manager.block_pool)
        return manager

    object.__setattr__(binding, "manager", bare)
    try:
        finding, applied = replay(Trace(SHAPE, STORY), target, Judging(("lockstep", "shadow")))
        assert finding is None
        assert applied.operations == STORY
        assert hidden_fields(target) == {"usage", "free", *NAMES}
        assert likeness(target) == "impl"
    finally:
        object.__delattr__(binding, "manager")


def test_a_patch_says_more_of_its_target() -> None:
    target = VllmStyleTarget("patched", bind_impl())
    target.declare(hides={"stats"}, lacks={"TakeStats"})
    assert "TakeStats" in target.lacks
    target.start(SHAPE)
    assert "stats" in target.hides
