"""Batches of any length (T25): induction over the rounds of the loop in the core's own methods.

The loop is cut out of the method (`loops`), and three things are shown about its statements. Part 0: what comes before
the loop leaves a queue that is in order but for one gap, with the local variables where they should be. Part 1: from
any such state, a round leaves such a state with one block more, or less. Part 2: from any such state, what comes after
the loop closes the gap and sets the counter right. A counterexample to any of them is tried on the whole method.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..batch_rows import QueueTheorem
from ..free_list import SymbolicQueue
from ..loops import Cut, Locals, ReturnedError, Rounds, reach
from ..plain_queue import PlainQueue
from ..solver import ProofError
from ..symbolic import Condition, Number, SymbolicInt
from ..symbolic_builtins import Counted
from ..theorem import NegativeControl
from . import free_queue, wrong_loops


class Walk:
    """The local variables of a loop that walks along a queue, by what they are for."""

    def __init__(self, cut: Cut, state: Locals, scene: SymbolicQueue, argument: Any) -> None:
        if len(cut.carried) != 1:
            raise ProofError(f"one round hands {cut.carried} to the next, not one block: another invariant is needed")
        (self.cursor,) = cut.carried
        self.iterated = state.pop("iterated")
        self.state = state
        self._scene, self._argument = scene, argument
        blocks = scene.heap.blocks
        self.anchors = [name for name in state if name != self.cursor and any(state[name] is one for one in blocks)]
        """Variables that hold the block behind the gap."""
        self.lists = [name for name, value in state.items() if isinstance(value, list)]
        """Variables that hold the blocks taken so far."""

    def begins(self, gap: Number) -> list[Condition]:
        """True if each variable, and the queue, is what it should be when the loop begins."""
        order, state = self._scene.order, self.state
        known = {self.cursor, *self.anchors, *self.lists}
        rest = [value for name, value in state.items() if name not in known]
        return [
            *(order.shows(gap, state[name]) for name in self.anchors),
            all(not state[name] for name in self.lists),
            all(value is self._scene.queue or value is self._argument for value in rest),
            *self._scene.reads_but_for_gap(order, gap),
        ]

    def at(self, scene: SymbolicQueue, cursor: Any, behind: Any, taken: list[Any]) -> Locals:
        """The local variables in another state, in which the gap is elsewhere."""
        state = {name: scene.queue if value is self._scene.queue else value for name, value in self.state.items()}
        return state | dict.fromkeys(self.anchors, behind) | dict.fromkeys(self.lists, taken) | {self.cursor: cursor}

    def kept(self, before: Locals, after: Locals) -> bool:
        """True if a round changed no variables but the cursor and those that it sets before it reads them."""
        return all(after[name] is before[name] for name in (*self.anchors, *self.lists)) and all(
            after[name] is value for name, value in before.items() if value is self._argument
        )


def _inserted(method: str, front: bool) -> Callable[[Any, Any], Any]:
    """Putting a batch to an end of the queue."""

    def claim(f: Any, v: Any) -> Any:
        if not isinstance(v.n, SymbolicInt):
            return _replayed(f, method, v.n, front)
        scene, argument = SymbolicQueue(f, v.n), Counted(v.m)
        try:
            cut, state = reach(getattr(f, method), scene.queue, argument)
        except ReturnedError:
            return [v.m == 0, *scene.unchanged()]
        walk = Walk(cut, state, scene, argument)
        if v.part == 0:
            gap = 0 if front else v.n
            cursor = walk.state[walk.cursor]
            return [walk.iterated is argument, scene.order.shows(gap - 1, cursor), *walk.begins(gap)]
        if v.part == 1:
            gap = v.gap if front else v.n
            later = SymbolicQueue(f, v.n, "later", gap)
            block, counter = later.block(-1), later.queue.num_free_blocks
            locals_ = walk.at(later, later.block_at(gap - 1), later.block_at(gap), [])
            result = cut.round(locals_, block)
            return [
                result[walk.cursor] is block,
                walk.kept(locals_, result),
                *later.reads_but_for_gap(later.order.inserted(gap, [block]), gap + 1),
                later.queue.num_free_blocks == counter,
            ]
        gap = v.gap if front else v.n + v.m
        later = SymbolicQueue(f, v.n + v.m, "later", gap)
        later.queue.num_free_blocks = scene.queue.num_free_blocks
        cut.after(walk.at(later, later.block_at(gap - 1), later.block_at(gap), []))
        return later.reads(later.order)

    return claim


def _replayed(f: Any, method: str, n: int, front: bool) -> Any:
    """The whole method on real blocks, for queues and batches of several lengths."""
    results: list[bool] = []
    for length in range(n + 3):
        for m in range(4):
            scene = PlainQueue(f, length)
            blocks = free_queue.batch(scene, m)
            getattr(f, method)(scene.queue, blocks)
            results += scene.reads(scene.order.inserted(0 if front else length, blocks))
    return results


def _replayed_taking(f: Any, n: int) -> Any:
    results: list[bool] = []
    for length in range(n + 3):
        for k in range(length + 1):
            scene = PlainQueue(f, length)
            taken = f.popleft_n(scene.queue, k)
            shown = [scene.order.shows(place, block) for place, block in enumerate(taken)]
            results += [len(taken) == k, *shown, *scene.reads(scene.order.dropped(k))]
    return results


def _taken(f: Any, v: Any) -> Any:
    """Taking `k` blocks from the front."""
    if not isinstance(v.n, SymbolicInt):
        return _replayed_taking(f, v.n)
    scene = SymbolicQueue(f, v.n)
    try:
        cut, state = reach(f.popleft_n, scene.queue, v.k)
    except ReturnedError as returned:
        taken = returned.value  # nothing, or one block where that is done without a loop
        front = [scene.order.shows(place, block) for place, block in enumerate(taken)]
        return [v.k == len(taken), *front, *scene.reads(scene.order.dropped(len(taken)))]
    walk = Walk(cut, state, scene, v.k)
    if len(walk.lists) != 1 or not isinstance(walk.iterated, Rounds):
        return False
    if v.part == 0:
        first = walk.state[walk.cursor]
        shown = first is not None and scene.order.shows(0, first)
        return [walk.iterated.count == v.k, shown, *walk.begins(0)]
    taken = ["those taken so far"]
    if v.part == 1:
        later = SymbolicQueue(f, v.n, "later", 0)
        counter, front = later.queue.num_free_blocks, later.block_at(0)
        locals_ = walk.at(later, front, front, taken)
        result = cut.round(locals_, 0)
        after = result[walk.cursor]
        return [
            len(taken) == 2 and taken[1] is front,
            after is not None and later.order.shows(1, after),
            walk.kept(locals_, result),
            *later.reads_but_for_gap(later.order.dropped(1), 0),
            later.queue.num_free_blocks == counter,
        ]
    later = SymbolicQueue(f, v.n - v.k, "later", 0)
    later.queue.num_free_blocks = scene.queue.num_free_blocks
    result = cut.after(walk.at(later, later.block_at(0), later.block_at(0), taken))
    return [result is taken, *later.reads(later.order)]


_PARTS = {"part": "0 before the loop, 1 a round of it, 2 after it", "n": "blocks in the queue"}
_BATCHES = {**_PARTS, "m": "blocks in the batch", "gap": "blocks before the gap"}


def _any_batch(v: Any) -> list[Any]:
    most = [v.gap <= v.n + v.m, (v.gap <= v.n) | (v.part != 1)]
    return [v.n >= 0, v.m >= 0, v.part >= 0, v.part <= 2, v.gap >= 0, *most]


def _any_insertion(method: str, where: str, order: str, wrong: Mapping[str, Callable[..., Any]]) -> QueueTheorem:
    """The theorem about a method that puts a batch in; `wrong` has a wrong one under what is wrong with it."""
    return QueueTheorem(
        id=f"T25.{method}.any",
        sentence=f"`{method}` puts a batch of any length {where}.",
        variables=_BATCHES,
        assume=_any_batch,
        claim=_inserted(method, front=method == "prepend_n"),
        controls=tuple(NegativeControl(what, {method: instead}) for what, instead in wrong.items()),
    )


APPEND_N = _any_insertion(
    "append_n",
    "to the back, in the given order",
    "order + blocks",
    {
        "blocks do not point back": wrong_loops.append_without_back_links,
        "each block takes the place of the last": wrong_loops.append_without_advance,
        "the tail does not point back": wrong_loops.append_without_end,
        "one block is counted": wrong_loops.append_counting_one,
    },
)

PREPEND_N = _any_insertion(
    "prepend_n",
    "to the front, which then reads as given",
    "blocks + order",
    {
        "blocks do not point back": wrong_loops.prepend_without_back_links,
        "the old front is lost": wrong_loops.prepend_losing_the_rest,
        "it goes to the back": wrong_loops.append_right,
    },
)

POPLEFT_N = QueueTheorem(
    id="T25.popleft_n.any",
    sentence="`popleft_n` takes any number of blocks from the front, in order, and leaves the rest in order.",
    variables={**_PARTS, "k": "blocks asked for"},
    assume=lambda v: [v.part >= 0, v.part <= 2, v.k >= 0, v.k <= v.n, (v.n >= 1) | (v.part != 1)],
    claim=_taken,
    controls=(
        NegativeControl("blocks taken still point back", {"popleft_n": wrong_loops.popleft_without_clearing}),
        NegativeControl("the head still points at what was taken", {"popleft_n": wrong_loops.popleft_without_head}),
        NegativeControl("one round fewer", {"popleft_n": wrong_loops.popleft_one_fewer}),
        NegativeControl("one block is counted", {"popleft_n": wrong_loops.popleft_counting_one}),
    ),
)

THEOREMS = (APPEND_N, PREPEND_N, POPLEFT_N)
