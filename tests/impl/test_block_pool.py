"""References, identities, events and metrics of the pool; what it refuses without changing anything."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.impl import (
    AllBlocksCleared,
    BlockHash,
    BlockHashToBlockMap,
    BlockHashWithGroupId,
    BlockPool,
    BlockRemoved,
    BlockStored,
    KVCacheBlock,
    KVCacheMetricsCollector,
    make_block_hash_with_group_id,
)
from blockproof.impl.pool.block import Run

HASHES = [BlockHash(bytes([i]) * 32) for i in range(8)]


def request(**details: Any) -> Any:
    plain = {"lora_request": None, "mm_features": [], "cache_salt": None, "prompt_embeds": None}
    return SimpleNamespace(
        **{"request_id": "r", "block_hashes": HASHES, "all_token_ids": list(range(16)), **plain, **details}
    )


def queue(pool: BlockPool) -> list[int]:
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def look(pool: BlockPool) -> Callable[[], Any]:
    return lambda: (
        queue(pool),
        pool.get_num_free_blocks(),
        [(block.ref_cnt, block.block_hash) for block in pool.blocks],
        len(pool.cached_block_hash_to_block),
        len(pool.kv_event_queue),
    )


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(6, True, 2, enable_kv_cache_events=True)


def test_block_0_is_the_null_block_and_never_handed_out(pool: BlockPool) -> None:
    assert pool.null_block.block_id == 0
    assert pool.null_block.is_null
    assert [block.block_id for block in pool.get_new_blocks(5)] == [1, 2, 3, 4, 5]
    pool.check()


def test_freed_blocks_queue_up_behind_or_before_the_others(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(4)
    pool.free_blocks(reversed(blocks[:2]))
    assert queue(pool) == [5, 2, 1]
    pool.free_blocks(blocks[2:], prepend=True)
    assert queue(pool) == [3, 4, 5, 2, 1]
    pool.check()


def test_a_block_is_free_only_when_its_last_holder_lets_go(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(1)
    pool.touch(blocks)
    pool.free_blocks(blocks)
    assert 1 not in queue(pool)
    pool.free_blocks(blocks)
    assert queue(pool)[-1] == 1
    pool.check()


def test_a_block_given_back_twice_in_one_batch_is_queued_once(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2)
    pool.touch(blocks[:1])
    pool.free_blocks([blocks[0], blocks[1], blocks[0]])
    assert queue(pool) == [3, 4, 5, 2, 1]
    pool.check()


def test_touching_a_free_block_takes_it_out_of_the_queue(pool: BlockPool) -> None:
    pool.touch([pool.blocks[3], pool.blocks[3]])
    assert pool.blocks[3].ref_cnt == 2
    assert queue(pool) == [1, 2, 4, 5]
    pool.check()


def test_null_blocks_are_passed_over(pool: BlockPool) -> None:
    pool.touch([pool.null_block])
    pool.free_blocks([pool.null_block, pool.null_block])
    pool.free_blocks([pool.null_block], prepend=True)
    assert 0 not in queue(pool)
    assert pool.get_num_free_blocks() == 5
    pool.check()


@pytest.mark.parametrize("count", [-1, 6])
def test_a_count_that_is_not_free_is_refused(pool: BlockPool, count: int, raises_unchanged: Callable[..., str]) -> None:
    message = raises_unchanged(ValueError, look(pool), lambda: pool.get_new_blocks(count))
    assert str(count) in message
    assert "5 are free" in message


def test_more_frees_than_references_in_one_batch_are_refused(
    pool: BlockPool, raises_unchanged: Callable[..., str]
) -> None:
    blocks = pool.get_new_blocks(2)
    batch = [blocks[1], blocks[0], blocks[0]]
    assert "[2, 1, 1]" in raises_unchanged(ValueError, look(pool), lambda: pool.free_blocks(batch))
    pool.check()


def test_freeing_a_block_that_nobody_holds_is_refused(pool: BlockPool, raises_unchanged: Callable[..., str]) -> None:
    held = pool.get_new_blocks(1)
    batch = [held[0], pool.blocks[4]]
    assert "block 4" in raises_unchanged(ValueError, look(pool), lambda: pool.free_blocks(iter(batch)))
    pool.check()


@pytest.mark.parametrize("others", [1, 9])  # a few are looked at one by one, many together
@pytest.mark.parametrize("block_id", [2, 99, -1])
def test_blocks_of_another_pool_are_refused(block_id: int, others: int, raises_unchanged: Callable[..., str]) -> None:
    pool = BlockPool(20, True, 16)
    held = pool.get_new_blocks(others)
    foreign = KVCacheBlock(block_id, ref_cnt=1)
    for call in (pool.free_blocks, pool.touch):
        assert "not of this pool" in raises_unchanged(ValueError, look(pool), lambda c=call: c([*held, foreign]))
    assert foreign.ref_cnt == 1
    pool.check()


def test_registered_blocks_are_found_until_they_are_reused(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2)
    pool.cache_full_blocks(request(), blocks, 0, 2, 2, 0)
    pool.free_blocks(reversed(blocks))
    assert pool.get_cached_block(HASHES[0], [0]) == blocks[:1]
    assert pool.get_cached_block(HASHES[0], [0, 1]) is None
    pool.get_new_blocks(4)
    assert pool.get_cached_block(HASHES[1], [0]) is None
    assert pool.get_cached_block(HASHES[0], [0]) == blocks[:1]
    pool.check()


def test_null_and_masked_blocks_are_not_registered(pool: BlockPool) -> None:
    blocks = [pool.null_block, *pool.get_new_blocks(3)]
    pool.cache_full_blocks(request(), blocks, 0, 4, 2, 0, [True, False, True, True])
    assert [block.block_hash is not None for block in blocks] == [False, False, True, True]
    pool.check()


def test_registering_is_all_or_nothing(pool: BlockPool, raises_unchanged: Callable[..., str]) -> None:
    blocks = pool.get_new_blocks(3)
    pool.cache_full_blocks(request(), blocks, 1, 2, 2, 0)
    again = raises_unchanged(AssertionError, look(pool), lambda: pool.cache_full_blocks(request(), blocks, 0, 2, 2, 0))
    assert "block 2" in again
    raises_unchanged(
        AssertionError, look(pool), lambda: pool.cache_full_blocks(request(block_hashes=[]), blocks, 2, 3, 2, 0)
    )


def test_one_event_tells_of_a_registered_range(pool: BlockPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0")
    adapter = SimpleNamespace(adapter_id=3, name="a", lora_name="a")
    blocks = pool.get_new_blocks(3)
    pool.cache_full_blocks(request(lora_request=adapter), blocks, 1, 3, 2, 5, [False, True])
    assert pool.take_events() == [
        BlockStored([HASHES[2]], HASHES[0], [2, 3, 4, 5], 2, 3, "GPU", "a", [(("lora", "a", None),)], group_idx=5)
    ]
    assert pool.take_events() == []


def test_events_show_the_low_64_bits_unless_told_otherwise(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(1)
    pool.cache_full_blocks(request(), blocks, 0, 1, 2, 0)
    pool.evict_blocks({1})
    stored, removed = pool.take_events()
    assert isinstance(stored, BlockStored)
    assert stored.block_hashes == [int.from_bytes(HASHES[0][-8:], "big")]
    assert removed == BlockRemoved(stored.block_hashes, "GPU", 0)


def test_without_events_nothing_is_kept() -> None:
    pool = BlockPool(3, True, 2)
    pool.cache_full_blocks(request(), pool.get_new_blocks(1), 0, 1, 2, 0)
    assert pool.kv_event_queue == []
    assert pool.take_events() == []


def test_evicting_forgets_the_identity_of_a_block_in_use(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2)
    pool.cache_full_blocks(request(), blocks, 0, 2, 2, 0)
    pool.evict_blocks([1, 5])
    assert blocks[0].block_hash is None
    assert blocks[0].ref_cnt == 1
    assert blocks[1].block_hash is not None
    pool.check()


@pytest.mark.parametrize("wrong", [-1, 6])
def test_evicting_an_unknown_id_changes_nothing(
    pool: BlockPool, wrong: int, raises_unchanged: Callable[..., str]
) -> None:
    pool.cache_full_blocks(request(), pool.get_new_blocks(2), 0, 2, 2, 0)
    message = raises_unchanged(AssertionError, look(pool), lambda: pool.evict_blocks([1, wrong]))
    assert f"block {wrong}" in message


def test_reset_is_refused_while_a_block_is_held(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(1)
    pool.cache_full_blocks(request(), blocks, 0, 1, 2, 0)
    pool.take_events()
    before = look(pool)()
    assert not pool.reset_prefix_cache()
    assert look(pool)() == before
    pool.free_blocks(blocks)
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(HASHES[0], [0]) is None
    assert pool.take_events() == [AllBlocksCleared()]
    pool.check()


def test_usage_counts_usable_blocks_only(pool: BlockPool) -> None:
    pool.get_new_blocks(2)
    assert pool.get_usage() == pytest.approx(0.4)
    assert BlockPool(1, True, 2).get_usage() == 0


@pytest.mark.parametrize("wrong", [0, -3, 1.5])
def test_a_pool_has_at_least_the_null_block(wrong: Any) -> None:
    with pytest.raises(AssertionError, match=str(wrong)):
        BlockPool(wrong, True, 2)


def test_check_finds_a_held_block_that_the_queue_still_counts(pool: BlockPool) -> None:
    pool.blocks[2].ref_cnt = 1
    with pytest.raises(AssertionError, match=r"left == number of members: 5 != 4 in \[1, 3, 4, 5\]"):
        pool.check()


def test_check_finds_a_block_that_nobody_holds_and_that_is_not_free(pool: BlockPool) -> None:
    pool.get_new_blocks(2)[1].state = 0
    with pytest.raises(AssertionError, match=r"only queued set\(\), only unheld \{2\}"):
        pool.check()


def test_check_finds_a_queued_block_of_nobody(pool: BlockPool) -> None:
    pool.free_block_queue.append(KVCacheBlock(77))
    with pytest.raises(AssertionError, match=r"only queued \{77\}"):
        pool.check()


def test_check_finds_a_second_holder_that_is_not_counted(pool: BlockPool) -> None:
    pool.get_new_blocks(2)[1].ref_cnt = 2
    with pytest.raises(AssertionError, match=r"blocks with two holders or more: 0 != \[2\]"):
        pool.check()


def test_check_finds_a_run_that_says_what_its_blocks_do_not(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(3)
    pool.cache_full_blocks(request(), blocks, 0, 2, 2, 0)
    pool.check()
    run = blocks[0].run
    assert run is not None
    assert run.whole
    assert run.blocks == blocks[:2]
    run.contents.reverse()
    with pytest.raises(AssertionError, match="content of a whole run"):
        pool.check()
    run.contents.pop()
    with pytest.raises(AssertionError, match="as many blocks as hashes"):
        pool.check()


def test_check_finds_a_whole_run_that_a_lookup_does_not_find(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(4)
    for i in (0, 2):
        pool.cache_full_blocks(request(), blocks[i : i + 2], 0, 2, 2, 0)
    pool.check()
    run = blocks[2].run
    assert run is not None
    assert not run.whole
    blocks[2].run = blocks[3].run = Run(0, 0, list(HASHES[:2]), blocks[2:])
    with pytest.raises(AssertionError, match="a whole run is what is found"):
        pool.check()


def test_check_finds_an_identity_that_no_lookup_finds(pool: BlockPool) -> None:
    pool.blocks[2].block_hash = BlockHashWithGroupId(b"x")
    with pytest.raises(AssertionError, match="registered == carried"):
        pool.check()


def test_check_finds_an_entry_whose_block_lost_its_identity(pool: BlockPool) -> None:
    pool.cache_full_blocks(request(), pool.get_new_blocks(1), 0, 1, 2, 0)
    pool.blocks[1].reset_hash()
    with pytest.raises(AssertionError, match="registered == carried"):
        pool.check()


def test_map_gives_the_earliest_copy_that_is_left() -> None:
    blocks = [KVCacheBlock(i) for i in range(4)]
    key = make_block_hash_with_group_id(HASHES[0], 0)
    found = BlockHashToBlockMap()
    for i in (3, 1, 2):
        found.insert(key, blocks[i])
    assert len(found) == 1
    assert found.get_one_block(key) is blocks[3]
    assert found.pop(key, 0) is None
    assert found.pop(key, 3) is blocks[3]
    assert found.get_one_block(key) is blocks[1]
    assert [found.pop(key, i) for i in (2, 1)] == [blocks[2], blocks[1]]
    assert found.get_one_block(key) is None
    assert len(found) == 0


def test_metrics_follow_a_block_from_allocation_to_eviction() -> None:
    metrics = KVCacheMetricsCollector(1.0)
    pool = BlockPool(3, True, 2, metrics_collector=metrics)
    blocks = pool.get_new_blocks(1)
    for _ in range(6):
        pool.touch(blocks)
    pool.evict_blocks([1])
    (event,) = metrics.drain_events()
    assert len(event.reuse_gaps_seconds) == 3
    assert event.lifetime_seconds >= event.idle_seconds + sum(event.reuse_gaps_seconds) > 0
    assert metrics.drain_events() == []


@pytest.mark.parametrize("caching", [True, False])
def test_one_block_and_several_are_told_to_the_metrics_in_the_same_way(caching: bool) -> None:
    """Without a cache nobody is told what was in a block before, however it is taken."""
    for take in (lambda pool: pool.get_new_blocks(1), lambda pool: [pool.get_new_block()]):
        metrics = KVCacheMetricsCollector(1.0)
        pool = BlockPool(2, caching, 2, metrics_collector=metrics)
        pool.free_blocks(take(pool))
        take(pool)
        assert len(metrics.drain_events()) == caching


@pytest.mark.parametrize("rate", [0, -0.5, 1.01])
def test_a_sample_rate_is_a_share(rate: float) -> None:
    with pytest.raises(AssertionError, match=str(rate)):
        KVCacheMetricsCollector(rate)


def test_blocks_of_a_large_pool_are_taken_in_order_and_counted() -> None:
    pool = BlockPool(10_000, True, 2)
    assert [block.block_id for block in pool.get_new_blocks(3)] == [1, 2, 3]
    assert pool.get_num_free_blocks() == 9_996
    assert [block.block_id for block in pool.get_new_blocks(5_000)] == list(range(4, 5_004))
    assert pool.get_num_free_blocks() == 4_996


@pytest.mark.parametrize("taken", [20, 32, 40])
def test_what_was_registered_together_is_forgotten_as_far_as_it_is_taken(taken: int) -> None:
    pool = BlockPool(41, True, 2)
    names = [BlockHash(bytes([i]) * 32) for i in range(40)]
    blocks = pool.get_new_blocks(40)
    pool.cache_full_blocks(request(block_hashes=names), blocks, 0, 40, 2, 0)
    pool.free_blocks(reversed(blocks))
    assert pool.get_new_blocks(taken) == blocks[::-1][:taken]
    pool.check()
    found = [pool.get_cached_block(name, [0]) for name in names]
    assert found == [[block] for block in blocks[: 40 - taken]] + [None] * taken
