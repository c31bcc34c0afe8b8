"""Who holds a block (T26): each operation of the pool keeps `count = number of entries` and `free <=> count = 0`."""

from collections.abc import Callable, Sequence
from typing import Any

from ..claims import every, implies, negation, refuses, some
from ..heap_theorem import HeapTheorem
from ..pool_scene import names_decide, pool_scene
from ..real_pool import NULL
from ..theorem import NegativeControl, on_releases

_N = {"n": "blocks in the queue"}
_PAIR = {
    **_N,
    "p1": "place of the first block; -1 for the null block, -2 for one that is held",
    "c1": "references to the first",
    "p2": "place of the second block, likewise; -3 for another one that is held",
    "c2": "references to the second",
}
_TWO = (
    "batches of two entries, equal or not; the null block stands for an entry less. Different blocks meet in the queue "
    "only, where any number of them is the matter of T25"
)
_THREE = f"batches of one block, another, and the first again, which may be the null block.{_TWO.partition('.')[2]}"


def _pair(v: Any) -> list[Any]:
    """Counts and places of two blocks agree."""
    return [
        v.n >= 0,
        *(v.p1 >= -2, v.p1 < v.n, _counted(v.p1, v.c1)),
        *(v.p2 >= -3, v.p2 < v.n, _counted(v.p2, v.c2)),
        some(v.p1 != v.p2, v.c1 == v.c2),
    ]


def _counted(p: Any, c: Any) -> Any:
    """Free blocks have no reference, held ones have some, and the null block any number."""
    return some(p == NULL, every(p >= 0, c == 0), every(p < NULL, c >= 1))


Entry = tuple[Any, Any]
"""Place of a block, and references to it."""


def _two(v: Any) -> list[Entry]:
    return [(v.p1, v.c1), (v.p2, v.c2)]


def _again(v: Any) -> list[Entry]:
    """One block, another, and the first again."""
    return [*_two(v), (v.p1, v.c1)]


def _case(**values: int) -> Callable[[Any], list[Any]]:
    """Two held blocks, unless it says otherwise: enough for a negative control to be found out."""
    given = {"p1": -2, "c1": 1, "p2": -3, "c2": 1, **values}
    return lambda v: [*_pair(v), *(getattr(v, name) == value for name, value in given.items())]


def _batch(scene: Any, entries: Sequence[Entry]) -> list[Any]:
    return [scene.holding(*entry) for entry in entries]


def _different(blocks: Sequence[Any]) -> dict[int, tuple[Any, int]]:
    """Each block once, in the order of last places, and how often it stands in the batch."""
    found: dict[int, tuple[Any, int]] = {}
    for block in blocks:
        _, times = found.pop(id(block), (block, 0))
        found[id(block)] = block, times + 1
    return found


def _touched(f: Any, v: Any) -> Any:
    scene = pool_scene(f, v.n)
    blocks = _batch(scene, _two(v))
    free = {id(block): p >= 0 for block, (p, _) in zip(blocks, _two(v), strict=True)}
    f.touch(scene.pool, blocks)
    order, changes = scene.order, []
    for block, times in _different(blocks).values():
        if block is not scene.pool.null_block:
            order = order.without(block) if free[id(block)] else order
            changes.append((block, times))
    return scene.accounts(order, changes)


def _wrong_touch(wrong: str) -> Any:
    def touch(pool: Any, blocks: Sequence[Any]) -> None:
        for block in blocks:
            if block.ref_cnt == 0 and wrong != "stays" and (block is not pool.null_block or wrong == "null"):
                pool.free_block_queue.remove(block)
            if wrong == "set" or (wrong == "once" and block is blocks[0]):
                block.ref_cnt = 1
            else:
                block.ref_cnt += 1

    return touch


TOUCH = HeapTheorem(
    id="T26.touch",
    sentence="`touch` adds one reference per entry, and takes what was free out of the queue, but for the null block.",
    variables=_PAIR,
    assume=lambda v: [*_pair(v), some(v.p2 < 0, v.p2 == v.p1)],
    claim=_touched,
    controls=(
        NegativeControl(
            "a block that was free stays in the queue", {"touch": _wrong_touch("stays")}, assume=_case(p1=0, c1=0)
        ),
        NegativeControl(
            "the null block is looked for in the queue",
            {"touch": _wrong_touch("null")},
            assume=_case(p1=NULL, c1=0),
            raises="RuntimeError",
        ),
        NegativeControl(
            "the first entry of a block counts for all", {"touch": _wrong_touch("once")}, assume=_case(p2=-2)
        ),
        NegativeControl("the count is set to 1", {"touch": _wrong_touch("set")}, assume=_case()),
    ),
    bounded=_TWO + ", and T25.remove of each of them",
    meaning="A block that a prefix hit has found cannot be handed out to another request.",
)


def _freed(entries: Callable[[Any], list[Entry]]) -> Callable[[Any, Any], Any]:
    def claim(f: Any, v: Any) -> Any:
        by_name = f.block_kind and names_decide(f.pool_kind)
        scene = pool_scene(f, v.n, by_name)
        blocks = _batch(scene, entries(v))
        counts = {id(block): c for block, (_, c) in zip(blocks, entries(v), strict=True)}
        f.free_blocks(scene.pool, blocks, v.front)
        last: list[Any] = []
        first: list[Any] = []
        changes = []
        for block, times in _different(blocks).values():
            if block is not scene.pool.null_block:
                changes.append((block, -times))
                if counts[id(block)] == times:
                    # By the rule of today a name decides.
                    named = by_name or hasattr(scene.pool, "release_by_names")
                    to_front = scene.nameless(block) if named else v.front
                    (first if to_front else last).append(block)
        return scene.accounts(scene.order.inserted(v.n, last).inserted(0, first), changes)

    return claim


def _enough(v: Any) -> Any:
    """Every block of the batch has as many references as entries in it."""
    first = every(v.c1 >= 2, some(v.p1 != v.p2, v.c1 >= 3))
    return every(some(v.p1 == NULL, first), some(v.p2 == NULL, v.c2 >= 1))


def _queue_up(pool: Any, blocks: list[Any], front: Any) -> None:
    if front:
        pool.free_block_queue.prepend_n(blocks)
    else:
        pool.free_block_queue.append_n(blocks)


def _wrong_free(wrong: str) -> Any:
    def free_blocks(pool: Any, blocks: Sequence[Any], prepend: Any = False) -> None:
        freed = []
        for block in blocks:
            block.ref_cnt -= 1
            if (block.ref_cnt == 0 or wrong == "all") and block is not pool.null_block:
                freed.append(block)
        if wrong == "reversed":
            freed.reverse()
        _queue_up(pool, freed, prepend and wrong != "back")

    return free_blocks


_FRONT = {"front": "whether they go to the front"}

FREE_DIFFERENT = HeapTheorem(
    id="T26.free.different",
    sentence="`free_blocks` takes one reference from each of different blocks; what nobody holds any more queues up.",
    variables={**_PAIR, **_FRONT},
    assume=lambda v: [*_pair(v), v.p1 < 0, v.p2 < 0, some(v.p1 != v.p2, v.p1 == NULL)],
    claim=_freed(_two),
    controls=(
        NegativeControl("what is still held queues up, too", {"free_blocks": _wrong_free("all")}, assume=_case(c1=2)),
        NegativeControl("the batch is turned round", {"free_blocks": _wrong_free("reversed")}, assume=_case()),
        NegativeControl("the front is forgotten", {"free_blocks": _wrong_free("back")}, assume=_case(n=1)),
    ),
    bounded=_TWO,
)


def _double_free(pool: Any, blocks: Sequence[Any], prepend: Any = False) -> None:
    for block in blocks:
        block.ref_cnt -= 1
    freed = [block for block in blocks if block.ref_cnt == 0 and block is not pool.null_block]
    _queue_up(pool, freed, prepend)


def _early_free(pool: Any, blocks: Sequence[Any], prepend: Any = False) -> None:
    freed = []
    for number, block in enumerate(blocks):
        block.ref_cnt -= 1
        later = sum(other is block for other in blocks[number + 1 :])
        if all(other is not block for other in blocks[:number]) and block.ref_cnt == later:
            freed.append(block)
    _queue_up(pool, freed, prepend)


FREE = HeapTheorem(
    id="T26.free",
    sentence="`free_blocks` takes one reference per entry; a block that stands in the batch twice queues up once.",
    variables={**_PAIR, **_FRONT},
    assume=lambda v: [*_pair(v), v.p1 < 0, v.p2 < NULL, _enough(v)],
    claim=_freed(_again),
    controls=(
        NegativeControl(
            "all counts are lowered before any is looked at", {"free_blocks": _double_free}, assume=_case(c1=2)
        ),
        NegativeControl("it queues up at its first place", {"free_blocks": _early_free}, assume=_case(c1=2)),
    ),
    bounded=_THREE,
    refuted_on={
        "vllm==0.23.0": "a block that stands in the batch twice is queued twice: the counter is then one too high, and "
        "the allocation that empties the queue is handed its sentinel, block -1, as if it were memory"
    },
    meaning="Two groups, or a connector and a table, may give up the same block in one call.",
)


def _free_refused(f: Any, v: Any) -> Any:
    scene = pool_scene(f, v.n)
    blocks = _batch(scene, _again(v))
    return [refuses(ValueError, lambda: f.free_blocks(scene.pool, blocks, v.front)), *scene.unchanged()]


def _halfway(pool: Any, blocks: Sequence[Any], prepend: Any = False) -> None:
    for block in blocks:
        if block is not pool.null_block:
            if block.ref_cnt <= 0:
                raise ValueError
            block.ref_cnt -= 1


FREE_REFUSED = HeapTheorem(
    id="T26.free.refused",
    sentence="Giving back more references than there are raises ValueError and changes nothing.",
    variables={**_PAIR, **_FRONT},
    assume=lambda v: [*_pair(v), negation(_enough(v))],
    claim=_free_refused,
    controls=(NegativeControl("what came before the culprit has been given back", {"free_blocks": _halfway}),),
    bounded=_THREE,
    refuted_on=on_releases(
        "the count becomes negative without a word: the next hit leaves the block in the free queue, "
        "and it is handed out while somebody reads it"
    ),
)


def _strange(f: Any, v: Any) -> Any:
    scene = pool_scene(f, v.n)
    blocks = [scene.holding(v.p1, v.c1), scene.stranger(v.id, v.count)]
    if v.free:
        return [refuses(ValueError, lambda: f.free_blocks(scene.pool, blocks)), *scene.unchanged()]
    return [refuses(ValueError, lambda: f.touch(scene.pool, blocks)), *scene.unchanged()]


STRANGE = HeapTheorem(
    id="T26.stranger",
    sentence="Touching or giving back a block of another pool raises ValueError and changes nothing.",
    variables={
        **_N,
        "p1": "place of the block before it in the batch, or -2 for one that is held",
        "c1": "references to that",
        "id": "id of the strange block",
        "count": "references to it",
        "free": "whether it is given back",
    },
    assume=lambda v: [
        v.n >= 0,
        v.p1 >= -2,
        v.p1 < v.n,
        v.p1 != NULL,
        v.c1 >= 0,
        (v.c1 == 0) == (v.p1 >= 0),
        v.count >= 0,
    ],
    claim=_strange,
    controls=(
        NegativeControl("it is touched like any other", {"touch": _wrong_touch("")}),
        NegativeControl("it is given back like any other", {"free_blocks": _wrong_free("")}),
    ),
    refuted_on=on_releases("it is accepted, and a strange block may get into the free queue"),
)


def _taken(f: Any, v: Any) -> Any:
    scene = pool_scene(f, v.n, v.caching)
    blocks = f.get_new_blocks(scene.pool, v.k)
    shown = [scene.order.shows(place, block) for place, block in enumerate(blocks)]
    changes = [(block, 1) for block in blocks]
    nameless = [implies(v.caching, scene.nameless(block)) for block in blocks]
    return [len(blocks) == v.k, *shown, *nameless, *scene.accounts(scene.order.dropped(len(blocks)), changes)]


def _wrong_take(wrong: str) -> Any:
    def get_new_blocks(pool: Any, k: Any) -> list[Any]:
        taken: list[Any] = []
        while len(taken) < k:
            taken.append(pool.free_block_queue.popleft())
            if pool.enable_caching and wrong != "identity":
                taken[-1].reset_hash()
            if wrong != "count" or len(taken) == 1:
                taken[-1].ref_cnt += 1
        return taken[::-1] if wrong == "reversed" else taken

    return get_new_blocks


_COUNT = {**_N, "k": "blocks asked for", "caching": "whether caching is on"}

TAKE = HeapTheorem(
    id="T26.take",
    sentence="`get_new_blocks` hands out the front of the queue, in order, with one reference each and no identity.",
    variables=_COUNT,
    assume=lambda v: [v.k >= 0, v.k <= 2, v.k <= v.n],
    claim=_taken,
    unroll=2,
    controls=(
        NegativeControl("only the first is counted", {"get_new_blocks": _wrong_take("count")}),
        NegativeControl("they keep their identity", {"get_new_blocks": _wrong_take("identity")}),
        NegativeControl("they come back to front", {"get_new_blocks": _wrong_take("reversed")}),
    ),
    bounded="up to 2 blocks: how many leave the queue is T25.popleft_n.any; the rest treats each of them alone",
)


def _take_refused(f: Any, v: Any) -> Any:
    scene = pool_scene(f, v.n, v.caching)
    return [refuses(ValueError, lambda: f.get_new_blocks(scene.pool, v.k)), *scene.unchanged()]


def _unsigned(pool: Any, k: Any) -> None:
    if k > pool.free_block_queue.num_free_blocks:
        raise ValueError


TAKE_REFUSED = HeapTheorem(
    id="T26.take.refused",
    sentence="Asking for more blocks than are free, or for a negative number, raises ValueError and changes nothing.",
    variables=_COUNT,
    assume=lambda v: [v.n >= 0, (v.k > v.n) | (v.k < 0)],
    claim=_take_refused,
    controls=(NegativeControl("a negative number passes", {"get_new_blocks": _unsigned}),),
    refuted_on=on_releases(
        "a negative number is accepted and raises the counter of free blocks; the allocation that "
        "empties the queue is then handed its sentinel, block -1, as if it were memory"
    ),
)

THEOREMS = (TOUCH, FREE_DIFFERENT, FREE, FREE_REFUSED, STRANGE, TAKE, TAKE_REFUSED)
