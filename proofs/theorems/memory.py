"""Blocks for so much memory, and whether they are enough for a request (T17)."""

from collections.abc import Callable
from math import inf
from typing import Any

from ..claims import implies, lemma, multiples_ordered, ratio_is, use
from ..theorem import Claim, NegativeControl, Theorem

_PAGES = {"p": "bytes of a page", "q": "bytes of another page"}
_MEMORY = "bytes of memory, negative if the model took more than there is"


def _fills(num_blocks: Any, block: Any, memory: Any) -> Any:
    """As many blocks of so many bytes as fit."""
    return [
        num_blocks >= 0,
        implies(memory >= 0, num_blocks * block <= memory),
        implies(memory < 0, num_blocks == 0),
        memory < num_blocks * block + block,
        num_blocks % 1 == 0,  # a whole number, not an exact quotient
    ]


def _divided_twice(memory: Any, page: Any, layers: Any) -> None:
    """For cores that divide by the page first and by the layers then."""
    per_page = memory // page
    per_layer = per_page // layers
    multiples_ordered(per_layer * layers, per_page, page)
    multiples_ordered(per_page + 1, per_layer * layers + layers, page)


def _shared_out(f: Any, v: Any) -> Any:
    n = f.num_blocks(v.memory, v.page, v.layers)
    _divided_twice(v.memory, v.page, v.layers)
    return _fills(n, v.layers * v.page, v.memory)


T17 = Theorem(
    id="T17",
    sentence="The number of blocks is the largest whose pages in all layers fit the memory; it is 0 where none fits.",
    variables={"memory": _MEMORY, "page": "bytes of a page", "layers": "layers that share the memory"},
    assume=lambda v: [v.page >= 1, v.layers >= 1],
    claim=_shared_out,
    controls=(
        NegativeControl(
            "rounded up", {"num_blocks": lambda memory, page, layers: max(0, -(-memory // (page * layers)))}
        ),
        NegativeControl("below nothing", {"num_blocks": lambda memory, page, layers: memory // page // layers}),
        NegativeControl("layers do not count", {"num_blocks": lambda memory, page, layers: max(0, memory // page)}),
        NegativeControl("at least one", {"num_blocks": lambda memory, page, layers: max(1, memory // page // layers)}),
    ),
    meaning="No memory is given away but less than one block, and none is used that is not there.",
)


def _sized(f: Any, v: Any, role: str, block: Any, *pages: Any) -> Any:
    """`block`: bytes of one block by counting the pages that lie side by side."""
    n, total = getattr(f, role)(v.memory, *pages)
    return [total == n * block, *_fills(n, block, v.memory)]


_NEGATIVE = "negative memory gives a negative number of blocks and tensors of negative size"


def _two_buffers(f: Any, v: Any) -> Any:
    _divided_twice(v.memory, v.p, 2)
    return _sized(f, v, "size_plain", 2 * v.p, v.p)


T17_SHARED = Theorem(
    id="T17.shared",
    sentence="Groups of two layers and of one share two buffers: their bytes are those of the blocks that fit.",
    variables={"memory": _MEMORY, "p": _PAGES["p"]},
    assume=lambda v: [v.p >= 1],
    claim=_two_buffers,
    controls=(
        NegativeControl("every layer has a buffer", {"size_plain": lambda memory, p: (max(0, memory // (3 * p)),) * 2}),
        NegativeControl(
            "one buffer is forgotten", {"size_plain": lambda memory, p: (memory // (2 * p), memory // (2 * p) * p)}
        ),
    ),
    bounded="Two groups of two layers and one. How many layers there are shows in the number of buffers only, and T17 "
    "is about any number of them.",
    meaning="No memory is used that is not there, padding between groups included.",
)

T17_ONE_TYPE = Theorem(
    id="T17.one-type",
    sentence="One group of layers with pages of their own: the bytes of its buffers are those of the blocks that fit.",
    variables={"memory": _MEMORY, **_PAGES},
    assume=lambda v: [v.p >= 1, v.q >= 1],
    claim=lambda f, v: _sized(f, v, "size_one_type", v.p + v.q, v.p, v.q),
    controls=(
        NegativeControl(
            "one page is forgotten", {"size_one_type": lambda memory, p, q: (memory // p, memory // p * (p + q))}
        ),
    ),
    bounded="Two layers: a block is the sum of the pages.",
    refuted_on={"vllm==0.23.0": _NEGATIVE},
)


def _several_block(v: Any) -> Any:
    """A page `p` and a page `q`; the second group has two layers of `p`. Equal pages all lie in the same buffers."""
    return 2 * v.p + v.q if v.p != v.q else 2 * v.p


T17_SEVERAL_TYPES = Theorem(
    id="T17.several-types",
    sentence="Groups of several types share a buffer wherever their pages are equal; the blocks that fit are counted "
    "so.",
    variables={"memory": _MEMORY, **_PAGES},
    assume=lambda v: [v.p >= 1, v.q >= 1],
    claim=lambda f, v: _sized(f, v, "size_several_types", _several_block(v), v.p, v.q),
    controls=(
        NegativeControl(
            "nothing is shared",
            {"size_several_types": lambda memory, p, q: (max(0, memory // (3 * p + q)), 0)},
        ),
    ),
    bounded="Two groups, with pages p, q and p, p: every way two pages can compare occurs.",
    refuted_on={"vllm==0.23.0": _NEGATIVE},
)


def whole_blocks(n: Any, page: Any) -> Any:
    """Law: `n` pages of so many bytes are `n` blocks."""
    return implies(page >= 1, -(-(n * page) // page) == n)


def _checked(f: Any, v: Any, role: str, pages: Any, blocks: Any, block: Any) -> tuple[Any, Any]:
    """Whether the check passes, and how many blocks there are."""
    for page in pages:
        use(whole_blocks, v.n, page)
        if "m" in vars(v):
            use(whole_blocks, v.m, page)
    counts = [v.n, v.m] if "m" in vars(v) else [v.n]
    needed, found = getattr(f, role)(v.memory, *pages, *counts)
    lemma(v.memory < found * block + block, "no further block fits")
    for wanted in (blocks, blocks + 1):
        multiples_ordered(wanted, found, block)
        multiples_ordered(found + 1, wanted, block)
    return needed <= v.memory, found


def _capacity(f: Any, v: Any, role: str, pages: Any, blocks: Any, block: Any) -> Any:
    """The check asks for the blocks of one request, with or without one for the null block."""
    passes, found = _checked(f, v, role, pages, blocks, block)
    return [implies(passes, found >= blocks), implies(found >= blocks + 1, passes)]


def _beside_null(f: Any, v: Any, role: str, pages: Any, blocks: Any, block: Any) -> Any:
    """The check asks for the blocks of one request and the null block."""
    passes, found = _checked(f, v, role, pages, blocks, block)
    return [implies(passes, found - 1 >= blocks), implies(found - 1 >= blocks, passes)]


_BLOCKS = {"n": "blocks that a request needs in one group", "m": "blocks that it needs in the other"}


def _plain(f: Any, v: Any, claim: Callable[..., Any]) -> Any:
    _divided_twice(v.memory, v.p, 2)
    return claim(f, v, "check_plain", [v.p], v.n + v.m, 2 * v.p)


def _one(f: Any, v: Any, claim: Callable[..., Any]) -> Any:
    return claim(f, v, "check_one_type", [v.p, v.q], v.n, v.p + v.q)


def _several(f: Any, v: Any, claim: Callable[..., Any]) -> Any:
    return claim(f, v, "check_several_types", [v.p, v.q], v.n + v.m, _several_block(v))


def _positive(v: Any) -> list[Any]:
    return [value >= 1 for name, value in vars(v).items() if name != "memory"]


T17_CHECK = Theorem(
    id="T17.check",
    sentence="The check passes only if the pool has the blocks that one request needs, and it does if there is one "
    "more.",
    variables={"memory": _MEMORY, "p": _PAGES["p"], **_BLOCKS},
    assume=_positive,
    claim=lambda f, v: _plain(f, v, _capacity),
    controls=(
        NegativeControl(
            "one group is forgotten",
            {"check_plain": lambda memory, p, n, m: (2 * p * n, max(0, memory // (2 * p)))},
        ),
        NegativeControl(
            "layers without a partner are not paid for",
            {"check_plain": lambda memory, p, n, m: (p * (2 * n + m), max(0, memory // (2 * p)))},
        ),
    ),
    bounded="Two groups of two layers and one, as T17.shared.",
)

T17_CHECK_ONE_TYPE = Theorem(
    id="T17.check-one-type",
    sentence="So it does for one group of layers with pages of their own.",
    variables={"memory": _MEMORY, **_PAGES, "n": _BLOCKS["n"]},
    assume=_positive,
    claim=lambda f, v: _one(f, v, _capacity),
    controls=(
        NegativeControl(
            "one page is forgotten",
            {"check_one_type": lambda memory, p, q, n: (p * n, max(0, memory // (p + q)))},
        ),
    ),
    bounded="Two layers: a block is the sum of the pages.",
)

T17_CHECK_SEVERAL = Theorem(
    id="T17.check-several-types",
    sentence="So it does for groups of several types.",
    variables={"memory": _MEMORY, **_PAGES, **_BLOCKS},
    assume=_positive,
    claim=lambda f, v: _several(f, v, _capacity),
    controls=(
        NegativeControl(
            "every group pays for a whole tuple of pages",
            {
                "check_several_types": lambda memory, p, q, n, m: (
                    2 * (p + q) * (n + m),
                    max(0, memory // (2 * p + q)),
                )
            },
        ),
    ),
    bounded="Two groups, with pages p, q and p, p.",
    refuted_on={
        "vllm==0.23.0": "pages are counted that no block has: for layers 3, 5 and 8 of DeepSeek-V4's kinds 212,745,600 "
        "bytes are asked for where 197,366,400 do, and an override of exactly the blocks needed is refused"
    },
)

T17_CHECK_STAGE = Theorem(
    id="T17.check-stage",
    sentence="So it does for a pipeline stage whose first group has small pages only.",
    variables={"memory": _MEMORY, **_PAGES, **_BLOCKS},
    assume=_positive,
    claim=lambda f, v: _capacity(f, v, "check_stage", [v.p, v.q], v.n + v.m, v.p + v.q if v.p != v.q else v.p),
    controls=(
        NegativeControl(
            "the pages of the first group are taken for all",
            {"check_stage": lambda memory, p, q, n, m: (p * (n + m), max(0, memory // (p + q)))},
        ),
    ),
    bounded="Two groups of one layer.",
    refuted_on={
        "vllm==0.23.0": "the check passes although the pool has fewer blocks than one request needs, which then waits "
        "forever: with all MLA pages small, 4 blocks are accepted where 102 are needed"
    },
)

_NULL_BLOCK = (
    "one block is the null block, which is not counted: a pool that just passes the check stalls a request of full "
    "length at its last block"
)


def _null_block(
    suffix: str, of: str, blocks: str, pages: str, claim: Claim, wrong: Callable[..., Any], bounded: str
) -> Theorem:
    role = "check_" + (suffix.replace("-", "_") or "plain")
    return Theorem(
        id="T17.null-block" + (f"-{suffix}" if suffix else ""),
        sentence=f"The check passes exactly if one request has all its blocks beside the null block{of}.",
        variables={
            "memory": _MEMORY,
            **{page: _PAGES[page] for page in pages},
            **{name: _BLOCKS[name] for name in blocks.split(" + ")},
        },
        assume=_positive,
        claim=claim,
        controls=(
            NegativeControl("twice the need is not enough", {role: lambda memory, *rest: (memory, 0)}),
            NegativeControl("the null block is forgotten", {role: wrong}),
        ),
        bounded=bounded,
        refuted_on={"vllm==0.23.0": _NULL_BLOCK},
        meaning="A request of 64 tokens and blocks of 4 needs a pool of 17.",
    )


T17_NULL = _null_block(
    "",
    "",
    "n + m",
    "p",
    lambda f, v: _plain(f, v, _beside_null),
    lambda memory, p, n, m: (2 * p * (n + m), max(0, memory // (2 * p))),
    "Two groups of two layers and one, as T17.shared.",
)
T17_NULL_ONE_TYPE = _null_block(
    "one-type",
    ", for one group of layers with pages of their own, too",
    "n",
    "pq",
    lambda f, v: _one(f, v, _beside_null),
    lambda memory, p, q, n: ((p + q) * n, max(0, memory // (p + q))),
    "Two layers: a block is the sum of the pages.",
)
T17_NULL_SEVERAL = _null_block(
    "several-types",
    ", for groups of several types, too",
    "n + m",
    "pq",
    lambda f, v: _several(f, v, _beside_null),
    lambda memory, p, q, n, m: ((2 * p + q) * (n + m), max(0, memory // (2 * p + q))),
    "Two groups, with pages p, q and p, p.",
)


def _at_once(f: Any, v: Any) -> Any:
    requests = f.concurrency(v.blocks, v.page, v.n)
    if isinstance(requests, float) and requests == inf:
        return v.n == 0
    use(whole_blocks, v.n, v.page)
    return [v.n >= 1, ratio_is(requests, v.blocks - 1, v.n)]


CONCURRENCY = Theorem(
    id="T17.concurrency",
    sentence="The requests that fit at once are the blocks beside the null block by the blocks that one needs; "
    "infinitely many if it needs none.",
    variables={"blocks": "blocks of the pool", "page": "bytes of a page", "n": "blocks that a request needs"},
    assume=lambda v: [v.blocks >= 1, v.page >= 1, v.n >= 0],
    claim=_at_once,
    controls=(
        NegativeControl("the null block counts", {"concurrency": lambda blocks, page, n: blocks / n if n else inf}),
    ),
    bounded="One group of two layers.",
    rounding="What is printed and compared is a ratio of block counts: the nearest floating-point number to it.",
    refuted_on={
        "vllm==0.23.0": "the null block is counted as one that requests can use; and a request that needs no block "
        "(cross attention without encoder input) is a ZeroDivisionError when the engine reports its capacity"
    },
)


def _split_evenly(f: Any, v: Any) -> Any:
    n, share = f.blocks_full(v.length, v.ranks, v.b), -(-v.length // v.ranks)
    multiples_ordered(share, n * v.b, v.ranks)
    multiples_ordered(n * v.b - v.b + 1, share, v.ranks)
    lemma(share <= n * v.b, "the share of a rank fits")
    lemma(n * v.b - v.b < share, "and fills its last block in part")
    return [n * v.b * v.ranks >= v.length, (n - 1) * v.b * v.ranks < v.length]


BLOCKS_FULL = Theorem(
    id="T17.ranks",
    sentence="Full attention takes the fewest blocks that hold the whole sequence on all ranks together.",
    variables={"length": "tokens of the longest request", "ranks": "context-parallel ranks", "b": "tokens per block"},
    assume=lambda v: [v.length >= 0, v.ranks >= 1, v.b >= 1],
    claim=_split_evenly,
    controls=(
        NegativeControl(
            "the share is rounded down", {"blocks_full": lambda length, ranks, b: -(-(length // ranks) // b)}
        ),
        NegativeControl("ranks do not count", {"blocks_full": lambda length, ranks, b: -(-length // b)}),
    ),
    meaning="A manager with blocks of b * ranks tokens counts the same.",
)

THEOREMS = (
    T17,
    T17_SHARED,
    T17_ONE_TYPE,
    T17_SEVERAL_TYPES,
    T17_CHECK,
    T17_CHECK_ONE_TYPE,
    T17_CHECK_SEVERAL,
    T17_CHECK_STAGE,
    T17_NULL,
    T17_NULL_ONE_TYPE,
    T17_NULL_SEVERAL,
    CONCURRENCY,
    BLOCKS_FULL,
)
