"""What is read, what is skipped, and what is held at once (T1-T6).

They start from the definition of attention: the query at `q` reads the token at `t`.
"""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, negation, quotient_found, quotients_ordered, same, some
from ..symbolic_builtins import common_divisor
from ..theorem import NegativeControl, Theorem, on_releases

_TOKENS = {"c": "tokens computed", "q": "position of a query", "t": "position of a token"}
_STEP = {
    "c": "tokens computed",
    "n": "tokens of the next step",
    "b": "tokens per block",
    "batched": "most tokens of one step",
    "max_len": "most tokens of a request",
}


def _skips_exactly(skipped: Any, attends: Any, v: Any) -> Any:
    """`t < skipped(c)` exactly if no query at `c` or later reads `t`; who reads a later `t` is said by name."""
    s, witness = skipped(v.c), v.c if v.t < v.c else v.t
    return [
        implies(every(v.t < s, v.q >= v.c), negation(attends(v.q, v.t))),
        implies(v.t >= s, attends(witness, v.t)),
    ]


T1 = Theorem(
    id="T1",
    sentence="A sliding window leaves behind exactly the tokens that no later query reads.",
    variables={**_TOKENS, "w": "window, in tokens"},
    assume=lambda v: [v.c >= 0, v.t >= 0, v.q >= 0, v.w >= 1],
    claim=lambda f, v: _skips_exactly(
        lambda c: f.skipped_sliding(c, v.w), lambda q, t: f.attends_sliding(q, t, v.w), v
    ),
    controls=(
        NegativeControl("the window ends one token earlier", {"skipped_sliding": lambda c, w: max(0, c - w)}),
        NegativeControl("the window ends one token later", {"skipped_sliding": lambda c, w: max(0, c - w + 2)}),
    ),
    meaning="No block is given back that is still read, and none is kept for a token that nobody reads.",
)

T2 = Theorem(
    id="T2",
    sentence="Chunked local attention leaves behind exactly the tokens that no later query reads.",
    variables={**_TOKENS, "k": "chunk, in tokens"},
    assume=lambda v: [v.c >= 0, v.t >= 0, v.q >= 0, v.k >= 1],
    claim=lambda f, v: _skips_exactly(
        lambda c: f.skipped_chunked(c, v.k), lambda q, t: f.attends_chunked(q, t, v.k), v
    ),
    controls=(
        NegativeControl(
            "the chunk of the last computed token counts", {"skipped_chunked": lambda c, k: max(0, c - 1) // k * k}
        ),
        NegativeControl("a window in place of a chunk", {"skipped_chunked": lambda c, k: max(0, c - k + 1)}),
    ),
    meaning="As T1, for chunks.",
)


def _states_left_behind(f: Any, v: Any) -> Any:
    """As `_skips_exactly`; a query reads one state, so who reads a later `t` is the query behind it."""
    s = f.skipped_mamba(v.c)
    return [
        implies(every(v.t < s, v.q >= v.c), negation(f.attends_mamba(v.q, v.t))),
        implies(v.t >= s, every(v.t + 1 >= v.c, f.attends_mamba(v.t + 1, v.t))),
    ]


T1_STATES = Theorem(
    id="T1.states",
    sentence="A state-space layer leaves behind exactly the tokens whose state no later query reads.",
    variables=_TOKENS,
    assume=lambda v: [v.c >= 0, v.t >= 0, v.q >= 0],
    claim=_states_left_behind,
    controls=(
        NegativeControl("the last state is given up too", {"skipped_mamba": lambda c: c}),
        NegativeControl("one state more is kept", {"skipped_mamba": lambda c: c - 2}),
        NegativeControl("a query reads its own state", {"attends_mamba": lambda q, t: t == q}),
        NegativeControl("a query reads every state before it", {"attends_mamba": lambda q, t: t < q}),
    ),
    meaning="One state per request is enough to go on from.",
)

T1_FULL = Theorem(
    id="T1.full",
    sentence="Full attention leaves nothing behind: every later query reads every earlier token.",
    variables=_TOKENS,
    assume=lambda v: [v.c >= 0, v.t >= 0, v.q >= 0],
    claim=lambda f, v: [
        implies(v.t < v.c, f.attends_full(v.c, v.t)),
        f.attends_full(v.t, v.t),
        implies(v.t > v.q, negation(f.attends_full(v.q, v.t))),
    ],
    controls=(NegativeControl("a query does not read itself", {"attends_full": lambda q, t: t < q}),),
)


def _definitions_agree(f: Any, v: Any) -> Any:
    """Said in another way: by how far back a query looks, and by the borders of its chunk."""
    chunk = v.q - v.q % v.k
    return [
        same(f.attends_sliding(v.q, v.t, v.w), every(v.q - v.t >= 0, v.q - v.t <= v.w - 1)),
        implies(v.w > v.q, same(f.attends_sliding(v.q, v.t, v.w), f.attends_full(v.q, v.t))),
        same(f.attends_chunked(v.q, v.t, v.k), every(chunk <= v.t, v.t <= v.q)),
    ]


T1_READS = Theorem(
    id="T1.reads",
    sentence="A window is the query and the w - 1 tokens before it; a chunk goes from its last border to the query.",
    variables={"q": _TOKENS["q"], "t": _TOKENS["t"], "w": "window, in tokens", "k": "chunk, in tokens"},
    assume=lambda v: [v.q >= 0, v.t >= 0, v.w >= 1, v.k >= 1],
    claim=_definitions_agree,
    controls=(
        NegativeControl(
            "the window is one token wider", {"attends_sliding": lambda q, t, w: every(t <= q, t >= q - w)}
        ),
        NegativeControl("a chunk reaches behind the query", {"attends_chunked": lambda q, t, k: t // k == q // k}),
    ),
    meaning="The definition that all other theorems start from says what is meant.",
)


def _held(f: Any, v: Any, skipped: Any) -> Any:
    """Blocks of a request while a step of `n` tokens runs: those up to its end less those left behind."""
    return f.cdiv(v.c + v.n, v.b) - skipped // v.b


def _step(v: Any) -> list[Any]:
    return [v.b >= 1, v.c >= 0, v.n >= 1, v.n <= v.batched, v.c + v.n <= v.max_len]


T4 = Theorem(
    id="T4",
    sentence="A sliding-window request never holds more blocks than the admission gate counts.",
    variables={**_STEP, "w": "window, in tokens"},
    assume=lambda v: [*_step(v), v.w >= 1],
    claim=lambda f, v: _held(f, v, f.skipped_sliding(v.c, v.w)) <= f.cap_sliding(v.w, v.b, v.batched, v.max_len),
    controls=(
        NegativeControl(
            "the block in which the window begins is forgotten",
            {"cap_sliding": lambda w, b, batched, max_len: -(-min(w - 1 + batched, max_len) // b)},
        ),
    ),
    meaning="Reserving the cap for every admitted request is enough: see T5 for how much too much it is.",
)


def exact_sliding(w: Any, b: Any, batched: Any, max_len: Any) -> Any:
    """Most blocks that a sliding-window request holds at once, for steps of at most `batched` tokens (T5)."""
    return -(-min(w - 1 + batched + b - 1, max_len) // b)


def _attained_sliding(f: Any, v: Any) -> Any:
    """A step that holds the maximum: as much as fits, with the window beginning as late in a block as can be."""
    reach = min(v.w - 1 + v.batched + v.b - 1, v.max_len)
    if v.max_len <= v.w - 1:
        c, n = v.max_len - 1, 1
    else:
        n = min(v.batched, reach - (v.w - 1))
        c = reach - n
    held = f.cdiv(c + n, v.b) - f.skipped_sliding(c, v.w) // v.b
    return every(
        c >= 0, n >= 1, n <= v.batched, c + n <= v.max_len, held == exact_sliding(v.w, v.b, v.batched, v.max_len)
    )


_LIMITS = {name: _STEP[name] for name in ("b", "batched", "max_len")}

T5 = Theorem(
    id="T5",
    sentence="The most blocks a sliding-window request holds at once: sufficient for every step.",
    variables={**_STEP, "w": "window, in tokens"},
    assume=lambda v: [*_step(v), v.w >= 1],
    claim=lambda f, v: _held(f, v, f.skipped_sliding(v.c, v.w)) <= exact_sliding(v.w, v.b, v.batched, v.max_len),
    controls=(
        NegativeControl(
            "one block fewer",
            claim=lambda f, v: _held(f, v, f.skipped_sliding(v.c, v.w)) < exact_sliding(v.w, v.b, v.batched, v.max_len),
        ),
        NegativeControl("two windows are kept", {"skipped_sliding": lambda c, w: max(0, c - 2 * w + 1)}),
    ),
)

T5_ATTAINED = Theorem(
    id="T5.attained",
    sentence="The maximum of T5 is attained, whatever window, block size, budget and length are.",
    variables={**_LIMITS, "w": "window, in tokens"},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.batched >= 1, v.max_len >= 1],
    claim=_attained_sliding,
    controls=(
        NegativeControl("a window one token wider is meant", {"skipped_sliding": lambda c, w: max(0, c - w + 2)}),
    ),
)


def _given_away(f: Any, v: Any) -> Any:
    tokens = v.w - 1 + v.batched
    full, rest = (tokens - 1) // v.b, (tokens - 1) % v.b
    quotient_found(-tokens, v.b, -full - 1)
    quotient_found(-(tokens + v.b - 1), v.b, -full - 1 if rest == 0 else -full - 2)
    gap = f.cap_sliding(v.w, v.b, v.batched, v.max_len) - exact_sliding(v.w, v.b, v.batched, v.max_len)
    return [
        every(gap >= 0, gap <= 1),
        implies(v.max_len <= tokens, gap == 1),
        implies(v.max_len >= tokens + v.b - 1, same(gap == 1, rest == 0)),
    ]


T5_GAP = Theorem(
    id="T5.gap",
    sentence="The admission cap gives away at most one block per request, and says when.",
    variables={**_LIMITS, "w": "window, in tokens"},
    assume=lambda v: [v.b >= 1, v.w >= 1, v.batched >= 1, v.max_len >= 1],
    claim=_given_away,
    controls=(
        NegativeControl(
            "the cap is exact",
            {"cap_sliding": exact_sliding},
        ),
    ),
    meaning="One block per request and group of layers is reserved that can never be used.",
)


def exact_chunked(k: Any, b: Any, batched: Any, max_len: Any) -> Any:
    """Most blocks that a chunked-local request holds at once, for steps of at most `batched` tokens (T6)."""
    return -(-min(k - 1 + batched + b - common_divisor(b, k)[0], max_len) // b)


def _chunks_covered(f: Any, v: Any, most: Any) -> Any:
    """So many blocks suffice: a chunk begins at a multiple of every common divisor of `b` and `k`."""
    k = v.k
    skipped, cap, end = f.skipped_chunked(v.c, k), most(k, v.b, v.batched, v.max_len), f.cdiv(v.c + v.n, v.b)
    first = skipped // v.b
    common, b_parts, k_parts = common_divisor(v.b, k)
    astride = v.c // k * k_parts - first * b_parts
    lemma(skipped - first * v.b == common * astride, "what a chunk drags along is a multiple of the common divisor")
    multiples_ordered(b_parts, astride, common)
    multiples_ordered(astride, b_parts - 1, common)
    multiples_ordered(cap + first, end - 1, v.b)
    return end - first <= cap


T6 = Theorem(
    id="T6",
    sentence="A chunked-local request never holds more blocks than the admission gate counts.",
    variables={**_STEP, "k": "chunk, in tokens"},
    assume=lambda v: [*_step(v), v.k >= 1],
    claim=lambda f, v: _chunks_covered(f, v, f.cap_chunked),
    controls=(
        NegativeControl(
            "the block in which a chunk begins is forgotten",
            {"cap_chunked": lambda k, b, batched, max_len: -(-min(k + batched, max_len) // b)},
        ),
    ),
    refuted_on=on_releases("the cap is one block too small where the block size does not divide the chunk"),
)


T6_EXACT = Theorem(
    id="T6.exact",
    sentence="The most blocks a chunked-local request holds at once: sufficient for every step.",
    variables={**_STEP, "k": "chunk, in tokens"},
    assume=lambda v: [*_step(v), v.k >= 1],
    claim=lambda f, v: _chunks_covered(f, v, exact_chunked),
    controls=(
        NegativeControl(
            "one token fewer",
            claim=lambda f, v: _chunks_covered(
                f, v, lambda k, b, batched, max_len: exact_chunked(k - 1, b, batched, max_len)
            ),
            assume=lambda v: [*_step(v), v.k >= 2],
        ),
        NegativeControl("a step needs a block more", {"cdiv": lambda x, b: -(-x // b) + 1}),
    ),
)


def _given_away_by_chunks(f: Any, v: Any) -> Any:
    tokens = v.k - 1 + v.batched + v.b - common_divisor(v.b, v.k)[0]
    full, rest = tokens // v.b, tokens % v.b
    quotient_found(-tokens, v.b, -full if rest == 0 else -full - 1)
    quotient_found(-(tokens + 1), v.b, -full - 1)
    quotients_ordered(-tokens, -(v.k + v.batched), v.b)
    quotients_ordered(-v.max_len, -(v.k + v.batched), v.b)
    gap = f.cap_chunked(v.k, v.b, v.batched, v.max_len) - exact_chunked(v.k, v.b, v.batched, v.max_len)
    return [gap <= 1, implies(some(rest != 0, v.max_len <= tokens), gap <= 0)]


T6_GAP = Theorem(
    id="T6.gap",
    sentence="The admission cap of chunks gives away at most one block per request, and says when.",
    variables={**_LIMITS, "k": "chunk, in tokens"},
    assume=lambda v: [v.b >= 1, v.k >= 1, v.batched >= 1, v.max_len >= 1],
    claim=_given_away_by_chunks,
    controls=(
        NegativeControl(
            "a block for both ends of a chunk",
            {"cap_chunked": lambda k, b, batched, max_len: -(-min(k + batched, max_len) // b) + 1},
        ),
    ),
)


def _whole_chunks_covered(f: Any, v: Any) -> Any:
    k = v.m * v.b
    skipped, cap, end = f.skipped_chunked(v.c, k), f.cap_chunked(k, v.b, v.batched, v.max_len), f.cdiv(v.c + v.n, v.b)
    first = v.c // k * v.m
    lemma(skipped == first * v.b, "a chunk begins with a block")
    quotient_found(skipped, v.b, first)
    multiples_ordered(cap + first, end - 1, v.b)
    return end - skipped // v.b <= cap


T6_DIVIDES = Theorem(
    id="T6.divides",
    sentence="Where the block size divides the chunk, the admission gate counts enough.",
    variables={**_STEP, "m": "blocks per chunk"},
    assume=lambda v: [*_step(v), v.m >= 1],
    claim=_whole_chunks_covered,
    controls=(
        NegativeControl(
            "the budget of the step is not counted",
            {"cap_chunked": lambda k, b, batched, max_len: -(-min(k, max_len) // b)},
        ),
    ),
)

THEOREMS = (T1, T1_FULL, T1_READS, T1_STATES, T2, T4, T5, T5_ATTAINED, T5_GAP, T6, T6_DIVIDES, T6_EXACT, T6_GAP)
