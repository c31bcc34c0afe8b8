"""The searches for a hit: each finds the longest one that holds what the next query reads (T8, T9, T13).

They search a prompt of few blocks, each of which may be registered or not.
"""

from collections.abc import Callable
from typing import Any

from ..claims import every, implies, negation, same
from ..roles.amounts import BlockSize, FewBlocks, amount, last_token, plain, positive, window
from ..symbolic import is_plain
from ..theorem import NegativeControl, Theorem

_BLOCKS = 3
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
_WINDOW_SEARCH = {
    **_SEARCH,
    "need": "blocks that the window reaches back",
    "short": "tokens by which it ends before them",
}


def _search(v: Any) -> list[Any]:
    return [v.b >= 1, v.m >= 1, v.rest >= 0, v.rest < v.b]


def _window_search(v: Any) -> list[Any]:
    """`w == need*b - short + 1`: every window from 2 on, once; and `need == 0` gives 1."""
    return [*_search(v), v.need >= 1, v.short >= 0, v.short < v.b]


def _result(search: Any, reads: Any, v: Any, drop: bool = False, cut: bool = True) -> Any:
    """A hit is real, aligned, within the limit, and no longer one is."""
    b = positive(v.b, BlockSize)
    m = plain(v.m) if cut else 1
    registered = [getattr(v, f"r{i}") for i in range(_BLOCKS)]
    hit = search(registered, amount(_BLOCKS, b, v.rest), b, drop, m * b)
    length = len(hit)
    claims = [_aligned(length, m), length + (drop and length > 0) <= _BLOCKS]
    for i in range(length):
        claims.append(implies(reads(length * b, last_token(i, b)), registered[i] if hit[i] == i else False))
    if drop and length:
        claims.append(registered[length])
    for edge in range(length + 1, _BLOCKS + 1 - drop):
        if not _aligned(edge, m):
            continue
        there = [implies(reads(edge * b, last_token(i, b)), registered[i]) for i in range(edge)]
        claims.append(negation(every(*there, *([registered[edge]] if drop else []))))
    return every(*claims)


def _aligned(blocks: int, m: Any) -> bool:
    """True if so small a number of blocks is a multiple of `m`; where `m` stayed symbolic, it exceeds them."""
    return blocks % m == 0 if is_plain(m) else blocks == 0


def _windowed(f: Any, v: Any, drop: bool = False) -> Any:
    w = window(v.need, v.short, positive(v.b, BlockSize))
    return _result(lambda *a: f.hit_sliding(*a, w), lambda q, t: f.attends_sliding(q, t, w), v, drop)


def _scan(need: Any, aligns: bool = True) -> Callable[..., list[int | None]]:
    """The search for `need` blocks as a definition, for negative controls: with too few blocks, or not aligned."""

    def hit(registered: Any, limit: Any, b: Any, drop: Any, alignment: Any) -> list[int | None]:
        for end in range(limit // b, 0, -1):
            if aligns and (end - drop) * b % alignment != 0:
                continue
            first = next((i for i in range(end) if need + drop >= end - i), end)
            if all(registered[i] for i in range(first, end)):
                return [i if i >= first else None for i in range(end - drop)]
        return []

    return hit


def _scan_window(fewer: int = 0, aligns: bool = True) -> Callable[..., list[int | None]]:
    """The same for a window, with `fewer` blocks than it needs."""

    def hit(registered: Any, limit: Any, b: Any, drop: Any, alignment: Any, w: Any) -> list[int | None]:
        return _scan(-(-(w - 1) // b) - fewer, aligns)(registered, limit, b, drop, alignment)

    return hit


_LOST_AT_ONE = "a window of one token reads nothing from the cache, yet a search demands one registered block"

T8_HIT = Theorem(
    id="T8.hit",
    sentence="A search in a window group finds the longest aligned prefix within the limit of which all blocks that "
    "the next query reads are registered; these stand in the hit. The window is of 2 tokens at least.",
    formal="w >= 2: |hit| = max{e <= limit // b: m divides e, attends(e*b, t) => registered(t // b)}",
    variables=_WINDOW_SEARCH,
    assume=_window_search,
    claim=_windowed,
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(
        NegativeControl("one block fewer than needed", {"hit_sliding": _scan_window(fewer=1)}),
        NegativeControl("not aligned", {"hit_sliding": _scan_window(aligns=False)}),
    ),
    meaning="A group of its own finds the longest hit, so what a hybrid search loses is lost between the groups (T14).",
)

T8_LONGEST = Theorem(
    id="T8.one",
    sentence="A search in a window group finds the longest aligned prefix (T8.hit) for a window of one token, too.",
    formal="w == 1: |hit| = max{e <= limit // b: m divides e}",
    variables=_WINDOW_SEARCH,
    assume=lambda v: [*_search(v), v.need == 0, v.short == 0],
    claim=_windowed,
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(NegativeControl("not aligned", {"hit_sliding": _scan_window(aligns=False)}),),
    refuted_on=dict.fromkeys(("model", "impl", "vllm==0.23.0"), f"{_LOST_AT_ONE}: see T10.one"),
)

T9_HIT = Theorem(
    id="T9.hit",
    sentence="With eagle, a search in a window group finds the longest aligned prefix of which all blocks that the "
    "next query reads, and the block behind, are registered.",
    formal="|hit| = max{e < limit // b: m divides e, attends(e*b, t) => registered(t // b), registered(e)}",
    variables=_WINDOW_SEARCH,
    assume=_window_search,
    claim=lambda f, v: _windowed(f, v, True),
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(NegativeControl("no block more", {"hit_sliding": _scan_window(fewer=1)}),),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "where the window reaches back to the start and the alignment is coarser than a block, the run is cut to the "
        "alignment before the eagle drop and after it: a whole alignment of tokens is lost, see T9.loss",
    ),
)


def _loss(f: Any, v: Any) -> Any:
    """What T9.hit loses at most."""
    b, m = positive(v.b, BlockSize), plain(v.m)
    w = window(v.need, v.short, b)
    registered = [getattr(v, f"r{i}") for i in range(_BLOCKS)]
    hit = f.hit_sliding(registered, amount(_BLOCKS, b, v.rest), b, True, m * b, w)
    length = len(hit)
    claims = [_aligned(length, m)]
    for i in range(length):
        read = f.attends_sliding(length * b, last_token(i, b), w)
        claims.append(implies(read, registered[i] if hit[i] == i else False))
    claims += [registered[length]] if length else []
    for edge in range(length + 1, _BLOCKS):
        if _aligned(edge, m):
            there = [implies(f.attends_sliding(edge * b, last_token(i, b), w), registered[i]) for i in range(edge)]
            lost = every(v.need > edge, length >= edge - m) if is_plain(m) and m > 1 else False
            claims.append(implies(every(*there, registered[edge]), lost))
    return every(*claims)


T9_LOSS = Theorem(
    id="T9.loss",
    sentence="With eagle, the hit is real and aligned, and the longest such if the alignment is one block or the "
    "window does not reach back to the start; else at most one alignment is lost.",
    formal="e as in T9.hit: |hit| == e, or m >= 2 and need > e and |hit| >= e - m",
    variables=_WINDOW_SEARCH,
    assume=_window_search,
    claim=_loss,
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(NegativeControl("no block more", {"hit_sliding": _scan_window(fewer=1)}),),
    meaning="A prompt shorter than the window loses scheduler_block_size tokens of its hit, the whole hit if it is no "
    "longer; in a hybrid model the full-attention groups lose as much.",
)

T8_FULL = Theorem(
    id="T8.full",
    sentence="A search in a full-attention group finds the longest aligned prefix within the limit of which every "
    "block is registered.",
    formal="|hit| = max{e <= limit // b: m divides e, attends(e*b, t) => registered(t // b)}",
    variables=_SEARCH,
    assume=_search,
    claim=lambda f, v: _result(f.hit_full, f.attends_full, v),
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(
        NegativeControl("not aligned", {"hit_full": _scan(_BLOCKS, aligns=False)}),
        NegativeControl("block 0 is not looked up", {"hit_full": _scan(_BLOCKS - 1)}),
    ),
)


def _scan_all(registered: Any, limit: Any, b: Any, drop: Any, alignment: Any) -> Any:
    return _scan(_BLOCKS)(registered, limit, b, False, alignment)


def _full_dropped(f: Any, v: Any) -> Any:
    """The longest aligned prefix that leaves the last registered block over."""
    b, m = positive(v.b, BlockSize), plain(v.m)
    registered = [getattr(v, f"r{i}") for i in range(_BLOCKS)]
    hit = f.hit_full(registered, amount(_BLOCKS, b, v.rest), b, True, m * b)
    claims = [_aligned(len(hit), m), hit == list(range(len(hit)))]
    for edge in range(1, _BLOCKS):
        if _aligned(edge, m):
            claims.append(same(edge <= len(hit), every(*registered[: edge + 1])))
    return every(len(hit) < _BLOCKS, *claims)


T9_FULL = Theorem(
    id="T9.full",
    sentence="With eagle, a search in a full-attention group finds the longest aligned prefix of which every block and "
    "the block behind are registered.",
    formal="|hit| = max{e < limit // b: m divides e, registered(0 .. e)}",
    variables=_SEARCH,
    assume=_search,
    claim=_full_dropped,
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(
        NegativeControl(
            "no block is dropped", {"hit_full": lambda r, limit, b, drop, a: _scan(_BLOCKS)(r, limit, b, False, a)}
        ),
    ),
)

T8_MAMBA = Theorem(
    id="T8.mamba",
    sentence="A search in a mamba group finds the longest aligned prefix within the limit whose last state is "
    "registered.",
    formal="|hit| = max{e <= limit // b: m divides e, registered(e - 1)}, where the query at q reads the state after "
    "q - 1",
    variables=_SEARCH,
    assume=_search,
    claim=lambda f, v: _result(f.hit_mamba, lambda q, t: t == q - 1, v),
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(
        NegativeControl("not aligned", {"hit_mamba": _scan(1, aligns=False)}),
        NegativeControl("the first state will do", {"hit_mamba": lambda *a: [0] if a[0][0] else []}),
    ),
)


# Chunks: the search begins at the chunk of the limit, whatever it finds there.

_CHUNK = {
    "b": "tokens per block",
    "k": "chunk, in tokens",
    "limit": "most tokens of a hit",
}


def _nothing_read(f: Any, v: Any) -> Any:
    """With nothing registered, the hit has null blocks only: no token in them may be read behind it."""
    b, k = positive(v.b, FewBlocks), v.k
    hit = f.hit_chunked([False] * (_BLOCKS + 1), v.limit, b, False, b, k)
    return every(*(negation(f.attends_chunked(len(hit) * b, last_token(i, b), k)) for i in range(len(hit))))


T8_CHUNK = Theorem(
    id="T8.chunked",
    sentence="A hit in a chunked-local group holds every block that the next query reads.",
    formal="nothing registered, t in a block of the hit => not attends(|hit|*b, t)",
    variables=_CHUNK,
    assume=lambda v: [v.b >= 1, v.k >= 1, v.limit >= 0, v.limit < 2 * v.b],
    claim=_nothing_read,
    unroll=2,
    bounded="The limit is less than two blocks. It is refuted, so more would not help.",
    controls=(
        NegativeControl("a hit reaches to the limit", {"hit_chunked": lambda r, limit, b, *a: [None] * (limit // b)}),
    ),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "where the block size does not divide the chunk: blocks before the chunk of the limit count as hit, but the "
        "hit ends in the chunk before, whose tokens the next query reads from null blocks: wrong output, silently",
    ),
)


def _whole_chunks(f: Any, v: Any) -> Any:
    b = positive(v.b, BlockSize)
    k = plain(v.c) * b
    return _result(lambda *a: f.hit_chunked(*a, k), lambda q, t: f.attends_chunked(q, t, k), v, cut=False)


T8_DIVIDES = Theorem(
    id="T8.divides",
    sentence="Where the block size divides the chunk, a search in a chunked-local group finds the longest prefix "
    "within the limit of which all blocks that the next query reads are registered; these stand in the hit.",
    formal="k = c*b: |hit| = max{e <= limit // b: attends(e*b, t) => registered(t // b)}",
    variables={**_SEARCH, "c": "blocks per chunk"},
    assume=lambda v: [*_search(v), v.c >= 1],
    claim=_whole_chunks,
    unroll=_BLOCKS,
    bounded=_BOUNDED,
    controls=(
        NegativeControl("nulls up to the limit", {"hit_chunked": lambda r, limit, b, *a: [None] * (limit // b)}),
        NegativeControl("no nulls", {"hit_chunked": lambda *a: _scan(_BLOCKS)(*a[:5])}),
    ),
)


# T13.


def _one_left(f: Any, v: Any) -> Any:
    """Everything is registered, and still not everything is hit."""
    b, everything = positive(v.b, FewBlocks), [True] * _BLOCKS
    limit = f.limit(v.n)
    hits = (
        f.hit_full(everything, limit, b, False, b),
        f.hit_sliding(everything, limit, b, False, b, 2),
        f.hit_chunked(everything, limit, b, False, b, v.k),
        f.hit_mamba(everything, limit, b, False, b),
    )
    return [limit == v.n - 1, *(len(hit) * v.b < v.n for hit in hits)]


T13 = Theorem(
    id="T13",
    sentence="A hit leaves at least one token to compute, whatever is registered.",
    formal="limit(n) == n - 1 and |hit| * b < n",
    variables={"b": "tokens per block", "k": "chunk, in tokens", "n": "tokens of the request"},
    assume=lambda v: [v.b >= 1, v.k >= 1, v.n >= 1, v.n <= 2 * v.b],
    claim=_one_left,
    unroll=2,
    bounded="The request has at most 2 blocks, all registered, which is when a hit is longest.",
    controls=(NegativeControl("all tokens may be hit", {"limit": lambda n: n}),),
    meaning="The logits of the last token must be computed; up to a whole block is computed again for it.",
)


THEOREMS: tuple[Theorem, ...] = (
    T8_HIT,
    T8_LONGEST,
    T9_HIT,
    T9_LOSS,
    T8_FULL,
    T9_FULL,
    T8_MAMBA,
    T8_CHUNK,
    T8_DIVIDES,
    T13,
)
