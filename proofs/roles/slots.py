"""Where a token lies in memory: slots of a block table, parts of a page, elements of a view, shared buffers (T21).

Bulk code is run on vectors of one element, in place of arrays and tensors: what it does to one it does to all.
"""

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import z3

from ...impl.tensors import block_tables, layer_cache, torch_kernels
from ...impl.tensors import layout as kv_cache_layout
from ..bare import bare
from ..claims import quotient_found
from ..symbolic import Number, SymbolicBool, SymbolicInt
from ..symbolic_builtins import SymbolicType, symbolic_range
from ..symbolic_bytes import Integer, globals_of, seeing
from ..theorem import UnavailableError
from .stand_ins import Sized

Names = Callable[[str], Any]
LOADED = (block_tables, kv_cache_layout, layer_cache, torch_kernels)
"""Our core loads these when they are asked for; a run sees only what is loaded when it begins."""


def picked(condition: Any, one: Any, other: Any) -> Any:
    """`one if condition else other`, without a fork."""
    if isinstance(condition, SymbolicBool):
        return SymbolicInt(z3.If(condition.term, _term(one), _term(other)))
    return one if condition else other


def _term(value: Number) -> Any:
    return value.term if isinstance(value, SymbolicInt) else z3.IntVal(value)


class One:
    """An array or a tensor of one whole number; what is computed from one is one, too."""

    is_meta = False

    def __init__(self, value: Number) -> None:
        self.value = value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, one: "One", other: "One", out: tuple["One"]) -> None:
        """A comparison of numpy that writes what it finds into an array."""
        compared = {"less": operator.lt, "less_equal": operator.le}[ufunc.__name__]
        out[0].value = picked(compared(one.value, other.value), 1, 0)

    def numel(self) -> int:
        """How many numbers there are."""
        return 1

    def reshape(self, *shape: int) -> "One":
        """The same number."""
        return self

    def __add__(self, other: Any) -> "One":
        return One(self.value + _plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> "One":
        return One(self.value - _plain(other))

    def __mul__(self, other: Any) -> "One":
        return One(self.value * _plain(other))

    def __floordiv__(self, other: Any) -> "One":
        return One(self.value // _plain(other))

    def __mod__(self, other: Any) -> "One":
        return One(self.value % _plain(other))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, One) else value


# Slots.


def _slot(names: Names) -> Any:
    try:
        return _slot_of_tables(names("BlockTables"))
    except UnavailableError:
        return _slot_of_kernel(names("_compute_slot_mapping_kernel"))


def _slot_of_tables(kind: Any) -> Any:
    def slot(entry: Number, position: Number, b: Number, max_blocks: Number) -> Any:
        """Slot of a position in a full row of `max_blocks` entries, of which the one that counts is `entry`."""
        # Behind a null entry begin the tokens of which it is known that they have places.
        first = picked(entry == 0, (position // b + 1) * b, 0)
        begun, inside, at = One(0), One(0), One(position)
        checked = SimpleNamespace(tobytes=lambda: (begun.value, inside.value))
        row = SimpleNamespace(first=One(first), behind=One(max_blocks * b), begun=begun, inside=inside, checked=checked)
        if not bare(kind, _any_ring=False)._have_places(row, None, at, None):
            raise ValueError("this token has no slot")
        return torch_kernels.place(One(entry), at, b).value

    return slot


class _Loaded(SymbolicInt):
    """A number that a kernel has read."""

    __slots__ = ()

    def to(self, dtype: object) -> Any:
        """The same number: what is read here fits every dtype."""
        return self


class _LoadedPlain(int):
    def to(self, dtype: object) -> int:
        """The same number."""
        return self


class _Pointer:
    """Memory that a kernel reads or writes at an index."""

    def __init__(self, at: Callable[[Any], Any], index: Any = 0) -> None:
        self._at = at
        self._index = index

    def __add__(self, index: Any) -> "_Pointer":
        return _Pointer(self._at, self._index + index)

    def load(self) -> Any:
        """The number there."""
        value = self._at(self._index)
        return _Loaded(value.term) if isinstance(value, SymbolicInt) else _LoadedPlain(value)


def _slot_of_kernel(kernel: Any) -> Any:
    """The function of a Triton kernel, run by one program on one token."""
    function = getattr(kernel, "fn", kernel)

    def slot(entry: Number, position: Number, b: Number, max_blocks: Number) -> Any:
        stored: list[Any] = []
        language = SimpleNamespace(
            int64=None,
            program_id=lambda axis: 0,
            num_programs=lambda axis: 2,
            arange=lambda first, end: first,
            load=lambda pointer, mask=True, other=0: pointer.load(),
            where=picked,
            store=lambda pointer, value, mask=True: stored.append(value),
        )
        with seeing(globals_of(function), {"tl": language, "range": symbolic_range}):
            function(
                1,
                1,
                _Pointer(lambda request: request),
                _Pointer(lambda token: position),
                _Pointer(lambda index: entry),
                max_blocks,
                b,
                _Pointer(lambda token: token),
                TOTAL_CP_WORLD_SIZE=1,
                TOTAL_CP_RANK=0,
                CP_KV_CACHE_INTERLEAVE_SIZE=1,
                PAD_ID=-1,
                BLOCK_SIZE=1,
            )
        (value,) = stored
        return value

    return slot


@contextmanager
def _torch(**functions: Any) -> Iterator[None]:
    """While it lasts, `import torch` gives a library of these functions."""
    library = SimpleNamespace(**{"int64": None, "Tensor": One, "dtype": Sized, **functions})
    with patch.dict(sys.modules, torch=library):
        yield


def _place(names: Names) -> Any:
    kind = names("LayerCache")

    def place(slot: Number, entries: Number, per_entry: Number, num_blocks: Number) -> tuple[Any, Any]:
        """Block and entry in it of a slot, with `per_entry` tokens in each of a block's entries."""
        b = entries * per_entry
        quotient_found(b, entries, per_entry)
        layout = bare(names("PageLayout"), block_size=b, entries=entries)
        cache = bare(
            kind, name="", layout=layout, num_blocks=num_blocks, pages=SimpleNamespace(is_meta=False, device=None)
        )
        functions = {
            "as_tensor": lambda places, dtype, device: places,
            "aminmax": lambda found: (found.value, found.value),
            "div": lambda one, other, rounding_mode: one // other,
        }
        with _torch(**functions), seeing(globals_of(kind.locate), {"int": Integer}):
            block, entry = cache.locate(One(slot))
        return block.value, entry.value

    return place


# Pages.

Part = tuple[Any, Any]
"""Offset and size in bytes."""


def _symbolic_sizes(function: Any, value: Any) -> Any:
    """While it lasts, the type of a size is that of the number it stands for."""
    return seeing(globals_of(function), {"type": SymbolicType} if isinstance(value, SymbolicInt) else {})


def _laid_out(names: Names, spec: Any, size: Number) -> tuple[Any, list[Part]]:
    page_layout = names("page_layout")
    with _symbolic_sizes(page_layout, size):
        layout = page_layout("layer", spec)
    return layout.page_size, [(part.offset, part.nbytes) for part in layout.parts]


def _attention_page(mode: str) -> Callable[[Names], Any]:
    def bind(names: Names) -> Any:
        quant = getattr(names("KVQuantMode"), mode)

        def page(b: Number, h: Number, d: Number, v: Number, z: Number) -> tuple[Any, list[Part]]:
            """Bytes of a page and its parts: `b` tokens, `h` heads, keys `d`, values `v` wide, `z` bytes a number."""
            spec = names("FullAttentionSpec")(
                b, num_kv_heads=h, head_size=d, head_size_v=v, dtype=Sized(z), kv_quant_mode=quant
            )
            return _laid_out(names, spec, b)

        return page

    return bind


def _latent_page(names: Names) -> Any:
    def page(b: Number, h: Number, d: Number, z: Number) -> tuple[Any, list[Part]]:
        """The same for one vector `d` wide a token and head."""
        return _laid_out(names, names("MLAAttentionSpec")(b, num_kv_heads=h, head_size=d, dtype=Sized(z)), b)

    return page


def _state_page(names: Names) -> Any:
    def page(b: Number, sizes: Sequence[tuple[Number, Number]]) -> tuple[Any, list[Part]]:
        """The same for states of so many elements of so many bytes."""
        spec = names("MambaSpec")(b, tuple((size,) for size, _ in sizes), tuple(Sized(z) for _, z in sizes))
        return _laid_out(names, spec, b)

    return page


def _element(names: Names) -> Any:
    """Where an element of a view lies, in elements from the beginning of the buffer."""
    kind, part_kind = names("LayerCache"), names("Part")

    def element(
        page: Number, offset: Number, z: Number, shape: Sequence[Number], num_blocks: Number, index: Sequence[Number]
    ) -> Any:
        """`page` and `offset` in elements of `z` bytes; `shape` is that in one page, `index` begins with a block."""
        part = bare(part_kind, name="part", dtype=Sized(z), shape=tuple(shape), offset=offset * z)
        cache = bare(kind, layout=bare(names("PageLayout"), page_size=page * z), num_blocks=num_blocks)
        seen: list[tuple[Any, Any]] = []

        def as_strided(buffer: Any, size: Any, strides: Any, storage_offset: Any) -> None:
            seen.append((strides, storage_offset))

        quotient_found(page * z, z, page)
        quotient_found(offset * z, z, offset)
        buffer = SimpleNamespace(view=lambda dtype: SimpleNamespace(storage_offset=lambda: 0))
        with _torch(as_strided=as_strided), seeing(globals_of(kind._typed), {"torch_dtype": lambda dtype: dtype}):
            cache._typed(buffer, part)
        ((strides, first),) = seen
        return first + sum(stride * at for stride, at in zip(strides, index, strict=True))

    return element


def _shared(names: Names) -> Any:
    """True if layers of two groups share a buffer, False if that is refused."""
    plan_tensors = names("plan_tensors")

    def shared(b: Number, b2: Number, width: Number, width2: Number, size: Number, num_blocks: Number) -> Any:
        """Pages of both layers and bytes of the buffer, or None; `width` in bytes per token."""
        spec, group = names("SlidingWindowSpec"), names("KVCacheGroupSpec")
        specs = [
            spec(tokens, num_kv_heads=1, head_size=bytes_, dtype=Sized(1), sliding_window=1)
            for tokens, bytes_ in ((b, width), (b2, width2))
        ]
        config = names("KVCacheConfig")(
            num_blocks=num_blocks,
            kv_cache_tensors=[names("KVCacheTensor")(size=size, shared_by=["one", "other"])],
            kv_cache_groups=[group(["one"], specs[0]), group(["other"], specs[1])],
        )
        with _symbolic_sizes(plan_tensors, num_blocks):
            try:
                plans = plan_tensors(config)
            except ValueError:
                return None
        return plans["one"].layout.page_size, plans["other"].layout.page_size

    return shared


MODEL: dict[str, Any] = {}

API: dict[str, Any] = {
    "slot": _slot,
    "place": _place,
    "plain_page": _attention_page("NONE"),
    "scaled_page": _attention_page("INT8_PER_TOKEN_HEAD"),
    "packed_page": _attention_page("NVFP4"),
    "latent_page": _latent_page,
    "state_page": _state_page,
    "element": _element,
    "shared": _shared,
}
