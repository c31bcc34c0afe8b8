"""The searches for a hit: each finds the longest one that holds what the next query reads (T8, T9, T13).

They search a prompt of few blocks, each of which may be registered or not.
"""

from collections.abc import Callable
from typing import Any

from ..claims import every, implies, multiples_ordered, negation, some
from ..roles.amounts import Chunk, Few, Multiple, plain, positive
from ..symbolic import is_plain
from ..theorem import NegativeControl, Theorem, on_releases

_BLOCKS = 3
_UNROLL = _BLOCKS + 1
_BOUNDED = (
    "The limit lies within the block behind 3 blocks, which are registered in any pattern; block size, window, chunk "
    "and alignment are symbolic. A search compares the run that it has found with what it needs, which may be none, "
    "some or all of the three or more than there are; it treats each block as every other."
)
_SEARCH = {
    "b": "tokens per block",
    "rest": "tokens of the limit behind the last block within it",
    "m": "blocks per alignment",
    **{f"r{i}": f"whether block {i} is registered" for i in range(_BLOCKS)},
}


def _search(v: Any) -> list[Any]:
    return [v.b >= 1, v.m >= 1, v.rest >= 0, v.rest < v.b]


def _asked(search: Any, v: Any, drop: bool, reads: Any) -> Any:
    """A hit is real, aligned, within the limit, and no longer one is; so is the block behind, with `drop`.

    `reads(query, token)`: whether the query at a position reads the token at another.
    """
    b, m = positive(v.b, Few), plain(v.m)
    if not is_plain(m):
        multiples_ordered(_UNROLL + 1, m, v.b)
    registered = [getattr(v, f"r{i}") for i in range(_BLOCKS)]
    hit = search(registered, _BLOCKS * b + v.rest, b, drop, Multiple(m, b) if isinstance(b, Few) else m * b)
    length = len(hit)
    claims = [_aligned(length, m), length + (drop and length > 0) <= _BLOCKS]
    if not claims[1]:
        return claims  # there are no such blocks to look at
    claims += [
        implies(reads(length * b, i * b + b - 1), registered[i] if hit[i] == i else False) for i in range(length)
    ]
    claims += [registered[length]] if drop and length else []
    for edge in range(length + 1, _BLOCKS + 1 - drop):
        if _aligned(edge, m):
            there = [implies(reads(edge * b, i * b + b - 1), registered[i]) for i in range(edge)]
            claims.append(negation(every(*there, *([registered[edge]] if drop else []))))
    return claims


def _aligned(blocks: int, m: Any) -> bool:
    """True if so small a number of blocks is a multiple of `m`; where `m` stayed symbolic, it exceeds them."""
    return blocks % m == 0 if is_plain(m) else blocks == 0


def _whole(f: Any, v: Any, drop: bool = False) -> Any:
    return _asked(f.hit_full, v, drop, f.attends_full)


def _windowed(f: Any, v: Any, drop: bool = False) -> Any:
    return _asked(lambda *a: f.hit_sliding(*a, v.w), v, drop, lambda q, t: f.attends_sliding(q, t, v.w))


def _chunked(f: Any, v: Any, drop: bool = False) -> Any:
    k = positive(v.k, Chunk)
    return _asked(lambda *a: f.hit_chunked(*a, k), v, drop, lambda q, t: every(q // k * k <= t, t <= q))


def _states(f: Any, v: Any, drop: bool = False) -> Any:
    """Drafts have no use for the block behind a state."""
    return _asked(lambda r, limit, b, _, a: f.hit_mamba(r, limit, b, drop, a), v, False, f.attends_mamba)


def _scan(need: Any, aligns: bool = True, behind: int = 1) -> Callable[..., list[int | None]]:
    """The search for `need` blocks as a definition, for negative controls: with too few blocks, or not aligned."""

    def hit(registered: Any, limit: Any, b: Any, drop: Any, alignment: Any, *size: Any) -> list[int | None]:
        needed = need(b, *size) if callable(need) else need
        for end in range(len(registered) - (behind if drop else 0), 0, -1):
            if aligns and not some(*(end * b == times * alignment for times in range(1, end + 1))):
                continue
            first = next((i for i in range(end) if needed >= end - i), end)
            if all(registered[i] for i in range(first, end + (behind if drop else 0))):
                return [i if i >= first else None for i in range(end)]
        return []

    return hit


def _window(fewer: int = 0, **wrong: Any) -> Callable[..., list[int | None]]:
    """The same for a window, with `fewer` blocks than it needs."""
    return _scan(lambda b, w: -(-(w - 1) // b) - fewer, **wrong)


def _theorem(number: str, who: str, reads: str, claim: Any, size: dict[str, str], **more: Any) -> Theorem:
    """What T8 and T9 say of one type of attention; `size` names its window or chunk."""
    drop = number.startswith("T9")
    behind = ", and the block behind," if drop and "state" not in who else ""
    return Theorem(
        id=number,
        sentence=f"{'With eagle, a' if drop else 'A'} search in a {who} group finds the longest aligned prefix within "
        f"the limit of which all blocks that the next query reads{behind} are registered; these stand in the hit.",
        variables={**_SEARCH, **size},
        assume=lambda v: [*_search(v), *(getattr(v, name) >= 1 for name in size)],
        claim=lambda f, v: claim(f, v, drop),
        unroll=_UNROLL,
        bounded=_BOUNDED,
        **more,
    )


T8_HIT = _theorem(
    "T8.hit",
    "window",
    "attends(e*b, t)",
    _windowed,
    {"w": "window, in tokens"},
    controls=(
        NegativeControl("one block fewer than needed", {"hit_sliding": _window(fewer=1)}),
        NegativeControl("not aligned", {"hit_sliding": _window(aligns=False)}),
    ),
    refuted_on=on_releases("a window of one token reads nothing from the cache, yet a search demands a block"),
    meaning="A window of one token reads nothing, so a hit needs nothing there.",
)
T9_HIT = _theorem(
    "T9.hit",
    "window",
    "attends(e*b, t)",
    _windowed,
    {"w": "window, in tokens"},
    controls=(NegativeControl("no block more", {"hit_sliding": _window(behind=0)}),),
    refuted_on=on_releases(
        "where the window reaches back to the start and the alignment is coarser than a block, the run "
        "is cut to the alignment before the eagle drop and after it: a whole alignment of tokens is lost"
    ),
)
T8_FULL = _theorem(
    "T8.full",
    "full-attention",
    "attends(e*b, t)",
    _whole,
    {},
    controls=(
        NegativeControl("not aligned", {"hit_full": _scan(_BLOCKS, aligns=False)}),
        NegativeControl("block 0 is not looked up", {"hit_full": _scan(_BLOCKS - 1)}),
    ),
)
T9_FULL = _theorem(
    "T9.full",
    "full-attention",
    "attends(e*b, t)",
    _whole,
    {},
    controls=(NegativeControl("no block more", {"hit_full": _scan(_BLOCKS, behind=0)}),),
)
T8_MAMBA = _theorem(
    "T8.mamba",
    "state-space",
    "t == e*b - 1",
    _states,
    {},
    controls=(
        NegativeControl("not aligned", {"hit_mamba": _scan(1, aligns=False)}),
        NegativeControl("the first state will do", {"hit_mamba": lambda *a: [0] if a[0][0] else []}),
    ),
    meaning="The query at q reads the state after token q - 1, and nothing else.",
)
T9_MAMBA = _theorem(
    "T9.mamba",
    "state-space",
    "t == e*b - 1",
    _states,
    {},
    controls=(NegativeControl("a block more", {"hit_mamba": _scan(1)}),),
)
_CHUNK = {"k": "chunk, in tokens"}
T8_CHUNKED = _theorem(
    "T8.chunked",
    "chunked-local",
    "e*b // k*k <= t < e*b",
    _chunked,
    _CHUNK,
    controls=(
        NegativeControl("nulls up to the limit", {"hit_chunked": lambda r, limit, b, *a: [None] * len(r)}),
        NegativeControl("no nulls", {"hit_chunked": lambda *a: _scan(_BLOCKS)(*a[:5])}),
    ),
    refuted_on=on_releases(
        "the hit begins at the chunk of the limit, but may end in the chunk before, whose tokens the "
        "next query reads from null blocks: wrong output, silently; other alignments than the block are refused"
    ),
    meaning="That a query reads its chunk up to itself, which is said here by the chunk's border, is T1.reads.",
)
T9_CHUNKED = _theorem(
    "T9.chunked",
    "chunked-local",
    "e*b // k*k <= t < e*b",
    _chunked,
    _CHUNK,
    controls=(NegativeControl("nulls up to the limit", {"hit_chunked": lambda r, limit, b, *a: [None] * len(r)}),),
    refuted_on=on_releases("chunks and eagle together are an AssertionError"),
)


# T13.


def _one_left(f: Any, v: Any) -> Any:
    """Everything is registered, and still not everything is hit."""
    b, everything = positive(v.b, Few), [True] * _BLOCKS
    limit = f.limit(v.n)
    hits = (
        f.hit_full(everything, limit, b, False, b),
        f.hit_sliding(everything, limit, b, False, b, 2),
        f.hit_chunked(everything, limit, b, False, b, positive(v.k, Chunk)),
        f.hit_mamba(everything, limit, b, False, b),
    )
    return [limit == v.n - 1, *(len(hit) * v.b < v.n for hit in hits)]


T13 = Theorem(
    id="T13",
    sentence="A hit leaves at least one token to compute, whatever is registered.",
    variables={"b": "tokens per block", "k": "chunk, in tokens", "n": "tokens of the request"},
    assume=lambda v: [v.b >= 1, v.k >= 1, v.n >= 1, v.n <= 2 * v.b],
    claim=_one_left,
    unroll=_UNROLL,
    bounded="The request has at most 2 blocks, all registered, which is when a hit is longest.",
    controls=(NegativeControl("all tokens may be hit", {"limit": lambda n: n}),),
    meaning="The logits of the last token must be computed; up to a whole block is computed again for it.",
)


THEOREMS: tuple[Theorem, ...] = (
    T8_HIT,
    T9_HIT,
    T8_FULL,
    T9_FULL,
    T8_MAMBA,
    T9_MAMBA,
    T8_CHUNKED,
    T9_CHUNKED,
    T13,
)
