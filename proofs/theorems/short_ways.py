"""The pool's short ways (S1.short): for one block, or for many looked at together, they do what the long ways do.

Of the long ones the invariants are proved (`invariants_pool`, `invariants_touch`). Here each short one is tried in
every state of small pools, beside the long one, and both must come to the same: references, identities, the order of
the queue, and how many blocks have several holders.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from types import SimpleNamespace
from typing import Any, TypeAlias

from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement, Wrong, first_wrong
from ..invariants.small_pools import PoolState, batches, real_pool, states
from ..symbolic_bytes import globals_of
from ..theorem import Subject, UnavailableError
from ..wrong_code import with_line

_BLOCKS, _LONGEST = 3, 2
_FOLDED = 0
"""A group whose runs the core of today folds; blocks with an identity are of another one."""
Pair: TypeAlias = tuple[str, Callable[[Any], Any], Callable[[Any], Any]]
"""What is done, the short way and the long one; a short one that gives False must have changed nothing."""


def _pool(kinds: SimpleNamespace, state: PoolState, alone: bool) -> Any:
    """A real pool in this state; `alone`: each free block in a batch of its own."""
    pool = real_pool(kinds, state)
    if alone:
        for block in pool.free_block_queue.popleft_n(pool.free_block_queue.num_free_blocks)[::-1]:
            pool.free_block_queue.prepend_n([block])
    return pool


def _long(pool: Any, name: str, *given: Any) -> Any:
    """Do something the long way: as the first of the classes of which the pool is has it."""
    return [vars(kind)[name] for kind in type(pool).__mro__ if name in vars(kind)][-1](pool, *given)


def _shown(pool: Any) -> Any:
    try:
        pool.check()
        wrong = ""
    except AssertionError as error:
        wrong = str(error)
    counted = pool.free_block_queue.num_free_blocks, pool._num_shared, len(pool.cached_block_hash_to_block)
    return wrong, pool.ref_counts(), pool.identities(), pool.free_ids(), counted


def _touching(ids: Sequence[int], kind: type[Any]) -> Pair:
    return (
        f"touch {list(ids)}, handed over as a {kind.__name__}",
        lambda pool: pool._touch_many(kind(pool.blocks[i] for i in ids)),
        lambda pool: _long(pool, "touch", [pool.blocks[i] for i in ids]),
    )


def _giving_back(i: int) -> Pair:
    return (
        f"give back {i}",
        lambda pool: pool.release_one(pool.blocks[i]),
        lambda pool: pool.release([pool.blocks[i]], prepend=pool.blocks[i].content is None),
    )


def _letting_go(ids: Sequence[int], front: bool) -> Pair:
    return (
        f"let go {list(ids)}, to the {'front' if front else 'back'}",
        lambda pool: pool._let_go([pool.blocks[i] for i in ids], front),
        lambda pool: pool._give_back([pool.blocks[i] for i in ids], front),
    )


def _registering(i: int, group: int) -> Pair:
    """In a group in which another block may have this very content (`small_pools.key`)."""
    request = SimpleNamespace(request_id="request", block_hashes=[bytes([1] * 32), bytes(32)])
    return (
        f"register {i} in group {group}",
        lambda pool: pool.cache_full_block(request, [None, pool.blocks[i]], 1, 1, group),
        lambda pool: _long(pool, "cache_full_blocks", request, [pool.null_block, pool.blocks[i]], 1, 2, 1, group, None),
    )


def _registering_row(ids: Sequence[int], before: Sequence[int], together: bool) -> Pair:
    """By the rule of today, where runs are folded: different blocks, whose hashes others may have had before."""
    request = SimpleNamespace(request_id="request", block_hashes=[bytes([i] * 32) for i in range(1, _BLOCKS + 1)])

    def long(pool: Any, row: Sequence[int] = ids) -> Any:
        table = [pool.blocks[i] for i in row]
        _long(pool, "cache_full_blocks", request, table, 0, len(row), 1, _FOLDED, None)
        return [
            [block.block_id for block in pool.cached_block_hash_to_block.blocks_in(_FOLDED, one)]
            for one in request.block_hashes
        ]

    def short(pool: Any) -> Any:
        long(pool, before)
        table = [pool.blocks[i] for i in ids]
        if together:
            pool.cache_row(request, table, 0, len(ids), 1, _FOLDED)
        for i in range(0 if together else len(ids)):
            pool.cache_full_block(request, table, i, 1, _FOLDED)
        return long(pool, ())

    what = f"register the row {list(ids)} behind {list(before)}, {'together' if together else 'one by one'}"
    return what, short, lambda pool: (long(pool, before), long(pool))[1]


def _giving_back_by_names(ids: Sequence[int], trusting: bool) -> Pair:
    def long(pool: Any) -> None:
        for named in (True, False):
            pool._give_back([pool.blocks[i] for i in ids if (pool.blocks[i].content is not None) == named], not named)

    def short(pool: Any) -> None:
        pool._trusting = trusting
        pool.release_by_names([pool.blocks[i] for i in ids])

    return f"give back {list(ids)} by their names{'' if trusting else ', after somebody else'}", short, long


def _asking(ids: Sequence[int]) -> Pair:
    return (
        f"ask whether {list(ids)} are held",
        lambda pool: str(pool._are_held([pool.blocks[i] for i in ids])),
        lambda pool: str(all(ids.count(i) <= pool.blocks[i].ref_cnt for i in ids)),
    )


def _ways_of_today(state: PoolState) -> Iterator[Pair]:
    """What the pool of today has besides."""
    own = range(1, len(state.counts))
    for size in own:
        for ids in permutations(own, size):
            if all(state.counts[i] for i in ids):
                yield from (_giving_back_by_names(ids, trusting) for trusting in (True, False))
            if not any(state.named[i] for i in ids):
                cut = range(max(1, size - _LONGEST), size + 1)
                yield from (_registering_row(ids[:n], ids[n:], together) for n in cut for together in (True, False))
    yield from (_asking(ids) for ids in batches(len(own), _LONGEST))


def _ways(state: PoolState, hit_kind: Any) -> Iterator[Pair]:
    own = range(1, len(state.counts))
    yield from (_touching(ids, list) for ids in batches(len(own), _LONGEST) if ids)
    yield from (_touching(ids, hit_kind) for size in own for ids in permutations(own, size))
    if 0 in state.counts[1:]:
        yield (
            "take one",
            lambda pool: pool.get_new_block().block_id,
            lambda pool: _long(pool, "get_new_blocks", 1)[0].block_id,
        )
    held = [i for i in own if state.counts[i]]
    for size in range(1, len(held) + 1):
        yield from (_letting_go(ids, front) for ids in permutations(held, size) for front in (False, True))
    for i in own:
        if state.counts[i]:
            yield _giving_back(i)
        if not state.named[i]:
            yield from (_registering(i, group) for group in own)


def _folding(kind: Any, *given: Any) -> Any:
    pool = kind(*given)
    pool.fold([_FOLDED])
    return pool


def tried(kinds: SimpleNamespace, blocks: int = _BLOCKS) -> Trial:
    """Every way in every state."""
    return first_wrong(_cases(kinds, blocks))


def _cases(kinds: SimpleNamespace, blocks: int) -> Iterator[tuple[Any, Callable[[], str]]]:
    hit_kind = globals_of(kinds.pool_kind.touch)["Hit"]
    if today := hasattr(kinds.pool_kind, "release_by_names"):
        kinds = SimpleNamespace(**{**vars(kinds), "pool_kind": partial(_folding, kinds.pool_kind)})
    for state in states(blocks):
        if state.counts[0]:
            continue
        for alone in (False, True):
            made = partial(_pool, kinds, state, alone)
            before = _shown(made())
            for what, *ways in (*_ways(state, hit_kind), *(_ways_of_today(state) if today else ())):
                yield (state, alone, what), partial(_wrong, made, before, *ways)


def _wrong(made: Callable[[], Any], before: Any, short: Callable[[Any], Any], long: Callable[[Any], Any]) -> str:
    one, other = made(), made()
    first, second = short(one), long(other)
    expected = before if first is False else _shown(other)
    if not isinstance(first, bool) and first != second:
        return f"gives {first}, not {second}"
    return "" if _shown(one) == expected else f"{_shown(one)}, not {expected}"


_WRONG: tuple[Wrong, ...] = (
    ("blocks that are touched together stay free", "_touch_many", "block.state = 1", "pass"),
    ("blocks with two holders are not counted", "_touch_many", "self._num_shared += states.count(1)", "pass"),
    (
        "of blocks held alike none is counted",
        "_touch_many",
        "self._num_shared += len(blocks) if more == 2 else 0",
        "pass",
    ),
    ("null is held", "_touch_many", "if min(held) <= 0:", "if False:"),
    ("the queue is not told of one batch", "_touch_many", "queue.lose(kind, n)", "pass"),
    ("the counter stands still", "get_new_block", "queue.num_free_blocks -= 1", "pass"),
    ("a new block keeps its identity", "get_new_block", "self.cached_block_hash_to_block.forget(block)", "pass"),
    (
        "what somebody else holds is given back",
        "release_one",
        "if block.state != 1 and (self._num_shared or not self._trusting):",
        "if False:",
    ),
    ("what others hold stands behind the rest", "_let_go", "if 1 in left:", "if False:"),
    ("what two held counts as shared", "_let_go", "self._num_shared -= left.count(2)", "pass"),
    ("what others hold keeps its references", "_let_go", "block.state = state - 1", "pass"),
    (
        "a second block of a content is not found",
        "cache_full_block",
        "self.cached_block_hash_to_block.add(group_id, content, block)",
        "pass",
    ),
)


_WRONG_TODAY: tuple[Wrong, ...] = (
    ("of a hit that is held nothing is counted", "_touch_many", "self._num_shared += n if state == 1 else 0", "pass"),
    ("the queue is not told of a hit", "_touch_many", "queue.lose(state, n)", "pass"),
    ("of a hit that others hold in part nothing is counted", "_touch_each", "self._num_shared += 1", "pass"),
    ("of a hit that waits in two batches one counts less", "_touch_each", "batch, n = state, 1", "batch, n = state, 0"),
    ("what has no name goes to the back", "release_by_names", "queue.prepend_n(others)", "queue.append_n(others)"),
    ("of a table whose middle others hold all stays", "_let_go_shared", "if state == 1:", "if False:"),
    ("what others hold of a table keeps its references", "_let_go_shared", "block.state = less", "pass"),
    (
        "a block counts once",
        "_are_held",
        "counts[block.block_id] = counts.get(block.block_id, 0) + 1",
        "counts[block.block_id] = 1",
    ),
    ("a run goes on without its block", "cache_full_block", "run.blocks.append(block)", "pass"),
    (
        "what is refused keeps its names",
        "cache_row",
        "if len(contents) < end - first or not known.register_new(group_id, contents, blocks, row):",
        "if len(contents) < end - first and not known.register_new(group_id, contents, blocks, row):",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ShortWays(TriedStatement):
    """That the short ways of a pool do what its long ways do."""

    wrong = _WRONG

    def parts(self, subject: Subject) -> SimpleNamespace:
        """The classes of the pool, its queue and its blocks."""
        kinds = SimpleNamespace(**{role: subject.find(role) for role in ("pool_kind", "queue_kind", "block_kind")})
        if not hasattr(kinds.pool_kind, "_touch_many"):
            raise UnavailableError("the pool has no short ways")
        return kinds

    def tried(self, parts: SimpleNamespace, watched: Watched) -> Trial:
        """Each in every state of small pools; those of two blocks come to what they are about."""
        with watched:
            tried(parts, 2)
        return tried(parts)

    def refutations(self, parts: SimpleNamespace) -> Iterator[tuple[str, bool]]:
        """Those of the pool of today, too, if it is that."""
        more = _WRONG_TODAY if hasattr(parts.pool_kind, "release_by_names") else ()
        return ((what, self.is_refuted(parts, *change)) for what, *change in (*_WRONG, *more))

    def is_refuted(self, parts: SimpleNamespace, name: str, line: str, instead: str) -> bool:
        """Of a method of the pool, or of the pool under it to which it leaves the rest."""
        with with_line(parts.pool_kind.__mro__, name, line, instead):
            return bool(tried(parts).problem)


SHORT = ShortWays(
    id="S1.short",
    sentence="Touching blocks all together, taking one, giving back one or what is held, and registering one do what "
    "touching, taking, giving back and registering do, or change nothing and say so. By the rule of today so do "
    "giving back by names, registering a row in folded runs, and asking whether blocks are held.",
    bounded=f"all states of pools of {_BLOCKS} blocks with up to 2 references each, named or not, free ones in one "
    f"batch or each in its own; batches of up to {_LONGEST} entries, and hits of up to {_BLOCKS} different blocks. "
    "Of larger pools lockstep compares every operation",
    meaning="The ways on which most decode steps and long hits go keep what is proved of the others.",
)

THEOREMS = (SHORT,)
