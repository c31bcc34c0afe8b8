"""Memory for so long a request, the longest request for so much memory, use of the pool (T18, T24)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, ratio_is, same, use
from ..roles.memory import LONGEST
from ..theorem import Claim, NegativeControl, Theorem
from .memory import whole_blocks

# T18: a longer request needs no less.


def _rounding_ordered(small: Any, large: Any, unit: Any) -> Any:
    """Law: rounding up keeps the order."""
    return implies(every(unit >= 1, small <= large), -(-small // unit) <= -(-large // unit))


def _grows(need: Callable[[Any, Any], Any], v: Any) -> Any:
    """Never less for `more` further tokens; `need` takes a length and a page."""
    page, short, long = v.page, need(v.length, 1), need(v.length + v.more, 1)
    lemma(short <= long, "in blocks")
    multiples_ordered(short, long, page)
    return need(v.length, page) <= need(v.length + v.more, page)


def _monotone(
    kind: str,
    sizes: Mapping[str, str],
    claim: Claim,
    what: str,
    wrong: Mapping[str, Callable[..., Any]],
    modes: Sequence[str] = (),
    bounded: str = "",
) -> Theorem:
    """That the need of one kind of layers, in each of these cache modes, never falls.

    `sizes`: variables that only this kind has. `wrong`: a wrong need under what is wrong with it.
    """
    roles = {f"need_{kind}_{mode}": f" ({mode})" for mode in modes} or {f"need_{kind}": ""}
    return Theorem(
        id=f"T18.{kind}",
        sentence=f"The memory that a request needs never falls when it grows longer: {what}.",
        variables={
            "length": "tokens of the longest request",
            "more": "further tokens",
            **sizes,
            "b": "tokens per block",
            "page": "bytes of a page",
        },
        assume=lambda v: [
            v.length >= 0,
            v.more >= 0,
            v.b >= 1,
            v.page >= 1,
            *(getattr(v, size) >= 1 for size in sizes),
        ],
        claim=claim,
        controls=tuple(
            NegativeControl(said + mode, {role: instead})
            for role, mode in roles.items()
            for said, instead in wrong.items()
        ),
        bounded=bounded,
    )


def _full_grows(f: Any, v: Any) -> Any:
    share = -(-v.length // v.ranks)
    longer = -(-(v.length + v.more) // v.ranks)
    use(_rounding_ordered, v.length, v.length + v.more, v.ranks)
    use(_rounding_ordered, share, longer, v.b)
    use(_rounding_ordered, v.length, v.length + v.more, v.b)
    return _grows(lambda length, page: f.need_full(length, v.ranks, v.b, page), v)


T18_FULL = _monotone(
    "full",
    {"ranks": "context-parallel ranks"},
    _full_grows,
    "full attention",
    {"only the rest after the ranks counts": lambda length, ranks, b, page: length % ranks * page},
)
T18_WINDOW = _monotone(
    "window",
    {"w": "window, in tokens", "batched": "most tokens of one step"},
    lambda f, v: _grows(lambda length, page: f.need_window(length, v.w, v.batched, v.b, page), v),
    "sliding window",
    {"the part of the window in the last block counts": lambda length, w, batched, b, page: (length % b + w) * page},
)
T18_CHUNK = _monotone(
    "chunk",
    {"k": "chunk, in tokens", "batched": "most tokens of one step"},
    lambda f, v: _grows(lambda length, page: f.need_chunk(length, v.k, v.batched, v.b, page), v),
    "chunked local attention",
    {"only the last chunk counts": lambda length, k, batched, b, page: -(-(length % k) // b) * page},
)


def _mamba_grows(f: Any, v: Any) -> Any:
    return [
        _grows(lambda length, page, need=need: need(length, v.b, v.s, page), v)  # type: ignore[misc]
        for need in (f.need_mamba_all, f.need_mamba_align, f.need_mamba_none)
    ]


T18_MAMBA = _monotone(
    "mamba",
    {"s": "speculative blocks"},
    _mamba_grows,
    "states, in every cache mode",
    {"the tokens of the last block count": lambda length, b, s, page: (length % b + s) * page},
    ("all", "align", "none"),
)
T18_CROSS = _monotone(
    "cross",
    {"encoder": "most tokens of the encoder's input"},
    lambda f, v: _grows(lambda length, page: f.need_cross(length, v.encoder, v.b, page), v),
    "cross attention",
    {"less for longer ones": lambda length, encoder, b, page: (encoder - length) * page},
)


def _uniform_grows(f: Any, v: Any) -> Any:
    blocks = [-(-length // v.b) for length in (v.length, v.length + v.more)]
    for count in blocks:
        use(whole_blocks, count, v.page)
        use(whole_blocks, count, v.other)
    use(_rounding_ordered, v.length, v.length + v.more, v.b)
    multiples_ordered(blocks[0], blocks[1], v.page + v.other)
    needs = [f.need_uniform(length, v.b, v.page, v.other) for length in (v.length, v.length + v.more)]
    return [needs[0] <= needs[1], needs[0] == blocks[0] * (v.page + v.other)]


T18_UNIFORM = _monotone(
    "uniform",
    {"other": "bytes of another layer's page"},
    _uniform_grows,
    "layers of one type with pages of their own, which need the same number of blocks",
    {"only the last block counts": lambda length, b, p, q: length % b * (p + q)},
    bounded="Two layers: the need is the most blocks of any layer by the sum of the pages.",
)


def _found(f: Any, v: Any, least: int = 1, most: int = 1) -> Any:
    """A length needs as many bytes, and from `least` to `most` more: any need that never falls is less than the memory
    up to some length."""
    longest = f.longest(v.limit, v.memory)
    return [
        every(longest >= 0, longest <= v.limit),
        implies(longest >= 1, longest + least <= v.memory),
        implies(longest < v.limit, longest + 1 + most > v.memory),
    ]


_HALVING = (
    f"Lengths up to {LONGEST}. A step looks at the middle of a range and goes on with one half of it; shifting a range "
    "shifts its middle, so what follows is the search of a shorter range, and induction covers all lengths."
)
_SEARCH = {"limit": "most tokens that a request may have", "memory": "bytes of memory"}

T18 = Theorem(
    id="T18",
    sentence="The search for the longest request that fits beside the null block finds it; 0 if none does.",
    variables=_SEARCH,
    assume=lambda v: [v.limit >= 1, v.limit <= LONGEST],
    claim=_found,
    controls=(
        NegativeControl("one less", {"longest": lambda limit, memory: max(0, min(limit, memory - 1) - 1)}),
        NegativeControl("at least one", {"longest": lambda limit, memory: max(1, min(limit, memory - 1))}),
        NegativeControl("the null block is forgotten", {"longest": lambda limit, memory: max(0, min(limit, memory))}),
    ),
    unroll=LONGEST,
    bounded=_HALVING,
    refuted_on={
        "vllm==0.23.0": "a length is said to fit that needs all blocks of the pool, one of which is the null block"
    },
)
T18_SEARCH = Theorem(
    id="T18.search",
    sentence="But for the null block, which may count or not, the search finds the longest request that fits.",
    variables=_SEARCH,
    assume=lambda v: [v.limit >= 1, v.limit <= LONGEST],
    claim=lambda f, v: _found(f, v, least=0),
    controls=(
        NegativeControl("two less", {"longest": lambda limit, memory: max(0, min(limit, memory) - 2)}),
        NegativeControl("at least one", {"longest": lambda limit, memory: max(1, min(limit, memory))}),
    ),
    unroll=LONGEST,
    bounded=_HALVING,
)
T18_NOTHING = Theorem(
    id="T18.nothing",
    sentence="The search for the longest request finds 0 where no length is allowed.",
    variables=_SEARCH,
    assume=lambda v: [v.limit == 0],
    claim=lambda f, v: f.longest(v.limit, v.memory) == 0,
    controls=(NegativeControl("at least one", {"longest": lambda limit, memory: max(1, min(limit, memory))}),),
    refuted_on={"vllm==0.23.0": "a length of 1 is said to fit where the model allows none"},
)

# T24.


def _used(f: Any, v: Any) -> Any:
    usage, usable = f.usage(v.free, v.blocks), v.blocks - 1
    if usable == 0:
        return usage == 0
    return [
        every(usage >= 0, usage <= 1),
        ratio_is(usage, usable - v.free, usable),
        same(usage == 0, v.free == usable),
        same(usage == 1, v.free == 0),
    ]


T24 = Theorem(
    id="T24",
    sentence="Usage is the share of the blocks in use, the null block aside: from 0, all free, to 1, none free.",
    variables={"free": "free blocks", "blocks": "blocks of the pool, the null block included"},
    assume=lambda v: [v.blocks >= 1, v.blocks <= 2**53, v.free >= 0, v.free <= v.blocks - 1],
    claim=_used,
    controls=(
        NegativeControl("the null block counts", {"usage": lambda free, blocks: 1.0 - free / blocks}),
        NegativeControl(
            "share of the free blocks", {"usage": lambda free, blocks: free / (blocks - 1) if blocks > 1 else 0.0}
        ),
        NegativeControl(
            "an empty pool is full", {"usage": lambda free, blocks: 1.0 - free / (blocks - 1) if blocks > 1 else 1.0}
        ),
    ),
    bounded="Quotients are exact here. Floating point rounds both operations to the nearest number and is monotone: "
    "from "
    "0 <= free / usable <= 1 follows the same of the rounded quotient, and then of 1 less it, as 0 and 1 are "
    "themselves "
    "floating-point numbers. It is 1 only for free = 0 as long as 1 - free / usable is not rounded to 1, that is, for "
    "pools below 2**53 blocks.",
    rounding="See what bounds it.",
)

THEOREMS = (
    T18,
    T18_SEARCH,
    T18_NOTHING,
    T18_FULL,
    T18_WINDOW,
    T18_CHUNK,
    T18_MAMBA,
    T18_CROSS,
    T18_UNIFORM,
    T24,
)
