"""Rounding, which all sizes rest on, and the share of the pool in use (T17, T24)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, ratio_is, same, some
from ..theorem import NegativeControl, Theorem

_X = {"x": "any integer", "unit": "unit"}


def is_multiple(number: Any, unit: Any, near: Any) -> Any:
    """One of the two multiples around `near`: to ask for the remainder of a product instead is too hard for solvers."""
    below = near // unit
    for rounded_up in (-(-near // unit), (near + unit - 1) // unit):  # cores do it in one of these two ways
        multiples_ordered(rounded_up, below - 1, unit)
        multiples_ordered(below + 2, rounded_up, unit)
        lemma(some(rounded_up == below, rounded_up == below + 1), "rounded up")
    return some(number == below * unit, number == below * unit + unit)


def _least_units(f: Any, v: Any) -> Any:
    least = f.cdiv(v.x, v.unit)
    multiples_ordered(v.q, least - 1, v.unit)
    return [least * v.unit >= v.x, implies(v.q * v.unit >= v.x, v.q >= least)]


CDIV = Theorem(
    id="T17.cdiv",
    sentence="Rounded up is the least number of units that hold so much.",
    variables={**_X, "q": "any integer"},
    assume=lambda v: [v.unit >= 1],
    claim=_least_units,
    controls=(
        NegativeControl("rounded down", {"cdiv": lambda x, y: x // y}),
        NegativeControl("always one more", {"cdiv": lambda x, y: x // y + 1}),
    ),
    meaning="The last block of a sequence may be partly filled; none is missing and none is empty.",
)

DOWN = Theorem(
    id="T17.down",
    sentence="Rounding down gives the largest multiple not above.",
    variables=_X,
    assume=lambda v: [v.unit >= 1],
    claim=lambda f, v: [
        f.down(v.x, v.unit) <= v.x,
        f.down(v.x, v.unit) + v.unit > v.x,
        is_multiple(f.down(v.x, v.unit), v.unit, v.x),
    ],
    controls=(
        NegativeControl("rounded up", {"down": lambda x, unit: -(-x // unit) * unit}),
        NegativeControl("not a multiple", {"down": lambda x, unit: x - (x % unit) // 2}),
    ),
)


def _smallest_multiple(number: Any, least: Any, unit: Any) -> Any:
    return [number >= least, number - unit < least, is_multiple(number, unit, least)]


UP = Theorem(
    id="T17.up",
    sentence="Rounding up gives the smallest multiple not below.",
    variables=_X,
    assume=lambda v: [v.unit >= 1],
    claim=lambda f, v: _smallest_multiple(f.up(v.x, v.unit), v.x, v.unit),
    controls=(
        NegativeControl("one multiple further", {"up": lambda x, unit: (x // unit + 1) * unit}),
        NegativeControl("rounded down", {"up": lambda x, unit: x // unit * unit}),
    ),
)


def _used(f: Any, v: Any) -> Any:
    usage, usable = f.usage(v.free, v.blocks), v.blocks - 1
    if usable == 0:
        return usage == 0
    return [
        every(usage >= 0, usage <= 1),
        ratio_is(usage, usable - v.free, usable),
        same(usage == 0, v.free == usable),
        same(usage == 1, v.free == 0),
    ]


T24 = Theorem(
    id="T24",
    sentence="Usage is the share of the blocks in use, the null block aside: from 0, all free, to 1, none free.",
    variables={"free": "free blocks", "blocks": "blocks of the pool, the null block included"},
    assume=lambda v: [v.blocks >= 1, v.blocks <= 2**53, v.free >= 0, v.free <= v.blocks - 1],
    claim=_used,
    controls=(
        NegativeControl("the null block counts", {"usage": lambda free, blocks: 1.0 - free / blocks}),
        NegativeControl(
            "share of the free blocks", {"usage": lambda free, blocks: free / (blocks - 1) if blocks > 1 else 0.0}
        ),
        NegativeControl(
            "an empty pool is full", {"usage": lambda free, blocks: 1.0 - free / (blocks - 1) if blocks > 1 else 1.0}
        ),
    ),
    bounded="Quotients are exact here. Floating point rounds both operations to the nearest number and is monotone: "
    "from "
    "0 <= free / usable <= 1 follows the same of the rounded quotient, and then of 1 less it, as 0 and 1 are "
    "themselves "
    "floating-point numbers. It is 1 only for free = 0 as long as 1 - free / usable is not rounded to 1, that is, for "
    "pools below 2**53 blocks.",
    rounding="See what bounds it.",
)

THEOREMS = (CDIV, DOWN, UP, T24)
