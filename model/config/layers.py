"""One layer: its page in bytes, the most blocks a request needs, when layers merge or are of one type (§§2 to 5)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ..arith import cdiv, up
from ..attention import CoreError, demand, rule_for
from ..config_json import FULL, LATENT, MANAGED, MLA, NOT_ATTENTION, PACKED, V4, WINDOWS, Config, Layer, Layers, Spec
from ..ops import Shape
from .arith import nvfp4_width


class LayerRules:
    """§§2 to 5. A record of functions: what is given by name is called in place of the rule of that name, with the
    record as its first argument, also by all other rules. TypeError if there is no such rule."""

    def __init__(self, **instead: Callable[..., Any]) -> None:
        for name, function in instead.items():
            if not callable(getattr(type(self), name, None)):
                raise TypeError(f"{name!r} is no rule of {type(self).__name__}: nothing can stand in its place")
            setattr(self, name, partial(function, self))

    def construct(self, x: Layer) -> Layer:
        """§2: refuses specs whose tokens have no room in the page [S-10], and fills in what was left out."""
        demand(x.block_size >= 1, "ValueError")
        demand(x.compress_ratio >= 1 and x.block_size % x.compress_ratio == 0, "ValueError")
        if x.type in FULL | WINDOWS and x.head_size_v is None:  # [S-19]
            x = replace(x, head_size_v=x.head_size)
        if x.alignment is None or self.page(x) == self.real_page(x):
            return x
        return replace(x, page_size_padded=self.page(x))

    def resize(self, x: Layer, block_size: int) -> Layer:
        """§3: the same spec with other blocks: an alignment alone says what is padded [S-06]; members follow [S-12]."""
        members = tuple((name, self.resize(member, block_size)) for name, member in x.kv_cache_specs)
        padded = x.page_size_padded if x.alignment is None else None
        return self.construct(replace(x, block_size=block_size, page_size_padded=padded, kv_cache_specs=members))

    def real_page(self, x: Layer) -> int:
        """§3: bytes that a block stores, scales left out."""
        b, h, d, z = x.block_size, x.num_kv_heads, x.head_size, x.dtype
        if x.type == Spec.MAMBA:
            demand(len(x.shapes) == len(x.dtypes), "ValueError")  # [S-07]
            return sum(prod(shape) * size for shape, size in zip(x.shapes, x.dtypes, strict=True))
        if x.type in LATENT:
            demand(x.type in MLA or x.model_version in (None, V4))
            if x.cache_dtype_str == PACKED and (x.type in MLA or x.model_version == V4):
                return stored(x) * (584 if x.model_version == V4 else 656)
            return stored(x) * h * d * z
        if x.type == Spec.TQ and x.tq_slot_size > 0:
            return b * h * x.tq_slot_size
        demand(x.type not in NOT_ATTENTION, "NotImplementedError")
        v = d if x.head_size_v is None else x.head_size_v
        if x.kv_quant_mode == "NVFP4":
            d, v = nvfp4_width(d), nvfp4_width(v)
        return b * h * (d + v) * z

    def scales(self, x: Layer) -> int:
        """§3: bytes of the scales of the per-token-head modes: a float32 for each vector that is stored [S-20]."""
        if x.type in NOT_ATTENTION or not x.kv_quant_mode.endswith("PER_TOKEN_HEAD"):
            return 0
        return 4 * (1 if x.type in LATENT else 2) * stored(x) * x.num_kv_heads

    def page(self, x: Layer) -> int:
        """§3: bytes that a block takes: what it stores, and no less than was asked for [S-06]."""
        if x.type == Spec.UNIFORM:
            return sum(self.page(member) for member in x.members)
        need, padded = self.real_page(x) + self.scales(x), x.page_size_padded
        if x.alignment is not None:
            return up(max(need, padded or 0), x.alignment)
        demand(padded is None or padded >= need)
        return need if padded is None else padded

    def cap(self, x: Layer, max_batched: int, max_len: int) -> int:
        """§3: most blocks held at once, since those behind the window are given back before each step [S-13]."""
        cap = rule_for(x.group(x.block_size), Shape((), 1, max_len, 1, 1, max_batched)).cap()
        if cap is None:
            raise CoreError("AttributeError")
        return cap

    def blocks(self, config: Config, x: Layer) -> int:
        """§3: the most blocks that one request needs. No manager runs windows or chunks in parallel [S-15]."""
        if x.type == Spec.UNIFORM:
            return max(self.pages(config, member) for member in x.members)
        if x.type in FULL:
            return cdiv(cdiv(config.max_model_len, config.parallel), x.block_size)
        if x.is_narrow:
            demand(config.parallel == 1)
            return self.cap(x, config.max_num_batched_tokens, config.max_model_len)
        if x.type == Spec.MAMBA:
            states = 2 if config.mamba_cache_mode == "align" else 1
            if config.mamba_cache_mode == "all":
                states = cdiv(config.max_model_len, x.block_size)
            return states + x.num_speculative_blocks
        demand(x.type in (Spec.CROSS, Spec.ENCODER), "NotImplementedError")
        return cdiv(config.max_num_encoder_input_tokens, x.block_size) if x.type == Spec.CROSS else 0

    def memory(self, config: Config, x: Layer) -> int:
        """§3: bytes of the most blocks that one request needs."""
        return 0 if x.type == Spec.ENCODER else self.blocks(config, x) * self.page(x)

    def pages(self, config: Config, x: Layer) -> int:
        """§12: pages(g): the same in pages, counted by bytes, so that a page that cannot be is noticed."""
        return self.blocks(config, x) if x.type == Spec.UNIFORM else cdiv(self.memory(config, x), self.page(x))

    def merge(self, specs: Sequence[Layer]) -> Layer:
        """§4: the spec of a group: all alike, but for a window or chunk that only some of them record [S-01..S-04]."""
        demand(all(x.type == specs[0].type for x in specs))
        merged = list(specs)
        if specs[0].type in FULL:
            window, chunk = recorded(x.sliding_window for x in specs), recorded(x.attention_chunk_size for x in specs)
            demand(window is None or chunk is None)
            merged = [replace(x, sliding_window=window, attention_chunk_size=chunk) for x in specs]
        demand(all(x == merged[0] for x in merged))
        return merged[0]

    def is_spec_uniform(self, layers: Layers) -> bool:
        """§5: True if all layers can be merged; that they cannot is no error of its own [S-05]."""
        with suppress(CoreError):
            return not layers or bool(self.merge(list(layers.values())))
        return False

    def is_type_uniform(self, layers: Layers) -> bool:
        """§5: True if all layers may share a block table, in whatever order they come [S-08]."""
        specs = layers.values()
        if len({x.block_size for x in specs}) != 1:
            return False
        demand(any(x.type in MANAGED for x in specs))
        return len({table(x) for x in specs}) == 1

    def num_layer_tuples(self, x: Layer) -> int:
        """§5: how often the most frequent page size of a uniform type occurs."""
        return max(Counter(self.page(member) for member in x.members).values())


def stored(x: Layer) -> int:
    """§3: tokens that a block stores: fewer than it holds where several are compressed into one."""
    packed = x.type in MLA and x.cache_dtype_str == PACKED and x.model_version != V4  # a layout that compresses nothing
    return x.block_size if packed else x.block_size // x.compress_ratio


def recorded(sizes: Iterable[int | None]) -> int | None:
    """§4: the one size that layers record, None where none does."""
    given = set(sizes) - {None}
    demand(len(given) <= 1, "ValueError")
    return given.pop() if given else None


def table(x: Layer) -> tuple[object, ...]:
    """§5: what layers that share a block table agree on, since they hold and give back the same blocks [S-09, S-16]."""
    if x.type in FULL:
        return x.type == Spec.SINK, x.sink_len
    return x.type, *x.sizes.values(), x.num_speculative_blocks, x.mamba_cache_mode


def uniform_of(layers: Layers) -> Layer:
    """§5: layers known to be of one type, as one spec."""
    return Layer(Spec.UNIFORM, next(iter(layers.values())).block_size, kv_cache_specs=tuple(layers.items()))
