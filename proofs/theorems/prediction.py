"""What an allocation takes from the free queue, and that it was predicted (T7)."""

from collections.abc import Callable
from typing import Any

from ..claims import one_of, some
from ..examples import Values
from ..quotients import tokens
from ..roles.one_request import Step
from ..theorem import NegativeControl, Theorem, on_releases
from .states import BOUNDED, CASES, LONGER, STEP, after_step, any_step, by_kind, given_back


def _cdiv(x: Any, y: Any) -> Any:
    return -(-x // y)


# A request that begins.

_FRESH = {
    "b": "tokens per block",
    "hit": "blocks of its hit",
    "first": "first block of the hit that is an eviction candidate",
    "end": "first block behind the eviction candidates",
    "external": "tokens that come from outside behind the hit",
    "new": "tokens of the step",
    "lookahead": "tokens beyond these that drafts may need",
}
_SUMS = (
    "eviction candidates are a range of the hit's blocks. Prediction and allocation both count them block by block, so "
    "what holds of every range, one of one block included, holds of every set"
)
_SHORT_HIT = (
    "; the hit has at most 2 blocks, of which the last is real, as that of a state always is: what is before it is "
    "null, and what goes through them passes over each null in the same way"
)


def fresh(v: Any, product: Any = lambda blocks, rest, unit: blocks * unit + rest) -> Step:
    """The first allocation of a request: its hit is `hit` blocks long, whatever of it is null."""
    local = product(v.hit, 0, v.b)
    main = local + v.external + v.new
    size = getattr(v, "size", 0)
    return Step(
        v.b,
        size,
        hit=v.hit,
        first=v.first,
        end=v.end,
        local=local,
        external=v.external,
        main=main,
        slots=main + v.lookahead,
    )


def any_fresh(v: Any) -> list[Any]:
    """What a scheduler may ask for."""
    return [
        v.b >= 1,
        v.hit >= 0,
        v.first >= 0,
        v.first <= v.end,
        v.end <= v.hit,
        v.external >= 0,
        v.new >= 0,
        v.lookahead >= 0,
        v.external + v.new >= 1,
    ]


def _state_hit(v: Any) -> list[Any]:
    """The hit of a state: only its last block can be a candidate."""
    return [v.hit <= 2, v.end == v.hit, v.hit <= v.first + 1]


def _foreseen(kind: str, step: Any) -> Any:
    return lambda f, v: getattr(f, f"predicted_{kind}")(step(v)) == getattr(f, f"taken_{kind}")(step(v))


def _candidates(step: Step, cut: Any = 0) -> Any:
    """Those behind the first `cut` blocks of the hit."""
    return max(0, step.end - max(step.first, cut))


def _wrongly(skipped: Any, *, all_candidates: bool = False, taken_anyway: bool = False) -> Any:
    """A prediction that forgets what the window has left behind, in one place."""

    def predicted(step: Step) -> Any:
        gone = skipped(step) // step.b
        covered = step.hit if taken_anyway else max(gone, step.hit)
        new = max(_cdiv(step.slots, step.b) - covered, 0)
        return new + _candidates(step, 0 if all_candidates else max(0, gone))

    return predicted


T7_FULL = Theorem(
    id="T7.full",
    sentence="Full attention: the first allocation of a request takes as many blocks as predicted.",
    variables=_FRESH,
    assume=any_fresh,
    claim=_foreseen("full", fresh),
    controls=(
        NegativeControl(
            "eviction candidates cost nothing",
            {"predicted_full": lambda step: max(_cdiv(step.slots, step.b) - step.hit, 0)},
        ),
        NegativeControl(
            "one block to spare",
            {"predicted_full": lambda step: max(_cdiv(step.slots, step.b) - step.hit, 0) + _candidates(step) + 1},
        ),
        NegativeControl(
            "external tokens need no room",
            {
                "predicted_full": lambda step: (
                    max(_cdiv(step.slots - step.external, step.b) - step.hit, 0) + _candidates(step)
                )
            },
        ),
    ),
    bounded=_SUMS,
    meaning="A refusal is given exactly if there is no room; a success never fails later for lack of blocks (S8).",
)


def _past(kind: str, what: str, size: str, wrong: dict[str, Callable[[Step], Any]]) -> Theorem:
    """The theorem for a type that leaves tokens behind; `size` is how many it sees."""
    return Theorem(
        id=f"T7.{kind}",
        sentence=f"{what}: the first allocation of a request takes as many blocks as predicted.",
        variables={**_FRESH, "size": size},
        assume=lambda v: [*any_fresh(v), v.size >= 1],
        claim=_foreseen(kind, fresh),
        controls=tuple(NegativeControl(said, {f"predicted_{kind}": instead}) for said, instead in wrong.items()),
        bounded=_SUMS,
        meaning=T7_FULL.meaning,
    )


def _behind_window(step: Step) -> Any:
    return max(0, step.total - step.size + 1)


T7_SLIDING = _past(
    "sliding",
    "Sliding window",
    "window, in tokens",
    {
        "candidates that the window has left behind count": _wrongly(_behind_window, all_candidates=True),
        "external tokens that the window has left behind need room": _wrongly(_behind_window, taken_anyway=True),
    },
)

T7_CHUNKED = _past(
    "chunked",
    "Chunks",
    "chunk, in tokens",
    {
        "candidates before the chunk count": _wrongly(
            lambda step: step.total // step.size * step.size, all_candidates=True
        ),
    },
)

T7_MAMBA = Theorem(
    id="T7.mamba",
    sentence="State-space layers that keep every state: the first allocation of a request takes as many blocks as "
    "predicted.",
    variables={**_FRESH, "size": "speculative blocks"},
    assume=lambda v: [*any_fresh(v), *_state_hit(v), v.size >= 0],
    claim=_foreseen("mamba", fresh),
    controls=(
        NegativeControl(
            "blocks of drafts are forgotten",
            {"predicted_mamba": _wrongly(lambda step: step.total - 1)},
        ),
    ),
    unroll=3,
    bounded=_SUMS + _SHORT_HIT,
    meaning=T7_FULL.meaning,
)


_NO_ROOM = "the block for a state that comes from outside is not counted: a success that fails for lack of blocks"


def _fresh_states(v: Any) -> Step:
    """As `fresh`, with a plain hit and plain speculative blocks, of which there is at most one each."""
    hit, size = one_of(v.hit, (0, 1)), one_of(v.size, (0, 1))
    return fresh(Values({**vars(v), "hit": hit, "size": size}), tokens)


T7_ALIGN = Theorem(
    id="T7.align",
    sentence="State-space layers that keep running states only: the first allocation takes as many blocks as "
    "predicted, also where a hit on an eviction candidate and a state from outside come together.",
    variables={**_FRESH, "size": "speculative blocks"},
    assume=lambda v: [
        *any_fresh(v),
        *_state_hit(v),
        v.size >= 0,
        v.size <= 1,
        v.hit <= 1,
        v.external <= v.b,
        v.new <= v.b,
    ],
    claim=_foreseen("align", _fresh_states),
    controls=(
        NegativeControl(
            "the state that comes from outside needs no block",
            {"predicted_align": lambda step: 1 + step.size + _candidates(step)},
        ),
    ),
    unroll=6,
    bounded=_SUMS + _SHORT_HIT + "; a hit of 1 block, at most 1 speculative block, 1 block of tokens from outside "
    "and 1 that is computed: loops go through entries and drafts",
    refuted_on=on_releases(_NO_ROOM),
    meaning=T7_FULL.meaning,
)

# A request that goes on.

_RUNNING = {
    "b": "tokens per block",
    "held": "entries of its table",
    "main": "tokens after the step",
    "lookahead": "tokens beyond these that drafts may need",
}


def running(v: Any) -> Step:
    """An allocation of a running request."""
    return Step(
        v.b, getattr(v, "size", 0), held=v.held, known=True, local=v.main, main=v.main, slots=v.main + v.lookahead
    )


def _any_running(v: Any) -> list[Any]:
    return [v.b >= 1, v.held >= 0, v.main >= 1, v.lookahead >= 0]


def _foreseen_running(f: Any, v: Any) -> list[Any]:
    full = running(v)
    return [
        f.predicted_full(full) == f.taken_full(full),
        f.predicted_sliding(full) == f.taken_sliding(full),
        f.predicted_mamba(full) == f.taken_mamba(full),
    ]


T7_RUNNING = Theorem(
    id="T7.running",
    sentence="Every type but one: an allocation of a running request takes as many blocks as predicted, also where its "
    "table is longer than needed, since drafts were rejected.",
    variables={**_RUNNING, "size": "window, in tokens, and speculative blocks"},
    assume=lambda v: [*_any_running(v), v.size >= 1],
    claim=_foreseen_running,
    controls=(
        NegativeControl(
            "a table too long gives blocks back", {"predicted_full": lambda s: _cdiv(s.slots, s.b) - s.held}
        ),
        NegativeControl(
            "one block is always taken", {"predicted_sliding": lambda s: max(_cdiv(s.slots, s.b) - s.held, 1)}
        ),
        NegativeControl(
            "blocks of drafts are forgotten", {"predicted_mamba": lambda s: max(_cdiv(s.slots, s.b) - s.held, 0)}
        ),
    ),
    meaning=T7_FULL.meaning,
)


_DRAFTED = by_kind([case for case in (*CASES, *LONGER) if case.p])


def _taken_as_foreseen(f: Any, v: Any) -> list[Any]:
    after = [after_step(f, v, case) for case in one_of(v.kind, _DRAFTED)]
    return [claim for one in after for claim in (one.foreseen == one.taken, one.foreseen >= 0)]


T7_RUNNING_ALIGN = Theorem(
    id="T7.running.align",
    sentence="State-space layers that keep running states only: an allocation of a running request takes as many "
    "blocks as predicted, and never fewer than none.",
    variables=STEP,
    assume=lambda v: any_step(v, len(_DRAFTED)),
    claim=_taken_as_foreseen,
    controls=(
        NegativeControl(
            "what is there is always enough",
            claim=lambda f, v: [after_step(f, v, case).taken == 0 for case in one_of(v.kind, _DRAFTED)],
        ),
        NegativeControl("a table too long gives blocks back", {"states": given_back}),
    ),
    unroll=6,
    bounded=BOUNDED,
    refuted_on=on_releases(
        "the prediction is negative where drafts were rejected, and hides as many blocks that another "
        "group needs: an allocation is granted and then fails"
    ),
    meaning=T7_FULL.meaning,
)

T7_UNCACHED = Theorem(
    id="T7.uncached",
    sentence="With caching off a running request is not known as one, and is predicted rightly all the same.",
    variables={
        "b": "tokens per block",
        "held": "entries of its table",
        "c": "tokens computed",
        "new": "tokens of the step",
        "size": "window, in tokens",
    },
    assume=lambda v: [v.b >= 1, v.held >= 0, v.c >= 0, v.c <= v.held * v.b, v.new >= 1, v.size >= 1],
    claim=lambda f, v: [_foreseen(kind, _uncached)(f, v) for kind in ("full", "sliding")],
    controls=(
        NegativeControl(
            "what is held already is taken again",
            {"predicted_sliding": lambda s: max(_cdiv(s.slots, s.b) - max(0, s.total - s.size + 1) // s.b, 0)},
        ),
        NegativeControl(
            "the table may be shorter than what is computed",
            assume=lambda v: [v.b >= 1, v.held >= 0, v.c >= 0, v.new >= 1, v.size >= 1],
        ),
    ),
    meaning=T7_FULL.meaning,
)


def _uncached(v: Any) -> Step:
    return Step(v.b, v.size, held=v.held, local=v.c, main=v.c + v.new, slots=v.c + v.new)


_PLACES = range(3)


def _touched(f: Any, v: Any) -> Any:
    nulls = [getattr(v, f"null_{place}") for place in _PLACES]
    held = [getattr(v, f"held_{place}") for place in _PLACES]
    counted, taken = f.touched(nulls, held)
    return counted == taken


T7_CANDIDATES = Theorem(
    id="T7.candidates",
    sentence="The eviction candidates counted in a hit are the blocks that leave the free queue when it is used.",
    variables={
        **{f"null_{place}": f"whether entry {place} of the hit is null" for place in _PLACES},
        **{f"held_{place}": f"whether somebody holds block {place} of the hit already" for place in _PLACES},
    },
    assume=lambda v: [],
    claim=_touched,
    controls=(
        NegativeControl(
            "null entries count", {"touched": lambda nulls, held: (sum(not h for h in held), _free(nulls, held))}
        ),
        NegativeControl(
            "held blocks count", {"touched": lambda nulls, held: (sum(not n for n in nulls), _free(nulls, held))}
        ),
    ),
    bounded="a hit of 3 different blocks, each null, held or neither: both sides are sums over blocks",
    meaning="What T7 takes for granted about counting.",
)


def _free(nulls: Any, held: Any) -> Any:
    return sum(not null and not other for null, other in zip(nulls, held, strict=True))


def _missing(f: Any, v: Any) -> list[Any]:
    missing = f.missing_blocks(v.required, v.present)
    return [missing >= 0, v.present + missing >= v.required, some(missing == 0, v.present + missing == v.required)]


T7_MISSING = Theorem(
    id="T7.missing",
    sentence="The blocks missing from a table are the fewest that make it long enough, and never negative.",
    variables={"required": "entries needed", "present": "entries there"},
    assume=lambda v: [v.required >= 0, v.present >= 0],
    claim=_missing,
    controls=(
        NegativeControl("the difference", {"missing_blocks": lambda required, present: required - present}),
        NegativeControl("one to spare", {"missing_blocks": lambda required, present: max(required - present + 1, 0)}),
    ),
)


def _fits(f: Any, v: Any) -> list[Any]:
    entries = f.taken_full(Step(v.b, main=v.main, slots=v.main))
    return [v.main <= entries * v.b, (entries - 1) * v.b < v.main]


T7_FITS = Theorem(
    id="T7.fits",
    sentence="A request that begins gets as many blocks as its tokens fill, and not one more.",
    variables={"b": "tokens per block", "main": "tokens after the step"},
    assume=lambda v: [v.b >= 1, v.main >= 1],
    claim=_fits,
    controls=(
        NegativeControl("the last block must be full", {"taken_full": lambda step: step.slots // step.b}),
        NegativeControl("a block to spare", {"taken_full": lambda step: step.slots // step.b + 1}),
    ),
    meaning="Every token that a step may write has a slot (S15).",
)

THEOREMS = (
    T7_FITS,
    T7_FULL,
    T7_SLIDING,
    T7_CHUNKED,
    T7_MAMBA,
    T7_ALIGN,
    T7_RUNNING,
    T7_RUNNING_ALIGN,
    T7_UNCACHED,
    T7_CANDIDATES,
    T7_MISSING,
)
