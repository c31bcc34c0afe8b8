"""Where everything lies inside the pages of a layer, and whether a configuration's buffers hold together (core.md §11).

Plain arithmetic: no tensor library is needed to check a configuration. Sizes and offsets are in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ..specs.attention import AttentionSpec, MLAAttentionSpec, SlidingWindowMLASpec, TQFullAttentionSpec
from ..specs.base import DType, KVCacheSpec, MambaSpec, cdiv
from ..specs.interface import KVCacheConfig, KVCacheTensor, UniformTypeKVCacheSpecs

BYTE: DType = np.dtype(np.uint8)
"""Element type of packed layouts, whose contents only the kernels interpret."""
SCALE: DType = np.dtype(np.float32)


@dataclass(frozen=True)
class Part:
    """A tensor that lies contiguously inside every page, `offset` bytes after the page begins."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    """In elements, within one page. Of what is kept per token the first axis is the entry."""
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes in one page."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class PageLayout:
    """What the pages of a layer consist of; bytes behind the last part are padding.

    A layer that keeps something per token has `entries` of them in a page, each for `tokens_per_entry` tokens. A layer
    that keeps one state per page, or of which nothing but its page size is known, has no entries.
    """

    page_size: int
    block_size: int
    parts: tuple[Part, ...]
    entries: int | None

    @property
    def tokens_per_entry(self) -> int:
        """1 unless the layer compresses several tokens into one entry."""
        return 1 if self.entries is None else self.block_size // self.entries

    @property
    def stored_bytes(self) -> int:
        """Bytes of a page without padding."""
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True)
class LayerPlan:
    """Which buffer a layer lives in, and how."""

    name: str
    group: int
    tensor: int
    """Index into `kv_cache_tensors`."""
    spec: KVCacheSpec
    """The layer's own spec, also in a uniform group."""
    layout: PageLayout


def page_layout(name: str, spec: KVCacheSpec) -> PageLayout:
    """How a layer of this spec lays out its pages. ValueError, naming the layer, where that cannot be.

    | layer | parts, in this order |
    | --- | --- |
    | attention | `keys` (block_size, num_kv_heads, head_size), `values` likewise with head_size_v |
    | NVFP4 | the same as bytes: packed pairs, then one scale for every 16 elements, per token and head |
    | TQ with a slot size | `packed` (block_size, num_kv_heads, tq_slot_size) bytes |
    | MLA, hidden states | `latent` (storage_block_size, num_kv_heads, head_size) |
    | "fp8_ds_mla" | `packed` (storage_block_size or block_size, 1, 584 or 656) bytes |
    | Mamba | `state0`, `state1`, ... with the shapes of the spec |
    | classes that lay out their pages otherwise | `raw`, all bytes but padding |

    In a per-token-head mode `key_scales` and `value_scales` (block_size, num_kv_heads) follow in float32; MLA layers,
    which keep one vector, have one `scales` [S-20], and so have TQ layers, which leave half of what is reserved unused.
    """
    try:
        page_size = spec.page_size_bytes
        parts, entries = _parts(spec, page_size)
    except (AssertionError, NotImplementedError) as error:
        raise ValueError(f"layer {name!r}: {error}") from error
    if type(page_size) is not int or page_size < 1:
        raise ValueError(
            f"layer {name!r}: page_size_bytes is {page_size!r}: "
            f"a {type(spec).__name__} of positive integer sizes takes at least one byte"
        )
    for part in parts:
        _check_part(name, part, page_size)
    return PageLayout(page_size, spec.block_size, tuple(parts), entries)


def plan_tensors(config: KVCacheConfig) -> dict[str, LayerPlan]:
    """For each layer, by group and in the order of its group, where it lives.

    ValueError unless all of this holds: every layer of every group is in exactly one group and one tensor; a tensor is
    `num_blocks` pages long; layers that share it have equal pages and are of different groups, since a block belongs
    to one group at a time and all layers of that group write it.
    """
    if type(config.num_blocks) is not int or config.num_blocks < 1:
        raise ValueError(f"num_blocks is {config.num_blocks!r}: a pool has at least the null block")
    specs = _specs_by_layer(config)
    tensors: dict[str, int] = {}
    layouts = {name: page_layout(name, spec) for name, (_, spec) in specs.items()}
    for index, tensor in enumerate(config.kv_cache_tensors):
        _check_tensor(index, tensor, config.num_blocks, {name: group for name, (group, _) in specs.items()}, layouts)
        for name in tensor.shared_by:
            if name in tensors:
                where = f"tensors {tensors[name]} and {index}" if tensors[name] != index else f"tensor {index} twice"
                raise ValueError(f"layer {name!r} is in {where}: name every layer in exactly one shared_by, once")
            tensors[name] = index
    for name, (group, _) in specs.items():
        if name not in tensors:
            raise ValueError(
                f"layer {name!r} of group {group} is in no tensor: add it to the shared_by of a KVCacheTensor "
                f"of {config.num_blocks} pages * {layouts[name].page_size} bytes"
            )
    return {name: LayerPlan(name, group, tensors[name], spec, layouts[name]) for name, (group, spec) in specs.items()}


def _specs_by_layer(config: KVCacheConfig) -> dict[str, tuple[int, KVCacheSpec]]:
    """Group and own spec of every layer."""
    found: dict[str, tuple[int, KVCacheSpec]] = {}
    for index, group in enumerate(config.kv_cache_groups):
        for name in group.layer_names:
            if name in found:
                raise ValueError(
                    f"layer {name!r} is in group {found[name][0]} and again in group {index}: "
                    "a layer has one block table, so it is named in one group, once"
                )
            spec = group.kv_cache_spec
            if isinstance(spec, UniformTypeKVCacheSpecs):
                if name not in spec.kv_cache_specs:
                    raise ValueError(
                        f"layer {name!r} of group {index} has no spec among the {len(spec.kv_cache_specs)} of its "
                        "UniformTypeKVCacheSpecs: cut names and specs to the same layers"
                    )
                spec = spec.kv_cache_specs[name]
            found[name] = index, spec
    return found


def _check_tensor(
    index: int,
    tensor: KVCacheTensor,
    num_blocks: int,
    groups: Mapping[str, int],
    layouts: Mapping[str, PageLayout],
) -> None:
    if not tensor.shared_by:
        raise ValueError(f"tensor {index} of {tensor.size} bytes is shared by no layer: leave it out")
    by_group: dict[int, str] = {}
    first = tensor.shared_by[0]
    for name in tensor.shared_by:
        if name not in groups:
            raise ValueError(f"layer {name!r} of tensor {index} is in no group: add it to one, or leave it out")
        page = layouts[name].page_size
        if page != layouts[first].page_size:
            raise ValueError(
                f"layers {first!r} and {name!r} share tensor {index} but their pages differ, {layouts[first].page_size}"
                f" != {page} bytes: unify the page sizes (page_size_padded), or give them tensors of their own"
            )
        other = by_group.setdefault(groups[name], name)
        if other != name:
            raise ValueError(
                f"layers {other!r} and {name!r}, both of group {groups[name]}, share tensor {index}: they would "
                "overwrite each other in every block; layers of one group need tensors of their own"
            )
    page = layouts[first].page_size
    if tensor.size != num_blocks * page:
        pages, rest = divmod(tensor.size, page)
        detail = f"not a multiple of the page, {rest} bytes over" if rest else f"{pages} pages"
        raise ValueError(
            f"layer {first!r}: tensor {index} has {tensor.size} bytes ({detail}), but num_blocks * page = "
            f"{num_blocks} * {page} = {num_blocks * page}: set its size to that, or num_blocks to what it holds"
        )


def _check_part(name: str, part: Part, page_size: int) -> None:
    itemsize = part.dtype.itemsize
    if part.offset + part.nbytes > page_size:
        raise ValueError(
            f"layer {name!r}: {part.name} would end behind the page, offset + size = {part.offset} + {part.nbytes} = "
            f"{part.offset + part.nbytes} > {page_size} bytes: raise page_size_padded"
        )
    if part.offset % itemsize:
        raise ValueError(
            f"layer {name!r}: {part.name} would start {part.offset} bytes into the page, not at a multiple of the "
            f"{itemsize} bytes of its elements ({part.offset} % {itemsize} = {part.offset % itemsize}): put the widest "
            "dtype first, or choose sizes or a block size that fill whole elements"
        )
    if page_size % itemsize:
        raise ValueError(
            f"layer {name!r}: its page of {page_size} bytes is not a multiple of the {itemsize} bytes of an element of "
            f"{part.name} ({page_size} % {itemsize} = {page_size % itemsize}), so the second page would be misaligned: "
            f"pad it (page_size_padded={itemsize * cdiv(page_size, itemsize)})"
        )


def _parts(spec: KVCacheSpec, page_size: int) -> tuple[list[Part], int | None]:
    """The parts one after the other, and the entries of a page."""
    if isinstance(spec, MambaSpec):
        states = enumerate(zip(spec.dtypes, spec.shapes, strict=True))
        return _laid_out([(f"state{i}", dtype, tuple(shape)) for i, (dtype, shape) in states]), None
    if isinstance(spec, AttentionSpec):
        stored = _attention_parts(spec)
        parts = _laid_out(stored)
        if sum(part.nbytes for part in parts) == spec.real_page_size_bytes:
            entries = parts[0].shape[0]
            return _laid_out([*stored, *_scales(spec, entries, len(parts))]), entries
        # A subclass with a page size of its own has a layout of its own, which only it knows.
        return _laid_out([("raw", BYTE, (spec.least_page_size,))]), None
    return _laid_out([("raw", BYTE, (page_size,))]), None


Sized = tuple[str, DType, tuple[int, ...]]


def _laid_out(sized: list[Sized]) -> list[Part]:
    parts, offset = [], 0
    for name, dtype, shape in sized:
        parts.append(Part(name, dtype, shape, offset))
        offset += parts[-1].nbytes
    return parts


def _attention_parts(spec: AttentionSpec) -> list[Sized]:
    """What a layer keeps per token, without scales."""
    tokens, heads = spec.block_size, spec.num_kv_heads
    if isinstance(spec, MLAAttentionSpec | SlidingWindowMLASpec):
        latent_v4 = spec.model_version == "deepseek_v4"
        if spec.cache_dtype_str == "fp8_ds_mla" and latent_v4:
            return [("packed", BYTE, (spec.storage_block_size, 1, 584))]
        if spec.cache_dtype_str == "fp8_ds_mla" and isinstance(spec, MLAAttentionSpec):
            return [("packed", BYTE, (tokens, 1, 656))]
        return [("latent", spec.dtype, (spec.storage_block_size, heads, spec.head_size))]
    if isinstance(spec, TQFullAttentionSpec) and spec.tq_slot_size > 0:
        return [("packed", BYTE, (tokens, heads, spec.tq_slot_size))]
    value_size = getattr(spec, "head_size_v", None) or spec.head_size
    sizes = [("keys", spec.head_size), ("values", value_size)]
    if spec.kv_quant_mode.is_nvfp4:
        return [(name, BYTE, (tokens, heads, spec.stored_elements(size) * spec.dtype.itemsize)) for name, size in sizes]
    return [(name, spec.dtype, (tokens, heads, size)) for name, size in sizes]


def _scales(spec: AttentionSpec, entries: int, num_parts: int) -> list[Sized]:
    if not spec.kv_quant_mode.is_per_token_head:
        return []
    names = ("key_scales", "value_scales") if num_parts == 2 else ("scales",)
    return [(name, SCALE, (entries, spec.num_kv_heads)) for name in names]
