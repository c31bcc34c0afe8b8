"""How a KV cache is quantised (specs-and-config.md §2)."""

from enum import IntEnum


class KVQuantMode(IntEnum):
    """The quantisation of keys and values, as far as it changes what is stored."""

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    NVFP4 = 4

    @property
    def is_per_token_head(self) -> bool:
        """Whether every token and head has scales of its own."""
        return self in (KVQuantMode.INT8_PER_TOKEN_HEAD, KVQuantMode.FP8_PER_TOKEN_HEAD)

    @property
    def is_nvfp4(self) -> bool:
        """Whether two elements share a byte, with a scale byte for every 16 elements."""
        return self is KVQuantMode.NVFP4


_EXACT = {
    "int8_per_token_head": KVQuantMode.INT8_PER_TOKEN_HEAD,
    "fp8_per_token_head": KVQuantMode.FP8_PER_TOKEN_HEAD,
    "nvfp4": KVQuantMode.NVFP4,
}


def get_kv_quant_mode(kv_cache_dtype: str | None) -> KVQuantMode:
    """The mode that a cache dtype's name stands for; `NONE` for names of plain dtypes and for None."""
    if kv_cache_dtype in _EXACT:
        return _EXACT[kv_cache_dtype]
    if kv_cache_dtype is not None and kv_cache_dtype.startswith("fp8"):
        return KVQuantMode.FP8_PER_TENSOR
    return KVQuantMode.NONE


def is_quantized_kv_cache(kv_cache_dtype: str | None) -> bool:
    """Whether a cache dtype's name stands for any quantisation."""
    return get_kv_quant_mode(kv_cache_dtype) is not KVQuantMode.NONE


def kv_cache_uses_per_token_head_scales(kv_cache_dtype: str | None) -> bool:
    """Whether a cache dtype's name asks for scales per token and head."""
    return get_kv_quant_mode(kv_cache_dtype).is_per_token_head
