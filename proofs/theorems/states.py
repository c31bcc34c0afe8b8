"""How many blocks a request holds of layers that keep running states only: mamba mode align (T15).

Its table ends with the running state and `p` speculative ones; before them stands, for a while, the state that the
running one was computed from. Whether that one is given back in time decides everything.
"""

from itertools import pairwise
from typing import Any

from ..claims import every, implies, some
from ..quotients import tokens
from ..roles.one_request import Step
from ..roles.prediction import Aligned
from ..theorem import NegativeControl, Theorem

_TABLE = {
    "b": "tokens per block",
    "length": "entries of the table",
    "last": "index of the state before the running one",
    "kept": "1 if that one is still held, else 0",
    "x": "tokens computed in the block of the running state; up to p fewer than none if drafts were rejected",
    "y": "the same after the next step",
    "at": "index of an entry",
}
_SHORT_STEPS = (
    "a step begins at most 2 blocks further on, since the release pads its table in a loop; all that is padded is null"
)
_FEW_DRAFTS = "; at most 2 speculative blocks, since each is moved by a loop of its own round, like the others"


def _any_table(v: Any, p: Any) -> list[Any]:
    """The running state is at index `length - 1 - p`; `c` is in its block, or up to `p` tokens before it."""
    running = v.length - 1 - p
    return [
        v.b >= 1,
        p >= 0,
        running >= 0,
        v.kept >= 0,
        v.kept <= 1,
        v.last >= 0,
        v.last < running + 1 - v.kept,
        v.x + p > 0,
        running * v.b + v.x >= 1,
        v.x <= v.b,
        v.y > v.x,
        v.y > 0,
        v.y <= 3 * v.b,
        v.at >= 0,
        v.at <= v.length + 2,
    ]


def _in_order(f: Any, v: Any, p: Any, *, most: Any) -> list[Any]:
    """After a step, no more real blocks than `most`, and the table is as any table is assumed to be."""
    blocks = v.length - 1 - p
    computed, main = tokens(blocks, v.x, v.b), tokens(blocks, v.y, v.b)
    after = f.align_round(v.b, p, Aligned(v.length, v.last, v.kept, 0), computed, [main])
    running = after.table.length - 1 - p
    return [
        after.table.real <= most,
        implies(after.table[v.at] != 0, some(v.at == after.last, v.at >= running)),
        after.last <= running,
        running == -(-main // v.b) - 1,
    ]


_MEANING = "Memory for 2 + p states per request is budgeted (`max_memory_usage_bytes`), and that is what is held."

T15 = Theorem(
    id="T15",
    sentence="Without speculative blocks, a request holds at most two running states, whatever its steps are.",
    formal="real(table) <= 2 is preserved by every step: null what is behind c, then make room for main tokens",
    variables=_TABLE,
    assume=lambda v: _any_table(v, 0),
    claim=lambda f, v: _in_order(f, v, 0, most=2),
    controls=(NegativeControl("one state is enough", claim=lambda f, v: _in_order(f, v, 0, most=1)),),
    unroll=3,
    bounded=_SHORT_STEPS,
    meaning=_MEANING,
)


def _spaced(v: Any) -> Any:
    """A step that goes beyond a block begins more than `p` tokens inside it."""
    return implies(v.y > v.b, v.x > v.p)


T15_SPACED = Theorem(
    id="T15.spaced",
    sentence="With p speculative blocks a request holds at most 2 + p, provided that a step that goes beyond a block "
    "begins more than p tokens inside it.",
    formal="(y > b => x > p) at each step: real(table) <= 2 + p is preserved",
    variables={**_TABLE, "p": "speculative blocks"},
    assume=lambda v: [*_any_table(v, v.p), v.p >= 1, v.p <= 2, _spaced(v)],
    claim=lambda f, v: _in_order(f, v, v.p, most=2 + v.p),
    controls=(
        NegativeControl("steps begin anywhere", assume=lambda v: [*_any_table(v, v.p), v.p >= 1, v.p <= 2]),
        NegativeControl(
            "the state before is given back at once", claim=lambda f, v: _in_order(f, v, v.p, most=1 + v.p)
        ),
    ),
    unroll=3,
    bounded=_SHORT_STEPS + _FEW_DRAFTS,
    meaning="Decoding with b > 2 * p satisfies it, so does a prefill in whole blocks (T15.decode): a scheduler that "
    "splits prompts at multiples of b is safe, unless its last chunk but one has only up to p tokens.",
)

T15_DECODE = Theorem(
    id="T15.decode",
    sentence="Decoding with drafts, and prefilling whole blocks, begin where T15.spaced wants them to.",
    formal="b > 2 * p, and n <= 1 + p or x == b: y = x + n > b => x > p",
    variables={"b": _TABLE["b"], "p": "speculative blocks", "x": _TABLE["x"], "y": _TABLE["y"]},
    assume=lambda v: [v.p >= 0, v.b > 2 * v.p, v.y > v.x, some(v.y <= v.x + 1 + v.p, v.x == v.b)],
    claim=lambda f, v: _spaced(v),
    controls=(
        NegativeControl(
            "blocks of twice as many tokens as there are drafts",
            assume=lambda v: [v.p >= 0, v.b >= 2 * v.p, v.y > v.x, v.y <= v.x + 1 + v.p],
        ),
    ),
    meaning="Blocks of state-space layers have hundreds of tokens and drafts are few, so decoding is safe.",
)


# Where it fails.

_RUN = {
    "b": "tokens per block",
    "p": "speculative blocks",
    "first": "tokens of the first step",
    "second": "tokens of the second step",
    "third": "tokens of the third step",
}


def _run(f: Any, v: Any) -> list[Any]:
    ends = [tokens(0, end, v.b) for end in (0, v.first, v.first + v.second, v.first + v.second + v.third)]
    steps = list(pairwise(ends))
    return [real <= 2 + v.p for real in f.align_run(v.b, v.p, steps)]


def _any_run(v: Any) -> list[Any]:
    return [
        v.p >= 0,
        v.p <= 1,
        v.b > 2 * v.p,
        v.first >= 1,
        v.first <= v.b,
        v.second >= 1,
        v.second <= v.b,
        v.third >= 1,
        v.third <= v.b,
    ]


_LEAK = (
    "a request holds more states than are budgeted for it, and the block that is too many is given back only when the "
    "request ends: a full pool, preemptions"
)

T15_ANY = Theorem(
    id="T15.any",
    sentence="With speculative blocks too, a request holds at most 2 + p, whatever its steps are.",
    formal="real(table) <= 2 + p after each of three steps of a request that begins",
    variables=_RUN,
    assume=_any_run,
    claim=_run,
    controls=(
        NegativeControl(
            "one block fewer", claim=lambda f, v: [real <= 1 for real in f.align_run(v.b, v.p, [(0, v.first)])]
        ),
    ),
    unroll=4,
    bounded="three steps of at most a block each and at most one speculative block: a counterexample needs no more",
    refuted_on=dict.fromkeys(("model", "impl", "vllm==0.23.0"), _LEAK),
    meaning="Steps of 3, 1 and 3 tokens with b = 3 and p = 1: 4 blocks. In the release a prompt reaches it with drafts "
    "on where the token budget cuts its last part, of b to 2 * b tokens, into a chunk of at most p tokens and one "
    "that goes beyond the block. One block of a state-space layer is as large as a whole attention block, "
    "often some MiB.",
)


def _leaks(f: Any, v: Any) -> list[Any]:
    """Two steps, and the nulling before the third."""
    before = tokens(v.length - v.p, 0, v.b)
    table = Aligned(v.length, v.leaked, 0, v.leaked)
    after = f.align_round(v.b, v.p, table, before, [before + 1, before + 3 * v.b, None])
    return [
        after.table.length == v.length + 3,
        after.table.real == v.leaked + 2 + v.p,
        implies(every(v.at >= v.leaked, v.at < v.length - 1 - v.p), after.table[v.at] == 0),
        after.table[v.length - 1 - v.p] != 0,
        after.table[v.length + 1 - v.p] == 0,
    ]


T15_LEAK = Theorem(
    id="T15.leak",
    sentence="There is no bound but the length: with speculative blocks, steps of 1 and 3 * b - 1 tokens in turns "
    "leave one more block behind each time, for good.",
    formal="c = (running + 1) * b; steps to c + 1 and c + 3 * b, then null: real = 1 + p + leaked + 1, and what leaked "
    "stands before a null, where no later nulling comes",
    variables={
        **{name: _TABLE[name] for name in ("b", "length", "at")},
        "p": "speculative blocks",
        "leaked": "blocks left behind so far",
    },
    assume=lambda v: [
        v.p >= 1,
        v.p <= 2,
        v.b > 2 * v.p,
        v.leaked >= 0,
        v.leaked < v.length - 1 - v.p,
        v.at >= 0,
    ],
    claim=_leaks,
    controls=(
        NegativeControl(
            "without speculative blocks",
            assume=lambda v: [v.p == 0, v.b > 2, v.leaked >= 0, v.leaked < v.length - 1 - v.p, v.at >= 0],
        ),
    ),
    unroll=4,
    bounded="1 or 2 speculative blocks" + _FEW_DRAFTS,
    meaning="A request of n blocks can hold about n / 3 states where 2 + p are budgeted (by exhaustion of small tables "
    "with other steps, 1 + p + n / 2).",
)


# The first step.


def _first_step(f: Any, v: Any) -> list[Any]:
    after = f.align_first(_first_allocation(v))
    running = after.table.length - 1 - v.p
    return [
        after.table.real <= 2 + v.p,
        implies(v.at < running, some(after.table[v.at] == 0, after.last == v.at)),
    ]


T15_FIRST = Theorem(
    id="T15.first",
    sentence="After its first step, with or without a hit or a state from outside, a request holds at most 2 + p.",
    formal="real(table) <= 2 + p; before the running state, only the state it continues from is real",
    variables={
        "b": "tokens per block",
        "p": "speculative blocks",
        "hit": "blocks of its hit",
        "external": "tokens that come from outside behind the hit",
        "new": "tokens of the step",
        "at": "index of an entry",
    },
    assume=lambda v: [
        v.b >= 1,
        v.p >= 0,
        v.hit >= 1,
        v.hit <= 2,
        v.external >= 0,
        v.external <= 2 * v.b,
        v.new >= 1,
        v.new <= v.b,
        v.at >= 0,
    ],
    claim=_first_step,
    controls=(
        NegativeControl(
            "nothing to continue from",
            claim=lambda f, v: [_first_step(f, v)[1], f.align_first(_first_allocation(v)).table.real <= 1 + v.p],
        ),
    ),
    unroll=3,
    bounded="a hit of 1 or 2 blocks, up to 2 blocks from outside, and a step of at most a block; "
    "without hit, T15.any begins from nothing",
    meaning=_MEANING,
)


def _first_allocation(v: Any) -> Step:
    local = tokens(v.hit, 0, v.b)
    main = local + v.external + v.new
    return Step(
        v.b, v.p, hit=v.hit, first=v.hit - 1, end=v.hit, local=local, external=v.external, main=main, slots=main
    )


THEOREMS = (T15, T15_SPACED, T15_DECODE, T15_ANY, T15_LEAK, T15_FIRST)
