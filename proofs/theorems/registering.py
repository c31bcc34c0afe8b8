"""Which blocks are worth registering: those that some hit needs (T10, T11).

A hit may end at a boundary: a multiple of the alignment, `m` blocks, or, with a retention interval, a multiple of that,
`s` blocks, and where a replay of the prompt can end. What it needs there is T8.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..claims import every, implies, multiples_ordered, same, some
from ..roles.amounts import ordinary
from ..roles.hits import Ends
from ..theorem import Claim, NegativeControl, Theorem, on_releases
from .hits import CHUNKED, FULL, MAMBA, SLIDING, Kind, sized, spelt_out

_BLOCK = {
    "b": "tokens per block",
    "i": "index of a block",
    "t": "position of a token of the block",
    "eagle": "whether drafts read on behind the hits of this group",
}
_PROMPT = {
    "m": "blocks per alignment",
    "p": "tokens of the prompt",
    "behind": "tokens that must follow a hit, on account of any group",
}


def _any_block(kind: Kind, v: Any) -> list[Any]:
    sizes = [getattr(v, name) >= 1 for name in kind.sizes]
    return [v.b >= 1, *sizes, v.i >= 0, v.i * v.b <= v.t, v.t < v.i * v.b + v.b]


def _any_prompt(v: Any) -> list[Any]:
    return [v.m >= 1, v.p >= 1, v.behind >= 1, implies(v.eagle, v.behind >= v.b)]


def _wants(kind: Kind, f: Any, v: Any, blocks: Any, t: Any) -> Any:
    """A hit of so many blocks needs the block of `t`: its query reads `t`, or drafts read on there."""
    read = every(v.i < blocks, kind.reads(f, v, blocks * v.b, t))
    return every(blocks >= 1, some(read, every(v.eagle, v.i == blocks)) if kind.behind else read)


def _exists(kind: Kind, f: Any, v: Any, blocks: Any) -> Any:
    """If any token of block `i` is read, its last one is."""
    return _wants(kind, f, v, blocks, v.i * v.b + v.b - 1)


def _kept(kind: Kind, f: Any, v: Any, retention: Any) -> Any:
    keeps = getattr(f, f"kept_{kind.name}")
    ends = Ends(v.m * v.b, retention, v.p, v.behind)
    return keeps(v.i, v.b, v.eagle, ends, *(getattr(v, name) for name in kind.sizes))


def _nearest(kind: Kind, v: Any, unit: Any) -> tuple[Any, Any]:
    """The multiples of a unit, in blocks, at or before block `i`, and at or after its end; with laws about them."""
    edges = v.i // unit * unit, -(-(v.i + 1) // unit) * unit
    for edge in edges:
        spelt_out(kind, v, edge)
    return edges


def _any_multiple(kind: Kind, v: Any, unit: Any) -> Any:
    """An arbitrary multiple of a unit, in blocks: each is the one at or before some block; with laws about it."""
    edge = v.z // unit * unit
    spelt_out(kind, v, edge)
    return edge


def _of_interval(kind: Kind, unit: str) -> Claim:
    """Registered is what a hit at any multiple of the unit needs, and nothing that none at the nearest two needs."""

    def claim(f: Any, v: Any) -> list[Any]:
        segment = getattr(v, unit)
        nearest, edge = _nearest(kind, v, segment), _any_multiple(kind, v, segment)
        kept = _kept(kind, f, v, None if unit == "m" else segment * v.b)
        return [
            implies(_wants(kind, f, v, edge, v.t), kept),
            implies(kept, some(*(_exists(kind, f, v, one) for one in nearest))),
        ]

    return sized(claim)


def _replay(kind: Kind, v: Any) -> Any:
    """Blocks up to the last boundary that a replay can reach, the largest with `behind` tokens of the prompt behind it;
    with laws about it."""
    edge = (v.p - v.behind) // (v.m * v.b) * (v.m * v.b) // v.b
    spelt_out(kind, v, edge)
    return edge


def _of_replay(kind: Kind) -> Claim:
    """With retention interval 0, registered is exactly what a replay of the prompt needs."""

    def claim(f: Any, v: Any) -> list[Any]:
        replay = _replay(kind, v)
        kept = _kept(kind, f, v, 0)
        return [implies(_wants(kind, f, v, replay, v.t), kept), implies(kept, _exists(kind, f, v, replay))]

    return sized(claim)


def _dense(number: str, kind: Kind, *controls: NegativeControl, **more: Any) -> Theorem:
    return Theorem(
        id=number,
        sentence=f"Of {kind.title}, exactly those blocks are registered that a hit at some aligned boundary needs.",
        variables={**_BLOCK, **kind.size, "z": "index of any block", **_PROMPT},
        assume=lambda v: [*_any_block(kind, v), v.m >= 1, v.z >= 0, v.p >= 1, v.behind >= 1],
        claim=_of_interval(kind, "m"),
        unroll=1,
        controls=(NegativeControl("everything", {f"kept_{kind.name}": lambda *a: True}), *controls)
        if kind is not FULL
        else controls,
        **more,
    )


def _sparse(number: str, kind: Kind, *controls: NegativeControl, **more: Any) -> Theorem:
    return Theorem(
        id=number,
        sentence=f"With a retention interval, of {kind.title} exactly those blocks are registered that a hit at some "
        "multiple of the interval needs; the prompt is too short for a replay, which adds what T11 says.",
        variables={**_BLOCK, **kind.size, **_PROMPT, "s": "blocks per interval", "z": "index of any block"},
        assume=lambda v: [*_any_block(kind, v), *_any_prompt(v), v.p <= v.behind, v.s >= 1, v.z >= 0],
        claim=_of_interval(kind, "s"),
        unroll=1,
        controls=controls,
        meaning="The interval need not even be a multiple of the alignment for that.",
        **more,
    )


def _replayed(number: str, kind: Kind, *controls: NegativeControl, **more: Any) -> Theorem:
    return Theorem(
        id=number,
        sentence=f"With retention interval 0, of {kind.title} exactly those blocks are registered that a replay of the "
        "prompt needs at the last boundary that it can reach; nothing where it can reach none.",
        variables={**_BLOCK, **kind.size, **_PROMPT},
        assume=lambda v: [*_any_block(kind, v), *_any_prompt(v)],
        claim=_of_replay(kind),
        unroll=1,
        controls=tuple(
            replace(control, assume=lambda v: [*_any_block(kind, v), *_any_prompt(v), v.p < 2 * v.m * v.b])
            for control in (NegativeControl("everything is kept", {f"kept_{kind.name}": lambda *a: True}), *controls)
        ),
        **more,
    )


_NOTHING = NegativeControl("nothing is registered", {"kept_full": lambda *a: False})
_WASTE = "blocks are registered that no hit can need"
_THINNED = "everything is registered, whatever the interval is"


def _keeps(shift: int = 1, more: int = 1) -> Callable[..., Any]:
    """The ends of segments as a formula, for negative controls that get it wrong: with drafts the end of a segment is
    `more` blocks longer and lies `shift` blocks further."""

    def kept(i: Any, b: Any, eagle: Any, ends: Ends, w: Any) -> Any:
        need = -(-(w - 1) // b) + (more if eagle else 0)
        per = (ends.alignment if ends.retention is None else ends.retention) // b
        moved = i - (shift if eagle else 0)
        return some(need >= per, every(moved >= 0, moved % per >= per - need))

    return kept


def _keeps_replay(last: Any) -> Callable[..., Any]:
    """The end of the replay as a formula, with `last` tokens of the prompt left behind it."""

    def kept(i: Any, b: Any, eagle: Any, ends: Ends, w: Any) -> Any:
        edge = (ends.prompt - last) // ends.alignment * ends.alignment // b
        return every(edge >= 1, edge + (1 - w) // b <= i, i < edge + (1 if eagle else 0))

    return kept


T10 = _dense(
    "T10",
    SLIDING,
    NegativeControl("no block more for drafts", {"kept_sliding": _keeps(more=0)}),
    NegativeControl("drafts do not shift the end", {"kept_sliding": _keeps(shift=0)}),
    refuted_on=on_releases("block 0 of an eagle window is registered although no hit can need it"),
)
T10_SPARSE = _sparse(
    "T10.sparse",
    SLIDING,
    NegativeControl(
        "the interval is ignored",
        {"kept_sliding": lambda i, b, e, ends, w: _keeps()(i, b, e, ends._replace(retention=None), w)},
    ),
    refuted_on=on_releases("as T10 and T11"),
)
T11 = _replayed(
    "T11",
    SLIDING,
    NegativeControl("the whole prompt may be hit", {"kept_sliding": _keeps_replay(0)}),
    NegativeControl("only the last token is left", {"kept_sliding": _keeps_replay(1)}),
    refuted_on={
        "vllm==0.23.0": "with eagle the boundary that is kept is one that a replay cannot reach, and block 0 is "
        "registered behind none",
        "vllm==0.33.0": "with eagle what is kept lies whole scheduler blocks before the end of the prompt: a replay "
        "could resume later, or at none, and two ends are kept (`replay-boundary-early`)",
    },
    meaning="With retention interval 0 a prompt that comes again finds all that it can.",
)
_NO_CHUNKED = NegativeControl("nothing is registered", {"kept_chunked": lambda *a: False})
_NO_MAMBA = NegativeControl("nothing is registered", {"kept_mamba": lambda *a: False})

T10_KINDS = (
    _dense("T10.full", FULL, _NOTHING),
    _sparse("T10.sparse.full", FULL, _NOTHING),
    _replayed("T11.full", FULL, _NOTHING, refuted_on=on_releases(_THINNED)),
    _dense("T10.chunked", CHUNKED, _NO_CHUNKED, refuted_on=on_releases(_WASTE)),
    _sparse("T10.sparse.chunked", CHUNKED, _NO_CHUNKED, refuted_on=on_releases(_THINNED)),
    _replayed("T11.chunked", CHUNKED, _NO_CHUNKED, refuted_on=on_releases(_THINNED)),
    _dense(
        "T10.mamba",
        MAMBA,
        NegativeControl(
            "a state behind the boundary", {"kept_mamba": lambda i, b, e, ends: i % (ends.alignment // b) == 0}
        ),
        refuted_on=on_releases(_WASTE),
    ),
    _sparse("T10.sparse.mamba", MAMBA, _NO_MAMBA, refuted_on={"vllm==0.23.0": _THINNED}),
    _replayed(
        "T11.mamba",
        MAMBA,
        _NO_MAMBA,
        refuted_on={"vllm==0.23.0": _THINNED, "vllm==0.33.0": "as T11"},
    ),
)


def _registers(f: Any, v: Any) -> Any:
    """Of the full blocks, those up to the last boundary, and with eagle the one behind."""
    unit = v.m * v.b
    edge = v.n // unit * unit // v.b
    end = f.registers(v.n, v.b, v.eagle, unit)
    spelt_out(FULL, v, edge)
    multiples_ordered(edge + 1, v.i, ordinary(v.b))
    full, needed = v.i * v.b + v.b <= v.n, some(v.i < edge, every(v.eagle, v.i == edge, edge >= 1))
    return [end <= v.n, same(v.i * v.b + v.b <= end, every(full, needed))]


T10_REGISTERS = Theorem(
    id="T10.registers",
    sentence="With several groups, exactly the full blocks before the last aligned boundary are registered, and with "
    "eagle the one behind it.",
    variables={"b": _BLOCK["b"], "m": _PROMPT["m"], "i": _BLOCK["i"], "eagle": _BLOCK["eagle"], "n": "computed tokens"},
    assume=lambda v: [v.b >= 1, v.m >= 1, v.i >= 0, v.n >= 0],
    claim=sized(_registers),
    controls=(
        NegativeControl(
            "eagle gets no block more",
            {"registers": lambda n, b, eagle, alignment: n // alignment * alignment},
            assume=lambda v: [v.b >= 1, v.m >= 1, v.i >= 0, v.n >= 0, v.n < 2 * v.m * v.b],
        ),
        NegativeControl("all is registered", {"registers": lambda n, b, eagle, alignment: n}),
    ),
    meaning="What lies behind the last boundary can be part of no hit yet; it is registered when the next one is "
    "reached.",
)


THEOREMS: tuple[Theorem, ...] = (T10, T10_SPARSE, T11, *T10_KINDS, T10_REGISTERS)
