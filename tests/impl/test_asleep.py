"""What a reset leaves of blocks: places in the free queue. Nobody can tell, and whoever has a block keeps it."""

import gc
from functools import partial
from random import Random
from typing import Any

import pytest
from blockproof.impl import today
from blockproof.impl.hashing.block_hash import BlockHash
from blockproof.impl.hashing.block_hashing import make_block_hash_with_group_id
from blockproof.impl.pool.free_queue import FreeKVCacheBlockQueue
from blockproof.impl.today.asleep import AWAKE, SleepyQueue


def pool(blocks=40, awake=0):
    """A pool of which so many free blocks stay at a reset."""
    made = today.BlockPool(blocks, True, 4)
    setattr(made._queue, "put_to_sleep", partial(made._queue.put_to_sleep, awake=awake))  # noqa: B010  # for mypy
    return made


def objects(one):
    return [block for block in one._made if block is not None]


def test_after_a_reset_no_block_is_left_but_those_that_somebody_has():
    core = pool()
    taken = core.get_new_blocks(30)
    core.free_blocks(taken)
    order = core.free_ids()
    mine = taken[7]
    del taken
    assert core.reset_prefix_cache()
    assert objects(core) == [core.null_block, mine]
    assert core.get_num_free_blocks() == 39
    core.evict_blocks([3, 7, 39])
    core.touch([mine])
    assert (mine.ref_cnt, core.get_num_free_blocks()) == (1, 38)
    again = core.get_new_blocks(12)
    assert [block.block_id for block in again] == [i for i in order if i != mine.block_id][:12]
    assert len(objects(core)) == 14
    core.free_blocks([*again, mine])
    assert core.reset_prefix_cache()
    assert core.blocks[mine.block_id] is mine
    assert [block.block_id for block in core.blocks] == list(range(40))
    core.check()


def test_after_a_reset_no_block_of_a_folded_run_is_left_though_nobody_collects():
    gc.collect()
    gc.disable()
    try:
        core = pool()
        core.fold([0])
        blocks = core.get_new_blocks(30)
        core.cached_block_hash_to_block.register(0, [b"%d" % i for i in range(30)], blocks, (0, None))
        core.free_blocks(blocks)
        assert len(core.cached_block_hash_to_block.folds[0].heads) == 1
        del blocks
        assert core.reset_prefix_cache()
        assert objects(core) == [core.null_block]
    finally:
        gc.enable()


def test_the_blocks_that_are_taken_next_stay():
    core = pool(awake=5)
    core.free_blocks(core.get_new_blocks(30))
    next_ones = core.free_block_queue.popleft_n(5)
    core.free_block_queue.prepend_n(next_ones)
    assert core.reset_prefix_cache()
    assert objects(core)[1:] == sorted(next_ones, key=lambda block: block.block_id)
    assert core.get_new_blocks(5) == next_ones
    core.check()
    assert AWAKE > 10_000


def test_so_many_stay_in_all():
    """Behind blocks that do not exist there are others, of which none stays."""
    core = pool(awake=5)
    first, last = core.get_new_blocks(10), core.get_new_blocks(10)
    core.free_blocks(first)
    core.unpin_blocks(last, lambda _: None)
    ids = [block.block_id for block in first[:5]]
    del first, last
    assert core.reset_prefix_cache()
    assert [block.block_id for block in objects(core)[1:]] == ids
    core.check()


def test_many_are_taken_in_one_call():
    core = pool(blocks=700)
    core.free_blocks(core.get_new_blocks(699))
    order = core.free_ids()
    assert core.reset_prefix_cache()
    assert objects(core) == [core.null_block]
    assert [block.block_id for block in core.get_new_blocks(600)] == order[:600]
    core.check()


def test_a_reset_that_is_refused_forgets_nothing():
    core = pool()
    (block,) = core.get_new_blocks(1)
    made = objects(core)
    assert not core.reset_prefix_cache()
    assert objects(core) == made
    core.free_blocks([block])
    core.check()


@pytest.mark.parametrize("seed", range(6))
def test_nobody_can_tell(monkeypatch, seed):
    """The same is done to two pools, of which one forgets nothing."""
    draw = Random(seed)
    ours, plain = pool(awake=seed % 3 * 7), pool()
    monkeypatch.setattr(plain._queue, "put_to_sleep", lambda made: False)
    held: list[tuple[Any, Any]] = []
    kept: list[tuple[Any, ...]] = []
    for _ in range(400):
        what = draw.choice(("take", "take", "free", "free", "touch", "keep", "reset", "evict", "look"))
        if what == "take" and (free := ours.get_num_free_blocks()):
            count = draw.randint(1, free)
            held.append((ours.get_new_blocks(count), plain.get_new_blocks(count)))
        elif what == "free" and held:
            for one, blocks in zip((ours, plain), held.pop(draw.randrange(len(held))), strict=True):
                one.free_blocks(blocks)
        elif what == "keep" and held:
            kept = [*kept[-3:], tuple(rows[0] for rows in draw.choice(held))]
        elif what == "touch" and kept:
            rows = [[block] for block in draw.choice(kept)]
            for one, blocks in zip((ours, plain), rows, strict=True):
                one.touch(blocks)
            held.append((rows[0], rows[1]))
        elif what == "reset":
            for one, blocks in [pair for rows in held for pair in zip((ours, plain), rows, strict=True)]:
                one.free_blocks(blocks)
            held = []
            assert ours.reset_prefix_cache() == plain.reset_prefix_cache() is True
        elif what == "evict":
            for one in (ours, plain):
                one.evict_blocks([1, 20, 39])
        elif what == "look" and draw.random() < 0.3:
            assert ours.free_ids() == plain.free_ids()
            assert ours.ref_counts() == plain.ref_counts()
            assert ours.identities() == plain.identities()
            if draw.random() < 0.5:
                ours.check()
        assert ours.get_num_free_blocks() == plain.get_num_free_blocks()
        ids = [[[block.block_id for block in blocks] for blocks in rows] for rows in held]
        assert [mine for mine, _ in ids] == [theirs for _, theirs in ids]
    assert ours.free_ids() == plain.free_ids()


def test_who_looks_at_places_makes_no_block():
    core = pool(awake=3)
    core.free_blocks(core.get_new_blocks(25)[::-1])
    assert core.reset_prefix_cache()
    core.get_new_blocks(5)
    before = objects(core)
    order, holders, names = core.free_ids(), core.ref_counts(), core.identities()
    assert objects(core) == before
    assert len(before) < len(core.blocks) == len(holders) == len(names)
    assert order == [block.block_id for block in core.free_block_queue.get_all_free_blocks()]
    assert holders == [block.ref_cnt for block in core.blocks]


def test_the_queue_is_the_one_of_before_until_it_is_put_to_sleep():
    assert issubclass(SleepyQueue, FreeKVCacheBlockQueue)
    queue = SleepyQueue(())
    assert not queue.put_to_sleep([])
    assert queue.get_all_free_blocks() == []
    queue.check()


def test_a_reset_looks_only_at_what_has_a_name_where_all_blocks_stay():
    core = pool(awake=40)
    core.free_blocks(core.get_new_blocks(30))
    batches = list(core.free_block_queue.batches)
    assert core.reset_prefix_cache()
    assert list(core.free_block_queue.batches) == batches
    assert core.free_ids() == [block.block_id for block in core.free_block_queue.get_all_free_blocks()]
    core.check()


def test_a_reset_takes_the_name_from_each_of_several_blocks_with_one_content():
    core = pool(awake=40)
    blocks = core.get_new_blocks(3)
    for block in blocks:
        key = make_block_hash_with_group_id(BlockHash(b"the same".ljust(32)), 1)
        block.block_hash = key
        core.cached_block_hash_to_block.insert(key, block)
    core.check()
    core.free_blocks(blocks)
    assert core.reset_prefix_cache()
    assert [block.block_hash for block in blocks] == [None] * 3
    core.check()
