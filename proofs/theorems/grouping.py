"""Pages made equal, layers put into groups, block sizes that go together (T19, T20)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, some
from ..roles.grouping import MOST_LAYERS, names_of
from ..roles.stand_ins import chosen
from ..theorem import NegativeControl, Theorem
from .page_sizes import is_multiple


def _made_equal(f: Any, v: Any) -> Any:
    page = v.b * v.width
    small, large = (page, v.other) if page <= v.other else (v.other, page)
    layers = f.unify(v.b, v.width, v.other)
    if layers is None:
        return large % small != 0
    (page_a, b_a), (page_b, b_b) = layers
    return [page_a == large, page_b == large, page_a == b_a * v.width, page_b == b_b, b_a >= v.b, b_b >= v.other]


UNIFY = Theorem(
    id="T19.pages",
    sentence="Layers with pages of different sizes get larger blocks until all pages are as large as the largest, "
    "and no "
    "token takes more bytes than before; layers are refused only if the largest page is no multiple of theirs.",
    variables={
        "b": "tokens per block of a layer",
        "width": "bytes of one of its tokens",
        "other": "tokens per block of a layer with tokens of one byte",
    },
    assume=lambda v: [v.b >= 1, v.width >= 1, v.other >= 1],
    claim=_made_equal,
    controls=(
        NegativeControl(
            "the smaller page is padded",
            {
                "unify": lambda b, width, other: [
                    (max(b * width, other), b),
                    (max(b * width, other), other),
                ]
            },
        ),
        NegativeControl("nothing is done", {"unify": lambda b, width, other: [(b * width, b), (other, other)]}),
        NegativeControl("everything is refused", {"unify": lambda b, width, other: None}),
    ),
    bounded="Two layers: each is compared with the largest page only.",
)

UNIFY_PADDED = Theorem(
    id="T19.padded",
    sentence="So do layers whose pages are padded.",
    variables={
        "b": "tokens per block of a layer",
        "page": "bytes of its page, padding included",
        "other": "tokens per block of another layer",
        "times": "how often the page goes into that of the other layer",
    },
    assume=lambda v: [v.b >= 1, v.page >= 1, v.other >= 1, v.times >= 1],
    claim=lambda f, v: _all_pages(f.unify_padded(v.b, v.page, v.other, v.times), v.page * v.times),
    controls=(
        NegativeControl(
            "the padding stays as it was",
            {"unify_padded": lambda b, page, other, times: [(page, b * times), (page * times, other)]},
        ),
    ),
    bounded="Two layers, as T19.pages.",
    refuted_on={"vllm==0.23.0": "an AssertionError without a message: the engine does not start"},
)


def _all_pages(layers: Any, page: Any) -> Any:
    return False if layers is None else every(*(found == page for found, _ in layers))


UNIFY_STATE = Theorem(
    id="T19.state",
    sentence="A layer with states, whose page does not grow with the block, is padded to the largest page.",
    variables={
        "state": "bytes of a state",
        "b": "tokens per block of an attention layer",
        "width": "bytes of one of its tokens",
    },
    assume=lambda v: [v.state >= 1, v.b >= 1, v.width >= 1, v.state <= v.b * v.width],
    claim=lambda f, v: _all_pages(f.unify_state(v.state, v.b, v.width), v.b * v.width),
    controls=(
        NegativeControl("refused", {"unify_state": lambda state, b, width: None}),
        NegativeControl("left as it is", {"unify_state": lambda state, b, width: [(state, 1), (b * width, b)]}),
    ),
    bounded="Two layers, as T19.pages.",
    refuted_on={
        "vllm==0.23.0": "an AssertionError after a change of the block size that does nothing, or a "
        "NotImplementedError: "
        "such a model starts only if somebody else has padded the state"
    },
)


def _good_groups(groups: list[list[str]], counts: list[int]) -> list[bool]:
    types = [[len(group) for group in groups if group[0].startswith(f"{kind}.")] for kind in range(len(counts))]
    depth = max(map(len, groups))
    return [
        sorted(name for group in groups for name in group) == sorted(name for name, _ in names_of(counts)),
        all(len({name[0] for name in group}) == 1 for group in groups),
        all(max(sizes) - min(sizes) <= 1 for sizes in types),
        all(len(sizes) * depth - count < depth for sizes, count in zip(types, counts, strict=True)),
        len(groups) > len(counts) or all(3 * count > 2 * depth for count in counts),
    ]


def _grouped(f: Any, v: Any) -> Any:
    groups = f.grouped(v.first, v.second)
    names = [name for group in groups for name in group]
    counts = [sum(name.startswith(f"{kind}.") for name in names) for kind in range(2)]
    right = [count == found for count, found in zip((v.first, v.second), counts, strict=True)]
    return [*right, *_good_groups(groups, counts)]


def _in_runs(*counts: Any) -> list[list[str]]:
    """Groups of two, as layers follow each other."""
    plain = [next(n for n in range(1, 9) if count == n) for count in counts]
    layers = [[name for name, kind in names_of(plain) if kind == number] for number in range(2)]
    return [names[i : i + 3] for names in layers for i in range(0, len(names), 3)]


T19 = Theorem(
    id="T19",
    sentence="Every layer is in exactly one group, groups have layers of one type, those of one type differ by at "
    "most one "
    "layer, and fewer slots than one group has stay empty for each type.",
    variables={name: f"layers of the {name} type" for name in ("first", "second")},
    assume=lambda v: [
        every(count >= 1, count <= most) for count, most in zip(vars(v).values(), MOST_LAYERS, strict=True)
    ],
    claim=_grouped,
    controls=(
        NegativeControl("runs of three", {"grouped": _in_runs}),
        NegativeControl("a layer is lost", {"grouped": lambda *counts: [*_in_runs(*counts)[1:], ["0.0"]]}),
    ),
    bounded=f"Two types of at most {MOST_LAYERS} layers, since groups are lists. T19.sizes has the arithmetic for any "
    "number of layers.",
)


def _sizes(f: Any, v: Any) -> Any:
    size = f.group_size(v.least, v.most)
    lemma(every(v.least <= size, size <= v.most), "between the rarest type and the most frequent one")
    number = -(-v.n // size)
    lemma(number >= 1, "some group")
    lemma(every(v.n <= number * size, number * size < v.n + size), "rounded up")
    part = -(-(v.n - v.i) // number)
    multiples_ordered(size, part - 1, number)
    multiples_ordered(v.n // number + 1, part - 1, number)
    lemma(v.n < (v.n // number + 1) * number, "a layer more would be too many")
    return [
        implies(v.i < number, part <= size),
        implies(v.i < number, some(part == v.n // number, part == v.n // number + 1)),
        number * size - v.n < size,
        number * size < 2 * v.n,
        size == v.least if size != v.most else 3 * v.n > 2 * size,
        implies(2 * v.most < 3 * v.least, number == 1),
    ]


SIZES = Theorem(
    id="T19.sizes",
    sentence="For any number of layers: groups of a type have at most as many as the pool is deep and differ by at "
    "most "
    "one, fewer slots than one group has stay empty, and more than half of the slots are used, more than two thirds "
    "where "
    "each type is one group.",
    variables={
        "least": "layers of the rarest type",
        "most": "layers of the most frequent type",
        "n": "layers of some type",
        "i": "number of a group of this type",
    },
    assume=lambda v: [v.least >= 1, v.least <= v.n, v.n <= v.most, v.i >= 0],
    claim=_sizes,
    controls=(
        NegativeControl("always the rarest", {"group_size": lambda lo, hi: lo}),
        NegativeControl("always the most frequent", {"group_size": lambda lo, hi: hi}),
        NegativeControl("up to twice", {"group_size": lambda lo, hi: hi if hi <= 2 * lo else lo}),
        NegativeControl("one more", {"group_size": lambda lo, hi: lo + 1}),
    ),
    bounded="Nothing; that the i-th of k groups has cdiv(n - i, k) layers is how Python slices with a step.",
    meaning="Gemma-3 with 10 and 52 layers: g = 10, six groups of window layers, 8 of 70 slots empty. Never half.",
)


def _padding(f: Any, v: Any) -> Any:
    one = f.padding((v.x,), v.unit)
    return [
        every(one >= 0, one < v.unit),
        is_multiple(v.x + one, v.unit, v.x),
        f.padding((v.x, v.y), v.unit) == one + f.padding((v.y,), v.unit),
    ]


PADDING = Theorem(
    id="T19.padding",
    sentence="Padding is the least that makes every value a multiple of the unit.",
    variables={"x": "a value", "y": "another value", "unit": "unit"},
    assume=lambda v: [v.x >= 1, v.y >= 1, v.unit >= 1],
    claim=_padding,
    controls=(
        NegativeControl("what is beyond a multiple", {"padding": lambda values, unit: sum(x % unit for x in values)}),
        NegativeControl("always something", {"padding": lambda values, unit: sum(unit - x % unit for x in values)}),
    ),
)

DEPTH_MOST = 4


def _waste(values: Any, unit: int) -> Any:
    return sum(-x % unit for x in values)


def _least_waste(f: Any, v: Any) -> Any:
    x, y, least = chosen(v.x, 1, DEPTH_MOST), chosen(v.y, 1, DEPTH_MOST), chosen(v.least, 1, DEPTH_MOST + 1)
    depth, most = f.approximate_gcd((x, y), least), max(x, y)
    if least > most:
        return depth == least
    best = _waste((x, y), depth)
    worse = [_waste((x, y), d) for d in range(least, most + 1) if d != depth]
    larger = [_waste((x, y), d) for d in range(depth + 1, most + 1)]
    return [least <= depth <= most, all(best <= waste for waste in worse), all(best < waste for waste in larger)]


DEPTH = Theorem(
    id="T19.depth",
    sentence="The depth of groups of layer tuples wastes the fewest slots of all that are possible; of several such "
    "it is "
    "the largest.",
    variables={
        "x": "layer tuples of one type",
        "y": "layer tuples of another",
        "least": "least depth",
    },
    assume=lambda v: [
        *(every(value >= 1, value <= DEPTH_MOST) for value in (v.x, v.y)),
        every(v.least >= 1, v.least <= DEPTH_MOST + 1),
    ],
    claim=_least_waste,
    controls=(
        NegativeControl("the smallest", {"approximate_gcd": lambda values, least: least}),
        NegativeControl(
            "the largest",
            {"approximate_gcd": lambda values, least: max(least, *values)},
        ),
    ),
    bounded=f"Two types of at most {DEPTH_MOST} tuples: the function tries every depth, so the loop is as long as "
    "that.",
)

# T20.


def _sizes_go_together(f: Any, v: Any) -> Any:
    sizes = (v.first, v.second)
    found = f.block_sizes(*sizes, caching=v.caching)
    if found is None:
        return False
    scheduler, hashes = found
    multiple = [scheduler % size == 0 for size in sizes]
    if not v.caching:
        return [scheduler >= 1, *multiple, hashes == scheduler]
    return [scheduler >= 1, *multiple, hashes >= 1, *(size % hashes == 0 for size in sizes)]


_SIZES = {name: f"tokens per block of the {name} group" for name in ("first", "second")}
_GCD = (
    "Two groups. Of gcd and lcm only that they are a common divisor and a common multiple is used, which is what they "
    "are, so what is proved is that the function combines them rightly."
)

T20 = Theorem(
    id="T20",
    sentence="The scheduler counts in a common multiple of all groups' block sizes, hashes are made for a common "
    "divisor; "
    "without prefix caching both are the same.",
    variables={**_SIZES, "caching": "whether prefixes are cached"},
    assume=lambda v: [v.first >= 1, v.second >= 1],
    claim=_sizes_go_together,
    controls=(
        NegativeControl(
            "the largest and the smallest", {"block_sizes": lambda *sizes, caching: (max(sizes), min(sizes))}
        ),
        NegativeControl(
            "the last group is forgotten",
            {"block_sizes": lambda first, second, caching: (first, 1) if caching else (first, first)},
        ),
    ),
    bounded=_GCD,
)


def _request_kept(f: Any, v: Any) -> Any:
    sizes = (v.first, v.second)
    found = f.block_sizes(*sizes, requested=v.requested)
    if found is None:
        return True if v.requested < 1 else some(*(size % v.requested != 0 for size in sizes))
    _, hashes = found
    if hashes < 1:
        return False
    return [hashes == v.requested, *(size % hashes == 0 for size in sizes)]


T20_REQUEST = Theorem(
    id="T20.requested",
    sentence="A hash block size asked for is taken exactly if it is a common divisor of the groups' block sizes.",
    variables={**_SIZES, "requested": "tokens per hash asked for"},
    assume=lambda v: [v.first >= 1, v.second >= 1],
    claim=_request_kept,
    controls=(
        NegativeControl("never refused", {"block_sizes": lambda *sizes, requested: (1, requested)}),
        NegativeControl(
            "refused below 1 only",
            {"block_sizes": lambda *sizes, requested: (1, requested) if requested > 0 else None},
        ),
    ),
    bounded=_GCD,
    refuted_on={
        "vllm==0.23.0": "0 is a ZeroDivisionError, and a negative size is accepted and then used to cut prompts into "
        "blocks"
    },
)

T20_ONE = Theorem(
    id="T20.one-group",
    sentence="With a single group the scheduler counts in its blocks.",
    variables={"b": "tokens per block of the group", "cache": "tokens per block as configured"},
    assume=lambda v: [v.b >= 1, v.cache >= 1],
    claim=lambda f, v: [size == v.b for size in f.block_sizes(v.b, cache=v.cache)],
    controls=(NegativeControl("as configured", {"block_sizes": lambda b, cache: (cache, cache)}),),
    refuted_on={
        "vllm==0.23.0": "the configured size is taken although the group's is another, which the coordinator then "
        "refuses"
    },
)


def _states_apart(f: Any, v: Any) -> Any:
    sizes = (v.first, v.second)
    scheduler, hashes = f.block_sizes(*sizes, cache=v.cache, mamba=True)
    multiple = [scheduler % size == 0 for size in sizes]
    if v.second != v.cache:
        return [*multiple, hashes == scheduler]
    return [*multiple, *(size % hashes == 0 for size in sizes)]


T20_MAMBA = Theorem(
    id="T20.states",
    sentence="Where a group with states has blocks of another size than configured, prefixes are hashed in the "
    "scheduler's "
    "blocks; else T20 holds.",
    variables={**_SIZES, "cache": "tokens per block as configured"},
    assume=lambda v: [v.first >= 1, v.second >= 1, v.cache >= 1],
    claim=_states_apart,
    controls=(
        NegativeControl(
            "hashes are fine anyway",
            {"block_sizes": lambda first, second, cache, mamba: (first * second, 1)},
        ),
    ),
    bounded=_GCD,
)

THEOREMS = (UNIFY, UNIFY_PADDED, UNIFY_STATE, T19, SIZES, PADDING, DEPTH, T20, T20_REQUEST, T20_ONE, T20_MAMBA)
