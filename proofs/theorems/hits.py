"""Which blocks a hit needs (T8, T9), and how lengths are rounded to where hits may end (T12).

All of it is measured by the definition of attention: a block is needed by a hit if the query that comes right behind
the hit reads a token of it. Where drafts read on, the block behind the hit is needed, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..claims import every, implies, multiples_ordered, same
from ..examples import Values
from ..roles.amounts import BlockSize, Chunk, ordinary, positive
from ..theorem import Claim, NegativeControl, Theorem


class Kind(NamedTuple):
    """A type of attention."""

    name: str
    title: str
    size: dict[str, str]
    """The variable of its window or chunk, if it has one."""
    reads: Callable[[Any, Any, Any, Any], Any]
    """Of roles, variables, query and token: whether the one reads the other."""
    first: Callable[[Any, Any], Any]
    """Of variables and the blocks before a boundary: the first of them that its query reads."""
    behind: bool = True
    """Whether drafts need the block behind a hit."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The name of that variable, if any."""
        return tuple(self.size)


def _border(v: Any, blocks: Any) -> Any:
    """Where the chunk of the query behind so many blocks begins."""
    return blocks * v.b // v.k * v.k


FULL = Kind("full", "full attention", {}, lambda f, v, q, t: f.attends_full(q, t), lambda v, blocks: 0)
SLIDING = Kind(
    "sliding",
    "a sliding window",
    {"w": "window, in tokens"},
    lambda f, v, q, t: f.attends_sliding(q, t, v.w),
    lambda v, blocks: blocks + (1 - v.w) // v.b,
)
CHUNKED = Kind(
    "chunked",
    "chunks",
    {"k": "chunk, in tokens"},
    lambda f, v, q, t: every(q // v.k * v.k <= t, t <= q),  # which is `attends`, by T1.reads
    lambda v, blocks: _border(v, blocks) // v.b,
)
MAMBA = Kind(
    "mamba",
    "a state-space layer",
    {},
    lambda f, v, q, t: f.attends_mamba(q, t),
    lambda v, blocks: blocks - 1,
    behind=False,
)
KINDS = (FULL, SLIDING, CHUNKED, MAMBA)


def sized(claim: Claim) -> Claim:
    """The claim, with sizes that are known to be positive wherever something is divided by them."""
    kinds = {"b": BlockSize, "k": Chunk, "m": Chunk, "s": Chunk}

    def sized(f: Any, v: Any) -> Any:
        known = {name: positive(vars(v)[name], kind) for name, kind in kinds.items() if name in vars(v)}
        return claim(f, Values({**vars(v), **known}))

    return sized


def spelt_out(kind: Kind, v: Any, blocks: Any) -> None:
    """Laws for a boundary behind so many blocks, about block `i`: where it lies to the boundary and to what is read."""
    first, b = kind.first(v, blocks), ordinary(v.b)
    for edge in (blocks,) if kind is FULL else (blocks, first):
        multiples_ordered(edge, v.i, b)
        multiples_ordered(v.i + 1, edge, b)


def _exactly_what_is_read(kind: Kind) -> Claim:
    """Of the blocks before a boundary, those from the first needed one on hold a token that the query reads."""

    def claim(f: Any, v: Any) -> list[Any]:
        spelt_out(kind, v, v.e)
        first, end = getattr(f, f"needed_{kind.name}")(v.e, v.b, v.eagle, *(getattr(v, name) for name in kind.sizes))
        boundary, last = v.e * v.b, v.i * v.b + v.b - 1
        read = kind.reads(f, v, boundary, v.t)
        return [
            implies(every(read, v.t < boundary), first <= v.i),
            implies(every(first <= v.i, v.i < v.e), kind.reads(f, v, boundary, last)),
            same(end == v.e + 1, v.eagle) if kind.behind else end == v.e,
            first >= 0,
            end <= v.e + 1,
            end >= v.e,
        ]

    return sized(claim)


def _theorem(number: str, kind: Kind, meaning: str, *controls: NegativeControl) -> Theorem:
    behind = "and, where drafts read on, the block behind it" if kind.behind else "with or without drafts"
    return Theorem(
        id=number,
        sentence=f"A hit of {kind.title} needs exactly the blocks that hold a token which the query at its end reads, "
        f"{behind}.",
        variables={
            "b": "tokens per block",
            **kind.size,
            "e": "blocks of the hit",
            "i": "index of a block",
            "t": "position of a token of the block",
            "eagle": "whether drafts read on behind the hit",
        },
        assume=lambda v: [
            v.b >= 1,
            *(getattr(v, name) >= 1 for name in kind.sizes),
            v.e >= 1,
            v.i >= 0,
            v.i * v.b <= v.t,
            v.t < v.i * v.b + v.b,
        ],
        claim=_exactly_what_is_read(kind),
        controls=controls,
        meaning=meaning,
    )


def _wrong(kind: str, first: Callable[..., Any], behind: int = 1) -> dict[str, Callable[..., Any]]:
    """A wrong range of needed blocks; `behind` says how many of them lie behind the hit."""
    return {f"needed_{kind}": lambda e, b, eagle, *size: (first(e, b, *size), e + (behind if eagle else 0))}


T8_FIRST = (
    _theorem(
        "T8",
        SLIDING,
        "A hit of a 1024-token window with blocks of 16 needs 64 registered blocks, whatever the prompt's length. A "
        "window of one token needs none.",
        NegativeControl("the query's own token counts", _wrong("sliding", lambda e, b, w: max(0, e - -(-w // b)))),
        NegativeControl("rounded down", _wrong("sliding", lambda e, b, w: max(0, e - (w - 1) // b))),
    ),
    _theorem(
        "T8.full.needs",
        FULL,
        "A hit needs every block.",
        NegativeControl("not the first one", _wrong("full", lambda e, b: 1)),
    ),
    _theorem(
        "T8.chunked.needs",
        CHUNKED,
        "A hit that ends where a chunk begins needs nothing at all.",
        NegativeControl("the chunk of the last token", _wrong("chunked", lambda e, b, k: (e * b - 1) // k * k // b)),
    ),
    _theorem(
        "T8.mamba.needs",
        MAMBA,
        "One state is all that a hit needs.",
        NegativeControl("two states", _wrong("mamba", lambda e, b: max(0, e - 2), behind=0)),
        NegativeControl("a state behind", _wrong("mamba", lambda e, b: e - 1)),
    ),
)


def _window_need(f: Any, v: Any) -> Any:
    first, end = f.needed_sliding(v.e, v.b, v.eagle, v.w)
    need = f.need(v.w, v.b, v.eagle)
    return [first == max(0, end - need), need == f.need(v.w, v.b, False) + (1 if v.eagle else 0)]


T9 = Theorem(
    id="T9",
    sentence="A window hit of e blocks needs a run of `need` blocks that ends with it; with drafts one block more, "
    "which lies behind it.",
    variables={
        "b": "tokens per block",
        **SLIDING.size,
        "e": "blocks of the hit",
        "eagle": "whether drafts read on behind the hit",
    },
    assume=lambda v: [v.b >= 1, v.w >= 1, v.e >= 1],
    claim=sized(_window_need),
    controls=(
        NegativeControl("no block more", {"need": lambda w, b, eagle: -(-(w - 1) // b)}),
        NegativeControl("one token more in place of one block", {"need": lambda w, b, eagle: -(-(w - 1 + eagle) // b)}),
    ),
    meaning="Drafts cost one registered block per boundary and group.",
)


# T12: where hits may end.


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
    variables={"x": "any number", "u": "unit", "j": "any multiple of the unit"},
    assume=lambda v: [v.u >= 1],
    claim=_rounded,
    controls=(
        NegativeControl("down to the next lower one", {"down": lambda x, u: (x - 1) // u * u}),
        NegativeControl("always up", {"up": lambda x, u: (x // u + 1) * u}),
    ),
)


THEOREMS: tuple[Theorem, ...] = (*T8_FIRST, T9, T12_ROUNDED)
