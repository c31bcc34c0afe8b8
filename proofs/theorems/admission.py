"""What the admission gate counts, and what an admitted request may count on (T16)."""

from typing import Any

from ..claims import every, implies, lemma, same, use
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


def _reserved(f: Any, v: Any) -> Any:
    """What the gate counts for a request of which nothing is there yet."""
    return f.gate_sliding(Step(v.b, v.w, main=v.length, slots=v.length, batched=v.batched, max_len=v.max_len))


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


def _spelt_out(v: Any) -> None:
    use(_span, v.c + v.n, v.c - v.w + 1, v.b)
    use(_ordered, v.w - 1 + v.n, v.w - 1 + v.batched, v.b)
    use(_ordered, v.c + v.n, v.length, v.b)
    use(_ordered, v.c, v.c + v.n, v.b)


_WITHIN = "held + predicted <= gate, and predicted == taken"


def _within(f: Any, v: Any) -> Any:
    _spelt_out(v)
    return _held(f, v) + f.predicted_sliding(_next(v)) <= _reserved(f, v)


T16_STEP = Theorem(
    id="T16.step",
    sentence="Sliding window: at no step does a request hold more blocks than the gate counted for it when it began "
    "without a hit.",
    formal=_WITHIN + " for c + n <= length <= max_len, n <= batched",
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
    reserved = _reserved(f, v)
    lemma(held + predicted <= reserved, "T16.step")
    return implies(reserved + v.others <= v.blocks, predicted <= v.blocks - v.others_hold - held)


T16 = Theorem(
    id="T16",
    sentence="If what the gate counted for each admitted request is reserved for it and the sum fits the pool, every "
    "step of every one of them can be allocated.",
    formal="sum of reservations <= blocks => predicted <= blocks - sum of held",
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
    "leave more room. With full attention the window is as long as the request.",
)

# What the gate does not count.

_TWO = {
    "b": "tokens per block",
    "blocks": "blocks of the pool, the null block left out",
    "one": "tokens of the first request",
    "one_step": "tokens of its first step",
    "other": "tokens of the second request",
    "other_step": "tokens of its first step",
}


def _whole(v: Any, length: Any) -> Step:
    return Step(v.b, main=length, slots=length)


def _all_at_once(f: Any, v: Any) -> Any:
    """Two requests pass the gate one after the other; the first one's last step."""
    held = f.taken_full(_whole(v, v.one_step))
    admitted = f.gate_full(_whole(v, v.one)) <= v.blocks
    held_other = f.taken_full(_whole(v, v.other_step))
    admitted_other = f.gate_full(_whole(v, v.other)) <= v.blocks - held
    last = f.predicted_full(Step(v.b, held=held, known=True, local=v.one_step, main=v.one, slots=v.one))
    return implies(every(admitted, admitted_other), last <= v.blocks - held - held_other)


_OVERCOMMITTED = "requests that were all admitted preempt one another and are prefilled again"

T16_OVERCOMMIT = Theorem(
    id="T16.overcommit",
    sentence="Two requests that each passed the gate can both be allocated to their ends.",
    formal="gate(one) <= blocks, gate(other) <= blocks - held(one) => the last step of one <= blocks - held",
    variables=_TWO,
    assume=lambda v: [
        v.b >= 1,
        v.blocks >= 0,
        v.one_step >= 1,
        v.one_step < v.one,
        v.other_step >= 1,
        v.other_step <= v.other,
    ],
    claim=_all_at_once,
    controls=(NegativeControl("even one request alone", claim=lambda f, v: f.gate_full(_whole(v, v.one)) <= v.blocks),),
    refuted_on=dict.fromkeys(("model", "impl", "vllm==0.23.0"), _OVERCOMMITTED),
    meaning="The gate compares with the blocks that are free now, not with those that nobody else will need. Blocks of "
    "one token and a pool of 2: the first request of 2 tokens takes one block, the second of 1 token passes and takes "
    "the other, and the first one's second step is refused. T16 says what to compare with instead.",
)

_HIT = {**_STEP, "hit": "blocks of its hit, all of them eviction candidates"}


def _gate_after_hit(f: Any, v: Any) -> Any:
    local = v.hit * v.b
    return f.gate_sliding(
        Step(
            v.b,
            v.w,
            hit=v.hit,
            end=v.hit,
            local=local,
            main=v.length,
            slots=v.length,
            batched=v.batched,
            max_len=v.max_len,
        )
    )


def _needed(f: Any, v: Any) -> Any:
    """Blocks held while the step runs."""
    return _cdiv(v.c + v.n, v.b) - f.skipped_sliding(v.c, v.w) // v.b


def _any_hit(v: Any) -> list[Any]:
    return [*_any_step(v), v.hit >= 0, v.hit * v.b <= v.c]


_STARVED = (
    "the gate takes a table's length for the blocks in it: behind a hit longer than the cap it counts no new blocks at "
    "all, though a step may need as many as a step has tokens"
)

T16_HIT = Theorem(
    id="T16.hit",
    sentence="Behind a hit, too, a sliding-window request never holds more blocks than the gate counted.",
    formal="blocks held at any later step <= gate(hit)",
    variables=_HIT,
    assume=_any_hit,
    claim=lambda f, v: _needed(f, v) <= _gate_after_hit(f, v),
    controls=(NegativeControl("one block less", claim=lambda f, v: _needed(f, v) < _reserved(f, v)),),
    refuted_on=dict.fromkeys(("model", "impl", "vllm==0.23.0"), _STARVED),
    meaning="Window 1024, blocks of 16, 8192 tokens a step, a hit of 9232 tokens: the gate counts 64 blocks, the next "
    "step holds 576.",
)


def _fixed(v: Any, cap: Any) -> Any:
    """What a gate would count that told the blocks in a table from its length."""
    local = v.hit * v.b
    gone = max(0, local - v.w + 1) // v.b
    inside = v.hit - min(gone, v.hit)
    return inside + max(0, min(_cdiv(v.length, v.b) - v.hit, cap - inside))


def _hit_within(f: Any, v: Any) -> Any:
    use(_span, v.c + v.n, v.c - v.w + 1, v.b)
    use(_ordered, v.w - 1 + v.n, v.w - 1 + v.batched, v.b)
    use(_ordered, v.c + v.n, v.length, v.b)
    cap = f.cap_sliding(v.w, v.b, v.batched, v.max_len)
    return _needed(f, v) <= _fixed(v, cap)


T16_FIXED = Theorem(
    id="T16.fixed",
    sentence="A gate that caps the blocks in the table, not its length, counts enough behind every hit.",
    formal="inside = hit - min(skipped(hit * b) // b, hit): held <= inside + max(0, min(cdiv(length, b) - hit, "
    "cap - inside))",
    variables=_HIT,
    assume=_any_hit,
    claim=_hit_within,
    controls=(
        NegativeControl(
            "the cap as it is compared today",
            claim=lambda f, v: (
                _needed(f, v)
                <= v.hit
                - min(max(0, v.hit * v.b - v.w + 1) // v.b, v.hit)
                + max(0, min(_cdiv(v.length, v.b), f.cap_sliding(v.w, v.b, v.batched, v.max_len)) - v.hit)
            ),
        ),
    ),
    meaning="What to change: the two numbers that are compared must both count blocks.",
)


def _lookahead_within(f: Any, v: Any) -> Any:
    return _held(f, v) + f.predicted_sliding(_next(v, v.lookahead)) <= _reserved(f, v)


T16_LOOKAHEAD = Theorem(
    id="T16.lookahead",
    sentence="With lookahead for drafts, too, a request never holds more blocks than the gate counted.",
    formal="held + predicted(main + lookahead) <= gate",
    variables={**_STEP, "lookahead": "tokens beyond the step that drafts may need"},
    assume=lambda v: [*_any_step(v), v.lookahead >= 0, v.c + v.n + v.lookahead <= v.length],
    claim=_lookahead_within,
    controls=(
        NegativeControl(
            "one block less", claim=lambda f, v: _held(f, v) + f.predicted_sliding(_next(v, 0)) < _reserved(f, v)
        ),
    ),
    refuted_on=dict.fromkeys(
        ("model", "impl", "vllm==0.23.0"),
        "with speculative decoding a request can hold more blocks than the gate counted: the sum of reservations "
        "no longer guarantees that a step fits (L2)",
    ),
    meaning="The cap counts a step's budget, which does not include the lookahead; with n + lookahead <= batched it is "
    "T16.step.",
)


def _covers(f: Any, v: Any) -> Any:
    """The first step against the gate, for a request without hit."""
    return f.predicted_sliding(Step(v.b, v.w, main=v.n, slots=v.n)) <= _reserved(f, v)


T16_COVERS = Theorem(
    id="T16.covers",
    sentence="Who passes the gate without a hit is not refused by the check of its first step.",
    formal="predicted(n) <= gate(length) for n <= length, n <= batched",
    variables={name: _STEP[name] for name in ("b", "w", "batched", "max_len", "length", "n")},
    assume=lambda v: [
        v.b >= 1,
        v.w >= 1,
        v.n >= 1,
        v.n <= v.batched,
        v.n <= v.length,
        v.length <= v.max_len,
    ],
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
    formal="gate(length) >= 2 + p if length > b else 1 + p; real(table) <= 1 + p within the first block",
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
    formal="allocate_slots(n) is None <=> taken > free; refused => nothing taken, table unchanged",
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
    T16_FIXED,
    T16_LOOKAHEAD,
    T16_STATES,
)
