"""Where a token lies in memory: slots, parts of pages, elements of views, shared buffers (T21)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, negation, quotient_found, refuses, some
from ..theorem import NegativeControl, Theorem

_SLOT = {
    "e": "block id in the table entry of the token",
    "t": "position of the token",
    "b": "tokens per block",
    "n": "entries of a row",
    "blocks": "blocks of the pool",
}


def _slot_formula(f: Any, v: Any) -> Any:
    multiples_ordered(v.e + 1, v.blocks, v.b)
    multiples_ordered(0, v.e, v.b)
    slot = f.slot(v.e, v.t, v.b, v.n)
    return [
        slot - v.e * v.b == v.t - v.t // v.b * v.b,
        v.e * v.b <= slot,
        slot < v.e * v.b + v.b,
        slot < v.blocks * v.b,
    ]


T21 = Theorem(
    id="T21",
    sentence="A slot determines block and offset, and every block and offset has a slot inside the pool.",
    variables=_SLOT,
    assume=lambda v: [v.b >= 1, v.t >= 0, v.t < v.n * v.b, v.e >= 1, v.e < v.blocks],
    claim=_slot_formula,
    controls=(
        NegativeControl("the position instead of the offset is added", {"slot": lambda e, t, b, n: e * b + t}),
        NegativeControl("blocks are one token apart too little", {"slot": lambda e, t, b, n: e * (b - 1) + t % b}),
        NegativeControl("the offset counts from 1", {"slot": lambda e, t, b, n: e * b + t % b + 1}),
    ),
    meaning="Two tokens are written to one slot only if they have the same block and the same offset in it.",
    bounded="one token: numpy and the kernel do the same to every token of a step",
)


T21_REFUSED = Theorem(
    id="T21.refused",
    sentence="A token behind its row, or whose entry is null, has no slot: asking for it is an error.",
    variables={name: _SLOT[name] for name in ("e", "t", "b", "n")},
    assume=lambda v: [
        v.b >= 1,
        v.n >= 1,
        v.n * v.b < 2**62,
        every(v.t >= 0, v.t < 2**62),
        v.e >= 0,
        some(v.e == 0, v.t >= v.n * v.b),
    ],
    claim=lambda f, v: refuses(ValueError, lambda: f.slot(v.e, v.t, v.b, v.n)),
    controls=(NegativeControl("the slot is computed all the same", {"slot": lambda e, t, b, n: e * b + t % b}),),
    refuted_on={
        "vllm==0.23.0": "the kernel asks nothing: a null entry gives a slot of block 0, which requests share, and a "
        "position behind the row reads an entry of the next one, so keys and values go into another's block",
    },
    bounded="one token, as T21",
)


def _found_again(f: Any, v: Any) -> Any:
    b = v.m * v.r
    slot = v.e * b + v.o
    quotient_found(slot, b, v.e)
    multiples_ordered(v.e + 1, v.blocks, b)
    multiples_ordered(0, v.e, b)
    block, entry = f.place(slot, v.m, v.r, v.blocks)
    lemma(slot // b == v.e, "the block of the slot")
    multiples_ordered(v.m, entry, v.r)
    quotient_found(slot - slot // b * b, b // v.m, v.o // v.r)
    return [block == v.e, entry == v.o // v.r, entry >= 0, entry < v.m]


T21_INVERSE = Theorem(
    id="T21.inverse",
    sentence="A layer finds block and entry of a slot again, also where it keeps one entry for several tokens.",
    variables={
        "e": "block id",
        "o": "offset in the block, in tokens",
        "m": "entries of a block",
        "r": "tokens per entry",
        "blocks": "blocks of the pool",
    },
    assume=lambda v: [v.m >= 1, v.r >= 1, v.e >= 0, v.e < v.blocks, v.o >= 0, v.o < v.m * v.r],
    claim=_found_again,
    controls=(
        NegativeControl(
            "entries of one token", {"place": lambda slot, m, r, blocks: (slot // (m * r), slot % (m * r))}
        ),
        NegativeControl(
            "a block is as long as it has entries", {"place": lambda slot, m, r, blocks: (slot // m, slot % m)}
        ),
    ),
    bounded="one slot, as T21",
)


# Shared buffers.


def _shared_pages(f: Any, v: Any) -> Any:
    """Accepted exactly if the pages agree and fill the buffer; then page i of both is the same bytes, others apart."""
    page, page2 = 2 * v.b * v.w, 2 * v.c * v.u
    agree = every(page == page2, v.size == v.blocks * page)
    found = f.shared(v.b, v.c, v.w, v.u, v.size, v.blocks)
    if found is None:
        return negation(agree)
    begin, begin2 = v.i * found[0], v.j * found[1]
    multiples_ordered(v.i + 1, v.j, found[0])
    multiples_ordered(v.j + 1, v.i, found[0])
    multiples_ordered(v.i + 1, v.blocks, found[0])
    return [
        agree,
        implies(v.i == v.j, every(begin == begin2, found[0] == found[1])),
        implies(v.i < v.j, begin + found[0] <= begin2),
        implies(v.j < v.i, begin2 + found[1] <= begin),
        begin + found[0] <= v.size,
    ]


T21_SHARED = Theorem(
    id="T21.shared",
    sentence="Layers of groups with different block sizes share a buffer only if page i of both is the same bytes, and "
    "then different pages do not overlap.",
    variables={
        "b": "tokens per block of one group",
        "c": "tokens per block of the other",
        "w": "width of keys and values of one, in bytes per token",
        "u": "width of keys and values of the other",
        "size": "bytes of the buffer",
        "blocks": "blocks of the pool",
        "i": "a block",
        "j": "another",
    },
    assume=lambda v: [
        *(size >= 1 for size in (v.b, v.c, v.w, v.u, v.blocks)),
        *(every(block >= 0, block < v.blocks) for block in (v.i, v.j)),
    ],
    claim=_shared_pages,
    controls=(
        NegativeControl("pages may differ", {"shared": lambda b, c, w, u, size, blocks: (2 * b * w, 2 * c * u)}),
        NegativeControl("sharing is refused", {"shared": lambda b, c, w, u, size, blocks: None}),
    ),
    bounded="two layers of two groups, one head, numbers of one byte: pages are compared as numbers of bytes",
    meaning="A block id means the same bytes in every group, so a block that one group gives back may go to another.",
)

THEOREMS = (T21, T21_REFUSED, T21_INVERSE, T21_SHARED)
