"""Names of blocks: what two of them have in common if they are equal (T22)."""

from typing import Any

from ..claims import every, implies, negation, refuses, same, some, use
from ..symbolic_bytes import byte_string, is_bytes, power
from ..theorem import NegativeControl, Theorem

GROUPS = 2**32

_TWO_KEYS = {
    "n": "bytes of one hash",
    "x": "number of one hash",
    "g": "group of one block",
    "m": "bytes of another hash",
    "y": "number of the other hash",
    "h": "group of the other block",
}


def _group(group: Any) -> Any:
    return every(group >= 0, group < GROUPS)


def _two_keys(v: Any) -> list[Any]:
    return [is_bytes(v.n, v.x), is_bytes(v.m, v.y), _group(v.g), _group(v.h)]


def _injective(f: Any, v: Any) -> Any:
    one, other = byte_string(v.n, v.x), byte_string(v.m, v.y)
    equal = f.packed(one, v.g) == f.packed(other, v.h)
    return [implies(equal, one == other), implies(equal, v.g == v.h)]


def _packed_in(size: int) -> Any:
    """Packing with a suffix of so many bytes, what does not fit being cut off."""
    return lambda block_hash, group: block_hash + byte_string(size, group % 256**size)


T22 = Theorem(
    id="T22",
    sentence="The key of a block determines its hash and its group, also for hashes of different lengths.",
    variables=_TWO_KEYS,
    assume=_two_keys,
    claim=_injective,
    controls=(
        NegativeControl("the group takes three bytes", {"packed": _packed_in(3)}),
        NegativeControl(
            "the group stands before the hash, both shortened", {"packed": lambda x, g: byte_string(1, g % 256) + x}
        ),
        NegativeControl(
            "group ids beyond four bytes are wrapped",
            {"packed": _packed_in(4)},
            assume=lambda v: [is_bytes(v.n, v.x), is_bytes(v.m, v.y), v.g >= 0, v.h >= 0],
        ),
    ),
    meaning="No two groups share an entry of the map, whatever hash functions are mixed; a group costs 4 bytes a key.",
)


def _unpacks(f: Any, v: Any) -> Any:
    block_hash = byte_string(v.n, v.x)
    key = f.packed(block_hash, v.g)
    return [f.unpacked_hash(key) == block_hash, f.unpacked_group(key) == v.g]


_ONE_KEY = {name: _TWO_KEYS[name] for name in ("n", "x", "g")}

T22_INVERSE = Theorem(
    id="T22.inverse",
    sentence="Hash and group are read back from a key as they were put in.",
    variables=_ONE_KEY,
    assume=lambda v: [is_bytes(v.n, v.x), _group(v.g)],
    claim=_unpacks,
    controls=(
        NegativeControl("the hash keeps a byte of the group", {"unpacked_hash": lambda key: key[:-3]}),
        NegativeControl("half of the group is read", {"unpacked_group": lambda key: number_of(key[-2:])}),
        NegativeControl("the group takes three bytes", {"packed": _packed_in(3)}),
    ),
)


def number_of(string: Any) -> Any:
    """The number that a byte string is in big-endian order."""
    return int.from_bytes(string, "big") if isinstance(string, bytes) else string.number


def _refuses(f: Any, v: Any) -> Any:
    try:
        f.packed(byte_string(v.n, v.x), v.g)
    except OverflowError:
        return True
    return False


T22_RANGE = Theorem(
    id="T22.range",
    sentence="A group id that four bytes do not hold is refused, not cut.",
    variables=_ONE_KEY,
    assume=lambda v: [is_bytes(v.n, v.x), negation(_group(v.g))],
    claim=_refuses,
    controls=(NegativeControl("it is cut", {"packed": _packed_in(4)}),),
)


# Coarser blocks.


def _two_digits(a: Any, b: Any, c: Any, d: Any, unit: Any) -> Any:
    digits = every(unit >= 1, b >= 0, b < unit, d >= 0, d < unit)
    return implies(every(digits, a * unit + b == c * unit + d), every(a == c, b == d))


def _coarse_injective(f: Any, v: Any) -> Any:
    """Two pairs of hashes; the last ones are digits to the base 256 ** length."""
    one = [byte_string(v.n, v.x), byte_string(v.n, v.y)]
    other = [byte_string(v.n, v.z), byte_string(v.n, v.u)]
    use(_two_digits, v.x, v.y, v.z, v.u, power(v.n))
    equal = f.joined(one) == f.joined(other)
    return [implies(equal, one[0] == other[0]), implies(equal, one[1] == other[1])]


_FOUR = {"x": "number of a hash", "y": "number of the next", "z": "number of another", "u": "number of its next"}

T22_COARSE = Theorem(
    id="T22.coarse",
    sentence="The hash of a coarser block determines the hashes it is made of, if these are of one length.",
    variables={"n": "bytes of every hash", **_FOUR},
    assume=lambda v: [is_bytes(v.n, number) for number in (v.x, v.y, v.z, v.u)],
    claim=_coarse_injective,
    controls=(
        NegativeControl("only the last hash is kept", {"joined": lambda hashes: hashes[-1]}),
        NegativeControl(
            "the hashes are added up", {"joined": lambda hashes: byte_string(40, sum(map(number_of, hashes)))}
        ),
    ),
    bounded="two hashes for a block; k + 1 follow from k, as a string of k hashes and one more are two strings again "
    "(T22.coarse.step)",
)


def _step_injective(f: Any, v: Any) -> Any:
    one, other = [byte_string(v.m, v.x), byte_string(v.n, v.y)], [byte_string(v.m, v.z), byte_string(v.n, v.u)]
    use(_two_digits, v.x, v.y, v.z, v.u, power(v.n))
    equal = f.joined(one) == f.joined(other)
    return [implies(equal, one[0] == other[0]), implies(equal, one[1] == other[1])]


T22_STEP = Theorem(
    id="T22.coarse.step",
    sentence="A string of hashes and one more hash: equal wholes have equal parts if the parts are of equal length.",
    variables={"m": "bytes of all hashes but the last", "n": "bytes of the last", **_FOUR},
    assume=lambda v: [is_bytes(v.m, v.x), is_bytes(v.m, v.z), is_bytes(v.n, v.y), is_bytes(v.n, v.u)],
    claim=_step_injective,
    controls=(NegativeControl("the last hash is left out", {"joined": lambda hashes: hashes[0]}),),
)


def _a_digit_more(x: Any, unit: Any, larger: Any) -> Any:
    return implies(larger == 256 * unit, x * larger == 256 * (x * unit))


def _byte_moved(f: Any, v: Any) -> Any:
    """The first byte of the second hash is moved to the end of the first one."""
    unit = power(v.n)
    use(_a_digit_more, v.x, unit, power(v.n + 1))
    one = [byte_string(v.m, v.x), byte_string(v.n + 1, v.first * unit + v.rest)]
    other = [byte_string(v.m + 1, v.x * 256 + v.first), byte_string(v.n, v.rest)]
    return [f.joined(one) == f.joined(other), negation(one[0] == other[0]), negation(one[1] == other[1])]


def _with_lengths(hashes: Any) -> Any:
    """A rule that would tell these apart: the hashes with the length of the first one."""
    first = hashes[0]
    return (len(first) if isinstance(first, bytes) else first.length, first + hashes[1])


T22_MIXED = Theorem(
    id="T22.coarse.mixed",
    sentence="Hashes of one length are needed: wherever a byte is moved from one hash to the one before it, the hash "
    "of the coarser block stays the same.",
    variables={
        "m": "bytes of the first hash",
        "x": "its number",
        "first": "first byte of the second hash",
        "n": "its other bytes",
        "rest": "their number",
    },
    assume=lambda v: [
        is_bytes(v.m, v.x),
        is_bytes(v.n, v.rest),
        power(v.n + 1) == 256 * power(v.n),
        v.first >= 0,
        v.first < 256,
    ],
    claim=_byte_moved,
    controls=(
        NegativeControl("the hashes of one pair only", {"joined": lambda hashes: hashes[0]}),
        NegativeControl("the length of the first hash stands before them", {"joined": _with_lengths}),
    ),
    meaning="Every hash function in use has digests of one length (16 or 32 bytes), for which T22.coarse holds. A "
    "hasher of one's own must have one length, too.",
)


def _covers(f: Any, v: Any) -> Any:
    found = f.covered(v.i, v.scale, v.fine, v.known)
    return [
        len(found) == v.scale,
        *(index == v.i * v.scale + position for position, index in enumerate(found)),
    ]


_COVER = {
    "i": "index of a coarser block",
    "scale": "small blocks in a coarser one",
    "fine": "tokens of a small block",
    "known": "small blocks that have a hash",
}

SCALE = 4


def _wrong_cover(step: int, shift: int) -> Any:
    return lambda i, scale, fine, known: [
        i * (scale + step) + shift + position for position in range(SCALE) if position < scale
    ]


T22_COVER = Theorem(
    id="T22.cover",
    sentence="Item i of the coarser view consists of the hashes of exactly the tokens of block i.",
    variables=_COVER,
    assume=lambda v: [v.i >= 0, v.scale >= 1, v.scale <= SCALE, v.fine >= 1, v.known >= v.i * v.scale + v.scale],
    claim=_covers,
    unroll=SCALE,
    controls=(
        NegativeControl("blocks begin one hash later", {"covered": _wrong_cover(0, 1)}),
        NegativeControl("blocks overlap", {"covered": _wrong_cover(-1, 0)}),
    ),
    bounded=f"up to {SCALE} small blocks in a coarser one: the code cuts one slice, whose ends do not depend on how "
    "many lie between; index, block sizes and lengths are symbolic",
)


T22_LAST = Theorem(
    id="T22.last",
    sentence="Item i of the coarser view is the hash that ends where block i ends.",
    variables=_COVER,
    assume=lambda v: [v.i >= 0, v.scale >= 1, v.fine >= 1, v.known >= v.i * v.scale + v.scale],
    claim=lambda f, v: f.last_covered(v.i, v.scale, v.fine, v.known) + 1 == (v.i + 1) * v.scale,
    controls=(
        NegativeControl("the first hash names it", {"last_covered": lambda i, scale, fine, known: i * scale}),
        NegativeControl("it is the hash behind", {"last_covered": lambda i, scale, fine, known: (i + 1) * scale}),
    ),
    meaning="A hash names all tokens before its end (T22.chain): the last one of a block is a name of all of it.",
)


T22_BEYOND = Theorem(
    id="T22.beyond",
    sentence="The coarser view has no item behind its last full one.",
    variables=_COVER,
    assume=lambda v: [
        v.i >= 0,
        v.scale >= 1,
        v.scale <= SCALE,
        v.fine >= 1,
        v.known >= 0,
        v.known < v.i * v.scale + v.scale,
    ],
    claim=lambda f, v: refuses(IndexError, lambda: f.item(v.i, v.scale, v.fine, v.known)),
    unroll=SCALE,
    controls=(NegativeControl("what there is counts as a block", {"item": _wrong_cover(0, 0)}),),
    bounded=f"as T22.cover: up to {SCALE} small blocks in a coarser one",
    refuted_on={
        "vllm==0.23.0": "where a list raises, the view gives a shorter hash, or an empty one: the hash of a block that "
        "is not full; whoever asks must check the length before"
    },
)


# The chain.


def _same_content(first: Any, second: Any) -> Any:
    (parent, tokens, extra), (other_parent, other_tokens, other_extra) = first, second
    equal = [one == other for one, other in zip(tokens, other_tokens, strict=True)]
    return every(parent == other_parent, *equal, extra == other_extra)


def _chained(f: Any, v: Any) -> Any:
    first, second = (v.p, (v.a, v.b), v.e), (v.q, (v.c, v.d), v.o)
    return same(f.same_identity(first, second), _same_content(first, second))


T22_CHAIN = Theorem(
    id="T22.chain",
    sentence="Two blocks have one identity exactly if parents, tokens and extra keys are equal.",
    variables={
        "p": "number of a parent's identity, 0 for none",
        "a": "first token",
        "b": "second token",
        "e": "number of the extra key, 0 for none",
        "q": "number of another parent",
        "c": "its first token",
        "d": "its second token",
        "o": "its extra key",
    },
    assume=lambda v: [v.p >= 0, v.q >= 0, v.e >= 0, v.o >= 0],
    claim=_chained,
    controls=(
        NegativeControl(
            "the parent does not count", {"same_identity": lambda x, y: _same_content((0, *x[1:]), (0, *y[1:]))}
        ),
        NegativeControl(
            "the last token does not count",
            {"same_identity": lambda x, y: _same_content((x[0], x[1][:1], x[2]), (y[0], y[1][:1], y[2]))},
        ),
        NegativeControl(
            "the extra key does not count", {"same_identity": lambda x, y: _same_content((*x[:2], 0), (*y[:2], 0))}
        ),
        NegativeControl(
            "the order of the tokens does not count",
            claim=lambda f, v: same(
                some(
                    f.same_identity((v.p, (v.a, v.b), v.e), (v.q, (v.c, v.d), v.o)),
                    f.same_identity((v.p, (v.b, v.a), v.e), (v.q, (v.c, v.d), v.o)),
                ),
                _same_content((v.p, (v.a, v.b), v.e), (v.q, (v.c, v.d), v.o)),
            ),
        ),
    ),
    bounded="blocks of two tokens and one extra key: tokens and keys are handed on as tuples, which the code never "
    "looks into. For cores that hash, the hash function is assumed to be without collisions",
)

THEOREMS = (
    T22,
    T22_INVERSE,
    T22_RANGE,
    T22_COARSE,
    T22_STEP,
    T22_MIXED,
    T22_COVER,
    T22_LAST,
    T22_BEYOND,
    T22_CHAIN,
)
