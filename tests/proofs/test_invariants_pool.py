"""The pool at any moment: functions cut and put together, contracts and the real objects, facts that can be true."""

import random
from functools import partial
from itertools import permutations, product
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import pytest
import z3
from blockproof.impl import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock
from blockproof.impl.hashing.block_hash import BlockHash, BlockHashWithGroupId
from blockproof.impl.pool.hash_map import BlockHashToBlockMap
from blockproof.impl.today.asleep import SleepyQueue
from blockproof.impl.today.block_pool import TodayPool
from blockproof.proofs import roles
from blockproof.proofs.heap_theorem import HeapRun
from blockproof.proofs.invariants.induction import Different, States
from blockproof.proofs.invariants.rounds import parts, without_filters
from blockproof.proofs.invariants.small_pools import PoolState, batches, key, real_pool, require, states
from blockproof.proofs.invariants.start import Start
from blockproof.proofs.loops import ReturnedError
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic import running, symbol
from blockproof.proofs.theorem import Functions
from blockproof.proofs.theorems import invariants_names


class Names:
    """The roles that a small pool asks for."""

    block_kind, queue_kind, pool_kind = KVCacheBlock, FreeKVCacheBlockQueue, BlockPool


class NamesOfToday:
    """The same by the rule of today."""

    block_kind, queue_kind, pool_kind = KVCacheBlock, SleepyQueue, TodayPool


def inherited(pool, name, *given):
    """What the pool under that of today does."""
    return getattr(BlockPool, name)(pool, *given)


def shown(pool):
    return (
        [(block.block_id, block.ref_cnt, block.block_hash) for block in pool.blocks],
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        len(pool.cached_block_hash_to_block),
        pool._num_shared,
    )


def outcome(call, *arguments):
    try:
        return str(call(*arguments))
    except (ValueError, AssertionError) as error:
        return type(error).__name__


GIVEN = {
    "touch": lambda pool, ids: ([pool.blocks[i] for i in ids],),
    "_give_back": lambda pool, ids: ([pool.blocks[i] for i in ids], len(ids) % 2 == 0),
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


def test_giving_a_table_back_is_the_same_with_its_comprehensions_taken_out():
    again = without_filters(cast(FunctionType, BlockPool.release))
    for state in random.Random(7).sample(list(states(3)), 60):
        for ids in random.Random(8).sample(list(batches(3, 3)), 12):
            if 0 in ids or len(set(ids)) < len(ids):
                continue
            for trusting, front in product((False, True), repeat=2):
                pools = [real_pool(Names, state) for _ in range(2)]
                ended = []
                for pool, call in zip(pools, (BlockPool.release, again), strict=True):
                    pool._trusting = trusting and all(state.counts[i] for i in ids if i)
                    ended.append(outcome(call, pool, [pool.blocks[i] for i in ids], front))
                assert ended[0] == ended[1]
                assert shown(pools[0]) == shown(pools[1])


@pytest.mark.parametrize("method", ["free_blocks", "get_new_blocks", "evict_blocks", "reset_prefix_cache"])
def test_what_the_pool_of_today_puts_around_a_method_is_the_same_without_its_comprehensions(method):
    around = vars(TodayPool)[method]
    again, given = without_filters(around), GIVEN["touch" if method == "free_blocks" else method]
    for state in random.Random(7).sample(list(states(3)), 60):
        for ids in random.Random(8).sample(list(batches(3, 3)), 12):
            whole, other = real_pool(NamesOfToday, state), real_pool(NamesOfToday, state)
            other._inherited = partial(inherited, other)
            assert outcome(again, other, *given(other, ids)) == outcome(around, whole, *given(whole, ids))
            assert shown(whole) == shown(other)


@pytest.mark.parametrize("mask", [None, [True, False]])
def test_registering_over_names_of_parts_put_together_again_is_that(mask):
    around = vars(TodayPool)["cache_full_blocks"]
    cut = parts(around)
    for first, covers in product(range(2), range(3)):
        pools = [real_pool(NamesOfToday, PoolState((1, 1, 1, 0), (False,) * 4, backwards=False)) for _ in range(2)]
        ended = []
        for pool, call in zip(pools, (around, cut.whole), strict=True):
            pool._inherited = partial(inherited, pool)
            pool.add_name(pool.blocks[1], 0, BlockHash(key(99)), covers)
            request = invariants_names.FakeRequest([key(100), key(101)])
            table = [pool.blocks[1], pool.blocks[2]]
            ended.append(outcome(call, pool, request, table, first, 2, 1, 0, mask and mask[first:]))
        assert ended[0] == ended[1]
        assert shown(pools[0]) == shown(pools[1])


@pytest.mark.parametrize("wanted", [None, *product((False, True), repeat=3)])
def test_the_mask_says_what_is_taken_from_it(wanted):
    pool = real_pool(Names, PoolState((1, 1, 1, 0), (False,) * 4, backwards=False))
    for ids in product(range(3), repeat=3):
        blocks = [pool.blocks[i] for i in ids]
        right = [bool(i) and (wanted is None or wanted[place]) for place, i in enumerate(ids)]
        found = pool._mask(blocks, wanted)
        assert found == (None if wanted is None and all(right) else right)


def test_registering_put_together_again_is_registering():
    cut = parts(BlockPool.cache_full_blocks)
    for first in range(3):
        pools = [real_pool(Names, PoolState((1, 1, 1, 0), (False,) * 4, backwards=False)) for _ in range(2)]
        calls: list[Any] = [BlockPool.cache_full_blocks, cut.whole]
        for pool, call in zip(pools, calls, strict=True):
            request = invariants_names.FakeRequest([key(100), key(101)])
            call(pool, request, [pool.blocks[1], pool.blocks[2]], first, 2, 1, 0, None)
        assert shown(pools[0]) == shown(pools[1])


def _total(numbers, twice=False):
    total = 0
    for number in numbers:
        total += number
    if twice:
        for number in numbers:
            total += number
    return total


def test_sums_and_a_loop_that_is_all_of_an_if_are_cut_out():
    cut = parts(_total)
    assert cut.loops == 2
    for twice in (False, True):
        for numbers in ((), (3,), (1, 2, 4)):
            assert cut.whole(numbers, twice) == _total(numbers, twice)


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
        print(numbers)
        for number in numbers:
            print(number)


def _sum_that_is_read(numbers):
    total = 0
    for number in numbers:
        total += number
        print(total)


def _difference(numbers):
    total = 0
    for number in numbers:
        total -= number
    return total


@pytest.mark.parametrize("function", [_last, _maybe, _left_early, _waiting, _inside, _sum_that_is_read, _difference])
def test_a_round_that_leaves_something_in_a_variable_cannot_be_cut_out(function):
    with pytest.raises(ProofError, match="cut"):
        parts(function)


def test_a_function_that_ends_before_its_loop_says_so():
    with pytest.raises(ReturnedError):
        parts(BlockPool.cache_full_blocks).begin(None, None, [], 2, 2, 1, 0)


def named(number):
    """An identity, as the map has it."""
    return BlockHashWithGroupId(key(number) + bytes(4))


def carrying(held):
    """A map with these blocks registered, each under a name and group; and those blocks."""
    made, blocks = BlockHashToBlockMap(), {}
    for name, number in held:
        blocks[number] = block = KVCacheBlock(number)
        made.register(0, [BlockHash(key(name))], [block], None)
    return made, blocks


def test_the_map_of_identities_gives_up_what_is_assumed_of_it():
    for held in permutations(product(range(2), range(3)), 3):
        if len({number for _, number in held}) < 3:
            continue
        for count in range(4):
            for number in range(3):
                made, blocks = carrying(held[:count])
                gone = blocks.get(number) or KVCacheBlock(number)
                assert made.forget(gone) == (number in blocks)
                assert (gone.content, gone.run) == (None, None)
                left = [(name, other) for name, other in held[:count] if other != number]
                for name in range(2):
                    found = made.blocks_of(named(name))
                    assert [block.block_id for block in found] == [other for one, other in left if one == name]
                    assert made.get_one_block(named(name)) is (found[0] if found else None)
                assert all(blocks[other].content == key(name) for name, other in left)
                made.check([blocks.get(other) or KVCacheBlock(other) for other in range(3)])


def test_the_map_of_identities_registers_what_is_assumed_of_it():
    for known in (0, 1, 2):
        for names in product(range(3), repeat=3):
            for row in (None, (0, None)):
                made = BlockHashToBlockMap()
                blocks = [KVCacheBlock(number) for number in range(known + 3)]
                made.register(0, [BlockHash(key(name)) for name in range(known)], blocks[:known], None)
                made.register(0, [BlockHash(key(name)) for name in names], blocks[known:], row)
                for name in range(3):
                    right = [name] if name < known else []
                    right += [known + place for place, other in enumerate(names) if other == name]
                    assert [block.block_id for block in made.blocks_of(named(name))] == right
                assert [block.content for block in blocks[known:]] == [key(name) for name in names]
                assert sorted(made.all_blocks(), key=lambda block: block.block_id) == blocks
                made.check(blocks)


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


@pytest.mark.slow
def test_what_is_assumed_of_all_states_together_holds_of_every_small_batch():
    """No batch of real blocks is left out by it: one state, if there is one, is that of each."""
    functions = Functions(roles.impl().find, {})
    seen = []

    def ask():
        start = Start(functions, SimpleNamespace(size=symbol("size")))
        batch = start.batch(symbol("m"))
        states_of, different = States(batch, lambda block: block).any_set(), Different(batch)
        length, number = different.symbolic_len(), states_of.symbolic_len()
        for place in range(3):
            x = batch.at(z3.IntVal(place))
            batch.place(x)
            running().assume(Different.once(batch, x))
        seen.append((start, batch, length.term, number.term))
        return True

    (path,) = list(HeapRun("states", [symbol("size") == 3, symbol("m") >= 0], 0, 5.0).paths(ask))
    assert path.error is None
    start, batch, length, number = seen[0]
    moment, count = start.moment, start.fields.count
    for ids in (ids for most in range(4) for ids in product(range(3), repeat=most)):
        for counts in product(range(3), repeat=2):
            for waits in product(range(2), repeat=2):
                state = {
                    0: "null",
                    **{x: ("free", waits[x - 1]) if not counts[x - 1] else counts[x - 1] for x in (1, 2)},
                }
                facts = [start.made == 3, z3.Int("m") == len(ids), z3.Int("shared") == counts.count(2)]
                facts += [count(z3.IntVal(x)) == counts[x - 1] for x in (1, 2)]
                facts += [moment.batch_of(z3.IntVal(x)) == waits[x - 1] for x in (1, 2)]
                facts += [batch._at(z3.IntVal(place)) == x for place, x in enumerate(ids)]
                facts += [length == len(set(ids)), number == len({state[x] for x in ids})]
                solver = z3.Solver()
                solver.add(*path.hypotheses, *facts)
                assert solver.check() == z3.sat, (ids, state)
