"""Specs of layers, drawn so that those of one configuration have much in common.

A spec is in the language of configuration questions: `{"type": class name, field: value, ...}` with fields at their
default left out. Layers only meet in a group, a pool or a merge if their specs agree in most fields. So a
configuration has a style, which all its specs follow, and a few fields in which they may differ from it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..workload.draw import Draw

Spec: TypeAlias = Mapping[str, object]

BLOCK_SIZES = (16, 16, 16, 1, 4, 8, 32, 64, 128)
HEAD_SIZES = (8, 16, 64, 72, 128, 192)
ITEM_SIZES = (2, 2, 1, 4)
WINDOWS = (1, 5, 17, 100, 128, 1024, 3460)
CHUNKS = (6, 16, 64, 100, 768, 8192)
QUANT_MODES = ("FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4")
ALIGNMENTS = (576, 1000, 4096)
VARIATIONS = ("block_size", "heads", "head_size", "head_size_v", "dtype", "quant", "padding", "window", "mla", "mamba")
"""What specs of one configuration may differ in."""


@dataclass(frozen=True)
class Style:
    """What the specs of one configuration share, and in what they may differ."""

    block_size: int
    heads: int
    head_size: int
    itemsize: int
    window: int
    chunk: int
    quant: str | None
    varied: frozenset[str]

    @property
    def page(self) -> int:
        """Bytes of a block of plain attention in this style."""
        return 2 * self.block_size * self.heads * self.head_size * self.itemsize


def draw_style(draw: Draw) -> Style:
    """A style. Each variation is on in about one of four."""
    return Style(
        block_size=draw.choose(BLOCK_SIZES),
        heads=draw.choose((1, 1, 2, 3, 4, 8)),
        head_size=draw.choose(HEAD_SIZES),
        itemsize=draw.choose(ITEM_SIZES),
        window=draw.choose(WINDOWS),
        chunk=draw.choose(CHUNKS),
        quant=draw.choose(QUANT_MODES) if draw.integer(0, 7) == 7 else None,
        varied=frozenset(name for name in VARIATIONS if draw.integer(0, 3) == 3),
    )


def draw_spec(draw: Draw, style: Style, family: str) -> Spec:
    """A spec of this family, one of `FAMILIES`, with at most one small mistake now and then."""
    spec = FAMILIES[family](draw, style)
    if draw.integer(0, 59) == 59:
        return draw.choose(MISTAKES)(spec)
    return spec


def _differs(draw: Draw, style: Style, field: str) -> bool:
    return field in style.varied and draw.integer(0, 1) == 1


def _attention(draw: Draw, style: Style, name: str, **own: object) -> dict[str, object]:
    block_size, heads, head_size, itemsize = style.block_size, style.heads, style.head_size, style.itemsize
    if _differs(draw, style, "block_size"):
        block_size *= draw.choose((2, 4, 3))
    if _differs(draw, style, "heads"):
        heads *= draw.choose((2, 4, 3))
    if _differs(draw, style, "head_size"):
        head_size = draw.choose((head_size * 2, *HEAD_SIZES))
    if _differs(draw, style, "dtype"):
        itemsize = draw.choose(ITEM_SIZES)
    spec: dict[str, object] = {"type": name, "block_size": block_size, "num_kv_heads": heads, "head_size": head_size}
    spec["dtype"] = {"itemsize": itemsize}
    quant = draw.choose((None, *QUANT_MODES)) if _differs(draw, style, "quant") else style.quant
    if quant is not None:
        spec["kv_quant_mode"] = quant
    if _differs(draw, style, "padding"):
        page = 2 * block_size * heads * head_size * itemsize
        spec["page_size_padded"] = page * draw.choose((2, 1, 4)) + draw.choose((0, 576, 8 * block_size * heads, 1))
    return spec | own


def _value_heads(draw: Draw, style: Style) -> dict[str, object]:
    return {"head_size_v": draw.choose((64, 128, 24))} if _differs(draw, style, "head_size_v") else {}


def _full(draw: Draw, style: Style) -> Spec:
    own = _value_heads(draw, style)
    if _differs(draw, style, "window"):
        field, sizes = draw.choose((("sliding_window", WINDOWS), ("attention_chunk_size", CHUNKS)))
        own[field] = draw.choose(sizes[:2])
        if draw.integer(0, 9) == 9:
            own |= {"sliding_window": style.window, "attention_chunk_size": style.chunk}
    return _attention(draw, style, "FullAttentionSpec", **own)


def _tq(draw: Draw, style: Style) -> Spec:
    slot = {"tq_slot_size": draw.choose((100, 63, style.head_size * style.itemsize))}
    return _attention(draw, style, "TQFullAttentionSpec", **slot if draw.integer(0, 3) else {})


def _sink(draw: Draw, style: Style) -> Spec:
    length = draw.choose((128, 256)) if _differs(draw, style, "window") else style.block_size * 4
    own = _value_heads(draw, style)
    if _differs(draw, style, "window"):
        field, sizes = draw.choose((("sliding_window", WINDOWS), ("attention_chunk_size", CHUNKS)))
        own[field] = draw.choose(sizes[:2])
    return _attention(draw, style, "SinkFullAttentionSpec", sink_len=length, **own)


def _sliding(draw: Draw, style: Style) -> Spec:
    window = draw.choose(WINDOWS) if _differs(draw, style, "window") else style.window
    return _attention(draw, style, "SlidingWindowSpec", sliding_window=window, **_value_heads(draw, style))


def _chunked(draw: Draw, style: Style) -> Spec:
    chunk = draw.choose(CHUNKS) if _differs(draw, style, "window") else style.chunk
    return _attention(draw, style, "ChunkedLocalAttentionSpec", attention_chunk_size=chunk)


def _cross(draw: Draw, style: Style) -> Spec:
    return _attention(draw, style, "CrossAttentionSpec")


def _encoder_only(draw: Draw, style: Style) -> Spec:
    return _attention(draw, style, "EncoderOnlyAttentionSpec")


def _latent(draw: Draw, style: Style, name: str, **own: object) -> dict[str, object]:
    """What MLA and window-MLA have in common: one head, and a layout that may be compressed and aligned."""
    spec = _attention(draw, style, name, num_kv_heads=1, **own)
    block_size = spec["block_size"]
    assert isinstance(block_size, int)
    if _differs(draw, style, "mla"):
        spec["cache_dtype_str"] = draw.choose(("fp8_ds_mla", "auto"))
        spec["model_version"] = draw.choose(("deepseek_v4", "other" if draw.integer(0, 5) == 5 else "deepseek_v4"))
    if _differs(draw, style, "mla"):
        spec["alignment"] = draw.choose(ALIGNMENTS)
    if _differs(draw, style, "mla") and block_size % 4 == 0:
        spec["compress_ratio"] = draw.choose((4, block_size))
    return spec


def _mla(draw: Draw, style: Style) -> Spec:
    own = {"sliding_window": style.window} if draw.integer(0, 29) == 29 else {}
    return _latent(draw, style, "MLAAttentionSpec", **own)


def _sliding_mla(draw: Draw, style: Style) -> Spec:
    window = draw.choose(WINDOWS) if _differs(draw, style, "window") else style.window
    return _latent(draw, style, "SlidingWindowMLASpec", sliding_window=window)


def _hidden(draw: Draw, style: Style) -> Spec:
    row = draw.choose((style.head_size * 4, style.head_size, 24, style.page // max(1, style.itemsize) + 1))
    return _latent(draw, style, "HiddenStateCacheSpec", head_size=row)


def _mamba(draw: Draw, style: Style) -> Spec:
    itemsize, page = style.itemsize, style.page
    shapes, sizes = [[page // itemsize]], [itemsize]  # a state as large as a block of attention
    if _differs(draw, style, "mamba"):
        shapes, sizes = [[3, draw.choose((7, page // 8 + 1))], [2, 3, 4]], [itemsize, 4]
    spec: dict[str, object] = {"type": "MambaSpec", "block_size": style.block_size}
    if _differs(draw, style, "block_size"):
        spec["block_size"] = style.block_size * draw.choose((4, 2))
    spec |= {"shapes": shapes, "dtypes": [{"itemsize": size} for size in sizes]}
    if _differs(draw, style, "mamba") or _differs(draw, style, "padding"):
        spec["page_size_padded"] = draw.choose((page, page * 2, page + 489))
    if _differs(draw, style, "mamba"):
        spec["mamba_cache_mode"] = draw.choose(("align", "all", "none"))
    if _differs(draw, style, "mamba"):
        spec["num_speculative_blocks"] = draw.choose((1, 2))
    return spec


def spelled_out(spec: Spec) -> Spec:
    """The same spec with a default written down, which must make no difference."""
    takes_it = spec["type"] in ("FullAttentionSpec", "SlidingWindowSpec", "SlidingWindowMLASpec")
    return {"head_size_v": spec["head_size"], **spec} if takes_it else spec


FAMILIES: Mapping[str, Callable[[Draw, Style], Spec]] = {
    "full": _full,
    "sliding": _sliding,
    "chunked": _chunked,
    "mla": _mla,
    "sliding_mla": _sliding_mla,
    "mamba": _mamba,
    "sink": _sink,
    "tq": _tq,
    "hidden": _hidden,
    "cross": _cross,
    "encoder_only": _encoder_only,
}
"""How a spec of each family is drawn."""


def _with(**fields: object) -> Callable[[Spec], Spec]:
    return lambda spec: {**spec, **fields}


def _base_class(spec: Spec) -> Spec:
    kept = ("block_size", "num_kv_heads", "head_size", "dtype")
    if "num_kv_heads" not in spec:
        return {"type": "KVCacheSpec", "block_size": spec["block_size"]}
    return {"type": "AttentionSpec", **{name: spec[name] for name in kept}}


def _one_state_more(spec: Spec) -> Spec:
    if isinstance(shapes := spec.get("shapes"), list):
        return {**spec, "shapes": [*shapes, [5]]}
    return {**spec, "block_size": 0}


def _ratio(spec: Spec) -> Spec:
    return {**spec, "compress_ratio": 128 if "MLA" in str(spec["type"]) else 1, "block_size": 64}


MISTAKES: Sequence[Callable[[Spec], Spec]] = (
    _with(block_size=0),
    _with(page_size_padded=1),
    _one_state_more,
    _base_class,
    lambda spec: _ratio(spec) if "MLA" in str(spec["type"]) else {**spec, "block_size": 0},
)
"""What makes a spec one that must be refused, at construction or later."""


def draw_deepseek_v4(draw: Draw) -> tuple[dict[str, Spec], list[list[str]]]:
    """The specs of a DeepSeek-V4 like model by name, and the names of the caches that each of its layers has."""
    alignment = {"alignment": draw.choose((576, 576, 576, 1000))} if draw.integer(0, 9) < 9 else {}
    block_size = draw.choose((256, 256, 128))
    layout = {"cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4"}

    def latent(name: str, size: int, head_size: int, itemsize: int, **own: object) -> Spec:
        base = {"type": name, "block_size": size, "num_kv_heads": 1, "head_size": head_size}
        return {**base, "dtype": {"itemsize": itemsize}, **own, **alignment}

    window = draw.choose((128, 128, 64))
    specs: dict[str, Spec] = {
        "swa": latent("SlidingWindowMLASpec", 64, 512, 1, sliding_window=window, **layout),
        "c4": latent("MLAAttentionSpec", block_size, 512, 1, compress_ratio=4, **layout),
        "c4i": latent("MLAAttentionSpec", block_size, 132, 1, compress_ratio=4),
        "c128": latent("MLAAttentionSpec", block_size, 512, 1, compress_ratio=128, **layout),
        "st4": latent("SlidingWindowMLASpec", 4, 2048, 4, sliding_window=8),
        "st4i": latent("SlidingWindowMLASpec", 4, 512, 4, sliding_window=8),
        "st128": latent("SlidingWindowMLASpec", 8, 1024, 4, sliding_window=128),
    }
    kinds = [["swa", "c4", "c4i", "st4", "st4i"], ["swa", "c128", "st128"], ["swa"]]
    if draw.integer(0, 2) == 2:  # only the compressed caches: the first entry has one page size and many tuples
        kinds = [["c4", "c4i", "swa"], ["c128", "swa"], ["c4", "swa"]]
    elif draw.integer(0, 2) == 2:
        kinds = [["c4", "c4i"], ["c128"], ["swa"]]
    layers = [list(draw.choose(kinds)) for _ in range(draw.choose((3, 1, 2, 5, 8, 11)))]
    if draw.integer(0, 7) == 7:  # uneven lists, which cannot be cut into tuples
        layers[draw.integer(0, len(layers) - 1)].pop()
    return specs, layers
