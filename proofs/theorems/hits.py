"""How many blocks a hit needs, and where it may end (T8, T9, T12).

All of it is measured by the definition of attention: a block is *read* at a boundary if the query that comes right
behind the boundary reads a token of it.
"""

from typing import Any

from ..claims import every, implies, multiples_ordered, negation, quotient_found, same
from ..roles.amounts import BlockSize, Positive, next_round, positive
from ..theorem import Claim, NegativeControl, Theorem, Values

_BLOCK = {"b": "tokens per block"}
_WINDOW = {**_BLOCK, "w": "window, in tokens"}


# T8, T9: how many blocks a window needs.


def sized(claim: Claim) -> Claim:
    """The claim, with block sizes that are known to be positive wherever something is divided by them."""
    kinds = {"b": BlockSize, "m": Positive, "s": Positive}

    def sized(f: Any, v: Any) -> Any:
        known = {name: positive(vars(v)[name], kind) for name, kind in kinds.items() if name in vars(v)}
        return claim(f, Values({**vars(v), **known}))

    return sized


def _window_covered(f: Any, v: Any) -> Any:
    """Blocks `e - need .. e - 1` hold all that is read at the boundary behind them, and none of them is idle."""
    need = f.need(v.w, v.b, False)
    return [
        implies(f.attends_sliding(v.e * v.b, v.t, v.w), v.t >= (v.e - need) * v.b),
        implies(every(need >= 1, v.e >= need), f.attends_sliding(v.e * v.b, (v.e - need) * v.b + v.b - 1, v.w)),
        need >= 0,
    ]


T8 = Theorem(
    id="T8",
    sentence="A window hit needs exactly cdiv(w - 1, b) blocks before the boundary: they hold every token that the "
    "next query reads, and the first of them holds one.",
    formal="attends(e*b, t) => t >= (e - need)*b;  need >= 1 and e >= need => attends(e*b, (e - need)*b + b - 1)",
    variables={**_WINDOW, "e": "blocks before the boundary", "t": "position of a token before the boundary"},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.e >= 1, v.t >= 0, v.t < v.e * v.b],
    claim=sized(_window_covered),
    controls=(
        NegativeControl("the query's own token counts", {"need": lambda w, b, eagle: -(-w // b) + eagle}),
        NegativeControl("rounded down", {"need": lambda w, b, eagle: (w - 1) // b + eagle}),
    ),
    meaning="A hit of a 1024-token window with blocks of 16 needs 64 registered blocks, whatever the prompt's length.",
)


def _eagle_run(f: Any, v: Any) -> Any:
    """A run of `need` blocks that ends with block `e - 1`; without its last one, what is read at `e - 1` is in it."""
    need = f.need(v.w, v.b, True)
    first, boundary = v.e - need, (v.e - 1) * v.b
    return [
        implies(f.attends_sliding(boundary, v.t, v.w), v.t >= first * v.b),
        implies(every(need >= 2, v.e >= need), f.attends_sliding(boundary, first * v.b + v.b - 1, v.w)),
        need == f.need(v.w, v.b, False) + 1,
    ]


T9 = Theorem(
    id="T9",
    sentence="Eagle matches one block more: without the last block of the run, the rest holds every token that the "
    "query behind it reads, and none is too many.",
    formal="attends((e - 1)*b, t) => t >= (e - need_eagle)*b, exactly;  need_eagle == need + 1",
    variables={**_WINDOW, "e": "blocks up to the end of the run", "t": "position of a token before the last block"},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.e >= 2, v.t >= 0, v.t < (v.e - 1) * v.b],
    claim=sized(_eagle_run),
    controls=(
        NegativeControl("no block more", {"need": lambda w, b, eagle: -(-(w - 1) // b)}),
        NegativeControl("one token more in place of one block", {"need": lambda w, b, eagle: -(-(w - 1 + eagle) // b)}),
    ),
    meaning="Eagle costs one registered block per boundary and group.",
)


# T12: cutting to the alignment.


def _cut_round(f: Any, v: Any) -> Any:
    after, ended = next_round(f.cut, v.x, v.b, v.a)
    if ended:
        return [after == v.x, after * v.b % v.a == 0]
    return [
        after >= 0,
        after < v.x,
        implies(every(after < v.y, v.y <= v.x), v.y * v.b % v.a != 0),
    ]


def _cut_twice(blocks: Any, b: Any, alignment: Any) -> Any:
    while blocks * b % alignment:
        blocks -= 2
    return blocks


def _cut_blocks(blocks: Any, b: Any, alignment: Any) -> Any:
    while blocks % alignment:
        blocks -= 1
    return blocks


T12 = Theorem(
    id="T12",
    sentence="Cutting to the alignment ends, at the largest aligned length that is not above the start.",
    formal="each round: x*b % a == 0 and x is returned, or 0 <= x' < x and no y in x'+1 .. x has y*b % a == 0",
    variables={**_BLOCK, "x": "blocks before a round", "y": "any number of blocks", "a": "alignment, in tokens"},
    assume=lambda v: [v.b >= 1, v.a >= 1, v.x >= 0],
    claim=_cut_round,
    controls=(
        NegativeControl("two blocks are cut at a time", {"cut": _cut_twice}),
        NegativeControl("blocks are taken for tokens", {"cut": _cut_blocks}),
    ),
    meaning="Induction over the rounds gives the sentence for any length: the number of blocks falls and stays above "
    "0, so it ends; nothing aligned is passed over.",
)


def _rounded(f: Any, v: Any) -> Any:
    down, up = f.down(v.x, v.u), f.up(v.x, v.u)
    below, above = v.x // v.u, -(-v.x // v.u)
    multiples_ordered(v.j, below, v.u)
    multiples_ordered(below + 1, v.j, v.u)
    multiples_ordered(above, v.j, v.u)
    multiples_ordered(v.j, above - 1, v.u)
    return [
        down == below * v.u,
        down <= v.x,
        implies(v.j * v.u <= v.x, v.j * v.u <= down),
        up == above * v.u,
        up >= v.x,
        implies(v.j * v.u >= v.x, v.j * v.u >= up),
    ]


T12_ROUNDED = Theorem(
    id="T12.rounded",
    sentence="Rounding to a unit finds the nearest multiple, below and above.",
    formal="down = k*u <= x and j*u <= x => j*u <= down;  up = k*u >= x and j*u >= x => j*u >= up",
    variables={"x": "any number", "u": "unit", "j": "any multiple of the unit"},
    assume=lambda v: [v.u >= 1],
    claim=_rounded,
    controls=(
        NegativeControl("down to the next lower one", {"down": lambda x, u: (x - 1) // u * u}),
        NegativeControl("always up", {"up": lambda x, u: (x // u + 1) * u}),
    ),
)


def _tail(f: Any, v: Any) -> Any:
    i = v.shift + v.j * v.per + v.y
    quotient_found(v.j * v.per + v.y, v.per, v.j)
    return [
        same(f.in_segment_tail(i, v.shift, v.per, v.need), v.y >= v.per - v.need),
        negation(f.in_segment_tail(v.shift - 1 - v.y, v.shift, v.per, v.need)),
    ]


T10_TAIL = Theorem(
    id="T10.tail",
    sentence="The tail of a segment is its `need` last blocks; what lies before the first segment is in no tail.",
    formal="i = shift + j*per + y, 0 <= y < per, j >= 0: tail(i) <=> y >= per - need;  i < shift => not tail(i)",
    variables={
        "shift": "blocks before the first segment",
        "per": "blocks per segment",
        "need": "blocks of a tail",
        "j": "number of a segment, from 0",
        "y": "index of a block in its segment",
    },
    assume=lambda v: [v.shift >= 0, v.per >= 1, v.need >= 0, v.need <= v.per, v.j >= 0, v.y >= 0, v.y < v.per],
    claim=_tail,
    controls=(
        NegativeControl("the shift is ignored", {"in_segment_tail": lambda i, shift, per, need: i % per >= per - need}),
        NegativeControl(
            "the first block is left out",
            {"in_segment_tail": lambda i, shift, per, need: every(i > shift, (i - shift) % per >= per - need)},
        ),
    ),
)


THEOREMS: tuple[Theorem, ...] = (T8, T9, T10_TAIL, T12, T12_ROUNDED)
