"""Mamba layers, which keep states."""

from ...model.ops import Group, MambaMode
from .draw import Draw
from .record import AttentionKind, LayerClass
from .style import BLOCK_SIZES, Spec, Style, differs

MODES: tuple[MambaMode, ...] = ("none", "all", "align", "align")


def _drawn(draw: Draw, size: int, wide: int) -> Group:
    mode = draw.choose(MODES)
    return Group("mamba", size, mamba_mode=mode, speculative_blocks=draw.choose((0, 1, 2, 2, 3)))


MAMBA = AttentionKind(
    "mamba",
    words="Mamba states, mode {mamba_mode}",
    drawn=_drawn,
    usual=lambda size, reach: Group("mamba", size, mamba_mode="align"),
    spec="MambaSpec",
    spec_fields=lambda group: {
        "mamba_cache_mode": group.mamba_mode,
        "num_speculative_blocks": group.speculative_blocks,
        **(
            {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": group.checkpoint}
            if group.checkpoint
            else {}
        ),
    },
    explored=lambda size: Group("mamba", size, mamba_mode="align"),
)


def _mamba(draw: Draw, style: Style) -> Spec:
    itemsize, page = style.itemsize, style.page
    shapes, sizes = [[page // itemsize]], [itemsize]  # a state as large as a block of attention
    if differs(draw, style, "mamba"):
        shapes, sizes = [[3, draw.choose((7, page // 8 + 1))], [2, 3, 4]], [itemsize, 4]
    spec: dict[str, object] = {"type": "MambaSpec", "block_size": style.block_size}
    if differs(draw, style, "block_size"):
        spec["block_size"] = style.block_size * draw.choose((4, 2))
    spec |= {"shapes": shapes, "dtypes": [{"itemsize": size} for size in sizes]}
    if differs(draw, style, "mamba") or differs(draw, style, "padding"):
        spec["page_size_padded"] = draw.choose((page, page * 2, page + 489))
    if differs(draw, style, "mamba"):
        spec["mamba_cache_mode"] = draw.choose(("align", "all", "none"))
    if differs(draw, style, "mamba"):
        spec["num_speculative_blocks"] = draw.choose((1, 2))
    return spec


MAMBA_LAYERS = LayerClass(
    *("MambaSpec", _mamba, "mamba state", {"block_size": 16, "shapes": [[4]], "dtypes": [{"itemsize": 2}]}),
    own={
        "block_size": BLOCK_SIZES[2:],
        "shapes": ([[4]], [[5]]),
        "dtypes": ([{"itemsize": 2}], [{"itemsize": 4}]),
        "page_size_padded": (None, 8, 1 << 24),
        "mamba_type": ("MAMBA1", "MAMBA2", "LINEAR"),
        "mamba_cache_mode": ("none", "all", "align"),
        "num_speculative_blocks": (0, 1, 2),
    },
    required=("shapes", "dtypes"),
    optional=("block_size", "page_size_padded", "mamba_type", "mamba_cache_mode", "num_speculative_blocks"),
)
