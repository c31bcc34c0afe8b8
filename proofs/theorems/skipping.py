"""What no query reads any more, and that nulling it misses nothing (T3)."""

from typing import Any

from ..claims import every, implies, lemma, negation, same, some
from ..quotients import divisor
from ..theorem import NegativeControl, Theorem

_POINTS = {
    "c": "tokens computed",
    "later": "tokens computed later",
    "q": "position of a query",
    "t": "position of a token",
    "b": "tokens per block",
}


def _any_point(v: Any) -> list[Any]:
    return [v.b >= 1, v.c >= 0, v.later >= v.c, v.q >= v.c, v.t >= 0]


def _bounds(skipped: Any, attends: Any, v: Any, least: int) -> list[Any]:
    now = skipped(v.c)
    whole = now // v.b * v.b
    lemma(whole <= now, "whole blocks")
    return [
        least <= now,
        now <= v.c,
        now <= skipped(v.later),
        implies(v.t < whole, negation(attends(v.q, v.t))),
    ]


T3_SLIDING = Theorem(
    id="T3.sliding",
    sentence="A sliding window leaves nothing behind before it is computed, never takes it back, and the blocks left "
    "behind are read by nobody.",
    variables={**_POINTS, "w": "window, in tokens"},
    assume=lambda v: [*_any_point(v), v.w >= 1],
    claim=lambda f, v: _bounds(
        lambda c: f.skipped_sliding(c, v.w), lambda q, t: f.attends_sliding(q, t, v.w), v, least=0
    ),
    controls=(
        NegativeControl("negative before the window is full", {"skipped_sliding": lambda c, w: c - w + 1}),
        NegativeControl(
            "the block in which the window begins is given up", {"skipped_sliding": lambda c, w: max(0, c - w + 2)}
        ),
    ),
    meaning="A block once nulled is never needed again, so that its entry can stay null for good.",
)

T3_CHUNKED = Theorem(
    id="T3.chunked",
    sentence="Chunks leave nothing behind before it is computed, never take it back, and the blocks left behind are "
    "read by nobody.",
    variables={**_POINTS, "k": "chunk, in tokens"},
    assume=lambda v: [*_any_point(v), v.k >= 1],
    claim=lambda f, v: _bounds(
        lambda c: f.skipped_chunked(c, v.k), lambda q, t: f.attends_chunked(q, t, v.k), v, least=0
    ),
    controls=(
        NegativeControl("rounded up to a chunk", {"skipped_chunked": lambda c, k: -(-c // k) * k}),
        NegativeControl("counted from the end", {"skipped_chunked": lambda c, k: c % k}),
    ),
    meaning=T3_SLIDING.meaning,
)

T3_MAMBA = Theorem(
    id="T3.mamba",
    sentence="A state leaves behind exactly the tokens before the last one; for no tokens at all it says -1.",
    variables=_POINTS,
    assume=_any_point,
    claim=lambda f, v: [
        *_bounds(f.skipped_mamba, f.attends_mamba, v, least=-1),
        implies(v.t < f.skipped_mamba(v.c), negation(f.attends_mamba(v.q, v.t))),
        implies(v.t >= f.skipped_mamba(v.c), f.attends_mamba(v.t + 1, v.t)),
        same(f.skipped_mamba(v.c) < 0, v.c == 0),
    ],
    controls=(
        NegativeControl("never negative", {"skipped_mamba": lambda c: max(0, c - 1)}),
        NegativeControl("the last token too", {"skipped_mamba": lambda c: c}),
        NegativeControl("one token fewer", {"skipped_mamba": lambda c: c - 2}),
    ),
    meaning="The -1 is harmless where it is divided and cut off at 0, as T7.mamba shows; it is a trap for new callers.",
)

# Nulling.

_NULLING = {
    "b": "tokens per block",
    "length": "entries of the table",
    "nulls": "leading entries that are null already",
    "c": "tokens computed",
    "at": "index of an entry",
}
_FEW = (
    "at most 2 blocks are newly nulled in one call; table, window, block size and position are symbolic. The loop that "
    "nulls does the same to each block and stops by itself, so that a third round is like the second."
)


def _any_table(v: Any, skipped: Any) -> list[Any]:
    return [
        v.b >= 1,
        v.c >= 0,
        v.nulls >= 0,
        v.nulls <= v.length,
        v.at >= 0,
        v.at < v.length,
        skipped < (v.nulls + 3) * v.b,
    ]


def _nulls_all(nulled: Any, v: Any, size: Any, skipped: Any) -> list[Any]:
    b = divisor(v.b)
    end = min(max(skipped, 0) // b, v.length)
    gone = max(end, v.nulls)
    after = nulled(b, size, v.length, v.nulls, v.c, getattr(v, "registered", True))
    return [
        same(after.table[v.at] == 0, v.at < gone),
        some(after.table[v.at] == 0, after.table[v.at] == v.at + 1),
        after.table.length == v.length,
        after.table.real == v.length - gone,
        len(after.returned) == gone - v.nulls,
        *(number == gone - place for place, number in enumerate(after.returned)),
    ]


def _stops_before(end: int) -> Any:
    """A wrong way to null: the last `end` entries out of sight stay."""

    def nulled(b: Any, size: Any, length: Any, nulls: Any, c: Any, registered: Any) -> Any:
        return _Made(length, max(nulls, min(max(0, c - size + 1) // b, length) - end), nulls)

    return nulled


class _Made:
    """What a table looks like of which the first `gone` entries are null."""

    def __init__(self, length: Any, gone: Any, nulls: Any) -> None:
        self.length, self.gone = length, gone
        self.real = length - gone
        self.table = self
        self.returned: list[Any] = []
        while gone - len(self.returned) > nulls:
            self.returned.append(gone - len(self.returned))

    def __getitem__(self, index: Any) -> Any:
        return 0 if index < self.gone else index + 1


T3_TABLE_SLIDING = Theorem(
    id="T3.nulled.sliding",
    sentence="Nulling a sliding-window table frees exactly the blocks out of sight that are not null already, each "
    "once, the last first; nulls are a prefix again, so that stopping at the first null misses nothing.",
    variables={**_NULLING, "w": "window, in tokens", "registered": "whether the blocks carry an identity"},
    assume=lambda v: [*_any_table(v, v.c - v.w + 1), v.w >= 1],
    claim=lambda f, v: _nulls_all(f.nulled_sliding, v, v.w, f.skipped_sliding(v.c, v.w)),
    controls=(NegativeControl("the last block out of sight stays", {"nulled_sliding": _stops_before(1)}),),
    unroll=3,
    bounded=_FEW,
    meaning="Memory out of sight is back in the pool before the next allocation is judged; none is lost.",
)

T3_TABLE_CHUNKED = Theorem(
    id="T3.nulled.chunked",
    sentence="Nulling a table of chunks frees exactly the blocks out of sight that are not null already (as "
    "T3.nulled.sliding).",
    variables={**_NULLING, "k": "chunk, in tokens"},
    assume=lambda v: [*_any_table(v, v.c), v.k >= 1],
    claim=lambda f, v: _nulls_all(f.nulled_chunked, v, v.k, f.skipped_chunked(v.c, v.k)),
    controls=(
        NegativeControl(
            "a chunk counts as a window",
            claim=lambda f, v: _nulls_all(f.nulled_chunked, v, v.k, f.skipped_sliding(v.c, v.k)),
        ),
        NegativeControl("it is nulled as a window is", {"nulled_chunked": _stops_before(0)}),
    ),
    unroll=3,
    bounded=_FEW,
    meaning=T3_TABLE_SLIDING.meaning,
)

T3_TABLE_MAMBA = Theorem(
    id="T3.nulled.mamba",
    sentence="Nulling a table of states frees exactly the blocks out of sight that are not null already (as "
    "T3.nulled.sliding), as if up to p computed tokens were drafts to be rejected.",
    variables={**_NULLING, "p": "speculative blocks"},
    assume=lambda v: [*_any_table(v, v.c - v.p - 1), v.p >= 0],
    claim=lambda f, v: _nulls_all(f.nulled_mamba, v, v.p, f.skipped_mamba(max(0, v.c - v.p))),
    controls=(
        NegativeControl(
            "drafts are never rejected",
            claim=lambda f, v: _nulls_all(f.nulled_mamba, v, v.p, f.skipped_mamba(v.c)),
        ),
        NegativeControl("the last state before the drafts goes, too", {"nulled_mamba": _stops_before(0)}),
    ),
    unroll=3,
    bounded=_FEW,
    meaning=T3_TABLE_SLIDING.meaning,
)

T3_TABLE_OPEN = Theorem(
    id="T3.nulled.open",
    sentence="Where drafts whose outcome is open are none of the tokens that count, nulling a table of states frees "
    "exactly the blocks out of sight that are not null already (as T3.nulled.sliding): nothing stays for p drafts.",
    variables=T3_TABLE_MAMBA.variables,
    assume=lambda v: [*_any_table(v, v.c - 1), v.p >= 0],
    claim=lambda f, v: _nulls_all(f.nulled_open, v, v.p, f.skipped_mamba(v.c)),
    controls=(
        NegativeControl(
            "states stay for drafts all the same",
            claim=lambda f, v: _nulls_all(f.nulled_open, v, v.p, f.skipped_mamba(max(0, v.c - v.p))),
        ),
        NegativeControl("the last state goes, too", {"nulled_open": _stops_before(0)}),
    ),
    unroll=3,
    bounded=_FEW + " The core knows how many entries are null.",
    meaning=T3_TABLE_SLIDING.meaning,
)

# Drafts that are taken back.

_TAKEN_BACK = {**_POINTS, "r": "tokens that are taken back"}


def _unread_still(skipped: Any, attends: Any, v: Any) -> Any:
    """Of blocks that are given back with `c` tokens computed, none is read once `r` of them have been taken back."""
    whole = skipped // v.b * v.b
    return implies(every(v.t < whole, v.q >= v.c - v.r), negation(attends(v.q, v.t)))


def _any_taken_back(v: Any) -> list[Any]:
    return [v.b >= 1, v.c >= 0, v.q >= 0, v.t >= 0, v.r >= 0, v.r <= v.c]


def _may_be_taken_back(v: Any) -> list[Any]:
    """Drafts, which are computed but not known; or the last known token, where all are computed."""
    return [*_any_taken_back(v), v.n >= 1, v.w >= 1, v.k >= 1, some(v.r <= v.c - v.n, every(v.r == 1, v.c == v.n))]


def _settled_stay_unread(f: Any, v: Any, settled: Any) -> list[Any]:
    kept = settled(v.c, v.n)
    return [
        kept <= v.c - v.r,
        _unread_still(f.skipped_sliding(kept, v.w), lambda q, t: f.attends_sliding(q, t, v.w), v),
        _unread_still(f.skipped_chunked(kept, v.k), lambda q, t: f.attends_chunked(q, t, v.k), v),
    ]


T3_SETTLED = Theorem(
    id="T3.settled",
    sentence="Windows and chunks are cut by tokens that are settled, so that what is given back stays unread, whatever "
    "is taken back: drafts, or the last token of a prompt that was loaded whole, which is computed again.",
    variables={name: _TAKEN_BACK[name] for name in ("c", "q", "t", "b", "r")}
    | {"n": "tokens that the request knows", "w": "window, in tokens", "k": "chunk, in tokens"},
    assume=_may_be_taken_back,
    claim=lambda f, v: _settled_stay_unread(f, v, f.settled),
    controls=(NegativeControl("all that is computed", {"settled": lambda c, n: c}),),
    refuted_on={
        "vllm==0.23.0": "blocks are given back that are read again once drafts are rejected "
        "(vllm-project/vllm#47728): wrong attention output",
        "vllm==0.33.0": "only tokens of steps that run are left out: a window is cut for the query behind a prompt "
        "that was loaded as a whole, whose last token is computed again and reads behind the cut "
        "(`cut-by-all-computed`)",
    },
    meaning="Drafts can be rejected at any time: their tokens are known only when they are accepted. Tokens of steps "
    "that still run count as unsettled, too, where a scheduler says how many they are.",
)

T3_DRAFTS = Theorem(
    id="T3.drafts",
    sentence="What a state-space layer gives back stays unread even if p computed tokens are taken back.",
    variables={name: _TAKEN_BACK[name] for name in ("c", "q", "t", "b", "r")} | {"p": "speculative blocks"},
    assume=lambda v: [*_any_taken_back(v), v.r <= v.p],
    claim=lambda f, v: _unread_still(f.skipped_mamba(max(0, v.c - v.p)), f.attends_mamba, v),
    controls=(
        NegativeControl(
            "one draft more is rejected than was foreseen", assume=lambda v: [*_any_taken_back(v), v.r <= v.p + 1]
        ),
        NegativeControl("drafts are never rejected", {"skipped_mamba": lambda c: c}),
    ),
    meaning="With T3.nulled.mamba: states are safe without knowing what is settled (T3.settled).",
)

THEOREMS = (
    T3_SLIDING,
    T3_CHUNKED,
    T3_MAMBA,
    T3_TABLE_SLIDING,
    T3_TABLE_CHUNKED,
    T3_TABLE_MAMBA,
    T3_TABLE_OPEN,
    T3_SETTLED,
    T3_DRAFTS,
)
