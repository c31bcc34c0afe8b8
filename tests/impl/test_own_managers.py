"""Managers that somebody else has written for vLLM 0.23.0: all that they replace of the base class is what runs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, ClassVar, TypeAlias

import blockproof.impl as impl
import pytest
from blockproof.impl.specs.entries import ENTRIES

Register: TypeAlias = Callable[[type[impl.SingleTypeKVCacheManager], impl.KVCacheSpec], impl.KVCacheSpec]


@pytest.fixture
def registered() -> Iterator[Register]:
    """Registers a manager with a spec of its own, and returns that with the contents of one of ours."""
    before = dict(ENTRIES)

    def register(manager: type[impl.SingleTypeKVCacheManager], spec: impl.KVCacheSpec) -> impl.KVCacheSpec:
        kind: Any = type(f"{manager.__name__}Spec", (type(spec),), {})
        impl.register_kv_cache_spec(manager)(kind)
        made: impl.KVCacheSpec = kind(**{one.name: getattr(spec, one.name) for one in fields(spec) if one.init})
        return made

    yield register
    ENTRIES.clear()
    ENTRIES.update(before)


# The signatures are those of the release: what ours were given later cannot be passed to them.


class WholeManager(impl.SlidingWindowManager):
    """Replaces every method that a coordinator calls and that ours are told more in, and counts the calls."""

    calls: ClassVar[Counter[str]] = Counter()

    def get_num_blocks_to_allocate(  # type: ignore[override]
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[impl.KVCacheBlock],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        self.calls["predict"] += 1
        return super().get_num_blocks_to_allocate(
            request_id,
            num_tokens,
            new_computed_blocks,
            total_computed_tokens,
            num_tokens_main_model,
            apply_admission_cap,
        )

    def allocate_new_computed_blocks(  # type: ignore[override]
        self,
        request_id: str,
        new_computed_blocks: Sequence[impl.KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        self.calls["begin"] += 1
        super().allocate_new_computed_blocks(
            request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens
        )

    def allocate_new_blocks(  # type: ignore[override]
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[impl.KVCacheBlock]:
        self.calls["grow"] += 1
        return super().allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)

    @classmethod
    def reachable_block_mask(  # type: ignore[override]
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: impl.KVCacheSpec,
        use_eagle: bool,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        cls.calls["mask"] += 1
        return super().reachable_block_mask(
            start_block, end_block, alignment_tokens, kv_cache_spec, use_eagle, retention_interval, num_prompt_tokens
        )

    @classmethod
    def find_longest_cache_hit(cls, *args: Any, **kwargs: Any) -> Any:
        cls.calls["find"] += 1
        return super().find_longest_cache_hit(*args, **kwargs)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        self.calls["skip"] += 1
        super().remove_skipped_blocks(request_id, total_computed_tokens)


def story(core: Any, manager: impl.KVCacheManager) -> list[object]:
    """What can be seen of a core after each step of a few requests: hits, tokens from outside, decoding, a gate."""
    seen: list[object] = []
    for name, tokens in (("a", 13), ("b", 18), ("c", 9)):
        request = core.request(name, tokens)
        assert core.run(manager, request, full_sequence_must_fit=True) is not None
        for _ in range(3):
            request.append_output_token_ids(0)
            assert manager.allocate_slots(request, 1) is not None
            request.num_computed_tokens += 1
            seen.append((manager.get_block_ids(name), core.state(manager)[:2]))
        manager.free(request)
    loaded = core.request("d", 20)
    hit, local = manager.get_computed_blocks(loaded)
    manager.allocate_slots(loaded, 1, local, hit, num_external_computed_tokens=19 - local)
    manager.check()
    free, blocks = core.state(manager)[:2]
    return [*seen, local, manager.get_block_ids("d"), blocks, sorted(free)]


@pytest.mark.parametrize("beside", ["alone", "full", "itself"])
def test_every_replaced_method_runs_and_is_told_what_it_takes(
    core: Any, registered: Register, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WholeManager, "calls", Counter())
    others = {"alone": [], "full": [core.full()], "itself": [core.full(), core.sliding(9)]}[beside]
    ours = story(core, core.manager(*others, core.sliding(6), num_blocks=40))
    theirs = [registered(WholeManager, core.sliding(6))]
    if beside == "itself":
        theirs.insert(0, registered(type("SecondManager", (WholeManager,), {}), core.sliding(9)))
    assert story(core, core.manager(*others[:1], *theirs, num_blocks=40)) == ours
    assert set(WholeManager.calls) == {"predict", "begin", "grow", "mask", "find", "skip"}


def test_one_that_takes_what_came_later_is_told(core: Any, registered: Register) -> None:
    told: list[tuple[int, int | None]] = []

    class Told(impl.FullAttentionManager):
        def allocate_new_computed_blocks(
            self, request_id: str, new_computed_blocks: Any, local: int, external: int, num_settled_tokens: Any = None
        ) -> None:
            told.append((local + external, num_settled_tokens))
            super().allocate_new_computed_blocks(request_id, new_computed_blocks, local, external, num_settled_tokens)

    manager = core.manager(registered(Told, core.full()))
    request = core.request("a", 8)
    manager.allocate_slots(request, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    assert told == [(8, 7)]


def test_what_gives_blocks_back_is_called_though_nothing_is_said_to_be_skipped(core: Any, registered: Register) -> None:
    class FirstOnly(impl.FullAttentionManager):
        """Gives back all but the first block."""

        def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
            table = self.req_to_blocks.get(request_id, [])
            for i in range(1, total_computed_tokens // self.block_size):
                if not table[i].is_null:
                    self.block_pool.free_blocks([table[i]])
                    table[i] = self.block_pool.null_block

    manager = core.manager(registered(FirstOnly, core.full()))
    request = core.request("a", 12)
    core.run(manager, request)
    request.append_output_token_ids(0)
    manager.allocate_slots(request, 1)
    assert manager.get_block_ids("a") == ([1, 0, 0, 4],)


# Hits.


class PrefixOf0230(impl.FullAttentionManager):
    """Finds what full attention finds, as the release does: its bound has room for the block behind the hit."""

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Any,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: impl.BlockPool,
        kv_cache_spec: Any,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> Any:
        size = kv_cache_spec.block_size * dcp_world_size * pcp_world_size
        run = []
        for block_hash in islice(block_hashes, max_length // size):
            found = block_pool.get_cached_block(block_hash, kv_cache_group_ids)
            if found is None:
                break
            run.append(found)
        if drop_eagle_block:
            run = run[:-1]
        while len(run) * size % alignment_tokens:
            run.pop()
        return tuple([blocks[i] for blocks in run] for i in range(len(kv_cache_group_ids)))


class PassedOn(impl.FullAttentionManager):
    """Asks the base class."""

    @classmethod
    def find_longest_cache_hit(cls, *args: Any, **kwargs: Any) -> Any:
        return super().find_longest_cache_hit(*args, **kwargs)


@pytest.mark.parametrize("theirs", [PrefixOf0230, PassedOn])
@pytest.mark.parametrize("beside", ["alone", "sliding"])
@pytest.mark.parametrize("options", [{}, {"use_eagle": True}], ids=["plain", "eagle"])
def test_a_search_by_either_convention_finds_what_ours_finds(
    core: Any, registered: Register, theirs: type, beside: str, options: dict[str, bool]
) -> None:
    own = registered(theirs, core.full())
    others = [core.sliding(6)] if beside == "sliding" else []
    managers = [core.manager(spec, *others, num_blocks=40, **options) for spec in (own, core.full())]
    lengths: list[list[int]] = []
    for manager in managers:
        core.run(manager, core.request("a", 18))
        core.run(manager, core.request("b", [*range(9), *[99] * 9]))
        tried = (core.request(f"c{end}", [*range(end), 99, 99]) for end in range(24))
        lengths.append([manager.get_computed_blocks(request)[1] for request in tried])
    assert lengths[0] == lengths[1]
    assert max(lengths[0]) > 0


@pytest.mark.parametrize("beside", ["alone", "sliding"])
def test_a_search_of_somebodys_own_decides(core: Any, registered: Register, beside: str) -> None:
    class OneBlock(impl.FullAttentionManager):
        """Lets requests share one block only."""

        @classmethod
        def find_longest_cache_hit(cls, *args: Any, **kwargs: Any) -> Any:
            kwargs["max_length"] = min(kwargs["max_length"], kwargs["alignment_tokens"])
            return super().find_longest_cache_hit(*args, **kwargs)

    others = [core.sliding(3)] if beside == "sliding" else []
    manager = core.manager(registered(OneBlock, core.full()), *others)
    core.run(manager, core.request("a", 13))
    hit, tokens = manager.get_computed_blocks(core.request("b", 13))
    assert tokens == 4
    assert {len(row) for row in hit.get_block_ids()} == {1}


def test_a_search_that_finds_more_than_asked_for_is_named(core: Any, registered: Register) -> None:
    class Greedy(impl.FullAttentionManager):
        @classmethod
        def find_longest_cache_hit(cls, *args: Any, **kwargs: Any) -> Any:
            return super().find_longest_cache_hit(*args, **{**kwargs, "max_length": 1000})

    manager = core.manager(registered(Greedy, core.full()))
    core.run(manager, core.request("a", 12))
    with pytest.raises(AssertionError, match=r"Greedy\.find_longest_cache_hit found 12 tokens, more than the 11 asked"):
        manager.get_computed_blocks(core.request("b", 12))


def test_hits_of_all_groups_are_held_before_somebodys_own_takes_a_block(core: Any, registered: Register) -> None:
    """The blocks of the hits are the first of the free queue, and tokens from outside need blocks at once."""

    class Begins(impl.FullAttentionManager):
        def allocate_new_computed_blocks(self, *args: Any) -> None:
            super().allocate_new_computed_blocks(*args)

    class AlsoBegins(impl.SlidingWindowManager):
        def allocate_new_computed_blocks(self, *args: Any) -> None:
            super().allocate_new_computed_blocks(*args)

    manager = core.manager(registered(Begins, core.full()), registered(AlsoBegins, core.sliding(16)), num_blocks=9)
    pool, first = manager.block_pool, core.request("a", 8)
    core.run(manager, first)
    rest = pool.get_new_blocks(4)
    manager.free(first)
    pool.free_blocks(rest)
    request = core.request("b", 17)
    hit, local = manager.get_computed_blocks(request)
    held = hit.get_block_ids()
    assert (local, len(held[0]), len(held[1])) == (8, 2, 2)
    manager.allocate_slots(request, 1, local, hit, num_external_computed_tokens=4)
    manager.check()
    tables = manager.get_block_ids("b")
    assert [table[:2] for table in tables] == list(held)
    assert sorted(tables[0] + tables[1]) == list(range(1, 9))
    assert {block.ref_cnt for block in pool.blocks[1:]} == {1}
