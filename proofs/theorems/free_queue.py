"""The free queue, whatever its length (T25): the core's own methods on a symbolic list."""

from collections.abc import Callable, Sequence
from typing import Any

from ..batch_rows import QueueTheorem
from ..claims import refuses
from ..free_list import queue_scene
from ..theorem import NegativeControl, on_releases
from . import wrong_batches

_N = {"n": "blocks in the queue"}
_COUNT = {**_N, "k": "blocks asked for"}
_BATCH = {**_N, "m": "blocks in the batch"}
_UP_TO_3 = "batches of up to 3 blocks; {} is the same for any length, by induction over the rounds of the loop"


def batch(scene: Any, m: Any, most: int = 3) -> list[Any]:
    """`m` different blocks that are not in the queue."""
    return [scene.block(-1 - number) for number in range(most) if number < m]


def _popleft(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    block = f.popleft(scene.queue)
    return [scene.order.shows(0, block), *scene.reads(scene.order.dropped(1))]


def wrong_popleft(leave_out: str) -> Callable[[Any], Any]:
    """Taking the front block, with one line left out."""

    def popleft(queue: Any) -> Any:
        block = queue.fake_free_list_head.next_free_block
        if leave_out != "forward":
            queue.fake_free_list_head.next_free_block = block.next_free_block
        if leave_out != "backward":
            block.next_free_block.prev_free_block = queue.fake_free_list_head
        if leave_out != "clear":
            block.prev_free_block = block.next_free_block = None
        if leave_out != "count":
            queue.num_free_blocks -= 1
        return block

    return popleft


_LINES = {
    "forward": "the list is not closed forward",
    "backward": "the list is not closed backward",
    "clear": "a block that left still points at its neighbours",
    "count": "the counter stands still",
}

POPLEFT = QueueTheorem(
    id="T25.popleft",
    sentence="`popleft` takes the front block, and leaves the rest of the queue in order.",
    variables=_N,
    assume=lambda v: [v.n >= 1],
    claim=_popleft,
    controls=tuple(NegativeControl(wrong, {"popleft": wrong_popleft(line)}) for line, wrong in _LINES.items()),
    meaning="The block that was free for the longest time is the next to be reused.",
    batches=wrong_batches.POPLEFT,
)


def _popleft_empty(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    return [refuses(ValueError, lambda: f.popleft(scene.queue)), *scene.unchanged()]


POPLEFT_EMPTY = QueueTheorem(
    id="T25.popleft.empty",
    sentence="`popleft` on an empty queue raises ValueError and changes nothing.",
    variables=_N,
    assume=lambda v: [v.n == 0],
    claim=_popleft_empty,
    controls=(
        NegativeControl("the tail is handed out", {"popleft": wrong_popleft("")}, raises="AttributeError"),
        NegativeControl("the queue need not be empty", assume=lambda v: [v.n >= 0]),
    ),
    batches=wrong_batches.POPLEFT_EMPTY,
)


def _popleft_n(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    taken = f.popleft_n(scene.queue, v.k)
    shown = [scene.order.shows(place, block) for place, block in enumerate(taken)]
    return [len(taken) == v.k, *shown, *scene.reads(scene.order.dropped(len(taken)))]


def _wrong_popleft_n(wrong: str) -> Callable[[Any, Any], Any]:
    def popleft_n(queue: Any, n: Any) -> Any:
        taken: list[Any] = []
        while len(taken) < n:
            taken.append(wrong_popleft("clear" if wrong == "clear" else "")(queue))
        if wrong == "early" and taken:
            queue.num_free_blocks -= 1
        return taken[::-1] if wrong == "reversed" else taken

    return popleft_n


POPLEFT_N = QueueTheorem(
    id="T25.popleft_n",
    sentence="`popleft_n(k)` takes the `k` front blocks, in order, and leaves the rest in order.",
    variables=_COUNT,
    assume=lambda v: [v.k >= 0, v.k <= 3, v.k <= v.n],
    claim=_popleft_n,
    unroll=3,
    controls=(
        NegativeControl("they come back to front", {"popleft_n": _wrong_popleft_n("reversed")}),
        NegativeControl("they still point at their neighbours", {"popleft_n": _wrong_popleft_n("clear")}),
        NegativeControl("one more is counted", {"popleft_n": _wrong_popleft_n("early")}),
    ),
    bounded=_UP_TO_3.format("T25.popleft_n.any"),
    batches=wrong_batches.POPLEFT_N,
)


def _popleft_n_refused(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    return [refuses(AssertionError, lambda: f.popleft_n(scene.queue, v.k)), *scene.unchanged()]


def _late_popleft_n(queue: Any, n: Any) -> None:
    before = queue.num_free_blocks
    queue.num_free_blocks -= n
    assert 0 <= n <= before


def _unsigned_popleft_n(queue: Any, n: Any) -> None:
    assert n <= queue.num_free_blocks


POPLEFT_N_REFUSED = QueueTheorem(
    id="T25.popleft_n.refused",
    sentence="`popleft_n` of more blocks than there are, or of a negative number, raises AssertionError and changes "
    "nothing.",
    variables=_COUNT,
    assume=lambda v: [v.n >= 0, (v.k > v.n) | (v.k < 0)],
    claim=_popleft_n_refused,
    controls=(
        NegativeControl("the counter is lowered before the check", {"popleft_n": _late_popleft_n}),
        NegativeControl("a negative number passes", {"popleft_n": _unsigned_popleft_n}),
    ),
    refuted_on=on_releases(
        "a negative number is accepted and raises the counter: the call that empties the queue is then "
        "handed the tail, block -1"
    ),
    meaning="A wrong sum of demands is noticed where it was made, and the counter never exceeds the blocks there are.",
    batches=wrong_batches.POPLEFT_N_REFUSED,
)


def _remove(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    block = scene.block(v.p)
    f.remove(scene.queue, block)
    return scene.reads(scene.order.without(block))


def _wrong_remove(leave_out: str) -> Callable[[Any, Any], None]:
    def remove(queue: Any, block: Any) -> None:
        if leave_out != "forward":
            block.prev_free_block.next_free_block = block.next_free_block
        if leave_out != "backward":
            block.next_free_block.prev_free_block = block.prev_free_block
        if leave_out != "clear":
            block.prev_free_block = block.next_free_block = None
        if leave_out != "count":
            queue.num_free_blocks -= 1

    return remove


REMOVE = QueueTheorem(
    id="T25.remove",
    sentence="`remove` takes a block out, wherever it stands; the others keep their order.",
    variables={**_N, "p": "place of the block"},
    assume=lambda v: [v.p >= 0, v.p < v.n],
    claim=_remove,
    controls=tuple(NegativeControl(wrong, {"remove": _wrong_remove(line)}) for line, wrong in _LINES.items()),
    meaning="A cache hit takes its block out of the middle in constant time, and costs no other block its place.",
    batches=wrong_batches.REMOVE,
)


def _remove_refused(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    block = scene.block(-1)
    return [refuses(RuntimeError, lambda: f.remove(scene.queue, block)), *scene.unchanged()]


def _careless_remove(queue: Any, block: Any) -> None:
    queue.num_free_blocks -= 1
    if block.prev_free_block is None:
        raise RuntimeError


REMOVE_REFUSED = QueueTheorem(
    id="T25.remove.refused",
    sentence="`remove` of a block that is not in the queue raises RuntimeError and changes nothing.",
    variables=_N,
    assume=lambda v: [v.n >= 0],
    claim=_remove_refused,
    controls=(NegativeControl("it is counted all the same", {"remove": _careless_remove}),),
    batches=wrong_batches.REMOVE_REFUSED,
)


def _append(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    block = scene.block(v.p)
    f.append(scene.queue, block)
    return scene.reads(scene.order.inserted(v.n, [block]))


def _wrong_insert(wrong: str, front: bool) -> Callable[[Any, Sequence[Any]], None]:
    """Putting a batch to an end, with one thing wrong."""

    def insert(queue: Any, blocks: Sequence[Any]) -> None:
        before, after = queue.fake_free_list_tail.prev_free_block, queue.fake_free_list_tail
        if front:
            before, after = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
        for block in blocks[::-1] if wrong == "reversed" else blocks:
            before.next_free_block = block
            if wrong != "inner":
                block.prev_free_block = before
            before = block
        if wrong != "forward":
            before.next_free_block = after
        if wrong != "backward":
            after.prev_free_block = before
        queue.num_free_blocks += 1 if wrong == "count" else len(blocks)

    return insert


def _wrong_append(wrong: str) -> Callable[[Any, Any], None]:
    return lambda queue, block: _wrong_insert(wrong, front=wrong == "front")(queue, [block])


_INSERT = {
    "forward": "the last one does not point on",
    "backward": "the end does not point back",
    "inner": "they do not point back",
}

APPEND = QueueTheorem(
    id="T25.append",
    sentence="`append` puts a block that is not in the queue to its back.",
    variables={**_N, "p": "place of the block: below 0, since it is not in the queue"},
    assume=lambda v: [v.n >= 0, v.p == -1],
    claim=_append,
    controls=(
        *(NegativeControl(wrong, {"append": _wrong_append(line)}) for line, wrong in _INSERT.items()),
        NegativeControl("it goes to the front", {"append": _wrong_append("front")}),
        NegativeControl("the block may be in the queue", assume=lambda v: [v.n >= 0, v.p >= -1, v.p < v.n]),
    ),
    meaning="The queue trusts its caller: a block that is appended twice breaks it, so the pool must know (T26.free).",
    batches=wrong_batches.APPEND,
)


def _append_n(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    blocks = batch(scene, v.m)
    f.append_n(scene.queue, blocks)
    return scene.reads(scene.order.inserted(v.n, blocks))


def _twice(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    blocks = [block for block in batch(scene, v.m) for _ in range(2)]
    f.append_n(scene.queue, blocks)
    return scene.reads(scene.order.inserted(v.n, blocks[::2]))


APPEND_N = QueueTheorem(
    id="T25.append_n",
    sentence="`append_n` puts blocks to the back, in the given order; none are as good as no call.",
    variables=_BATCH,
    assume=lambda v: [v.n >= 0, v.m >= 0, v.m <= 3],
    claim=_append_n,
    controls=(
        *(NegativeControl(wrong, {"append_n": _wrong_insert(line, front=False)}) for line, wrong in _INSERT.items()),
        NegativeControl("the batch is turned round", {"append_n": _wrong_insert("reversed", front=False)}),
        NegativeControl("one block is counted", {"append_n": _wrong_insert("count", front=False)}),
        NegativeControl("a block may stand in the batch twice", claim=_twice),
    ),
    bounded=_UP_TO_3.format("T25.append_n.any"),
    batches=wrong_batches.APPEND_N,
)


def _prepend_n(f: Any, v: Any) -> Any:
    scene = queue_scene(f, v.n)
    blocks = batch(scene, v.m)
    f.prepend_n(scene.queue, blocks)
    return scene.reads(scene.order.inserted(0, blocks))


PREPEND_N = QueueTheorem(
    id="T25.prepend_n",
    sentence="`prepend_n` puts blocks to the front, which then reads as given; none are as good as no call.",
    variables=_BATCH,
    assume=APPEND_N.assume,
    claim=_prepend_n,
    controls=(
        *(NegativeControl(wrong, {"prepend_n": _wrong_insert(line, front=True)}) for line, wrong in _INSERT.items()),
        NegativeControl("the batch is turned round", {"prepend_n": _wrong_insert("reversed", front=True)}),
        NegativeControl("one block is counted", {"prepend_n": _wrong_insert("count", front=True)}),
        NegativeControl("it goes to the back", {"prepend_n": _wrong_insert("", front=False)}),
    ),
    bounded=_UP_TO_3.format("T25.prepend_n.any"),
    batches=wrong_batches.PREPEND_N,
)

THEOREMS = (
    POPLEFT,
    POPLEFT_EMPTY,
    POPLEFT_N,
    POPLEFT_N_REFUSED,
    REMOVE,
    REMOVE_REFUSED,
    APPEND,
    APPEND_N,
    PREPEND_N,
)
