"""What the admission gate counts, and what an admitted request may count on (T16)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, quotients_ordered, same, use
from ..roles.one_request import Step
from ..theorem import NegativeControl, Theorem
from .states import STEP, Case, after_step, any_step

_STEP = {
    "b": "tokens per block",
    "w": "window, in tokens",
    "batched": "most tokens of one step",
    "max_len": "most tokens of a request",
    "length": "tokens of the request",
    "c": "tokens computed",
    "n": "tokens of the next step",
}


def _cdiv(x: Any, y: Any) -> Any:
    return -(-x // y)


def _any_step(v: Any) -> list[Any]:
    return [
        v.b >= 1,
        v.w >= 1,
        v.batched >= 1,
        v.c >= 0,
        v.n >= 1,
        v.n <= v.batched,
        v.c + v.n <= v.length,
        v.length <= v.max_len,
    ]


def _gate(gate: Any, v: Any, size: Any) -> Any:
    """What the gate counts for a request of which nothing is there yet, or behind a hit that nobody else holds."""
    hit, lookahead, whole = (
        getattr(v, *known) for known in (("hit", 0), ("lookahead", 0), ("whole", getattr(v, "length", 0)))
    )
    told = Step(v.b, size, hit=hit, end=hit, local=hit * v.b, main=whole, slots=whole, lookahead=lookahead)
    return gate(told._replace(batched=v.batched, max_len=v.max_len))


def _next(v: Any, lookahead: Any = 0) -> Step:
    """The next step of a running request; its table is as long as its computed tokens need."""
    main = v.c + v.n
    return Step(v.b, v.w, held=_cdiv(v.c, v.b), known=True, local=v.c, main=main, slots=main + lookahead)


def _held(f: Any, v: Any) -> Any:
    """Real blocks before the step, once what is out of sight is null (T3.nulled)."""
    return _cdiv(v.c, v.b) - f.skipped_sliding(v.c, v.w) // v.b


def _ordered(x: Any, y: Any, b: Any) -> Any:
    """Law: more tokens need no fewer blocks."""
    return implies(every(b > 0, x <= y), _cdiv(x, b) <= _cdiv(y, b))


def _span(x: Any, y: Any, b: Any) -> Any:
    """Law: what is between two tokens touches one block more than its length needs, at most."""
    return implies(b > 0, _cdiv(x, b) - y // b <= _cdiv(x - y, b) + 1)


def _apart(x: Any, y: Any, b: Any) -> Any:
    """Law: tokens together need no more blocks than each part for itself."""
    return implies(b > 0, _cdiv(x + y, b) <= _cdiv(x, b) + _cdiv(y, b))


def _spelt_out(v: Any) -> None:
    use(_span, v.c + v.n, v.c - v.w + 1, v.b)
    use(_ordered, v.w - 1 + v.n, v.w - 1 + v.batched, v.b)
    use(_ordered, v.c + v.n, v.length, v.b)
    use(_ordered, v.c, v.c + v.n, v.b)


def _within(f: Any, v: Any) -> Any:
    _spelt_out(v)
    return _held(f, v) + f.predicted_sliding(_next(v)) <= _gate(f.gate_sliding, v, v.w)


T16_STEP = Theorem(
    id="T16.step",
    sentence="Sliding window: at no step does a request hold more blocks than the gate counted for it when it began "
    "without a hit.",
    variables=_STEP,
    assume=_any_step,
    claim=_within,
    controls=(
        NegativeControl(
            "a gate that counts what the window alone holds", {"gate_sliding": lambda s: _cdiv(s.size, s.b) + 1}
        ),
        NegativeControl(
            "a gate that caps one block lower",
            {"gate_sliding": lambda s: min(_cdiv(s.slots, s.b), _cdiv(min(s.size - 1 + s.batched, s.max_len), s.b))},
        ),
    ),
    meaning="A reservation that was right once is right until the request ends.",
)

_POOL = {
    **_STEP,
    "blocks": "blocks of the pool, the null block left out",
    "others": "blocks reserved for the other requests",
    "others_hold": "blocks that the other requests hold",
}


def _any_pool(v: Any) -> list[Any]:
    return [*_any_step(v), v.others_hold >= 0, v.others_hold <= v.others]


def _room(f: Any, v: Any) -> Any:
    """If all reservations fit the pool, so does the step."""
    _spelt_out(v)
    held, predicted = _held(f, v), f.predicted_sliding(_next(v))
    reserved = _gate(f.gate_sliding, v, v.w)
    lemma(held + predicted <= reserved, "T16.step")
    return implies(reserved + v.others <= v.blocks, predicted <= v.blocks - v.others_hold - held)


T16 = Theorem(
    id="T16",
    sentence="If what the gate counted for each admitted request is reserved for it and the sum fits the pool, every "
    "step of every one of them can be allocated.",
    variables=_POOL,
    assume=_any_pool,
    claim=_room,
    controls=(
        NegativeControl(
            "the others hold more than was reserved for them",
            assume=lambda v: [*_any_step(v), v.others_hold >= 0, v.others_hold <= v.others + 1],
        ),
    ),
    meaning="Any number of requests, as their reservations and holdings are sums; blocks shared between requests only "
    "leave more room. With full attention the window is as long as the request. What each type holds behind a hit and "
    "with lookahead is T16.hit, T16.chunked and T16.full.",
)

# Two requests.

_TWO = {
    "b": "tokens per block",
    "blocks": "blocks of the pool, the null block left out",
    "one": "tokens of the first request",
    "one_step": "tokens of its first step",
    "other": "tokens of the second request",
    "other_step": "tokens of its first step",
}


def _both_end(f: Any, v: Any, reserves: int = 1) -> Any:
    """The second is admitted while what the first still needs is reserved; the last step of each finds its blocks."""
    first = f.allocated_full(v.b, 0, 0, v.one_step, v.blocks, v.one)
    if first.refused:
        return True
    free = v.blocks - first.taken
    still = f.predicted_full(_last(v.b, first.taken, v.one_step, v.one))
    second = f.allocated_full(v.b, 0, 0, v.other_step, free, v.other, reserves * still)
    if second.refused:
        return True
    left = free - second.taken
    return [still <= left, f.predicted_full(_last(v.b, second.taken, v.other_step, v.other)) <= left - still]


def _last(b: Any, held: Any, computed: Any, length: Any) -> Step:
    """All that is left of a request in one step."""
    return Step(b, held=held, known=True, local=computed, main=length, slots=length)


T16_OVERCOMMIT = Theorem(
    id="T16.overcommit",
    sentence="Two requests of which the second was admitted while what the first still needed was reserved can both "
    "be allocated to their ends.",
    variables=_TWO,
    assume=lambda v: [
        v.b >= 1,
        v.blocks >= 0,
        v.one_step >= 1,
        v.one_step <= v.one,
        v.one <= 1_000_000,
        v.other_step >= 1,
        v.other_step <= v.other,
        v.other <= 1_000_000,
    ],
    claim=_both_end,
    controls=(
        NegativeControl(
            "nothing is reserved",
            claim=lambda f, v: _both_end(f, v, reserves=0),
        ),
    ),
    refuted_on={
        "vllm==0.23.0": "the gate does not leave what is reserved for others in the pool: requests that were all "
        "admitted preempt one another and are prefilled again"
    },
    meaning="A scheduler that hands in, as `reserved_blocks`, what those that run may still take never has to preempt "
    "one of them for another.",
)

# Behind a hit, with lookahead, and with tokens that may be taken back.

_HIT = {
    **{name: meaning for name, meaning in _STEP.items() if name != "length"},
    "hit": "blocks of its hit, all of them eviction candidates",
    "settled": "computed tokens that cannot be taken back",
    "lookahead": "tokens beyond the step that drafts may need",
    "slots": "tokens for which the step needs room",
    "whole": "tokens for which the gate looks for room",
}


def _any_hit(v: Any, budgeted: Any = None) -> list[Any]:
    """`budgeted`: tokens that must fit the budget of a step; those computed that are not settled, and the step's."""
    return [
        *_limits(v),
        v.hit >= 0,
        v.hit * v.b <= v.settled,
        v.settled <= v.c,
        v.n >= 1,
        (v.c - v.settled + v.n if budgeted is None else budgeted) <= v.batched,
        v.slots <= v.c + v.n + v.lookahead,
        v.slots <= v.whole,
        v.lookahead >= 0,
    ]


def _limits(v: Any) -> list[Any]:
    return [v.b >= 1, v.batched >= 1, v.c + v.n <= v.max_len, v.whole <= v.max_len]


def _reserved_for_all(v: Any, skipped: Any, before: Any, cap: Any, gate: Any) -> Any:
    """Blocks held while the step runs, those up to its last slot less those left behind, are within the gate.

    `before`: tokens that the query behind the hit does not read; `cap`: most blocks without lookahead.
    """
    use(_apart, v.c + v.n, v.lookahead, v.b)
    use(_ordered, v.slots, v.c + v.n + v.lookahead, v.b)
    use(_ordered, v.slots, v.whole, v.b)
    quotients_ordered(before, skipped, v.b)
    without = _cdiv(v.c + v.n, v.b) - skipped // v.b <= cap
    return implies(without, _cdiv(v.slots, v.b) - skipped // v.b <= gate)


def _sliding_within(f: Any, v: Any) -> Any:
    gate = _gate(f.gate_sliding, v, v.w)
    skipped, before = f.skipped_sliding(v.settled, v.w), f.skipped_sliding(v.hit * v.b, v.w)
    cap = f.cap_sliding(v.w, v.b, v.batched, v.max_len)
    use(_span, v.c + v.n, v.settled - v.w + 1, v.b)
    use(_ordered, v.w - 1 + v.c - v.settled + v.n, v.w - 1 + v.batched, v.b)
    use(_ordered, v.c + v.n, v.max_len, v.b)
    lemma(_cdiv(v.c + v.n, v.b) - skipped // v.b <= cap, "T4")
    return _reserved_for_all(v, skipped, before, cap, gate)


T16_HIT = Theorem(
    id="T16.hit",
    sentence="Sliding window: behind a hit, too, and with lookahead for drafts and tokens that may still be taken "
    "back, a request never holds more blocks than the gate counted.",
    variables=_HIT,
    assume=lambda v: [*_any_hit(v), v.w >= 1],
    claim=_sliding_within,
    controls=(
        NegativeControl(
            "a table's length is taken for the blocks in it",
            {
                "gate_sliding": lambda s: (
                    s.hit
                    - min(max(0, s.local - s.size + 1) // s.b, s.hit)
                    + max(0, min(_cdiv(s.slots, s.b), _cdiv(s.size - 1 + s.batched, s.b) + 1) - s.hit)
                )
            },
        ),
        NegativeControl(
            "unsettled tokens do not count in the budget of a step",
            assume=lambda v: [*_any_hit(v, v.n), v.w >= 1],
        ),
    ),
    refuted_on={
        "vllm==0.23.0": "the gate takes a table's length for the blocks in it: behind a hit longer than the cap it "
        "counts no new blocks at all, though a step may need as many as a step has tokens"
    },
    meaning="Window 1024, blocks of 16, 8192 tokens a step, a hit of 9232 tokens: the next step holds 576 blocks, and "
    "that is what the gate counts.",
)


def _chunks_within(f: Any, v: Any) -> Any:
    gate = _gate(f.gate_chunked, v, v.k)
    skipped, before = f.skipped_chunked(v.settled, v.k), f.skipped_chunked(v.hit * v.b, v.k)
    quotients_ordered(v.hit * v.b, v.settled, v.k)
    multiples_ordered(v.hit * v.b // v.k, v.settled // v.k, v.k)
    lemma(before <= skipped, "what is left behind is never taken back")
    return _reserved_for_all(v, skipped, before, f.cap_chunked(v.k, v.b, v.batched, v.max_len), gate)


T16_CHUNKED = Theorem(
    id="T16.chunked",
    sentence="Chunks: behind a hit, with lookahead and with tokens that may still be taken back, a request never holds "
    "more blocks than the gate counted, as it holds no more than the cap without lookahead (T6).",
    variables={**{name: meaning for name, meaning in _HIT.items() if name != "w"}, "k": "chunk, in tokens"},
    assume=lambda v: [*_any_hit(v), v.k >= 1],
    claim=_chunks_within,
    controls=(NegativeControl("what the chunk alone holds", {"gate_chunked": lambda s: _cdiv(s.size, s.b) + 1}),),
    refuted_on={"vllm==0.23.0": "as T16.hit; and the cap is one block too small where blocks lie astride chunks (T6)"},
    meaning=T16_HIT.meaning,
)


def _whole_within(f: Any, v: Any) -> Any:
    use(_ordered, v.slots, v.whole, v.b)
    return _cdiv(v.slots, v.b) <= _gate(f.gate_full, v, 0)


T16_FULL = Theorem(
    id="T16.full",
    sentence="Full attention: behind a hit and with lookahead a request never holds more blocks than the gate counted.",
    variables={name: meaning for name, meaning in _HIT.items() if name != "w"},
    assume=_any_hit,
    claim=_whole_within,
    controls=(NegativeControl("the hit counts as held", {"gate_full": lambda s: _cdiv(s.slots, s.b) - s.hit}),),
    meaning="A hit of eviction candidates takes blocks out of the free queue like new ones.",
)


def _lookahead_within(f: Any, v: Any) -> Any:
    use(_apart, v.c + v.n, v.lookahead, v.b)
    use(_ordered, v.c + v.n + v.lookahead, v.length, v.b)
    _spelt_out(v)
    lemma(_cdiv(v.c + v.n, v.b) - f.skipped_sliding(v.c, v.w) // v.b <= _cdiv(v.w - 1 + v.batched, v.b) + 1, "T4")
    return _held(f, v) + f.predicted_sliding(_next(v, v.lookahead)) <= _gate(f.gate_sliding, v, v.w)


T16_LOOKAHEAD = Theorem(
    id="T16.lookahead",
    sentence="With lookahead for drafts, too, a request never holds more blocks than the gate counted for it when it "
    "began without a hit.",
    variables={**_STEP, "lookahead": "tokens beyond the step that drafts may need"},
    assume=lambda v: [*_any_step(v), v.lookahead >= 0, v.c + v.n + v.lookahead <= v.length],
    claim=_lookahead_within,
    controls=(
        NegativeControl(
            "lookahead is not counted",
            {
                "gate_sliding": lambda s: min(
                    _cdiv(s.slots, s.b), _cdiv(min(s.size - 1 + s.batched, s.max_len), s.b) + 1
                )
            },
        ),
    ),
    refuted_on={
        "vllm==0.23.0": "with speculative decoding a request can hold more blocks than the gate counted: the sum of "
        "reservations no longer guarantees that a step fits (L2)"
    },
    meaning="A window of 1024 with blocks of 16 and 5 draft tokens: one block more is reserved.",
)


def _covers(f: Any, v: Any) -> Any:
    """The first step against the gate, for a request without hit."""
    return f.predicted_sliding(Step(v.b, v.w, main=v.n, slots=v.n)) <= _gate(f.gate_sliding, v, v.w)


T16_COVERS = Theorem(
    id="T16.covers",
    sentence="Who passes the gate without a hit is not refused by the check of its first step.",
    variables={name: _STEP[name] for name in ("b", "w", "batched", "max_len", "length", "n")},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.n >= 1, v.n <= v.batched, v.n <= v.length, v.length <= v.max_len],
    claim=_covers,
    controls=(
        NegativeControl(
            "a step may exceed its budget",
            assume=lambda v: [v.b >= 1, v.w >= 1, v.n >= 1, v.batched >= 1, v.n <= v.length, v.length <= v.max_len],
        ),
    ),
)


# States.


def _state_gate(f: Any, v: Any) -> list[Any]:
    """What the gate counts for a request of layers that keep running states, and what it holds within a block."""
    gate = f.gate_align(Step(v.b, v.p, main=v.length, slots=v.length))
    within = [Case(p, (1, 1, 0)[: 1 + p] + (0,) * (2 - p), registered, 0, 0) for p in (0, 1) for registered in (0, 1)]
    held = [after_step(f, v, case).table.real <= 1 + case.p for case in within]
    return [implies(v.length > v.b, gate >= 2 + v.p), gate >= 1 + v.p, *held]


T16_STATES = Theorem(
    id="T16.states",
    sentence="The gate counts as many states as a request can hold: 2 + p if it goes beyond one block (T15), and 1 + p "
    "if not.",
    variables={**STEP, "p": "speculative blocks", "length": "tokens of the request"},
    assume=lambda v: [*any_step(v), v.p >= 0, v.length >= 1],
    claim=_state_gate,
    controls=(
        NegativeControl(
            "one block less", claim=lambda f, v: f.gate_align(Step(v.b, v.p, main=v.length, slots=v.length)) <= v.p
        ),
        NegativeControl("what the first step takes", {"gate_align": lambda step: 1 + step.size}),
    ),
    unroll=6,
    bounded="what is held within a block: 0 or 1 speculative block",
    refuted_on={
        "vllm==0.23.0": "a pool that holds 1 + p states admits a request that can then not take its next step",
    },
    meaning="With a gate that counts 1 + p and a pool of R times 1 + p blocks, R requests are admitted and none of "
    "them can go on before another gives way.",
)

# The refusal itself.


def _rightly_refused(f: Any, v: Any) -> list[Any]:
    step = Step(v.b, held=v.held, known=True, local=v.c, main=v.c + v.n, slots=v.c + v.n)
    wanted = f.taken_full(step)
    outcome = f.allocated_full(v.b, v.held, v.c, v.n, v.free)
    return [
        same(outcome.refused, wanted > v.free),
        outcome.taken == (0 if outcome.refused else wanted),
        outcome.length == v.held + outcome.taken,
    ]


T16_REFUSAL = Theorem(
    id="T16.refusal",
    sentence="A step is refused exactly if it would take more blocks than are free, and a refusal takes none.",
    variables={
        "b": "tokens per block",
        "held": "entries of the table",
        "c": "tokens computed",
        "n": "tokens of the step",
        "free": "free blocks",
    },
    assume=lambda v: [v.b >= 1, v.held >= 0, v.c >= 0, v.n >= 1, v.free >= 0, v.c + v.n <= 1_000_000],
    claim=_rightly_refused,
    controls=(
        NegativeControl(
            "the last free block is never given", {"taken_full": lambda s: max(_cdiv(s.slots, s.b) - s.held, 0) + 1}
        ),
    ),
    bounded="full attention, a running request without lookahead; what the types predict is T7",
    meaning="With T7: no request waits while there is room for it (S8).",
)

THEOREMS = (
    T16_REFUSAL,
    T16,
    T16_STEP,
    T16_COVERS,
    T16_OVERCOMMIT,
    T16_HIT,
    T16_CHUNKED,
    T16_FULL,
    T16_LOOKAHEAD,
    T16_STATES,
)
