"""The typed views that one layer has of its buffer, and reading and writing by slot or block id (core.md §11)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..specs.base import DType
from .layout import LayerPlan, Part

if TYPE_CHECKING:
    import torch

    Places: TypeAlias = Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]] | torch.Tensor

NULL_BLOCK = 0


class LayerCache:
    """One layer's views of its buffer. What is written to a view is in the buffer, and in no other block.

    A *place* is where one token or one state lives: a slot (`block id * block_size + offset`) in layers that keep
    something per token, a block id in Mamba and raw layers.
    """

    def __init__(self, plan: LayerPlan, buffer: torch.Tensor, num_blocks: int) -> None:
        """ValueError, naming the layer, unless the buffer, flat uint8, is exactly `num_blocks` pages."""
        page_size = plan.layout.page_size
        if buffer.numel() != num_blocks * page_size:
            raise ValueError(
                f"layer {plan.name!r}: its views need num_blocks * page = {num_blocks} * {page_size} = "
                f"{num_blocks * page_size}, but its buffer has {buffer.numel()} bytes: allocate as many"
            )
        self.name = plan.name
        self.group = plan.group
        self.tensor = plan.tensor
        self.spec = plan.spec
        self.layout = plan.layout
        self.num_blocks = num_blocks
        self.pages = buffer.view(num_blocks, page_size)
        """(num_blocks, page size) bytes, padding included."""
        self.parts = {part.name: self._typed(buffer, part) for part in plan.layout.parts}
        """By name `(num_blocks, *shape of the part)`; `page_layout` says which there are.

        Elements whose dtype torch does not have are bytes, in one more axis, the last.
        """
        self._rows = {part.name: self._bytes(part) for part in plan.layout.parts}

    @cached_property
    def kv(self) -> torch.Tensor:
        """What an attention kernel is given.

        (2, num_blocks, block_size, num_kv_heads, head_size), keys first; one plane without the first axis for layers
        that keep one vector. ValueError where keys and values differ in size, and for states: use `parts`.
        """
        import torch

        if self.layout.entries is not None and "keys" not in self.parts:
            return next(iter(self.parts.values()))
        keys, values = self.parts.get("keys"), self.parts.get("values")
        if keys is None or values is None or keys.shape != values.shape:
            shapes = ", ".join(f"{name} {tuple(part.shape)}" for name, part in self.parts.items())
            raise ValueError(f"layer {self.name!r} has no one tensor of keys and values but {shapes}: use parts")
        between = values.storage_offset() - keys.storage_offset()
        return torch.as_strided(keys, (2, *keys.shape), (between, *keys.stride()), storage_offset=keys.storage_offset())

    @property
    def states(self) -> tuple[torch.Tensor, ...]:
        """`(num_blocks, *shape)` for every state of a Mamba layer; `()` for other layers."""
        return tuple(part for name, part in self.parts.items() if name.startswith("state"))

    @property
    def num_places(self) -> int:
        """Slots, or blocks; the null block's are counted."""
        return self.num_blocks * (1 if self.layout.entries is None else self.layout.block_size)

    @property
    def bytes_per_place(self) -> int:
        """Length of a row of `read_bytes`."""
        return sum(rows.shape[2] for rows in self._rows.values())

    def locate(self, places: Places) -> tuple[torch.Tensor, torch.Tensor]:
        """Block ids and entries within the block of these places, as int64 on the device of the layer.

        ValueError for a place that does not exist.
        """
        import torch

        if isinstance(places, np.ndarray):
            places = torch.from_numpy(places.astype(np.int64))  # a copy: torch does not take read-only arrays
        found = torch.as_tensor(places, dtype=torch.int64, device=self.pages.device).reshape(-1)
        if found.numel() and not self.pages.is_meta:
            low, high = (int(bound) for bound in torch.aminmax(found))
            if low < 0 or high >= self.num_places:
                what = "block" if self.layout.entries is None else "slot"
                wrong = low if low < 0 else high
                raise ValueError(
                    f"layer {self.name!r}: {what} {wrong} does not exist: it has {self.num_places} {what}s, "
                    f"0 to {self.num_places - 1}"
                )
        if self.layout.entries is None:
            return found, torch.zeros_like(found)
        blocks = torch.div(found, self.layout.block_size, rounding_mode="floor")
        offsets = found - blocks * self.layout.block_size
        return blocks, torch.div(offsets, self.layout.tokens_per_entry, rounding_mode="floor")

    def read(self, part: str, places: Places) -> torch.Tensor:
        """`(number of places, *shape at one place)`: a copy of what one part holds there."""
        blocks, entries = self.locate(places)
        return self._elements(part, self._rows_of(part)[blocks, entries])

    def write(self, part: str, places: Places, values: torch.Tensor) -> None:
        """Set what one part holds at places; `values` as `read` returns them.

        ValueError for other shapes or dtypes, for the null block, and for two places of one entry: where one is
        written twice it is undefined which of the two values stays.
        """
        import torch

        rows, blocks, entries = self._rows_of(part), *self._writable(places)
        wanted = self._elements(part, rows.new_empty((len(blocks), rows.shape[2])))
        if values.shape != wanted.shape or values.dtype != wanted.dtype:
            raise ValueError(
                f"layer {self.name!r}: {len(blocks)} places of {part} take {tuple(wanted.shape)} {wanted.dtype}, "
                f"not {tuple(values.shape)} {values.dtype}"
            )
        flat = values.to(rows.device).contiguous().view(-1)
        rows[blocks, entries] = flat.view(torch.uint8).view(len(blocks), rows.shape[2])

    def read_bytes(self, places: Places) -> torch.Tensor:
        """Of shape `(number of places, bytes_per_place)`, uint8: a copy of all parts there, in the order of `parts`."""
        import torch

        blocks, entries = self.locate(places)
        return torch.cat([rows[blocks, entries] for rows in self._rows.values()], dim=1)

    def write_bytes(self, places: Places, values: torch.Tensor) -> None:
        """Set all parts at places; `values` as `read_bytes` returns them. Errors as of `write`."""
        blocks, entries = self._writable(places)
        wanted = len(blocks), self.bytes_per_place
        if tuple(values.shape) != wanted or values.dtype != self.pages.dtype:
            raise ValueError(
                f"layer {self.name!r}: {wanted[0]} places take {wanted} uint8, not {tuple(values.shape)} {values.dtype}"
            )
        start = 0
        for rows in self._rows.values():
            rows[blocks, entries] = values[:, start : start + rows.shape[2]].to(rows.device)
            start += rows.shape[2]

    def _rows_of(self, part: str) -> torch.Tensor:
        if part not in self._rows:
            raise ValueError(f"layer {self.name!r} has no part {part!r} but {', '.join(self._rows)}")
        return self._rows[part]

    def _writable(self, places: Places) -> tuple[torch.Tensor, torch.Tensor]:
        blocks, entries = self.locate(places)
        if blocks.is_meta or not blocks.numel():
            return blocks, entries
        if not bool(blocks.all()):
            raise ValueError(f"layer {self.name!r}: the null block {NULL_BLOCK} is never written")
        unique = (blocks * (self.layout.entries or 1) + entries).unique().numel()
        if unique != blocks.numel():
            raise ValueError(
                f"layer {self.name!r}: {blocks.numel()} places are only {unique} entries of "
                f"{self.layout.tokens_per_entry} tokens: write every entry once"
            )
        return blocks, entries

    def _elements(self, part: str, rows: torch.Tensor) -> torch.Tensor:
        typed = self.parts[part]
        at_one_place = typed.shape[1:] if self.layout.entries is None else typed.shape[2:]
        return rows.reshape(-1).view(typed.dtype).view(len(rows), *at_one_place)

    def _typed(self, buffer: torch.Tensor, part: Part) -> torch.Tensor:
        """A view over whole pages."""
        import torch

        dtype, itemsize = torch_dtype(part.dtype), part.dtype.itemsize
        shape = part.shape if dtype is not None else (*part.shape, itemsize)
        width = itemsize if dtype is not None else 1
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        page = self.layout.page_size // width
        typed = buffer if dtype is None else buffer.view(dtype)
        first = typed.storage_offset() + part.offset // width  # the buffer may be a part of a larger one
        return torch.as_strided(typed, (self.num_blocks, *shape), (page, *strides[: len(shape)]), storage_offset=first)

    def _bytes(self, part: Part) -> torch.Tensor:
        """(num_blocks, entries, bytes of an entry); a state counts as one entry."""
        entries = self.layout.entries or 1
        return self.pages[:, part.offset : part.offset + part.nbytes].unflatten(1, (entries, part.nbytes // entries))


def torch_dtype(dtype: DType) -> torch.dtype | None:
    """The torch dtype of a spec's dtype: itself, or what a numpy dtype is there. None for all others."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if not isinstance(dtype, np.dtype):
        return None
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError):
        return None


def import_torch() -> None:
    """ImportError, saying which extra to install, without torch."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise ImportError("KV-cache tensors need torch: pip install '/path/to/blockproof[tensors]'") from error
