"""SGLang itself, driven through its adapter: skipped where neither it nor an environment with it is installed."""

from collections.abc import Iterator

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.findings.oracle_names import SHADOW
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.targets.base import Target, adapted, lacking
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.model.ops import (
    Advance,
    Allocate,
    Free,
    Group,
    Lookup,
    Preempt,
    Refused,
    Reset,
    Shape,
    Submit,
)

from .released import do, opened

FAMILY = families()["sglang"]
FULL = Group("full", 4)
WINDOW = Group("sliding", 4, window=6)
PROMPT = tuple(range(1, 22))


def shape(*groups: Group, num_blocks: int = 24) -> Shape:
    return Shape(groups, num_blocks, 64, 4, 4, 16)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    yield from opened(FAMILY, shape(FULL))


def test_a_second_prompt_hits_the_whole_pages_of_the_first(target):
    target.start(shape(FULL))
    _, seen = do(target, Submit("a", PROMPT), Lookup("a"), Allocate("a", 21, hit=True), Advance("a", (9,)), Free("a"))
    assert seen.num_free == 23
    (tokens, rows), seen = do(target, Submit("b", PROMPT), Lookup("b"))
    assert (tokens, len(rows[0])) == (20, 5)
    _, seen = do(target, Allocate("b", 1, hit=True))
    assert tuple(seen.tables[0]["b"][:5]) == rows[0]
    assert set(seen.free) == set(range(1, 24)) - set(seen.tables[0]["b"])


def test_an_adapter_and_a_salt_of_one_name_share_nothing(target):
    target.start(shape(FULL))
    do(target, Submit("a", PROMPT, adapter="x"), Lookup("a"), Allocate("a", 21, hit=True), Advance("a"), Free("a"))
    hits = [
        do(target, submit, Lookup(submit.request))[0][0]
        for submit in (Submit("b", PROMPT, salt="x"), Submit("c", PROMPT, adapter="x"))
    ]
    assert hits == [0, 20]


def test_pages_behind_the_window_are_given_back_and_the_pools_share_no_block(target):
    target.start(shape(FULL, WINDOW))
    _, seen = do(
        target, Submit("a", PROMPT), Allocate("a", 21), Advance("a", (9,)), Allocate("a", 1), Advance("a", (8,))
    )
    full, window = (seen.tables[group]["a"] for group in (0, 1))
    assert len(full) == len(window) == 6
    assert 0 not in full
    assert window[:3] == [0, 0, 0]
    assert 0 not in window[4:]
    assert max(full) < min(block for block in window if block)
    assert set(seen.free) == set(range(1, 24)) - {*full, *window}


def test_the_same_prompt_computed_twice_is_kept_once(target):
    target.start(shape(FULL))
    _, seen = do(
        target,
        *(Submit(name, PROMPT) for name in "ab"),
        *(Allocate(name, 21) for name in "ab"),
        *(Advance(name, (9,)) for name in "ab"),
    )
    assert set(seen.tables[0]["a"]).isdisjoint(seen.tables[0]["b"])
    _, seen = do(target, Allocate("a", 1), Allocate("b", 1))
    assert seen.tables[0]["a"][:5] == seen.tables[0]["b"][:5]
    assert seen.num_free == 23 - 7


@pytest.mark.parametrize("groups", [(FULL,), (FULL, WINDOW)])
def test_a_refusal_changes_nothing(target, groups):
    target.start(shape(*groups, num_blocks=12))
    _, before = do(target, Submit("a", PROMPT[:13]), Allocate("a", 13), Advance("a", (9,)), Submit("b", PROMPT * 2))
    outcome, after = target.step(Allocate("b", 42))
    assert outcome == Refused()
    assert after == before


def test_a_preempted_request_finds_its_prefill_again(target):
    target.start(shape(FULL))
    _, seen = do(target, Submit("a", PROMPT), Allocate("a", 21), Advance("a", (9,)), Preempt("a"))
    assert (seen.num_free, seen.tables[0]) == (23, {})
    assert do(target, Lookup("a"))[0][0] == 20


def test_the_cache_is_flushed_only_while_nobody_holds_anything(target):
    target.start(shape(FULL))
    assert do(target, Submit("a", PROMPT), Allocate("a", 21), Advance("a", (9,)), Reset())[0] is False
    assert do(target, Free("a"), Reset())[0] is True
    assert do(target, Submit("b", PROMPT), Lookup("b"))[0][0] == 0


class Watched:
    """A target whose last state is at hand."""

    def __init__(self, target):
        self.target = target
        self.seen = None

    def __getattr__(self, name):
        return getattr(self.target, name)

    def step(self, operation):
        outcome, self.seen = self.target.step(operation)
        return outcome, self.seen


def objection(target, groups, seed, most_blocks=40):
    """What is wrong after some operation of a random run, if anything: with what is read back, or with the pools."""
    draw = SeededDraw(f"sglang/{seed}")
    built = shape(*groups, num_blocks=draw.integer(8, most_blocks))
    watched = Watched(target)
    run = ModelFreeRun(watched, Judging((SHADOW,)))
    assert run.start(built) is None
    workload = Workload(draw, built)
    for _ in range(175):
        operation = adapted(workload.next(run.scene), lacking(target))
        if operation is None:
            continue
        found = run.step(operation)
        if found is not None:
            return str(found)
        held = {block for tables in watched.seen.tables for table in tables.values() for block in table if block}
        free = set(watched.seen.free)
        if len(free) != len(watched.seen.free) or len(free) != watched.seen.num_free:
            return f"{operation}: free {watched.seen.free}, counted {watched.seen.num_free}"
        if held & free or held | free != set(range(1, built.num_blocks)):
            return f"{operation}: free {sorted(free)}, held {sorted(held)}"
    return None


KINDS = [(FULL,), (FULL, WINDOW), (Group("full", 1), Group("sliding", 1, window=3))]


@pytest.mark.parametrize("groups", KINDS)
def test_a_random_run_reads_back_what_it_wrote_and_loses_no_page(target, groups):
    assert [objection(target, groups, seed) for seed in range(2)] == [None] * 2


@pytest.fixture
def here(target):
    if not FAMILY.here:
        pytest.skip("faults are planted in this process, and SGLang is in another")
    return target


def test_pages_that_are_not_locked_are_seen(here, monkeypatch):
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    monkeypatch.setattr(UnifiedRadixCache, "lock", lambda self, node, skip_lock_components=(): None)
    assert any(objection(here, (FULL,), seed) for seed in range(4))


def test_a_page_that_is_not_given_back_is_seen(here, monkeypatch):
    from sglang.srt.mem_cache import common

    monkeypatch.setattr(common, "_release_overallocated_kv_indices", lambda *_arguments: None)
    assert any(objection(here, (FULL,), seed) for seed in range(8))


def test_a_window_that_is_cut_a_page_too_far_is_seen(here, monkeypatch):
    from sglang.srt.mem_cache import common

    cut = common.free_swa_out_of_window_slots

    def too_far(request, computed, **rules):
        cut(request, computed, **(rules | {"sliding_window_size": 1}))

    monkeypatch.setattr(common, "free_swa_out_of_window_slots", too_far)
    groups = (Group("full", 1), Group("sliding", 1, window=5))
    assert any(objection(here, groups, seed, most_blocks=200) for seed in range(8))


def test_a_match_that_ignores_the_namespace_is_seen(here, monkeypatch):
    from sglang.srt.managers.schedule_batch import Req

    key = property(lambda self: None, lambda self, value: None)
    monkeypatch.setattr(Req, "extra_key", key, raising=False)
    assert any(objection(here, (FULL,), seed) for seed in range(24))
