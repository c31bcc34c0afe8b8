"""What the specs of one configuration have in common, and how attention layers are drawn in it.

A spec is in the language of configuration questions: `{"type": class name, field: value, ...}` with fields at their
default left out. Layers only meet in a group, a pool or a merge if their specs agree in most fields. So a
configuration has a style, which all its specs follow, and a few fields in which they may differ from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .draw import Draw

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


def differs(draw: Draw, style: Style, field: str) -> bool:
    """Whether a spec is to differ from the style in this."""
    return field in style.varied and draw.integer(0, 1) == 1


def attention_spec(draw: Draw, style: Style, name: str, **own: object) -> dict[str, object]:
    """A spec of attention layers of this class."""
    block_size, heads, head_size, itemsize = style.block_size, style.heads, style.head_size, style.itemsize
    if differs(draw, style, "block_size"):
        block_size *= draw.choose((2, 4, 3))
    if differs(draw, style, "heads"):
        heads *= draw.choose((2, 4, 3))
    if differs(draw, style, "head_size"):
        head_size = draw.choose((head_size * 2, *HEAD_SIZES))
    if differs(draw, style, "dtype"):
        itemsize = draw.choose(ITEM_SIZES)
    spec: dict[str, object] = {"type": name, "block_size": block_size, "num_kv_heads": heads, "head_size": head_size}
    spec["dtype"] = {"itemsize": itemsize}
    quant = draw.choose((None, *QUANT_MODES)) if differs(draw, style, "quant") else style.quant
    if quant is not None:
        spec["kv_quant_mode"] = quant
    if differs(draw, style, "padding"):
        page = 2 * block_size * heads * head_size * itemsize
        spec["page_size_padded"] = page * draw.choose((2, 1, 4)) + draw.choose((0, 576, 8 * block_size * heads, 1))
    return spec | own


def value_heads(draw: Draw, style: Style) -> dict[str, object]:
    """The size of values, where it is not that of keys."""
    return {"head_size_v": draw.choose((64, 128, 24))} if differs(draw, style, "head_size_v") else {}


def recorded(draw: Draw, style: Style) -> dict[str, object]:
    """A window or a chunk that full attention records, and does not keep to."""
    if not differs(draw, style, "window"):
        return {}
    choices: tuple[tuple[str, Sequence[int]], ...] = (("sliding_window", WINDOWS), ("attention_chunk_size", CHUNKS))
    field, sizes = draw.choose(choices)
    return {field: draw.choose(sizes[:2])}


def latent_spec(draw: Draw, style: Style, name: str, **own: object) -> dict[str, object]:
    """What latent layers have in common: one head, and a layout that may be compressed and aligned."""
    spec = attention_spec(draw, style, name, num_kv_heads=1, **own)
    block_size = spec["block_size"]
    assert isinstance(block_size, int)
    if differs(draw, style, "mla"):
        spec["cache_dtype_str"] = draw.choose(("fp8_ds_mla", "auto"))
        spec["model_version"] = draw.choose(("deepseek_v4", "other" if draw.integer(0, 5) == 5 else "deepseek_v4"))
    if differs(draw, style, "mla"):
        spec["alignment"] = draw.choose(ALIGNMENTS)
    if differs(draw, style, "mla") and block_size % 4 == 0:
        spec["compress_ratio"] = draw.choose((4, block_size))
    return spec


# What specs of attention are asked for and about.

SIZES = {"block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}
"""Fields of the smallest spec."""
HEADS = ("num_kv_heads", "head_size")
"""Fields that a planned layer must have."""
OPTIONAL = ("block_size", "dtype", "kv_quant_mode", "page_size_padded")
"""Fields that it may have."""
LATENT: Mapping[str, Sequence[object]] = {
    "cache_dtype_str": (None, "fp8_ds_mla", "auto"),
    "alignment": (None, *ALIGNMENTS),
    "compress_ratio": (1, 4),
    "model_version": (None, "deepseek_v4"),
}
"""Fields of a latent layout, and values of them."""
