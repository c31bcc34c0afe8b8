"""The pool at any moment: functions cut and put together, contracts and the real objects, facts that can be true."""

import random
from itertools import permutations
from typing import Any

import pytest
from blockproof.impl import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock
from blockproof.impl.hashing.block_hash import BlockHashWithGroupId
from blockproof.impl.pool.hash_map import BlockHashToBlockMap
from blockproof.proofs.invariants.rounds import parts
from blockproof.proofs.invariants.small_pools import PoolState, batches, key, real_pool, require, states
from blockproof.proofs.loops import ReturnedError
from blockproof.proofs.solver import ProofError
from blockproof.proofs.theorems import invariants_names


class Names:
    """The roles that a small pool asks for."""

    block_kind, queue_kind, pool_kind = KVCacheBlock, FreeKVCacheBlockQueue, BlockPool


def shown(pool):
    return (
        [(block.block_id, block.ref_cnt, block.block_hash) for block in pool.blocks],
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        len(pool.cached_block_hash_to_block),
    )


def outcome(call, *arguments):
    try:
        return str(call(*arguments))
    except (ValueError, AssertionError) as error:
        return type(error).__name__


GIVEN = {
    "touch": lambda pool, ids: ([pool.blocks[i] for i in ids],),
    "free_blocks": lambda pool, ids: ([pool.blocks[i] for i in ids], len(ids) % 2 == 0),
    "get_new_blocks": lambda pool, ids: (len(ids),),
    "evict_blocks": lambda pool, ids: (ids,),
    "reset_prefix_cache": lambda pool, ids: (),
}


@pytest.mark.parametrize("method", GIVEN)
def test_an_operation_put_together_again_is_the_operation(method):
    operation = getattr(BlockPool, method)
    cut = parts(operation)
    for state in random.Random(7).sample(list(states(3)), 60):
        for ids in random.Random(8).sample(list(batches(3, 3)), 12):
            whole, again = real_pool(Names, state), real_pool(Names, state)
            right = outcome(operation, whole, *GIVEN[method](whole, ids))
            assert outcome(cut.whole, again, *GIVEN[method](again, ids)) == right
            assert shown(whole) == shown(again)


def test_registering_put_together_again_is_registering():
    cut = parts(BlockPool.cache_full_blocks)
    for first in range(3):
        pools = [real_pool(Names, PoolState((1, 1, 1, 0), (False,) * 4, backwards=False)) for _ in range(2)]
        calls: list[Any] = [BlockPool.cache_full_blocks, cut.whole]
        for pool, call in zip(pools, calls, strict=True):
            request = invariants_names.FakeRequest([key(100), key(101)])
            call(pool, request, [pool.blocks[1], pool.blocks[2]], first, 2, 1, 0, None)
        assert shown(pools[0]) == shown(pools[1])


def _total(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


def _last(numbers):
    for number in numbers:  # noqa: B007
        pass
    return number


def _maybe(numbers):
    for number in numbers:
        if number:
            seen = number
        print(seen)


def _left_early(numbers):
    for number in numbers:
        if number:
            break


def _waiting(numbers):
    while numbers:
        numbers.pop()


def _inside(numbers):
    if numbers:
        for number in numbers:
            print(number)


@pytest.mark.parametrize("function", [_total, _last, _maybe, _left_early, _waiting, _inside])
def test_a_round_that_leaves_something_in_a_variable_cannot_be_cut_out(function):
    with pytest.raises(ProofError, match="cut"):
        parts(function)


def test_a_function_that_ends_before_its_loop_says_so():
    with pytest.raises(ReturnedError):
        parts(BlockPool.cache_full_blocks).begin(None, None, [], 2, 2, 1, 0)


def named(number):
    """An identity, as the map has it."""
    return BlockHashWithGroupId(key(number))


def test_the_map_of_identities_does_what_is_assumed_of_it():
    blocks = [KVCacheBlock(number) for number in range(3)]
    for held in permutations([(name, block) for name in range(2) for block in blocks], 3):
        if len({block.block_id for _, block in held}) < 3:
            continue
        for count in range(4):
            for name in range(2):
                for block in blocks:
                    made = BlockHashToBlockMap()
                    for one, owner in held[:count]:
                        made.insert(named(one), owner)
                    found = made.pop(named(name), block.block_id)
                    inside = (name, block) in held[:count]
                    assert found is (block if inside else None)
                    left = {one for one, owner in held[:count] if not (inside and (one, owner) == (name, block))}
                    assert len(made) == len(left)
                    for one in range(2):
                        assert (made.get_one_block(named(one)) is not None) == (one in left)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda pool: setattr(pool.blocks[1], "ref_cnt", 2),
        lambda pool: setattr(pool.free_block_queue, "num_free_blocks", 5),
        lambda pool: pool.free_block_queue.append(pool.blocks[0]),
        lambda pool: pool.blocks[2].reset_hash(),
        lambda pool: pool.cached_block_hash_to_block.pop(key(2), 2),
        lambda pool: pool.free_block_queue.popleft(),
    ],
)
def test_a_small_pool_that_is_not_as_it_should_be_is_noticed(break_it):
    state = PoolState((1, 1, 0), (False, False, True), backwards=False)
    pool = real_pool(Names, state)
    require(pool, state.counts, state.named, "nothing")
    break_it(pool)
    with pytest.raises(AssertionError, match="not as it should be"):
        require(pool, state.counts, state.named, "something")
