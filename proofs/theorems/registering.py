"""Which blocks are worth registering: those that some hit wants (T10, T11).

A hit ends at a boundary of `edge` blocks. It wants the blocks that the query right behind the boundary reads; with
eagle it wants the block behind the boundary too, which is matched and dropped. Segments have `s` blocks, the alignment
has `m`.
"""

from collections.abc import Callable
from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, negation, quotient_found, same, some
from ..roles.amounts import ordinary
from ..theorem import NegativeControl, Theorem
from .hits import sized


def _keeps(more: int = 1, shift: int = 1, first: int = 0) -> Callable[..., Any]:
    """The tails of segments as a formula, without the tail of the replay; for negative controls that get it wrong.

    With eagle a tail is `more` blocks longer and lies `shift` blocks further; what lies before `first` is in no tail.
    """

    def kept(i: Any, w: Any, b: Any, eagle: Any, alignment: Any, retention: Any, p: Any) -> Any:
        need, per = -(-(w - 1) // b) + (more if eagle else 0), (alignment if retention is None else retention) // b
        moved = i - (shift if eagle else 0)
        return some(need >= per, every(moved >= first, moved % per >= per - need))

    return kept


_MASK = {
    "b": "tokens per block",
    "w": "window, in tokens",
    "m": "blocks per alignment",
    "i": "index of a block",
    "eagle": "whether the last matched block is dropped",
    "p": "tokens of the prompt",
}
_DENSE = {**_MASK, "j": "number of a boundary, from 1", "t": "position of a token of the block"}


def _mask(v: Any) -> list[Any]:
    return [v.b >= 1, v.w >= 1, v.m >= 1, v.i >= 0, v.p >= 1]


def _in_block(v: Any) -> list[Any]:
    return [v.j >= 1, v.i * v.b <= v.t, v.t < v.i * v.b + v.b]


def _wanted(f: Any, v: Any, edge: Any, t: Any) -> Any:
    """True if a hit at the boundary matches the block of `t`: it is read there, or it is the block that eagle drops."""
    return some(every(v.i < edge, f.attends_sliding(edge * v.b, t, v.w)), every(v.eagle, v.i == edge))


def _exists_wanted(f: Any, v: Any, edge: Any) -> Any:
    """If any token of block `i` is read at the boundary, its last one is."""
    return _wanted(f, v, edge, v.i * v.b + v.b - 1)


def _segment_kept(f: Any, v: Any, segment: Any, alignment: Any, retention: Any) -> Any:
    """What a hit at the end of segment `j` wants is kept."""
    edge, need, shift = v.j * segment, f.need(v.w, v.b, False), 1 if v.eagle else 0
    if not _wanted(f, v, edge, v.t):
        return True
    multiples_ordered(v.i, edge - need - 1, ordinary(v.b))
    lemma(edge - need <= v.i, "the window begins in this block at the latest")
    if need + shift < segment:
        quotient_found(v.i - shift, segment, v.j - 1)
    return f.kept(v.i, v.w, v.b, v.eagle, alignment, retention, v.p)


T10 = Theorem(
    id="T10",
    sentence="Every block that a hit at an aligned boundary wants is registered: those that the next query reads, and "
    "with eagle the block behind the boundary.",
    formal="i < j*m and attends(j*m*b, t) with t in block i, or eagle and i == j*m => kept(i)",
    variables=_DENSE,
    assume=lambda v: [*_mask(v), *_in_block(v)],
    claim=sized(lambda f, v: _segment_kept(f, v, v.m, v.m * v.b, None)),
    unroll=1,
    controls=(
        NegativeControl(
            "no block more for eagle",
            {"need": lambda w, b, eagle: -(-(w - 1) // b), "kept": _keeps(more=0)},
        ),
        NegativeControl("eagle does not shift the tail", {"kept": _keeps(shift=0)}),
    ),
)


def _needless(f: Any, v: Any, segment: Any) -> Any:
    """Block 0 where eagle groups keep everything although the tails leave out just this block."""
    return every(v.eagle, v.i == 0, f.need(v.w, v.b, False) + 1 == segment)


def _kept_is_wanted(f: Any, v: Any, exception: Any) -> Any:
    """A block that is kept is wanted at the end of its segment (eagle: block 0 belongs to the first one)."""
    shift = 1 if v.eagle else 0
    if not f.kept(v.i, v.w, v.b, v.eagle, v.m * v.b, None, v.p):
        return True
    number = (v.i - shift) // v.m + 1 if v.i >= shift else 1
    edge, need = number * v.m, f.need(v.w, v.b, False)
    lemma(edge >= 1, "the boundary is not the start")
    if exception(f, v, v.m):
        return True
    multiples_ordered(edge - need, v.i, ordinary(v.b))
    multiples_ordered(v.i + 1, edge, ordinary(v.b))
    return _exists_wanted(f, v, edge)


_NO_TOKEN = {name: meaning for name, meaning in _DENSE.items() if name not in ("j", "t")}

T10_EXACT = Theorem(
    id="T10.exact",
    sentence="Every block that is registered is wanted by a hit at some aligned boundary.",
    formal="kept(i) => exists j >= 1: i < j*m and attends(j*m*b, i*b + b - 1), or eagle and i == j*m",
    variables=_NO_TOKEN,
    assume=_mask,
    claim=sized(lambda f, v: _kept_is_wanted(f, v, lambda f, v, segment: False)),
    unroll=1,
    controls=(NegativeControl("everything is kept", {"kept": lambda *a: True}),),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "block 0 of an eagle group is registered although no hit can want it, where the window and the block that "
        "eagle drops fill just one segment: a hit ends behind block 1 at the earliest, and reads no further back",
    ),
)

T10_SHARP = Theorem(
    id="T10.sharp",
    sentence="Every block that is registered is wanted by a hit at some aligned boundary, but for block 0 of an eagle "
    "group of which the window and the dropped block fill just one segment.",
    formal="kept(i) and not (eagle and i == 0 and need_eagle == m) => exists j >= 1: i < j*m and "
    "attends(j*m*b, i*b + b - 1), or eagle and i == j*m",
    variables=_NO_TOKEN,
    assume=_mask,
    claim=sized(lambda f, v: _kept_is_wanted(f, v, _needless)),
    unroll=1,
    controls=(
        NegativeControl("everything is kept", {"kept": lambda *a: True}),
        NegativeControl("block 0 may be the block that eagle drops", {"kept": _keeps(first=-1)}),
    ),
    meaning="The one needless block costs no memory: it is a candidate for eviction as before, only later.",
)


T10_SPARSE = Theorem(
    id="T10.sparse",
    sentence="With a retention interval, every block that a hit at a multiple of the interval wants is registered.",
    formal="retention = s*b: i < j*s and attends(j*s*b, t) with t in block i, or eagle and i == j*s => kept(i)",
    variables={**_DENSE, "s": "blocks per retention interval"},
    assume=lambda v: [*_mask(v), *_in_block(v), v.s >= 1],
    claim=sized(lambda f, v: _segment_kept(f, v, v.s, v.m * v.b, v.s * v.b)),
    unroll=1,
    controls=(
        NegativeControl(
            "the interval is ignored",
            {"kept": lambda i, w, b, eagle, alignment, r, p: _keeps()(i, w, b, eagle, alignment, None, p)},
        ),
    ),
    meaning="The interval need not even be a multiple of the alignment for that.",
)


def _keeps_replay(last: int = 1, shift: int = 1) -> Callable[..., Any]:
    """The tail of the replay as a formula, for negative controls that get it wrong.

    The boundary lies within the prompt less `last` tokens; with eagle the tail lies `shift` blocks further.
    """

    def kept(i: Any, w: Any, b: Any, eagle: Any, alignment: Any, retention: Any, p: Any) -> Any:
        need, end = (
            -(-(w - 1) // b) + (1 if eagle else 0),
            (p - last) // alignment * alignment // b + (shift if eagle else 0),
        )
        return every(end - need <= i, i < end)

    return kept


def _replay_tail(f: Any, v: Any) -> Any:
    """With interval 0, kept is exactly what a hit at boundary `j` wants, the last one below the prompt's end."""
    unit = v.m * v.b
    prompt, edge = v.j * unit + v.x + 1, v.j * v.m
    quotient_found(v.j * unit + v.x, unit, v.j)
    need = f.need(v.w, v.b, False)
    kept = f.kept(v.i, v.w, v.b, v.eagle, unit, 0, prompt)
    multiples_ordered(v.i, edge - need - 1, ordinary(v.b))
    multiples_ordered(edge - need, v.i, ordinary(v.b))
    multiples_ordered(v.i + 1, edge, ordinary(v.b))
    return [implies(_wanted(f, v, edge, v.t), kept), implies(kept, _exists_wanted(f, v, edge))]


_REPLAY = {
    **{name: _DENSE[name] for name in ("b", "w", "m", "i", "eagle", "t")},
    "j": "number of the last boundary below the prompt's last token",
    "x": "prompt tokens behind that boundary, less one",
}


def _replay(v: Any) -> list[Any]:
    return [v.b >= 1, v.w >= 1, v.m >= 1, v.i >= 0, *_in_block(v), v.x >= 0, v.x < v.m * v.b]


T11 = Theorem(
    id="T11",
    sentence="With retention interval 0, exactly those blocks are registered that a hit wants at the largest aligned "
    "boundary not above num_prompt_tokens - 1.",
    formal="p - 1 = j*m*b + x, 0 <= x < m*b, j >= 1: kept(i) <=> i < j*m and the query at j*m*b reads block i, or "
    "eagle and i == j*m",
    variables=_REPLAY,
    assume=_replay,
    claim=sized(_replay_tail),
    unroll=1,
    controls=(
        NegativeControl("the whole prompt is the boundary", {"kept": _keeps_replay(last=0)}),
        NegativeControl("eagle does not shift the tail", {"kept": _keeps_replay(shift=0)}),
    ),
)


def _empty_replay(f: Any, v: Any) -> Any:
    return negation(f.kept(v.i, v.w, v.b, v.eagle, v.m * v.b, 0, v.p))


T11_EMPTY = Theorem(
    id="T11.short",
    sentence="With retention interval 0, nothing is registered for a prompt in which no boundary lies.",
    formal="p <= m*b => not kept(i)",
    variables=_MASK,
    assume=lambda v: [*_mask(v), v.p <= v.m * v.b],
    claim=sized(_empty_replay),
    unroll=1,
    controls=(NegativeControl("everything is kept", {"kept": lambda *a: True}),),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "an eagle group registers block 0, which stands behind a boundary of 0 tokens: no hit is that short",
    ),
)


def _replay_found(f: Any, v: Any, sharp: bool = False) -> Any:
    """What a replay of the prompt wants at the last boundary that it can reach is kept."""
    edge, unit = v.j * v.m, v.m * v.b
    behind = v.x + v.b if v.eagle else v.x
    if sharp and behind >= unit:
        return True
    quotient_found(v.j * unit + behind, unit, v.j)
    multiples_ordered(v.i, edge - f.need(v.w, v.b, False) - 1, ordinary(v.b))
    multiples_ordered(v.i + 1, edge, ordinary(v.b))
    kept = f.kept(v.i, v.w, v.b, v.eagle, unit, 0, v.j * unit + behind + 1)
    return implies(_wanted(f, v, edge, v.t), kept)


T11_REPLAY = Theorem(
    id="T11.replay",
    sentence="With retention interval 0, a replay of the prompt finds all that it wants at the last boundary that it "
    "can reach; with eagle the block behind the boundary must lie within the prompt, too.",
    formal="p - 1 = j*m*b + (b if eagle) + x, 0 <= x < m*b: wanted(i, j*m) => kept(i)",
    variables=_REPLAY,
    assume=_replay,
    claim=sized(_replay_found),
    unroll=1,
    controls=(NegativeControl("nothing is kept", {"kept": lambda *a: False}),),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "the boundary that is kept is that of a search without eagle: see T11.lost",
    ),
)


T11_SHARP = Theorem(
    id="T11.sharp",
    sentence="What T11.replay says holds without eagle, and with eagle if a block and one token lie between the last "
    "aligned boundary below the prompt's last token and that token.",
    formal="as T11.replay, and b + x < m*b with eagle",
    variables=_REPLAY,
    assume=_replay,
    claim=sized(lambda f, v: _replay_found(f, v, sharp=True)),
    unroll=1,
    controls=(NegativeControl("eagle does not shift the tail", {"kept": _keeps_replay(shift=0)}),),
)


def _replay_lost(f: Any, v: Any) -> Any:
    """The first block that the replay wants is not kept."""
    edge, unit, need = v.j * v.m, v.m * v.b, f.need(v.w, v.b, False)
    first = edge - need
    if first < 0:
        return True
    quotient_found((v.j + 1) * unit + v.x, unit, v.j + 1)
    return [
        f.attends_sliding(edge * v.b, first * v.b + v.b - 1, v.w),
        negation(f.kept(first, v.w, v.b, True, unit, 0, (v.j + 1) * unit + v.x + 1)),
    ]


T11_LOST = Theorem(
    id="T11.lost",
    sentence="With eagle and retention interval 0, the replay of a prompt of which less than a block lies behind the "
    "last aligned boundary finds nothing, if the window does not reach back to the start.",
    formal="p - 1 = (j + 1)*m*b + x, 0 <= x < b, j*m >= need >= 1: the query at j*m*b reads block j*m - need, and it "
    "is not kept",
    variables={**{name: _REPLAY[name] for name in ("b", "w", "m", "j")}, "x": "tokens behind the boundary, less one"},
    assume=lambda v: [v.b >= 1, v.w >= 2, v.m >= 1, v.j >= 1, v.x >= 0, v.x < v.b],
    claim=sized(_replay_lost),
    unroll=1,
    controls=(
        NegativeControl(
            "the tail before is kept", {"kept": lambda i, w, b, e, a, r, p: _keeps_replay()(i, w, b, e, a, r, p - a)}
        ),
    ),
    meaning="With one block size for all groups that is every prompt longer than the window: retention interval 0 with "
    "eagle never hits on a replay. A boundary one alignment earlier, down(p - 1 - b, alignment), would.",
)


def _something_kept(f: Any, v: Any) -> Any:
    """The block at which a search of boundary `j` begins."""
    edge = v.j * v.m
    if v.eagle:
        quotient_found(edge - 1, v.m, v.j - 1)
        quotient_found(edge, v.m, v.j)
    quotient_found(edge - 1, v.m, v.j - 1)
    return f.kept(edge if v.eagle else edge - 1, v.w, v.b, v.eagle, v.m * v.b, None, v.p)


_EDGE = {name: _DENSE[name] for name in ("b", "w", "m", "eagle", "p", "j")}

T10_ONE = Theorem(
    id="T10.one",
    sentence="At every aligned boundary, the block at which a search begins is registered.",
    formal="kept(j*m - 1), with eagle kept(j*m)",
    variables=_EDGE,
    assume=lambda v: [v.b >= 1, v.w >= 1, v.m >= 1, v.p >= 1, v.j >= 1],
    claim=sized(_something_kept),
    unroll=1,
    controls=(NegativeControl("nothing is kept", {"kept": lambda *a: False}),),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "a window of one token without eagle needs no block, so none is ever registered; but a search demands one. So "
        "such a group, and every model with one, never hits",
    ),
)

T10_TWO = Theorem(
    id="T10.two",
    sentence="At every aligned boundary, the block at which a search begins is registered, with eagle and for a window "
    "of two tokens or more.",
    formal="w >= 2 or eagle => kept(j*m - 1), with eagle kept(j*m)",
    variables=_EDGE,
    assume=lambda v: [v.b >= 1, v.w >= 1, v.m >= 1, v.p >= 1, v.j >= 1, some(v.w >= 2, v.eagle)],
    claim=sized(_something_kept),
    unroll=1,
    controls=(NegativeControl("nothing is kept", {"kept": lambda *a: False}),),
)


def _registers(f: Any, v: Any) -> Any:
    """Of the full blocks, those up to the last boundary, and with eagle the one behind."""
    unit, edge = v.m * v.b, v.a * v.m
    n = v.a * unit + v.x
    quotient_found(n, unit, v.a)
    end = f.registers(n, v.b, v.eagle, unit)
    multiples_ordered(v.i + 1, edge, ordinary(v.b))
    multiples_ordered(edge, v.i, ordinary(v.b))
    multiples_ordered(edge + 1, v.i, ordinary(v.b))
    full, needed = v.i * v.b + v.b <= n, some(v.i < edge, every(v.eagle, v.i == edge, v.a >= 1))
    return [end <= n, same(v.i * v.b + v.b <= end, every(full, needed))]


T10_REGISTERS = Theorem(
    id="T10.registers",
    sentence="With several groups, exactly the full blocks before the last aligned boundary are registered, and with "
    "eagle the one behind it.",
    formal="n = a*m*b + x, 0 <= x < m*b: (i + 1)*b <= end <=> (i + 1)*b <= n and (i < a*m or eagle and i == a*m and "
    "a >= 1)",
    variables={
        **{name: _DENSE[name] for name in ("b", "m", "i", "eagle")},
        "a": "aligned boundaries within the computed tokens",
        "x": "computed tokens behind the last one",
    },
    assume=lambda v: [v.b >= 1, v.m >= 1, v.i >= 0, v.a >= 0, v.x >= 0, v.x < v.m * v.b],
    claim=sized(_registers),
    controls=(
        NegativeControl(
            "eagle gets no block more", {"registers": lambda n, b, eagle, alignment: n // alignment * alignment}
        ),
        NegativeControl("all is registered", {"registers": lambda n, b, eagle, alignment: n}),
    ),
    meaning="What lies behind the last boundary can be part of no hit yet; it is registered when the next one is "
    "reached.",
)


THEOREMS: tuple[Theorem, ...] = (
    T10,
    T10_EXACT,
    T10_SHARP,
    T10_SPARSE,
    T11,
    T11_EMPTY,
    T11_REPLAY,
    T11_SHARP,
    T11_LOST,
    T10_ONE,
    T10_TWO,
    T10_REGISTERS,
)
