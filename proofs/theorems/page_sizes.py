"""How many bytes a block takes: what is stored is counted token by token, head by head, number by number (T17)."""

from typing import Any

from ..claims import every, implies, lemma, multiples_ordered, some
from ..theorem import NegativeControl, Theorem

_WIDTHS = {
    "b": "tokens per block",
    "h": "heads",
    "d": "width of a key, in numbers",
    "v": "width of a value, in numbers",
    "z": "bytes per number",
}
_LATENT = {name: _WIDTHS[name] for name in "bhdz"}
_X = {"x": "any integer", "unit": "unit"}


def is_multiple(number: Any, unit: Any, near: Any) -> Any:
    """One of the two multiples around `near`: to ask for the remainder of a product instead is too hard for solvers."""
    below = near // unit
    for rounded_up in (-(-near // unit), (near + unit - 1) // unit):  # cores do it in one of these two ways
        multiples_ordered(rounded_up, below - 1, unit)
        multiples_ordered(below + 2, rounded_up, unit)
        lemma(some(rounded_up == below, rounded_up == below + 1), "rounded up")
    return some(number == below * unit, number == below * unit + unit)


def _least_units(f: Any, v: Any) -> Any:
    least = f.cdiv(v.x, v.unit)
    multiples_ordered(v.q, least - 1, v.unit)
    return [least * v.unit >= v.x, implies(v.q * v.unit >= v.x, v.q >= least)]


CDIV = Theorem(
    id="T17.cdiv",
    sentence="Rounded up is the least number of units that hold so much.",
    variables={**_X, "q": "any integer"},
    assume=lambda v: [v.unit >= 1],
    claim=_least_units,
    controls=(
        NegativeControl("rounded down", {"cdiv": lambda x, y: x // y}),
        NegativeControl("always one more", {"cdiv": lambda x, y: x // y + 1}),
    ),
    meaning="The last block of a sequence may be partly filled; none is missing and none is empty.",
)

DOWN = Theorem(
    id="T17.down",
    sentence="Rounding down gives the largest multiple not above.",
    variables=_X,
    assume=lambda v: [v.unit >= 1],
    claim=lambda f, v: [
        f.down(v.x, v.unit) <= v.x,
        f.down(v.x, v.unit) + v.unit > v.x,
        is_multiple(f.down(v.x, v.unit), v.unit, v.x),
    ],
    controls=(
        NegativeControl("rounded up", {"down": lambda x, unit: -(-x // unit) * unit}),
        NegativeControl("not a multiple", {"down": lambda x, unit: x - (x % unit) // 2}),
    ),
)


def _smallest_multiple(number: Any, least: Any, unit: Any) -> Any:
    return [number >= least, number - unit < least, is_multiple(number, unit, least)]


UP = Theorem(
    id="T17.up",
    sentence="Rounding up gives the smallest multiple not below.",
    variables=_X,
    assume=lambda v: [v.unit >= 1],
    claim=lambda f, v: _smallest_multiple(f.up(v.x, v.unit), v.x, v.unit),
    controls=(
        NegativeControl("one multiple further", {"up": lambda x, unit: (x // unit + 1) * unit}),
        NegativeControl("rounded down", {"up": lambda x, unit: x // unit * unit}),
    ),
)


def _counted(page: Any, v: Any) -> Any:
    """A page by counting: what one more token, one more head, one more number in a row adds."""
    return [
        page(v.b + 1, v.h, v.d, v.v, v.z) == page(v.b, v.h, v.d, v.v, v.z) + page(1, v.h, v.d, v.v, v.z),
        page(1, v.h + 1, v.d, v.v, v.z) == page(1, v.h, v.d, v.v, v.z) + page(1, 1, v.d, v.v, v.z),
        page(1, 1, v.d + 1, v.v, v.z) == page(1, 1, v.d, v.v, v.z) + v.z,
        page(1, 1, v.d, v.v + 1, v.z) == page(1, 1, v.d, v.v, v.z) + v.z,
        page(1, 1, 0, 0, v.z) == 0,
    ]


def _sensible(v: Any) -> list[Any]:
    """Something is stored; rows may be empty, which is where counting starts."""
    return [value >= (0 if name in "dv" else 1) for name, value in vars(v).items()]


PAGE = Theorem(
    id="T17.page",
    sentence="A page of full attention holds one key and one value for every token and head, and nothing else.",
    variables=_WIDTHS,
    assume=_sensible,
    claim=lambda f, v: _counted(f.page_full, v),
    controls=(
        NegativeControl("values as wide as keys", {"page_full": lambda b, h, d, v, z: 2 * b * h * d * z}),
        NegativeControl("keys only", {"page_full": lambda b, h, d, v, z: b * h * d * z}),
        NegativeControl("one number more", {"page_full": lambda b, h, d, v, z: (b * h * (d + v) + 1) * z}),
    ),
    meaning="16 tokens of 8 heads, 128 wide, 2 bytes a number: 65,536 bytes.",
)

PAGE_WINDOW = Theorem(
    id="T17.page-window",
    sentence="So does a page of sliding-window attention.",
    variables=_WIDTHS,
    assume=_sensible,
    claim=lambda f, v: _counted(f.page_window, v),
    controls=(NegativeControl("values as wide as keys", {"page_window": lambda b, h, d, v, z: 2 * b * h * d * z}),),
)

PAGE_CHUNK = Theorem(
    id="T17.page-chunk",
    sentence="A page of chunked local attention holds a key and a value of one width for every token and head.",
    variables=_LATENT,
    assume=_sensible,
    claim=lambda f, v: f.page_chunk(v.b, v.h, v.d, v.z) == f.page_full(v.b, v.h, v.d, v.d, v.z),
    controls=(NegativeControl("keys only", {"page_chunk": lambda b, h, d, z: b * h * d * z}),),
)


def _counted_latent(f: Any, v: Any) -> Any:
    page = f.page_latent
    return [
        page(v.b + 1, v.h, v.d, v.z) == page(v.b, v.h, v.d, v.z) + page(1, v.h, v.d, v.z),
        page(1, v.h + 1, v.d, v.z) == page(1, v.h, v.d, v.z) + page(1, 1, v.d, v.z),
        page(1, 1, v.d + 1, v.z) == page(1, 1, v.d, v.z) + v.z,
        page(1, 1, 0, v.z) == 0,
    ]


PAGE_LATENT = Theorem(
    id="T17.page-latent",
    sentence="A page of latent attention holds one vector for every token and head, and nothing else.",
    variables=_LATENT,
    assume=_sensible,
    claim=_counted_latent,
    controls=(
        NegativeControl("a key and a value", {"page_latent": lambda t, h, d, z: 2 * t * h * d * z}),
        NegativeControl("heads do not count", {"page_latent": lambda t, h, d, z: t * d * z}),
    ),
    meaning="64 tokens, one vector of 576 numbers of 2 bytes each: 73,728 bytes.",
)

FOUR_BITS = Theorem(
    id="T17.nvfp4",
    sentence="A row of 4-bit numbers takes a byte for every two and a scale for every 16, begun ones included.",
    variables={"w": "width of a row, in numbers"},
    assume=lambda v: [v.w >= 0],
    claim=lambda f, v: [
        f.nvfp4_width(0) == 0,
        f.nvfp4_width(v.w + 1) == f.nvfp4_width(v.w) + (v.w % 2 == 0) + (v.w % 16 == 0),
    ],
    controls=(
        NegativeControl("a begun scale is forgotten", {"nvfp4_width": lambda w: -(-w // 2) + w // 16}),
        NegativeControl("a begun byte is forgotten", {"nvfp4_width": lambda w: w // 2 - (-w // 16)}),
    ),
    refuted_on={
        "vllm==0.23.0": "one scale byte too few per row where 16 does not divide the head size, and half a byte "
        "where it is odd: with 72, 40 bytes are reserved and 41 needed"
    },
)

FOUR_BITS_SIXTEENS = Theorem(
    id="T17.nvfp4-sixteens",
    sentence="For head sizes that are multiples of 16 a row of 4-bit numbers takes nine bytes for every 16.",
    variables={"m": "sixteenth part of the width"},
    assume=lambda v: [v.m >= 0],
    claim=lambda f, v: f.nvfp4_width(16 * v.m) == 9 * v.m,
    controls=(NegativeControl("scales are forgotten", {"nvfp4_width": lambda w: -(-w // 2)}),),
    meaning="Where T17.nvfp4 fails, the usual head sizes (64, 128, 256) are not affected.",
)

PAGE_FOUR_BITS = Theorem(
    id="T17.page-nvfp4",
    sentence="A page of 4-bit numbers is the page of rows that are so many bytes wide.",
    variables=_WIDTHS,
    assume=_sensible,
    claim=lambda f, v: (
        f.page_four_bits(v.b, v.h, v.d, v.v, v.z) == f.page_full(v.b, v.h, f.nvfp4_width(v.d), f.nvfp4_width(v.v), v.z)
    ),
    controls=(NegativeControl("two bytes more in a row", {"nvfp4_width": lambda w: -(-w // 2) - (-w // 16) + 2}),),
)

_TOKENS_HEADS = {"b": _WIDTHS["b"], "h": _WIDTHS["h"]}

SCALES = Theorem(
    id="T17.scales",
    sentence="Scales per token and head take two numbers of four bytes for each.",
    variables=_TOKENS_HEADS,
    assume=_sensible,
    claim=lambda f, v: [
        f.scales(1, 1) == 2 * 4,
        f.scales(1, v.h + 1) == f.scales(1, v.h) + f.scales(1, 1),
        f.scales(v.b + 1, v.h) == f.scales(v.b, v.h) + f.scales(1, v.h),
    ],
    controls=(
        NegativeControl("two bytes each", {"scales": lambda b, h: 4 * b * h}),
        NegativeControl("one for a head", {"scales": lambda b, h: 8 * h}),
    ),
)

_TWO_SCALES = "one vector per token, and yet two scales are paid for: 4 bytes per token and head are never used"
SCALES_LATENT = Theorem(
    id="T17.scales-latent",
    sentence="A latent layer, which keeps one vector per token and head, pays for one scale for each.",
    variables=_TOKENS_HEADS,
    assume=_sensible,
    claim=lambda f, v: f.scales_latent(v.b, v.h) == 4 * v.b * v.h,
    controls=(
        NegativeControl("no scale", {"scales_latent": lambda b, h: 0}),
        NegativeControl("one for the key and one for the value", {"scales_latent": lambda b, h: 8 * b * h}),
    ),
    refuted_on={"vllm==0.23.0": _TWO_SCALES},
)


def _all_stored(f: Any, v: Any) -> Any:
    stored = f.stored_vectors(v.b, v.ratio)
    return stored is None or every(stored >= 1, stored * v.ratio == v.b)


RATIO = Theorem(
    id="T17.ratio",
    sentence="A layer that keeps one vector for `ratio` tokens keeps one for every token of a block, or is refused.",
    variables={"b": _WIDTHS["b"], "ratio": "tokens per vector"},
    assume=_sensible,
    claim=_all_stored,
    controls=(NegativeControl("a begun vector is forgotten", {"stored_vectors": lambda b, ratio: b // ratio}),),
    refuted_on={
        "vllm==0.23.0": "blocks of fewer tokens than the ratio have a page of 0 bytes (and divide memory by zero); "
        "otherwise the last tokens of a block have no vector"
    },
)


def _one_for_each(f: Any, v: Any) -> Any:
    scales = f.scales_compressed(v.b, v.ratio, v.h)
    return scales is None or scales * v.ratio == 4 * v.b * v.h


COMPRESSED_SCALES = Theorem(
    id="T17.scales-compressed",
    sentence="A latent layer that keeps one vector for `ratio` tokens pays for one scale for each, or is refused.",
    variables={**_TOKENS_HEADS, "ratio": "tokens per vector"},
    assume=_sensible,
    claim=_one_for_each,
    controls=(
        NegativeControl("one for each token", {"scales_compressed": lambda b, ratio, h: 4 * b * h}),
        NegativeControl("none", {"scales_compressed": lambda b, ratio, h: 0}),
    ),
    refuted_on={"vllm==0.23.0": "two for each token, though only every `ratio`-th has a vector"},
)

_ALIGNED = {"b": _WIDTHS["b"], "d": _WIDTHS["d"], "unit": "alignment, in bytes"}

ALIGNED = Theorem(
    id="T17.aligned",
    sentence="An aligned page is the smallest multiple of the alignment that holds what is stored and what was asked "
    "for.",
    variables={**_ALIGNED, "padded": "bytes asked for"},
    assume=_sensible,
    claim=lambda f, v: _smallest_multiple(f.page_aligned(v.b, v.d, v.unit, v.padded), max(v.b * v.d, v.padded), v.unit),
    controls=(
        NegativeControl(
            "what was asked for is ignored", {"page_aligned": lambda b, d, unit, padded: -(-b * d // unit) * unit}
        ),
        NegativeControl("it is not aligned", {"page_aligned": lambda b, d, unit, padded: max(b * d, padded)}),
    ),
    refuted_on={
        "vllm==0.23.0": "what was asked for is overwritten where the stored size is unaligned, and kept unaligned "
        "otherwise: changing any field of a DeepSeek-V4 state layer drops its page from 37,440 to 32,832 bytes, and "
        "layers that should share a page no longer do"
    },
)

ALIGNED_SCALES = Theorem(
    id="T17.aligned-scales",
    sentence="An aligned page has room for the scales, too.",
    variables=_ALIGNED,
    assume=_sensible,
    claim=lambda f, v: _smallest_multiple(f.page_aligned_scaled(v.b, v.d, v.unit), v.b * v.d + 4 * v.b, v.unit),
    controls=(
        NegativeControl("scales are forgotten", {"page_aligned_scaled": lambda b, d, unit: -(-b * d // unit) * unit}),
    ),
    refuted_on={
        "vllm==0.23.0": "scales are left out of the alignment: the page is unaligned, or reading its size fails and "
        "the engine does not start"
    },
)

COPIED = Theorem(
    id="T17.copied",
    sentence="An aligned layer copied for blocks of another size is the layer built for them.",
    variables={**_ALIGNED, "other_b": "tokens per block of the copy"},
    assume=_sensible,
    claim=lambda f, v: _smallest_multiple(f.page_copied(v.b, v.d, v.unit, v.other_b), v.other_b * v.d, v.unit),
    controls=(
        NegativeControl("the padding is kept", {"page_copied": lambda b, d, unit, other_b: -(-b * d // unit) * unit}),
    ),
    refuted_on={
        "vllm==0.23.0": "the padding of the old block size is kept: too small for larger blocks (the engine does not "
        "start), too large for smaller ones (bytes of every block unused)"
    },
)


def _none_forgotten(f: Any, v: Any) -> Any:
    page, size = f.page_states(v.first, v.second, dtypes=1), v.first + v.second
    return [page is None or page == size, f.page_states(v.first, v.second, dtypes=2) == size]


STATES = Theorem(
    id="T17.states",
    sentence="A block of a layer with states holds all of them, or the layer is refused.",
    variables={"first": "bytes of one state", "second": "bytes of another"},
    assume=_sensible,
    claim=_none_forgotten,
    controls=(NegativeControl("the second is forgotten", {"page_states": lambda first, second, dtypes: first}),),
    bounded="Two states of one dimension: sums and products of more are Python's own.",
    refuted_on={
        "vllm==0.23.0": "with fewer dtypes than shapes the states beyond are not counted, and written over what follows"
    },
)

UNIFORM_COPIED = Theorem(
    id="T17.uniform-copied",
    sentence="Layers of one type copied for blocks of another size all have blocks of that size.",
    variables={"b": _WIDTHS["b"], "d": _WIDTHS["d"], "other_b": "tokens per block of the copy"},
    assume=_sensible,
    claim=lambda f, v: f.page_uniform_copied(v.b, v.d, v.other_b) == 2 * v.other_b * v.d,
    controls=(
        NegativeControl("the members stay as they are", {"page_uniform_copied": lambda b, d, other_b: 2 * b * d}),
    ),
    bounded="Two layers: the page is the sum over the layers.",
    refuted_on={
        "vllm==0.23.0": "the members keep their block size: the group claims larger blocks than its pages have room for"
    },
)

THEOREMS = (
    CDIV,
    DOWN,
    UP,
    PAGE,
    PAGE_WINDOW,
    PAGE_CHUNK,
    PAGE_LATENT,
    FOUR_BITS,
    FOUR_BITS_SIXTEENS,
    PAGE_FOUR_BITS,
    SCALES,
    SCALES_LATENT,
    COMPRESSED_SCALES,
    RATIO,
    ALIGNED,
    ALIGNED_SCALES,
    COPIED,
    STATES,
    UNIFORM_COPIED,
)
