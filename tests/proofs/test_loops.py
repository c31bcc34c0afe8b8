"""Cutting a function at its loop: the parts, put together again, are the function."""

import pytest
from blockproof.proofs.linked_queue import FreeKVCacheBlockQueue, KVCacheBlock
from blockproof.proofs.loops import Cut, ReturnedError, cut, reach
from blockproof.proofs.solver import ProofError
from blockproof.proofs.theorems import wrong_loops


def queue(n):
    blocks = [KVCacheBlock(number) for number in range(n)]
    return FreeKVCacheBlockQueue(blocks)


def shown(made):
    return [block.block_id for block in made.get_all_free_blocks()], made.num_free_blocks


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("k", range(4))
def test_taking_blocks_in_parts_is_taking_blocks(n, k):
    if k > n:
        with pytest.raises(AssertionError):
            cut(FreeKVCacheBlockQueue.popleft_n).whole(queue(n), k)
        return
    whole, parts = queue(n), queue(n)
    taken = [block.block_id for block in whole.popleft_n(k)]
    assert [block.block_id for block in cut(FreeKVCacheBlockQueue.popleft_n).whole(parts, k)] == taken
    assert shown(whole) == shown(parts)


@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("m", range(4))
@pytest.mark.parametrize("method", ["append_n", "prepend_n"])
def test_a_loop_in_another_method_is_reached_and_put_together_again(n, m, method):
    whole, parts = queue(n), queue(n)
    batches = [[KVCacheBlock(10 + number) for number in range(m)] for _ in range(2)]
    getattr(whole, method)(batches[0])
    made, state = reach(getattr(FreeKVCacheBlockQueue, method), parts, batches[1])
    assert type(parts) is FreeKVCacheBlockQueue
    assert state["iterated"] is batches[1]
    for block in state.pop("iterated"):
        state = made.round(state, block)
    made.after(state)
    assert shown(whole) == shown(parts)


def test_what_a_round_leaves_to_the_next_is_found():
    assert cut(FreeKVCacheBlockQueue.popleft_n).carried == ("block",)
    assert cut(wrong_loops.append_right).carried == ("last",)
    assert cut(_sum).carried == ("total",)
    assert cut(_sum).whole([1, 2, 3]) == 6


def test_a_return_before_the_loop_is_told():
    assert isinstance(cut(_early), Cut)
    with pytest.raises(ReturnedError) as caught:
        cut(_early).before([])
    assert caught.value.value == "nothing"
    assert cut(_early).whole([]) == "nothing"
    assert cut(_early).whole([3]) == 3


@pytest.mark.parametrize("number", range(5))
def test_what_cannot_be_cut_is_refused(number):
    with pytest.raises(ProofError, match="cut"):
        cut(_UNCUTTABLE[number]).whole([])


def _sum(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


def _early(numbers):
    if not numbers:
        return "nothing"
    for number in numbers:
        last = number
    return last


def _two_loops(numbers):
    for number in numbers:
        print(number)
    for number in numbers:
        print(number)


def _left_early(numbers):
    for number in numbers:
        if number:
            break


def _inside(numbers):
    if numbers is not None:
        for number in numbers:
            print(number)


def _branching(numbers):
    last = 0
    for number in numbers:
        if number:
            last = number
    return last


def _no_loop(numbers):
    return numbers


_UNCUTTABLE = (_two_loops, _left_early, _inside, _branching, _no_loop)
