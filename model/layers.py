"""One layer of a model: its page, the most blocks a request needs of it, when layers merge or are of one type.

Chapter "Specs and configuration arithmetic", §§1 to 5; `§` in a docstring is a section of it, `[S-..]` a mark of its
last section. Sizes are in bytes, lengths and block sizes in tokens.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd, prod
from typing import TypeAlias

from . import arith
from .attention import CoreError, demand


class Kind(StrEnum):
    """The spec classes (§2)."""

    BASE, ATTENTION, UNIFORM = "KVCacheSpec", "AttentionSpec", "UniformTypeKVCacheSpecs"
    FULL, TQ, SINK = "FullAttentionSpec", "TQFullAttentionSpec", "SinkFullAttentionSpec"
    MLA, HIDDEN = "MLAAttentionSpec", "HiddenStateCacheSpec"
    WINDOW, WINDOW_MLA, CHUNK = "SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"
    MAMBA, CROSS, ENCODER = "MambaSpec", "CrossAttentionSpec", "EncoderOnlyAttentionSpec"


MLA_FAMILY = {Kind.MLA, Kind.HIDDEN}
FULL_FAMILY = {Kind.FULL, Kind.TQ, Kind.SINK} | MLA_FAMILY
WINDOWS = {Kind.WINDOW, Kind.WINDOW_MLA}
NOT_ATTENTION = {Kind.BASE, Kind.UNIFORM, Kind.MAMBA}
REGISTERED = FULL_FAMILY | WINDOWS | {Kind.CHUNK, Kind.MAMBA, Kind.CROSS}  # those that have a manager (§6)
V4 = "deepseek_v4"


@dataclass(frozen=True)
class Layer:
    """The spec of a layer (§2). What its class does not have stays at the default."""

    type: Kind
    block_size: int
    num_kv_heads: int = 0
    head_size: int = 0
    dtype: int = 0  # bytes of one number
    kv_quant_mode: str = "NONE"
    page_size_padded: int | None = None
    head_size_v: int | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    tq_slot_size: int = 0
    cache_dtype_str: str | None = None
    alignment: int | None = None
    compress_ratio: int = 1
    model_version: str | None = None
    sink_len: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[int, ...] = ()
    mamba_type: str = "MAMBA2"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    kv_cache_specs: tuple[tuple[str, "Layer"], ...] = ()  # members of a uniform type, with their layers' names

    @property
    def members(self) -> list["Layer"]:
        """Specs of the members of a uniform type."""
        return [x for _, x in self.kv_cache_specs]


Layers: TypeAlias = dict[str, Layer]  # layer name -> spec, in the model's order


def uniform_of(layers: Layers) -> Layer:
    """§5: layers known to be of one type, as one spec."""
    return Layer(Kind.UNIFORM, next(iter(layers.values())).block_size, kv_cache_specs=tuple(layers.items()))


@dataclass(frozen=True)
class Config:
    """What is read from the engine's configuration (§1), each under the last part of its name."""

    max_model_len: int = 1024
    original_max_model_len: int | None = None
    max_num_batched_tokens: int = 512
    max_num_encoder_input_tokens: int = 0
    disable_hybrid_kv_cache_manager: bool = False
    block_size: int = 16
    hash_block_size: int | None = None
    enable_prefix_caching: bool = True
    num_gpu_blocks_override: int | None = None
    mamba_cache_mode: str = "none"
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    kv_connector: bool = False
    use_eagle: bool = False

    @property
    def parallel(self) -> int:
        """Ranks that one sequence is spread over."""
        return self.decode_context_parallel_size * self.prefill_context_parallel_size


class LayerRules:
    """§§2 to 5."""

    def construct(self, x: Layer) -> Layer:
        """§2: what a spec refuses, and the values it fills in."""
        demand(x.block_size >= 1, "ValueError")
        demand(x.compress_ratio >= 1 and x.block_size % x.compress_ratio == 0, "ValueError")  # [S-10]
        demand(len(x.shapes) == len(x.dtypes), "ValueError")  # [S-07]
        if x.type in FULL_FAMILY | WINDOWS and x.head_size_v is None:  # [S-19]
            x = replace(x, head_size_v=x.head_size)
        if x.alignment is None or self.page(x) == self.real_page(x):
            return x
        return replace(x, page_size_padded=self.page(x))

    def resize(self, x: Layer, block_size: int) -> Layer:
        """§3: the same spec with another block size; an alignment alone says what is padded [S-06, S-12]."""
        members = tuple((name, self.resize(member, block_size)) for name, member in x.kv_cache_specs)
        padded = x.page_size_padded if x.alignment is None else None
        return self.construct(replace(x, block_size=block_size, page_size_padded=padded, kv_cache_specs=members))

    def real_page(self, x: Layer) -> int:
        """§3: bytes that a block stores, scales left out."""
        b, h, d, z = x.block_size, x.num_kv_heads, x.head_size, x.dtype
        if x.type == Kind.MAMBA:
            return sum(prod(shape) * size for shape, size in zip(x.shapes, x.dtypes, strict=False))
        if x.type in MLA_FAMILY or x.type == Kind.WINDOW_MLA:
            return self.latent_page(x)
        if x.type == Kind.TQ and x.tq_slot_size > 0:
            return b * h * x.tq_slot_size
        demand(x.type not in NOT_ATTENTION, "NotImplementedError")
        v = d if x.head_size_v is None else x.head_size_v
        if x.kv_quant_mode == "NVFP4":
            d, v = self.nvfp4_width(d), self.nvfp4_width(v)
        return arith.page_keys_values(b, h, d, v, z)

    def latent_page(self, x: Layer) -> int:
        """§3, the MLA rows: one vector a token; two packed layouts have sizes of their own."""
        demand(x.type in MLA_FAMILY or x.model_version in (None, V4))
        stored, packed = x.block_size // x.compress_ratio, x.cache_dtype_str == "fp8_ds_mla"
        if packed and x.model_version == V4:
            return stored * 584
        if packed and x.type in MLA_FAMILY:
            return x.block_size * 656
        return arith.page_latent(stored, x.num_kv_heads, x.head_size, x.dtype)

    def nvfp4_width(self, width: int) -> int:
        """§3: bytes of a row in four bits, with its scales [S-11]."""
        return arith.nvfp4_width(width)

    def needed_page(self, x: Layer) -> int:
        """§3: bytes that a block stores, with the scales of the per-token-head modes."""
        scales = x.type not in NOT_ATTENTION and x.kv_quant_mode.endswith("PER_TOKEN_HEAD")
        return self.real_page(x) + (arith.scale_bytes(x.block_size, x.num_kv_heads) if scales else 0)

    def page(self, x: Layer) -> int:
        """§3: bytes that a block takes."""
        if x.type == Kind.UNIFORM:
            return sum(map(self.page, x.members))
        need, padded = self.needed_page(x), x.page_size_padded
        if x.alignment is not None:
            return arith.up(max(need, padded or 0), x.alignment)  # [S-06]
        demand(padded is None or padded >= need)
        return need if padded is None else padded

    def blocks(self, config: Config, x: Layer) -> int:
        """§3: the most blocks that one request needs."""
        if x.type == Kind.UNIFORM:
            return max(self.pages(config, member) for member in x.members)
        if x.type in FULL_FAMILY:
            return arith.blocks_full(config.max_model_len, config.parallel, x.block_size)
        if x.type in WINDOWS or x.type == Kind.CHUNK:
            demand(self.fits_parallel(config, x))
            return self.cap(x, config.max_num_batched_tokens, config.max_model_len)
        if x.type == Kind.MAMBA:
            states = 2 if config.mamba_cache_mode == "align" else 1
            if config.mamba_cache_mode == "all":
                states = arith.cdiv(config.max_model_len, x.block_size)
            return states + x.num_speculative_blocks
        demand(x.type in (Kind.CROSS, Kind.ENCODER), "NotImplementedError")
        return arith.cdiv(config.max_num_encoder_input_tokens, x.block_size) if x.type == Kind.CROSS else 0

    def fits_parallel(self, config: Config, x: Layer) -> bool:
        """§3: windows and chunks do not go with context parallelism [S-15]."""
        return config.parallel == 1

    def memory(self, config: Config, x: Layer) -> int:
        """§3: bytes of the most blocks that one request needs."""
        return 0 if x.type == Kind.ENCODER else self.blocks(config, x) * self.page(x)

    def pages(self, config: Config, x: Layer) -> int:
        """§12: pages(g), the same counted by bytes, so that a page that cannot be is noticed."""
        return self.blocks(config, x) if x.type == Kind.UNIFORM else arith.cdiv(self.memory(config, x), self.page(x))

    def cap(self, x: Layer, max_batched: int, max_len: int) -> int:
        """§3: most blocks held at once when those behind the window are given back before each step."""
        if x.type in WINDOWS and x.sliding_window is not None:
            return arith.cap_sliding(x.sliding_window, x.block_size, max_batched, max_len)
        if x.type == Kind.CHUNK and x.attention_chunk_size is not None:
            return self.cap_chunked(x.attention_chunk_size, x.block_size, max_batched, max_len)
        raise CoreError("AttributeError")

    def cap_chunked(self, chunk: int, b: int, max_batched: int, max_len: int) -> int:
        """§3: the same for chunks [S-13]."""
        return arith.cap_chunked(chunk, b, gcd(b, chunk), max_batched, max_len)

    def merge(self, specs: Sequence[Layer]) -> Layer:
        """§4: the spec of a group of layers [S-01..S-04]."""
        demand(all(x.type == specs[0].type for x in specs))
        merged = list(specs)
        if specs[0].type in FULL_FAMILY:
            window = self.merge_window_sizes(x.sliding_window for x in specs)
            chunk = self.merge_window_sizes(x.attention_chunk_size for x in specs)
            demand(window is None or chunk is None)
            merged = [replace(x, sliding_window=window, attention_chunk_size=chunk) for x in specs]
        demand(all(x == merged[0] for x in merged))
        return merged[0]

    def merge_window_sizes(self, sizes: Iterable[int | None]) -> int | None:
        """§4: the one size that layers record, None where none does."""
        given = set(sizes) - {None}
        demand(len(given) <= 1, "ValueError")
        return given.pop() if given else None

    def is_spec_uniform(self, layers: Layers) -> bool:
        """§5: True if all layers can be merged [S-05]."""
        try:
            return not layers or bool(self.merge(list(layers.values())))
        except CoreError:
            return False

    def is_type_uniform(self, layers: Layers) -> bool:
        """§5: True if every layer accepts all of them. Each is asked, so the order does not matter [S-08]."""
        specs = list(layers.values())
        if len({x.block_size for x in specs}) != 1:
            return False
        demand(any(x.type in REGISTERED for x in specs))
        return all(self.accepts(x, specs) for x in specs)

    def accepts(self, x: Layer, specs: Collection[Layer]) -> bool:
        """§5: True if `x` may share a block table with all of `specs` [S-09, S-16]."""
        if x.type in FULL_FAMILY:
            sink = (x.type == Kind.SINK, x.sink_len)
            return all(y.type in FULL_FAMILY and (y.type == Kind.SINK, y.sink_len) == sink for y in specs)
        return all(y.type == x.type and table_shape(y) == table_shape(x) for y in specs)

    def uniform(self, layers: Layers) -> Layer | None:
        """§5: `from_specs`: one spec for layers of one type, or None."""
        return uniform_of(layers) if self.is_type_uniform(layers) else None

    def num_layer_tuples(self, x: Layer) -> int:
        """§5: how often the most frequent page size of a uniform type occurs."""
        return max(Counter(map(self.page, x.members)).values())


def table_shape(x: Layer) -> object:
    """§5: what layers of one class outside the full family must agree on."""
    if x.type == Kind.MAMBA:
        return x.num_speculative_blocks, x.mamba_cache_mode
    return x.sliding_window, x.attention_chunk_size
