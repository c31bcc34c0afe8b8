"""Real pools of a few blocks in every state that satisfies the invariants, to run operations on."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..claims import FailedError

MOST = 2
"""References of a block, at most."""


class PoolState(NamedTuple):
    """What is known of each block, the null block first."""

    counts: tuple[int, ...]
    named: tuple[bool, ...]
    backwards: bool
    """Whether the free queue runs from the highest id to the lowest."""


def states(blocks: int) -> Iterator[PoolState]:
    """Every state of a pool with so many blocks besides the null block, whose count may be anything."""
    for null, *counts in product((0, 1), *[range(MOST + 1)] * blocks):
        for named in product((False, True), repeat=blocks):
            for backwards in (False, True)[: 1 + (counts.count(0) > 1)]:
                yield PoolState((null, *counts), (False, *named), backwards)


def key(number: int) -> bytes:
    """An identity."""
    return number.to_bytes(36, "big")


def real_pool(f: Any, state: PoolState) -> Any:
    """A core's own pool in this state, caching on."""
    pool = f.pool_kind(len(state.counts), True, 1)
    for block in pool.blocks:
        block.ref_cnt = state.counts[block.block_id]
        if state.named[block.block_id]:
            block.block_hash = key(block.block_id)
            pool.cached_block_hash_to_block.insert(key(block.block_id), block)
    free = [block for block in pool.blocks[1:] if not block.ref_cnt]
    pool._queue = pool.free_block_queue = f.queue_kind(free[::-1] if state.backwards else free)
    pool._num_shared = sum(count > 1 for count in state.counts[1:])
    return pool


def require(pool: Any, counts: Sequence[int], named: Sequence[bool], what: str) -> None:
    """FailedError, with the state and what was done, unless the pool has these references and identities, exactly
    what nobody holds is free, and the map has exactly what is carried."""
    own, queue = pool.blocks[1:], pool.free_block_queue
    free = queue.get_all_free_blocks()
    ids = [block.block_id for block in free]
    registered = pool.cached_block_hash_to_block
    carried = [block for block in pool.blocks if block.block_hash is not None]
    problems = {
        "references": [block.ref_cnt for block in own] == list(counts[1:]),
        "exactly what nobody holds is free": sorted(ids) == [block.block_id for block in own if not block.ref_cnt],
        "the count of free blocks": queue.num_free_blocks == len(free),
        "the null block is not free and has no identity": 0 not in ids and pool.blocks[0].block_hash is None,
        "identities": [block.block_hash is not None for block in own] == list(named[1:]),
        "the count of blocks with several holders": pool._num_shared == sum(count > 1 for count in counts[1:]),
        "the map has what is carried": len(registered) == len({block.block_hash for block in carried})
        and all(registered.get_one_block(block.block_hash) is not None for block in carried),
    }
    wrong = [name for name, right in problems.items() if not right]
    if wrong:
        raise FailedError(
            f"{what}: not as it should be: {', '.join(wrong)}; references are now "
            f"{[block.ref_cnt for block in own]}, free {ids}, named {carried}"
        )


_TRIED: "WeakKeyDictionary[Any, Exception | None]" = WeakKeyDictionary()


def everywhere(f: Any, attempt: Callable[[PoolState], None], blocks: Sequence[int] = (1, 2)) -> bool:
    """Try something in every state of the small pools: once for each `f`, since it is the same for all of its values.

    True, or the error of the first that fails.
    """
    if f not in _TRIED:
        _TRIED[f] = None
        try:
            for count in blocks:
                for state in states(count):
                    attempt(state)
        except Exception as error:
            _TRIED[f] = error
    failed = _TRIED[f]
    if failed is not None:
        raise failed
    return True


def batches(blocks: int, most: int = 2) -> Iterator[tuple[int, ...]]:
    """Ids, the null block's too, in every order and with repetitions."""
    for length in range(most + 1):
        yield from product(range(blocks + 1), repeat=length)
