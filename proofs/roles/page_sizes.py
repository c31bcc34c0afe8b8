"""How many bytes a block takes (page arithmetic of T17).

Letters: `b` tokens per block, `h` heads, `d` width of a key, `v` of a value, `z` bytes per number. A role answers None
where a core refuses to build the spec.
"""

from collections.abc import Callable
from typing import Any

from ...model import arith
from ...model.attention import CoreError
from ...model.config.capacity import Rules
from ...model.config.layers import uniform_of
from ...model.config_json import Layer, Spec
from .bare import bare
from .stand_ins import Sized, lenient

_RULES = Rules()
_SCALED, _FOUR_BITS = "INT8_PER_TOKEN_HEAD", "NVFP4"


def _scales(page: Callable[[str], Any]) -> Any:
    """What the scales of every token and head add, given the page by quantisation."""
    return page(_SCALED) - page("NONE")


# The model.


def _page(kind: Spec, mode: str = "NONE", **fields: Any) -> Any:
    return _RULES.page(bare(Layer, type=kind, kv_quant_mode=mode, **fields))


def _values(kind: Spec, mode: str = "NONE") -> Callable[..., Any]:
    def page(b: Any, h: Any, d: Any, v: Any, z: Any) -> Any:
        value = {} if kind == Spec.CHUNK else {"head_size_v": v}
        return _page(kind, mode, block_size=b, num_kv_heads=h, head_size=d, dtype=z, **value)

    return page


def _latent(b: Any, h: Any, d: Any, z: Any, mode: str = "NONE") -> Any:
    return _page(Spec.MLA, mode, block_size=b, num_kv_heads=h, head_size=d, dtype=z)


def _built(b: Any, d: Any, **fields: Any) -> Any:
    """A latent layer with one head and numbers of one byte, as the model completes it."""
    return _RULES.construct(Layer(Spec.MLA, b, num_kv_heads=1, head_size=d, dtype=1, **fields))


def _compressed(b: Any, ratio: Any, h: Any, mode: str) -> Any:
    layer = Layer(Spec.MLA, b, num_kv_heads=h, head_size=1, dtype=1, compress_ratio=ratio, kv_quant_mode=mode)
    return _RULES.construct(layer)


def _unless_refused(page: Callable[[], Any]) -> Any:
    try:
        return page()
    except CoreError:
        return None


def _states(*sizes: Any, dtypes: int) -> Any:
    layer = Layer(Spec.MAMBA, 1, shapes=tuple((size,) for size in sizes), dtypes=(1,) * dtypes)
    return _unless_refused(lambda: _RULES.page(_RULES.construct(layer)))


def _uniform_copied(b: Any, d: Any, other_b: Any) -> Any:
    member = Layer(Spec.FULL, b, num_kv_heads=1, head_size=d, head_size_v=0, dtype=1)
    return _RULES.page(_RULES.resize(uniform_of({"one": member, "other": member}), other_b))


MODEL: dict[str, Any] = {
    "cdiv": arith.cdiv,
    "down": arith.down,
    "up": arith.up,
    "page_full": _values(Spec.FULL),
    "page_window": _values(Spec.WINDOW),
    "page_chunk": lambda b, h, d, z: _values(Spec.CHUNK)(b, h, d, None, z),
    "page_four_bits": _values(Spec.FULL, _FOUR_BITS),
    "page_latent": _latent,
    "nvfp4_width": lambda w: _values(Spec.FULL, _FOUR_BITS)(1, 1, w, 0, 1),
    "scales": lambda b, h: _scales(lambda mode: _values(Spec.FULL, mode)(b, h, 1, 1, 1)),
    "scales_latent": lambda b, h: _scales(lambda mode: _latent(b, h, 1, 1, mode)),
    "scales_compressed": lambda b, ratio, h: _unless_refused(
        lambda: _scales(lambda mode: _RULES.page(_compressed(b, ratio, h, mode)))
    ),
    "stored_vectors": lambda b, ratio: _unless_refused(lambda: _RULES.page(_built(b, 1, compress_ratio=ratio))),
    "page_aligned": lambda b, d, unit, padded: _RULES.page(_built(b, d, alignment=unit, page_size_padded=padded)),
    "page_aligned_scaled": lambda b, d, unit: _RULES.page(_built(b, d, alignment=unit, kv_quant_mode=_SCALED)),
    "page_copied": lambda b, d, unit, other_b: _RULES.page(_RULES.resize(_built(b, d, alignment=unit), other_b)),
    "page_states": _states,
    "page_uniform_copied": _uniform_copied,
}


# Cores with vLLM's API.


def _spec(names: Any, name: str, mode: str = "NONE", complete: bool = False, **fields: Any) -> Any:
    """A spec; `complete` ones go through their constructor."""
    kind, quantised = names(name), getattr(names("KVQuantMode"), mode)
    fields = {"kv_quant_mode": quantised, **fields}
    return kind(**fields) if complete else bare(kind, **fields)


def _reading(names: Any, attribute: str, name: str, mode: str = "NONE", complete: bool = False, **fields: Any) -> Any:
    read = lenient(lambda: getattr(_spec(names, name, mode, complete, **fields), attribute), names("AttentionSpec"))
    return read()


def _api_values(name: str, mode: str = "NONE") -> Callable[[Any], Callable[..., Any]]:
    def bind(names: Any) -> Callable[..., Any]:
        names(name)

        def page(b: Any, h: Any, d: Any, v: Any, z: Any) -> Any:
            fields = {"block_size": b, "num_kv_heads": h, "head_size": d, "dtype": Sized(z), "page_size_padded": None}
            fields |= {} if v is None else {"head_size_v": v}
            return _reading(names, "page_size_bytes", name, mode, **fields)

        return page

    return bind


def _api_latent(names: Any, attribute: str = "page_size_bytes", mode: str = "NONE") -> Callable[..., Any]:
    def read(b: Any, h: Any, d: Any, z: Any, **fields: Any) -> Any:
        wanted = {"block_size": b, "num_kv_heads": h, "head_size": d, "dtype": Sized(z), **fields}
        return _reading(names, attribute, "MLAAttentionSpec", mode, complete=True, **wanted)

    return read


def _api_stored(names: Any) -> Callable[..., Any]:
    def stored(b: Any, ratio: Any) -> Any:
        try:
            return _api_latent(names, "storage_block_size")(b, 1, 1, 1, compress_ratio=ratio)
        except ValueError:
            return None

    return stored


def _api_scales_compressed(names: Any) -> Callable[..., Any]:
    def scales(b: Any, ratio: Any, h: Any) -> Any:
        try:
            return _scales(lambda mode: _api_latent(names, mode=mode)(b, h, 1, 1, compress_ratio=ratio))
        except ValueError:
            return None

    return scales


def _api_copied(names: Any) -> Callable[..., Any]:
    def copied(b: Any, d: Any, unit: Any, other_b: Any) -> Any:
        def page() -> Any:
            wanted = {"block_size": b, "num_kv_heads": 1, "head_size": d, "dtype": Sized(1), "alignment": unit}
            spec = _spec(names, "MLAAttentionSpec", complete=True, **wanted)
            return spec.copy_with_new_block_size(other_b).page_size_bytes

        return lenient(page, names("AttentionSpec"))()

    return copied


def _api_states(names: Any) -> Callable[..., Any]:
    kind = names("MambaSpec")

    def page(*sizes: Any, dtypes: int) -> Any:
        try:
            spec = kind(block_size=1, shapes=tuple((size,) for size in sizes), dtypes=(Sized(1),) * dtypes)
            return lenient(lambda: spec.page_size_bytes, kind)()
        except ValueError:
            return None

    return page


def _api_uniform_copied(names: Any) -> Callable[..., Any]:
    uniform = names("UniformTypeKVCacheSpecs")

    def page(b: Any, d: Any, other_b: Any) -> Any:
        wanted = {"block_size": b, "num_kv_heads": 1, "head_size": d, "head_size_v": 0, "dtype": Sized(1)}
        member = _spec(names, "FullAttentionSpec", complete=True, **wanted)
        spec = uniform(block_size=b, kv_cache_specs={"one": member, "other": member})
        return lenient(lambda: spec.copy_with_new_block_size(other_b).page_size_bytes, names("AttentionSpec"))()

    return page


def _api_scales(names: Any) -> Callable[..., Any]:
    return lambda b, h: _scales(lambda mode: _api_values("FullAttentionSpec", mode)(names)(b, h, 1, 1, 1))


def _api_scales_latent(names: Any) -> Callable[..., Any]:
    return lambda b, h: _scales(lambda mode: _api_latent(names, mode=mode)(b, h, 1, 1))


def _api_aligned(names: Any) -> Callable[..., Any]:
    return lambda b, d, unit, padded: _api_latent(names)(b, 1, d, 1, alignment=unit, page_size_padded=padded)


def _api_aligned_scaled(names: Any) -> Callable[..., Any]:
    return lambda b, d, unit: _api_latent(names, mode=_SCALED)(b, 1, d, 1, alignment=unit)


def _api_chunk(names: Any) -> Callable[..., Any]:
    return lambda b, h, d, z: _api_values("ChunkedLocalAttentionSpec")(names)(b, h, d, None, z)


def _api_width(names: Any) -> Callable[..., Any]:
    return lambda w: _api_values("FullAttentionSpec", _FOUR_BITS)(names)(1, 1, w, 0, 1)


API: dict[str, Any] = {
    "cdiv": lambda names: names("cdiv"),
    "up": lambda names: names("round_up"),
    "down": lambda names: names("round_down"),
    "page_full": _api_values("FullAttentionSpec"),
    "page_window": _api_values("SlidingWindowSpec"),
    "page_chunk": _api_chunk,
    "page_four_bits": _api_values("FullAttentionSpec", _FOUR_BITS),
    "page_latent": _api_latent,
    "nvfp4_width": _api_width,
    "scales": _api_scales,
    "scales_latent": _api_scales_latent,
    "scales_compressed": _api_scales_compressed,
    "stored_vectors": _api_stored,
    "page_aligned": _api_aligned,
    "page_aligned_scaled": _api_aligned_scaled,
    "page_copied": _api_copied,
    "page_states": _api_states,
    "page_uniform_copied": _api_uniform_copied,
}
