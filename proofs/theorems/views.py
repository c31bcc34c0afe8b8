"""What a page consists of, and where its numbers lie in memory (T21)."""

from collections.abc import Sequence
from typing import Any

from ..claims import every, implies, multiples_ordered, use
from ..symbolic import SymbolicInt
from ..theorem import NegativeControl, Theorem


def two_digits(a: Any, b: Any, c: Any, d: Any, unit: Any) -> Any:
    """Law: numbers of two digits to one base are equal only digit by digit."""
    digits = every(unit >= 1, b >= 0, b < unit, d >= 0, d < unit)
    return implies(every(digits, a * unit + b == c * unit + d), every(a == c, b == d))


_SIZES = {
    "b": "tokens per block",
    "h": "heads",
    "d": "width of a key, in numbers",
    "w": "width of a value, in numbers",
    "z": "bytes per number",
}
Page = tuple[Any, Sequence[tuple[Any, Any]]]
"""Bytes of a page, and offset and size of each part in bytes."""


def _positive(*names: str) -> Any:
    return lambda v: [getattr(v, name) >= 1 for name in names]


def _fit(page: Page) -> list[Any]:
    """The parts lie one behind the other, from the beginning of the page to its end or before."""
    size, parts = page
    ends = [0, *(offset + length for offset, length in parts)]
    return [
        *(length >= 1 for _, length in parts),
        *(end <= offset for end, (offset, _) in zip(ends, parts, strict=False)),
        ends[-1] <= size,
    ]


def _no_remainder(x: Any, unit: Any, count: Any) -> Any:
    if not isinstance(unit, SymbolicInt) and unit <= 0:
        return True
    return implies(every(unit > 0, x == count * unit), x % unit == 0)


def _known_multiples(unit: Any, *counts: Any) -> None:
    """Spell out that `count * unit` is a multiple of `unit`."""
    for count in counts:
        use(_no_remainder, count * unit, unit, count)


def _keys_then_values(b: Any, h: Any, d: Any, w: Any, z: Any) -> Page:
    return b * h * (d + w) * z, [(0, b * h * d * z), (b * h * d * z, b * h * w * z)]


def _in_numbers(b: Any, h: Any, d: Any, w: Any, z: Any) -> Page:
    return b * h * (d + w) * z, [(0, b * h * d * z), (b * h * d, b * h * w * z)]


def _values_as_keys(b: Any, h: Any, d: Any, w: Any, z: Any) -> Page:
    return 2 * b * h * d * z, _keys_then_values(b, h, d, w, z)[1]


def _without_room_for_scales(b: Any, h: Any, d: Any, w: Any, z: Any) -> Page:
    page, parts = _keys_then_values(b, h, d, w, z)
    return page, [*parts, (page, 4 * b * h), (page + 4 * b * h, 4 * b * h)]


def _plain_page(f: Any, v: Any) -> Any:
    _known_multiples(v.z, v.b * v.h * v.d, v.b * v.h * (v.d + v.w))
    return _fit(f.plain_page(v.b, v.h, v.d, v.w, v.z))


T21_PAGE = Theorem(
    id="T21.page",
    sentence="Keys and values of a page do not overlap, and end with it, also where they differ in width.",
    variables=_SIZES,
    assume=_positive(*_SIZES),
    claim=_plain_page,
    controls=(
        NegativeControl("offsets count numbers, not bytes", {"plain_page": _in_numbers}),
        NegativeControl("values are as wide as keys", {"plain_page": _values_as_keys}),
    ),
    meaning="No token's value is written over another's key.",
)


def _accepted(page: Any, *sizes: Any) -> Any:
    """The parts fit, or the page is refused because numbers would not lie at multiples of their size."""
    try:
        found = page(*sizes)
    except ValueError:
        return True
    return _fit(found)


T21_SCALED = Theorem(
    id="T21.page.scaled",
    sentence="Nor do the scales of keys and values behind them, or the page is refused.",
    variables={name: _SIZES[name] for name in "bhdw"},
    assume=_positive(*"bhdw"),
    claim=lambda f, v: _accepted(f.scaled_page, v.b, v.h, v.d, v.w, 1),
    controls=(NegativeControl("no room for the scales", {"scaled_page": _without_room_for_scales}),),
    bounded="numbers of one byte, which is what this mode stores",
)

T21_PACKED = Theorem(
    id="T21.page.packed",
    sentence="Nor do packed keys and values of four bits with their scales.",
    variables={name: _SIZES[name] for name in "bhdw"},
    assume=_positive(*"bhdw"),
    claim=lambda f, v: _fit(f.packed_page(v.b, v.h, v.d, v.w, 1)),
    controls=(
        NegativeControl(
            "half a byte is cut off",
            {
                "packed_page": lambda b, h, d, w, z: (
                    b * h * (d // 2 + w // 2),
                    [(0, b * h * -(-d // 2)), (b * h * -(-d // 2), b * h * -(-w // 2))],
                )
            },
        ),
    ),
    bounded="numbers of one byte, which is what this mode stores",
)


def _latent_page(f: Any, v: Any) -> Any:
    _known_multiples(v.z, v.b * v.h * v.d)
    return _fit(f.latent_page(v.b, v.h, v.d, v.z))


T21_LATENT = Theorem(
    id="T21.page.latent",
    sentence="The one vector that a latent layer keeps ends with the page.",
    variables={name: _SIZES[name] for name in "bhdz"},
    assume=_positive(*"bhdz"),
    claim=_latent_page,
    controls=(
        NegativeControl("room for one head", {"latent_page": lambda b, h, d, z: (b * d * z, [(0, b * h * d * z)])}),
    ),
)

T21_STATES = Theorem(
    id="T21.page.states",
    sentence="The states of a Mamba layer do not overlap and end with the page, or the page is refused.",
    variables={
        "b": _SIZES["b"],
        **{name: f"numbers of state {i}" for i, name in enumerate("xyu")},
        "z": "bytes per number of states 0 and 1",
        "k": "bytes per number of state 2",
    },
    assume=_positive(*"bxyuzk"),
    claim=lambda f, v: _accepted(f.state_page, v.b, [(v.x, v.z), (v.y, v.z), (v.u, v.k)]),
    controls=(
        NegativeControl(
            "every state begins with the page",
            {"state_page": lambda b, states: (sum(x * z for x, z in states), [(0, x * z) for x, z in states])},
        ),
    ),
    bounded="three states of two dtypes: every state is laid behind the one before it, whatever lies before that",
)


# Elements.

_INDEX = {
    "page": "numbers of a page",
    "first": "where the part begins in the page, in numbers",
    "t": "entries of a page",
    "h": _SIZES["h"],
    "d": "width of a head, in numbers",
    "z": _SIZES["z"],
    "blocks": "blocks of the buffer",
}
_TWO_PLACES = {
    **_INDEX,
    **{name: f"{what} of one element" for name, what in zip("eijx", ("block", "entry", "head", "place"), strict=True)},
    **{name: f"{what} of the other" for name, what in zip("fklm", ("block", "entry", "head", "place"), strict=True)},
}


def _in_part(v: Any, block: Any, entry: Any, head: Any, place: Any) -> list[Any]:
    return [
        *(every(block >= 0, block < v.blocks), every(entry >= 0, entry < v.t)),
        *(every(head >= 0, head < v.h), every(place >= 0, place < v.d)),
    ]


def _layout(v: Any) -> list[Any]:
    return [v.z >= 1, v.t >= 1, v.h >= 1, v.d >= 1, v.first >= 0, v.first + v.t * v.h * v.d <= v.page]


def _within_page(v: Any, entry: Any, head: Any, place: Any) -> Any:
    """Where the element lies in its page, which is known to contain it from here on."""
    multiples_ordered(entry + 1, v.t, v.h)
    multiples_ordered(entry * v.h + head + 1, v.t * v.h, v.d)
    multiples_ordered(0, entry, v.h)
    multiples_ordered(0, entry * v.h + head, v.d)
    return v.first + (entry * v.h + head) * v.d + place


def _addresses_differ(f: Any, v: Any) -> Any:
    one, other = (v.e, v.i, v.j, v.x), (v.f, v.k, v.l, v.m)
    shape = (v.t, v.h, v.d)
    at, at2 = (f.element(v.page, v.first, v.z, shape, v.blocks, index) for index in (one, other))
    within, within2 = _within_page(v, *one[1:]), _within_page(v, *other[1:])
    use(two_digits, v.e, within, v.f, within2, v.page)
    use(two_digits, v.i * v.h + v.j, v.x, v.k * v.h + v.l, v.m, v.d)
    use(two_digits, v.i, v.j, v.k, v.l, v.h)
    multiples_ordered(v.e + 1, v.blocks, v.page)
    multiples_ordered(0, v.e, v.page)
    return [
        *(implies(at == at2, same_index) for same_index in (a == b for a, b in zip(one, other, strict=True))),
        at >= 0,
        at < v.blocks * v.page,
    ]


def _dense(pad: int = 0, turned: bool = False) -> Any:
    """A wrong view: pages that are closer than they are, or axes in another order."""

    def element(page: Any, first: Any, z: Any, shape: Any, blocks: Any, index: Any) -> Any:
        (_t, h, d), (block, entry, head, place) = shape, index
        within = (head * h + entry) * d + place if turned else (entry * h + head) * d + place
        return block * (page - pad) + first + within

    return element


T21_VIEW = Theorem(
    id="T21.view",
    sentence="Two elements of a view lie in different places of the buffer, all of them inside it.",
    variables=_TWO_PLACES,
    assume=lambda v: [
        *_layout(v),
        *_in_part(v, v.e, v.i, v.j, v.x),
        *_in_part(v, v.f, v.k, v.l, v.m),
    ],
    claim=_addresses_differ,
    controls=(
        NegativeControl("pages are one number too close", {"element": _dense(pad=1)}),
        NegativeControl("heads and entries are mixed up", {"element": _dense(turned=True)}),
    ),
    meaning="What is written for one block is in no other block: numbers begin at multiples of their size (T21.page), "
    "so different numbers are different bytes.",
)


def _planes_differ(f: Any, v: Any) -> Any:
    shape, behind = (v.t, v.h, v.d), v.first + v.t * v.h * v.d
    one, other = (v.e, v.i, v.j, v.x), (v.f, v.k, v.l, v.m)
    at = f.element(v.page, v.first, v.z, shape, v.blocks, one)
    at2 = f.element(v.page, behind, v.z, shape, v.blocks, other)
    within, within2 = _within_page(v, *one[1:]), _within_page(v, *other[1:]) + v.t * v.h * v.d
    use(two_digits, v.e, within, v.f, within2, v.page)
    return at != at2


T21_PLANES = Theorem(
    id="T21.planes",
    sentence="No element of the keys lies where one of the values lies.",
    variables=_TWO_PLACES,
    assume=lambda v: [
        *_layout(v),
        v.first + v.t * v.h * v.d + v.t * v.h * v.d <= v.page,
        *_in_part(v, v.e, v.i, v.j, v.x),
        *_in_part(v, v.f, v.k, v.l, v.m),
    ],
    claim=_planes_differ,
    controls=(NegativeControl("pages are one number too close", {"element": _dense(pad=1)}),),
)

THEOREMS = (T21_PAGE, T21_SCALED, T21_PACKED, T21_LATENT, T21_STATES, T21_VIEW, T21_PLANES)
