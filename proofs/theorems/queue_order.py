"""The order of the free queue as lists have it (T25.order): the model, which derives its queue, and every linked list.

The theorems about links say what order each operation leaves behind. Here the same orders, on plain lists, are held
against what a core shows: the model's queue comes from when blocks were let go, and must read the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal, NamedTuple

from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement
from ..kernel import Evidence
from ..theorem import Subject


class QueueStep(NamedTuple):
    """One operation on a pool whose blocks are free or held once."""

    does: Literal["take", "hit", "give", "give to front"]
    number: int = 0
    """How many are taken, or the place in the queue of the block that is hit."""
    blocks: tuple[int, ...] = ()
    """Held blocks, in the order in which they are given back."""


Orders = Callable[[int, Sequence[QueueStep]], list[list[int]]]
"""For a pool with so many blocks, the null block not counted: its queue before the first step and after each."""


def listed(blocks: int, steps: Sequence[QueueStep]) -> list[list[int]]:
    """What the theorems about links say."""
    order = list(range(1, blocks + 1))
    orders = [order]
    for step in steps:
        orders.append(order := _after(order, step))
    return orders


def _after(order: list[int], step: QueueStep) -> list[int]:
    if step.does == "take":
        return order[step.number :]
    if step.does == "hit":
        return order[: step.number] + order[step.number + 1 :]
    return order + list(step.blocks) if step.does == "give" else list(step.blocks) + order


def _steps(order: Sequence[int], blocks: int, most: int) -> Iterator[QueueStep]:
    """All that can be done, in batches of at most `most` blocks."""
    yield from (QueueStep("take", count) for count in range(min(len(order), most) + 1))
    yield from (QueueStep("hit", place) for place in range(len(order)))
    held = [block for block in range(1, blocks + 1) if block not in order]
    for count in range(min(len(held), most) + 1):
        for batch in permutations(held, count):
            yield QueueStep("give", 0, batch)
            yield QueueStep("give to front", 0, batch)


def _sequences(blocks: int, length: int) -> Iterator[tuple[QueueStep, ...]]:
    """All sequences of so many steps."""
    found: list[tuple[QueueStep, ...]] = [()]
    for _ in range(length):
        found = [(*steps, step) for steps in found for step in _steps(listed(blocks, steps)[-1], blocks, 1)]
    yield from found


def _ways(blocks: int) -> Iterator[tuple[QueueStep, ...]]:
    """A way to each order that the queue can have, and one step further."""
    start = tuple(range(1, blocks + 1))
    ways: dict[tuple[int, ...], tuple[QueueStep, ...]] = {start: ()}
    waiting = [start]
    while waiting:
        order = waiting.pop(0)
        for step in _steps(order, blocks, blocks):
            way = (*ways[order], step)
            yield way
            reached = tuple(_after(list(order), step))
            if reached not in ways:
                ways[reached] = way
                waiting.append(reached)


SCOPES: tuple[tuple[int, Callable[[], Iterator[tuple[QueueStep, ...]]]], ...] = (
    (2, lambda: _sequences(2, 5)),
    (3, lambda: _sequences(3, 4)),
    (4, lambda: _ways(4)),
)
"""Blocks, and what is done with them."""


def wrong_orders(wrong: str) -> Orders:
    """As `listed`, with one thing wrong."""

    def orders(blocks: int, steps: Sequence[QueueStep]) -> list[list[int]]:
        order = list(range(1, blocks + 1))
        found = [order]
        for step in steps:
            if step.does == wrong and step.does == "take":
                order = order[: len(order) - step.number]
            elif step.does == wrong and step.does == "hit":
                order = order[: step.number] + order[step.number + 1 :][::-1]
            elif step.does == wrong:
                order = _after(order, QueueStep(step.does, 0, step.blocks[::-1]))
            else:
                order = _after(order, step)
            found.append(order)
        return found

    return orders


_WRONG = {
    "blocks are taken from the back": wrong_orders("take"),
    "a hit turns the blocks behind it round": wrong_orders("hit"),
    "a batch goes to the back turned round": wrong_orders("give"),
    "a batch goes to the front turned round": wrong_orders("give to front"),
}


@dataclass(frozen=True, kw_only=True)
class Agreement(TriedStatement):
    """That a core's queue reads as a plain list does, in some small scopes."""

    def parts(self, subject: Subject) -> Orders:
        """What shows the orders of a queue."""
        orders: Orders = subject.find("queue_orders")
        return orders

    def tried(self, parts: Orders, watched: Watched) -> Trial:
        """Every sequence of the scopes; one in which everything is done comes to all functions."""
        blocks, ways = SCOPES[0]
        with watched:
            parts(blocks, next(steps for steps in ways() if len({step.does for step in steps}) == 4))
        evidence, differs = _differs(parts)
        if differs is None:
            return Trial(evidence)
        blocks, steps = differs
        problem = f"{steps}: {_shown(parts, blocks, steps)} instead of {listed(blocks, steps)}"
        return Trial(evidence, problem, {"blocks": blocks, "steps": len(steps)})

    def refutations(self, parts: Orders) -> Iterator[tuple[str, bool]]:
        """Wrong queues, whatever the core's is."""
        return ((wrong, _differs(control)[1] is not None) for wrong, control in _WRONG.items())


def _differs(orders: Orders) -> tuple[Evidence, tuple[int, tuple[QueueStep, ...]] | None]:
    """The sequences that were tried, and the first after which the order is not that of a list."""
    tried = Evidence()
    for blocks, ways in SCOPES:
        for steps in ways():
            right = _shown(orders, blocks, steps) == listed(blocks, steps)
            tried.tried((blocks, steps), right)
            if not right:
                return tried, (blocks, steps)
    return tried, None


def _shown(orders: Orders, blocks: int, steps: Sequence[QueueStep]) -> Any:
    """The orders, or the error that comes instead."""
    try:
        return orders(blocks, steps)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


ORDER = Agreement(
    id="T25.order",
    sentence="The free queue reads as a plain list would, after any operations: taken from the front, hit in "
    "the middle, given back to an end in the given order.",
    bounded="all sequences of 5 steps on 2 blocks and of 4 on 3 blocks, with batches of one; every order that the "
    "queue of 4 blocks can have, and every step from there, with batches of any length. For lists and rows this is "
    "proved for any length by the other theorems of T25; the model has neither, and its queue is tied to theirs here",
    meaning="What the lockstep oracle compares after every operation, the model's queue, is the queue of the theorems.",
)

THEOREMS = (ORDER,)
