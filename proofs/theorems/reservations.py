"""What the admission gate counts behind a hit, with lookahead and with tokens that may be taken back (T16)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, quotient_found, quotients_ordered, use
from ..symbolic_builtins import common_divisor
from ..theorem import NegativeControl, Theorem, on_releases
from .admission import ONE_STEP, any_own_step, cdiv, close_span, gate, held_before, next_step, ordered


def _longest(v: Any) -> Any:
    """Tokens of the longest step, as the caps count them with lookahead: for one token of it they have room."""
    return v.batched + max(0, v.lookahead - 1)


# Behind a hit, with lookahead, and with tokens that may be taken back.

_HIT = {
    **{name: meaning for name, meaning in ONE_STEP.items() if name != "length"},
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


def _reserved_for_all(v: Any, skipped: Any, before: Any, cap: Any, reserved: Any) -> Any:
    """Blocks held while the step runs, those up to its last slot less those left behind, are within the gate.

    `before`: tokens that the query behind the hit does not read; `cap`: most blocks with this lookahead.
    """
    use(ordered, v.slots, v.whole, v.b)
    quotients_ordered(before, skipped, v.b)
    held = cdiv(v.slots, v.b) - skipped // v.b
    return implies(held <= cap, held <= reserved)


def _sliding_within(f: Any, v: Any) -> Any:
    reserved = gate(f.gate_sliding, v, v.w)
    skipped, before = f.skipped_sliding(v.settled, v.w), f.skipped_sliding(v.hit * v.b, v.w)
    cap = f.cap_sliding(v.w, v.b, _longest(v), v.max_len)
    use(close_span, v.slots, v.settled - v.w + 1, v.b)
    use(ordered, v.slots - 2 - v.settled + v.w, v.w - 1 + _longest(v), v.b)
    use(ordered, v.slots, v.max_len, v.b)
    lemma(cdiv(v.slots, v.b) - skipped // v.b <= cap, "T4, with lookahead")
    return _reserved_for_all(v, skipped, before, cap, reserved)


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
                    + max(0, min(cdiv(s.slots, s.b), cdiv(s.size - 1 + s.batched, s.b) + 1) - s.hit)
                )
            },
        ),
        NegativeControl(
            "unsettled tokens do not count in the budget of a step",
            assume=lambda v: [*_any_hit(v, v.n), v.w >= 1],
        ),
    ),
    refuted_on=on_releases(
        "the gate takes a table's length for the blocks in it: behind a hit longer than the cap it "
        "counts no new blocks at all, though a step may need as many as a step has tokens"
    ),
    meaning="Window 1024, blocks of 16, 8192 tokens a step, a hit of 9232 tokens: the next step holds 576 blocks, and "
    "that is what the gate counts.",
)


def _below(x: Any, y: Any, b: Any) -> Any:
    """Law: blocks that are shorter than some tokens are fewer than these need."""
    return implies(every(b > 0, x * b < y), x < cdiv(y, b))


def _laws_of_chunks(v: Any) -> None:
    """What a hit keeps lies in one chunk, so it is less than the cap; the chunk and the hit have a common divisor."""
    common, b_part, k_part = common_divisor(v.b, v.k)
    begin = v.hit * v.b // v.k
    more = b_part * v.hit - k_part * begin
    multiples_ordered(0, v.hit, v.b)
    lemma(every(begin * v.k <= v.hit * v.b, v.hit * v.b < begin * v.k + v.k), "the chunk of the hit's end")
    multiples_ordered(k_part, more, common)
    lemma(more < k_part, "counted in common divisors")
    multiples_ordered(more + 1, k_part, common)
    lemma(v.hit * v.b - begin * v.k <= v.k - common, "so the hit ends before the chunk does by one of them")
    lemma(begin >= 0, "chunks are not negative")
    multiples_ordered(0, begin, v.k)
    left = begin * v.k // v.b
    lemma(every(left * v.b <= begin * v.k, begin * v.k < left * v.b + v.b), "blocks left behind")
    quotients_ordered(0, begin * v.k, v.b)
    quotients_ordered(begin * v.k, v.hit * v.b, v.b)
    quotient_found(v.hit * v.b, v.b, v.hit)
    lemma(every(left >= 0, left <= v.hit), "some of the hit")
    multiples_ordered(0, left, v.b)
    use(_below, v.hit - left, v.k + _longest(v) + v.b - common, v.b)
    use(_below, v.hit - left, v.max_len, v.b)
    lemma(v.hit - left < cdiv(v.k + _longest(v) + v.b - common, v.b), "what is kept of the hit is less than the cap")
    lemma(v.hit - left < cdiv(v.max_len, v.b), "and than the longest request")


def _chunks_within(f: Any, v: Any) -> Any:
    _laws_of_chunks(v)
    reserved = gate(f.gate_chunked, v, v.k)
    skipped, before = f.skipped_chunked(v.settled, v.k), f.skipped_chunked(v.hit * v.b, v.k)
    quotients_ordered(v.hit * v.b, v.settled, v.k)
    multiples_ordered(v.hit * v.b // v.k, v.settled // v.k, v.k)
    lemma(before <= skipped, "what is left behind is never taken back")
    return _reserved_for_all(v, skipped, before, f.cap_chunked(v.k, v.b, _longest(v), v.max_len), reserved)


T16_CHUNKED = Theorem(
    id="T16.chunked",
    sentence="Chunks: behind a hit, with lookahead and with tokens that may still be taken back, a request never holds "
    "more blocks than the gate counted, as it holds no more than the cap (T6; T6.exact for steps with lookahead).",
    variables={**{name: meaning for name, meaning in _HIT.items() if name != "w"}, "k": "chunk, in tokens"},
    assume=lambda v: [*_any_hit(v), v.k >= 1],
    claim=_chunks_within,
    controls=(NegativeControl("what the chunk alone holds", {"gate_chunked": lambda s: cdiv(s.size, s.b) + 1}),),
    refuted_on=on_releases("as T16.hit; and the cap is one block too small where blocks lie astride chunks (T6)"),
    meaning=T16_HIT.meaning,
)


def _whole_within(f: Any, v: Any) -> Any:
    use(ordered, v.slots, v.whole, v.b)
    return cdiv(v.slots, v.b) <= gate(f.gate_full, v, 0)


T16_FULL = Theorem(
    id="T16.full",
    sentence="Full attention: behind a hit and with lookahead a request never holds more blocks than the gate counted.",
    variables={name: meaning for name, meaning in _HIT.items() if name != "w"},
    assume=_any_hit,
    claim=_whole_within,
    controls=(NegativeControl("the hit counts as held", {"gate_full": lambda s: cdiv(s.slots, s.b) - s.hit}),),
    meaning="A hit of eviction candidates takes blocks out of the free queue like new ones.",
)


def _lookahead_within(f: Any, v: Any) -> Any:
    slots = v.c + v.n + v.lookahead
    use(close_span, slots, v.c - v.w + 1, v.b)
    use(ordered, slots - 2 - v.c + v.w, v.w - 1 + _longest(v), v.b)
    use(ordered, slots, v.length, v.b)
    use(ordered, v.c, slots, v.b)
    return held_before(f, v) + f.predicted_sliding(next_step(v, v.lookahead)) <= gate(f.gate_sliding, v, v.w)


T16_LOOKAHEAD = Theorem(
    id="T16.lookahead",
    sentence="With lookahead for drafts, too, a request never holds more blocks than the gate counted for it when it "
    "began without a hit.",
    variables={**ONE_STEP, "lookahead": "tokens beyond the step that drafts may need"},
    assume=lambda v: [*any_own_step(v), v.lookahead >= 0, v.c + v.n + v.lookahead <= v.length],
    claim=_lookahead_within,
    controls=(
        NegativeControl(
            "lookahead is not counted",
            {"gate_sliding": lambda s: min(cdiv(s.slots, s.b), cdiv(min(s.size - 1 + s.batched, s.max_len), s.b) + 1)},
        ),
    ),
    refuted_on=on_releases(
        "with speculative decoding a request can hold more blocks than the gate counted: the sum of "
        "reservations no longer guarantees that a step fits (L2)"
    ),
    meaning="A window of 1024, blocks of 16, steps of 8192 tokens: with one draft token nothing more is reserved, so "
    "that a pool which holds the longest request admits it; with 5 of them it is one block more.",
)


THEOREMS = (T16_HIT, T16_CHUNKED, T16_FULL, T16_LOOKAHEAD)
