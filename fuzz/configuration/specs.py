"""Specs of layers that one configuration has: of all classes, with a mistake now and then; and those of one model."""

from collections.abc import Callable, Sequence

from ..kinds import DRAWN, LAYERS, LIKELY
from ..kinds.record import LayerClass
from ..kinds.style import Spec, Style
from ..workload.draw import Draw


def draw_specs(draw: Draw, style: Style) -> dict[str, Spec]:
    """One to five specs by name, most of them of classes that models have."""
    classes = [draw.choose(LIKELY) if draw.integer(0, 3) < 3 else draw.choose(DRAWN)]
    others = (*LIKELY, classes[0], *DRAWN) if draw.integer(0, 5) < 5 else classes  # or all of one class
    classes += [draw.choose(others) for _ in range(draw.choose((1, 0, 2, 3, 4)))]
    return {f"s{index}": draw_spec(draw, style, layers) for index, layers in enumerate(classes)}


def draw_spec(draw: Draw, style: Style, layers: LayerClass) -> Spec:
    """A spec of this class, with at most one small mistake now and then."""
    spec = layers.drawn(draw, style)
    if draw.integer(0, 59) == 59:
        return draw.choose(MISTAKES)(spec)
    return spec


def spelled_out(spec: Spec) -> Spec:
    """The same spec with a default written down, which must make no difference."""
    layers = LAYERS.get(str(spec["type"]))
    takes_it = layers is not None and layers.value_heads
    return {"head_size_v": spec["head_size"], **spec} if takes_it else spec


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
