"""What the admission gate counts, and what an admitted request may count on (T16)."""

from types import SimpleNamespace
from typing import Any

from ..claims import every, implies, lemma, one_of, same, use
from ..roles.one_request import Step
from ..theorem import NegativeControl, Theorem, on_releases
from .states import STEP, Case, after_step, any_step

ONE_STEP = {
    "b": "tokens per block",
    "w": "window, in tokens",
    "batched": "most tokens of one step",
    "max_len": "most tokens of a request",
    "length": "tokens of the request",
    "c": "tokens computed",
    "n": "tokens of the next step",
}


def cdiv(x: Any, y: Any) -> Any:
    """Rounded up."""
    return -(-x // y)


def any_own_step(v: Any) -> list[Any]:
    """Any step of a request, within the budget and its length."""
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


def gate(counts: Any, v: Any, size: Any) -> Any:
    """What the gate counts for a request of which nothing is there yet, or behind a hit that nobody else holds."""
    hit, lookahead, whole = (
        getattr(v, *known) for known in (("hit", 0), ("lookahead", 0), ("whole", getattr(v, "length", 0)))
    )
    told = Step(v.b, size, hit=hit, end=hit, local=hit * v.b, main=whole, slots=whole, lookahead=lookahead)
    return counts(told._replace(batched=v.batched, max_len=v.max_len))


def next_step(v: Any, lookahead: Any = 0) -> Step:
    """The next step of a running request; its table is as long as its computed tokens need."""
    main = v.c + v.n
    return Step(v.b, v.w, held=cdiv(v.c, v.b), known=True, local=v.c, main=main, slots=main + lookahead)


def held_before(f: Any, v: Any) -> Any:
    """Real blocks before the step, once what is out of sight is null (T3.nulled)."""
    return cdiv(v.c, v.b) - f.skipped_sliding(v.c, v.w) // v.b


def ordered(x: Any, y: Any, b: Any) -> Any:
    """Law: more tokens need no fewer blocks."""
    return implies(every(b > 0, x <= y), cdiv(x, b) <= cdiv(y, b))


def rounded_up(x: Any, b: Any) -> Any:
    """Law: the two ways to write it."""
    return implies(b > 0, (x + b - 1) // b == cdiv(x, b))


def span(x: Any, y: Any, b: Any) -> Any:
    """Law: what is between two tokens touches one block more than its length needs, at most."""
    return implies(b > 0, cdiv(x, b) - y // b <= cdiv(x - y, b) + 1)


def close_span(x: Any, y: Any, b: Any) -> Any:
    """Law: the same, where the last of these tokens is none that its length counts."""
    return implies(b > 0, cdiv(x, b) - y // b <= cdiv(x - 1 - y, b) + 1)


def laws_of_step(v: Any) -> None:
    """Laws about the blocks of such a step."""
    use(span, v.c + v.n, v.c - v.w + 1, v.b)
    use(ordered, v.w - 1 + v.n, v.w - 1 + v.batched, v.b)
    use(ordered, v.c + v.n, v.length, v.b)
    use(ordered, v.c, v.c + v.n, v.b)


def _within(f: Any, v: Any) -> Any:
    laws_of_step(v)
    return held_before(f, v) + f.predicted_sliding(next_step(v)) <= gate(f.gate_sliding, v, v.w)


T16_STEP = Theorem(
    id="T16.step",
    sentence="Sliding window: at no step does a request hold more blocks than the gate counted for it when it began "
    "without a hit.",
    variables=ONE_STEP,
    assume=any_own_step,
    claim=_within,
    controls=(
        NegativeControl(
            "a gate that counts what the window alone holds", {"gate_sliding": lambda s: cdiv(s.size, s.b) + 1}
        ),
        NegativeControl(
            "a gate that caps one block lower",
            {"gate_sliding": lambda s: min(cdiv(s.slots, s.b), cdiv(min(s.size - 1 + s.batched, s.max_len), s.b))},
        ),
    ),
    meaning="A reservation that was right once is right until the request ends.",
)

_POOL = {
    **ONE_STEP,
    "blocks": "blocks of the pool, the null block left out",
    "others": "blocks reserved for the other requests",
    "others_hold": "blocks that the other requests hold",
}


def _any_pool(v: Any) -> list[Any]:
    return [*any_own_step(v), v.others_hold >= 0, v.others_hold <= v.others]


def _room(f: Any, v: Any) -> Any:
    """If all reservations fit the pool, so does the step."""
    laws_of_step(v)
    held, predicted = held_before(f, v), f.predicted_sliding(next_step(v))
    reserved = gate(f.gate_sliding, v, v.w)
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
            assume=lambda v: [*any_own_step(v), v.others_hold >= 0, v.others_hold <= v.others + 1],
        ),
        NegativeControl("the gate counts what the window alone holds", {"gate_sliding": lambda s: cdiv(s.size, s.b)}),
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
    for tokens in (v.one_step, v.one, v.other_step, v.other):
        use(rounded_up, tokens, v.b)
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


def _takes_always(b: Any, held: Any, c: Any, n: Any, free: Any, known: Any = None, reserved: Any = 0) -> Any:
    return SimpleNamespace(refused=False, taken=cdiv(c + n, b) - held)


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
        NegativeControl("an allocation takes what it needs, whatever is free", {"allocated_full": _takes_always}),
    ),
    refuted_on=on_releases(
        "the gate does not leave what is reserved for others in the pool: requests that were all "
        "admitted preempt one another and are prefilled again"
    ),
    meaning="A scheduler that hands in, as `reserved_blocks`, what those that run may still take never has to preempt "
    "one of them for another.",
)


def _covers(f: Any, v: Any) -> Any:
    """The first step against the gate, for a request without hit."""
    return f.predicted_sliding(Step(v.b, v.w, main=v.n, slots=v.n)) <= gate(f.gate_sliding, v, v.w)


T16_COVERS = Theorem(
    id="T16.covers",
    sentence="Who passes the gate without a hit is not refused by the check of its first step.",
    variables={name: ONE_STEP[name] for name in ("b", "w", "batched", "max_len", "length", "n")},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.n >= 1, v.n <= v.batched, v.n <= v.length, v.length <= v.max_len],
    claim=_covers,
    controls=(
        NegativeControl(
            "a step may exceed its budget",
            assume=lambda v: [v.b >= 1, v.w >= 1, v.n >= 1, v.batched >= 1, v.n <= v.length, v.length <= v.max_len],
        ),
        NegativeControl("the gate counts what the window alone holds", {"gate_sliding": lambda s: cdiv(s.size, s.b)}),
    ),
)


# States.


_WITHIN = [[Case(p, (1, 1, 0)[: 1 + p] + (0,) * (2 - p), registered, 0, 0) for registered in (0, 1)] for p in (0, 1)]
"""Steps within a block, of both kinds."""


def _state_gate(f: Any, v: Any) -> list[Any]:
    """What the gate counts for a request of layers that keep running states, and what it holds within a block."""
    if v.kind < len(_WITHIN):
        return [after_step(f, v, case).table.real <= 1 + case.p for case in one_of(v.kind, _WITHIN)]
    if v.kind == len(_WITHIN):
        return [implies(v.length > 2, f.gate_align(Step(1, 1, main=v.length, slots=v.length)) >= 4)]
    gate = f.gate_align(Step(v.b, v.p, main=v.length, slots=v.length))
    return [implies(v.length > v.b, gate >= 2 + v.p), gate >= 1 + v.p]


T16_STATES = Theorem(
    id="T16.states",
    sentence="The gate counts as many states as a request can hold: 2 + p if it goes beyond one block (T15), and 1 + p "
    "if not; with a draft a step and blocks of one token, 2 + 2p.",
    variables={**STEP, "p": "speculative blocks", "length": "tokens of the request"},
    assume=lambda v: [*any_step(v, len(_WITHIN) + 2), v.p >= 0, v.length >= 1],
    claim=_state_gate,
    controls=(
        NegativeControl(
            "one block less", claim=lambda f, v: f.gate_align(Step(v.b, v.p, main=v.length, slots=v.length)) <= v.p
        ),
        NegativeControl("what the first step takes", {"gate_align": lambda step: 1 + step.size}),
    ),
    unroll=6,
    bounded="what is held within a block: 0 or 1 speculative block",
    refuted_on=on_releases("a pool that holds 1 + p states admits a request that can then not take its next step"),
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
            "the last free block is never given", {"taken_full": lambda s: max(cdiv(s.slots, s.b) - s.held, 0) + 1}
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
    T16_STATES,
)
