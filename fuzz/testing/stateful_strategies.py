"""Hypothesis strategies for what the state machine draws: shapes, prompts, multimodal items."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ...model.ops import Item, Shape
from ..findings.offered import OF_TODAY
from ..targets.base import adapted_shape
from ..workload.bounds import ITEMS, item_named, tokens_of
from ..workload.prompts import ADAPTERS, SALTS
from ..workload.shapes import ATTENTION, EVERY_ATTENTION, draw_shape, possible_attention, with_offered

T = TypeVar("T")

ALPHABET = 2
"""Distinct tokens: few, so that requests share prefixes."""
ADAPTED = st.sampled_from(ADAPTERS)
SALT_NAMES = st.sampled_from((None, *SALTS))
TOKENS = st.integers(0, ALPHABET - 1)


class StrategyDraw:
    """The choices of the workload, each drawn from a strategy, so that Hypothesis can shrink every one of them."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return self._draw(st.integers(low, high))

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._draw(st.sampled_from(options))


def check_attention(names: Sequence[str]) -> tuple[str, ...]:
    """The names of `EVERY_ATTENTION`. ValueError for another one, and for none at all."""
    if unknown := [name for name in names if name not in EVERY_ATTENTION]:
        raise ValueError(f"unknown attention {unknown[0]!r}: choose from {', '.join(EVERY_ATTENTION)}")
    if not names:
        raise ValueError(f"no attention: choose from {', '.join(EVERY_ATTENTION)}")
    return tuple(names)


def shapes(attention: Sequence[str] = tuple(ATTENTION)) -> SearchStrategy[Shape]:
    """Shapes with groups of these kinds of attention, names of `EVERY_ATTENTION`. ValueError for an unknown one.

    They are drawn by the rules of the seeded engine. Every correct core accepts them; they shrink towards one group of
    the first kind, small blocks and a small pool.
    """
    return buildable_shapes(check_attention(attention), OF_TODAY, ())


def buildable_shapes(
    attention: Sequence[str], lacks: frozenset[str], block_sizes: Sequence[int]
) -> SearchStrategy[Shape]:
    """The same for a target that lacks something, and that has groups of these block sizes only, if there are any.

    ValueError if it has groups of none of these kinds.
    """
    possible = possible_attention(attention, lacks | {"Shape.host_blocks"})
    if not possible:
        raise ValueError(f"the target has no core for attention {', '.join(attention)}, as its `lacks` says")
    return _shapes(possible, tuple(block_sizes), lacks)


@st.composite
def _shapes(draw: DrawFn, attention: tuple[str, ...], block_sizes: tuple[int, ...], lacks: frozenset[str]) -> Shape:
    kinds = EVERY_ATTENTION[draw(st.sampled_from(attention))]
    choices = StrategyDraw(draw)
    shape = adapted_shape(draw_shape(choices, kinds, block_sizes), lacks)
    return with_offered(choices, shape, lacks)


@st.composite
def prompts(draw: DrawFn, most: int, unit: int) -> tuple[int, ...]:
    """1 to `most` tokens, often a multiple of `unit`: a beginning of zeros, which requests share, and perhaps a tail of
    its own."""
    limit = min(most, draw(st.sampled_from((4, 1000))) * unit)
    units = draw(st.integers(0, limit // unit))
    length = units * unit or draw(st.integers(1, limit))
    tail = draw(st.integers(1, length)) if draw(st.booleans()) else 0
    number = draw(st.integers(0, ALPHABET**tail - 1)) if tail else 0
    return (0,) * (length - tail) + tokens_of(number, tail, ALPHABET)


@st.composite
def item_rows(draw: DrawFn, most: int) -> tuple[Item, ...]:
    """Up to three multimodal items in the first `most` tokens, some of them neighbours, on the same tokens or not in
    order."""
    items: list[Item] = []
    start = draw(st.integers(0, most - 1))
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.sampled_from((1, 2, 6)))
        if start + size > most:
            break
        items.append(item_named(draw(st.sampled_from(ITEMS)), start, size))
        start = max(0, start + size + draw(st.sampled_from((0, 1, 5, -2, -6))))
    return tuple(items)


def of_machine(strategy: Callable[[Any], SearchStrategy[T]]) -> SearchStrategy[T]:
    """What a strategy gives that depends on the state of the machine."""
    return st.runner().flatmap(strategy)
