"""Block tables as arrays, and the slots that tokens are written to, computed in bulk (core.md §11).

One `BlockTables` per group. Everything is numpy on the host; torch is imported when a table or slots go to a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..specs.base import MambaSpec, cdiv
from ..specs.interface import KVCacheConfig, UniformTypeKVCacheSpecs

if TYPE_CHECKING:
    import torch

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]
Slots: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Rows: TypeAlias = Sequence[int] | Integers

NULL_BLOCK = 0
INT64 = np.dtype(np.int64)


class BlockTables:
    """The block ids of up to `max_requests` requests in one group, a row each, and their copy on a device.

    Entry i of a row is the block of tokens `i * block_size` to `(i + 1) * block_size - 1`; null where none is held.
    Behind its last entry a row is null, too. Every method checks all it is given before it changes anything, and raises
    ValueError with the name of the tables, the row and the remedy.
    """

    def __init__(
        self, block_size: int, max_requests: int, max_blocks: int, *, num_blocks: int = 2**31, name: str = "block table"
    ) -> None:
        """Empty rows of at most `max_blocks` entries; `num_blocks` bounds the ids, `name` is for messages."""
        for what, value in (("block_size", block_size), ("max_requests", max_requests), ("max_blocks", max_blocks)):
            if value < 1:
                raise ValueError(f"{name}: {what} is {value}: give at least 1")
        self.name = name
        self.block_size = block_size
        self.max_requests = max_requests
        self.max_blocks = max_blocks
        self.num_blocks = min(num_blocks, 2**31)  # what int32 can name
        self._table = np.zeros((max_requests, max_blocks), np.int32)
        self._flat = self._table.reshape(-1)
        self._counts = np.zeros(max_requests, np.int64)
        self._all_rows = np.arange(max_requests)
        self._row_starts = self._all_rows * max_blocks
        self._ones = np.ones(max_requests, np.int64)
        self._device_tables: dict[torch.device, torch.Tensor] = {}
        self._changed: dict[torch.device, tuple[int, int]] = {}
        """Rows [first, behind the last) that a device has not been told of."""

    @classmethod
    def for_config(cls, config: KVCacheConfig, max_requests: int, max_tokens: int) -> list[BlockTables]:
        """One for each group of a configuration, with entries for requests of `max_tokens` tokens.

        Speculative Mamba states have entries behind those.
        """
        tables = []
        for index, group in enumerate(config.kv_cache_groups):
            spec = group.kv_cache_spec
            members = spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
            spare = max((each.num_speculative_blocks for each in members if isinstance(each, MambaSpec)), default=0)
            max_blocks = cdiv(max_tokens, spec.block_size) + spare
            tables.append(
                cls(spec.block_size, max_requests, max_blocks, num_blocks=config.num_blocks, name=f"group {index}")
            )
        return tables

    @property
    def table(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """(max_requests, max_blocks) as it is now; cannot be written through."""
        return _read_only(self._table)

    @property
    def counts(self) -> Slots:
        """Entries of each row, null ones included; cannot be written through."""
        return _read_only(self._counts)

    # Rows.

    def append(self, rows: Rows, block_ids: Sequence[Sequence[int]]) -> None:
        """Add to each of these rows, which are different ones, its new block ids."""
        self._extend(self._distinct(rows), block_ids, keep=True)

    def replace(self, rows: Rows, block_ids: Sequence[Sequence[int]]) -> None:
        """Make these the block ids of each of these rows, which are different ones."""
        self._extend(self._distinct(rows), block_ids, keep=False)

    def null(self, rows: Rows, entries: Rows) -> None:
        """Forget the block of each pair of row and entry, as when it has left the window."""
        where, which = self._pairs(rows, entries, "entries")
        self._checked(where)
        wrong = np.flatnonzero((which < 0) | (which >= self._counts[where]))
        if wrong.size:
            row, entry = where[wrong[0]], which[wrong[0]]
            raise ValueError(
                f"{self.name}: row {row} has no entry {entry} to null: it has {self._counts[row]} entries, from 0"
            )
        self._flat[where * self.max_blocks + which] = NULL_BLOCK
        self._mark(where)

    def move(self, source: int, target: int) -> None:
        """Make row `target` what `source` is, and `source` empty."""
        source, target = self._checked([source, target]).tolist()
        if source != target:
            self._table[target] = self._table[source]
            self._counts[target] = self._counts[source]
            self.clear([source])
            self._mark([target])

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows."""
        pair = self._checked([one, other])
        self._table[pair] = self._table[pair[::-1]]
        self._counts[pair] = self._counts[pair[::-1]]
        self._mark(pair)

    def clear(self, rows: Rows) -> None:
        """Make rows empty."""
        where = self._checked(rows)
        self._table[where] = NULL_BLOCK
        self._counts[where] = 0
        self._mark(where)

    # Slots.

    def slot_mapping(self, rows: Rows, positions: Rows) -> Slots:
        """The slot of each token: of row r and position t, `table[r, t // block_size] * block_size + t % block_size`.

        int64. ValueError, with row and position, for a negative position, for one behind the entries of its row, and
        for one whose entry is null: what is written there would be lost, or would be somebody else's.
        """
        where, at = self._pairs(rows, positions, "positions")
        # As an unsigned number a negative one is a large one, so that one comparison finds both.
        unsigned = where.view(np.uint64)
        if where.size and unsigned.item(unsigned.argmax()) >= self.max_requests:
            self._checked(where)
        return self._slots(where * self.max_blocks, at)

    def step_slot_mapping(self, num_scheduled: Rows, start_positions: Rows, rows: Rows | None = None) -> Slots:
        """The slots of a whole step: `num_scheduled[i]` tokens of row `rows[i]` from position `start_positions[i]` on.

        Tokens are in the order of the requests, then of their positions; rows are 0, 1, ... unless given. Errors as of
        `slot_mapping`.
        """
        lengths, starts = self._pairs(num_scheduled, start_positions, "start positions")
        where = self._all_rows[: len(lengths)] if rows is None else _integers(rows, self.name)
        if len(where) != len(lengths):
            raise ValueError(f"{self.name}: {len(lengths)} numbers of tokens for {len(where)} rows: give one for each")
        if lengths.tobytes() == self._ones[: len(lengths)].tobytes():  # the usual step needs no pieces
            if rows is None:
                return self._slots(self._row_starts[: len(where)], starts)
            return self.slot_mapping(where, starts)
        if len(lengths) and lengths.min() < 0:
            first = int(np.argmin(lengths))
            raise ValueError(f"{self.name}: row {where[first]}: {lengths[first]} tokens cannot be scheduled")
        scheduled = lengths > 0
        where, starts, lengths = self._checked(where[scheduled]), starts[scheduled], lengths[scheduled]
        wrong = np.flatnonzero((starts < 0) | (lengths > self._counts[where] * self.block_size - starts))
        if wrong.size:
            row, start = where[wrong[:1]], starts[wrong[:1]]
            raise self._unmapped(
                row, np.where(start < 0, start, np.maximum(start, self._counts[row] * self.block_size))
            )
        # A piece is what one request writes into one block. Its first token is mapped; the others follow in order.
        first_block = starts // self.block_size
        pieces = (starts + lengths - 1) // self.block_size - first_block + 1
        owner = np.repeat(np.arange(len(where)), pieces)
        block = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces - first_block, pieces)
        begins = np.maximum(block * self.block_size, starts[owner])
        ends = np.minimum((block + 1) * self.block_size, (starts + lengths)[owner])
        first_slots = self.slot_mapping(where[owner], begins)
        sizes = ends - begins
        slots: Slots = np.repeat(first_slots - (np.cumsum(sizes) - sizes), sizes)
        slots += np.arange(len(slots))
        return slots

    def _slots(self, row_starts: Slots, at: Slots) -> Slots:
        """The slots of positions in rows that begin at these elements of the table.

        Few passes over the tokens, and the least is found by `argmin`, which costs a fraction of `min` on few tokens.
        """
        if not at.size:
            return np.zeros(0, np.int64)
        unsigned = at.view(np.uint64)
        if unsigned.item(unsigned.argmax()) >= self.max_blocks * self.block_size:
            raise self._unmapped(row_starts // self.max_blocks, at)
        blocks = at // self.block_size
        ids = self._flat.take(row_starts + blocks)
        if ids.item(ids.argmin()) == NULL_BLOCK:  # behind its last entry, a row is null
            raise self._unmapped(row_starts // self.max_blocks, at)
        # t % b + id * b = t + (id - t // b) * b
        slots: Slots = at + (ids - blocks) * self.block_size
        return slots

    # The device.

    def commit(self, device: str | torch.device) -> torch.Tensor:
        """The table on a device, int32 (max_requests, max_blocks), brought up to date by at most one copy.

        It is the same memory at every call and changes only here. On CUDA the copy comes from pinned memory and does
        not wait; work queued afterwards on the same stream sees it.
        """
        import torch

        where = torch.device(device)
        if where not in self._device_tables:
            self._device_tables[where] = torch.zeros(self._table.shape, dtype=torch.int32, device=where)
            self._changed[where] = 0, self.max_requests
        first, behind = self._changed[where]
        if first < behind:
            rows = torch.from_numpy(self._table[first:behind])
            self._device_tables[where][first:behind].copy_(_pinned(rows, where), non_blocking=True)
            self._changed[where] = self.max_requests, 0
        return self._device_tables[where]

    # Checks.

    def _extend(self, rows: Slots, block_ids: Sequence[Sequence[int]], keep: bool) -> None:
        if len(block_ids) != len(rows):
            raise ValueError(
                f"{self.name}: {len(rows)} rows but {len(block_ids)} lists of block ids: give one for each"
            )
        added = np.fromiter(map(len, block_ids), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(block_ids), np.int64, int(added.sum()))
        before = self._counts[rows] if keep else np.zeros(len(rows), np.int64)
        owner = np.repeat(np.arange(len(rows)), added)
        long = np.flatnonzero(before + added > self.max_blocks)
        if long.size:
            i = long[0]
            raise ValueError(
                f"{self.name}: row {rows[i]} would have {before[i]} + {added[i]} = {before[i] + added[i]} entries: "
                f"it holds {self.max_blocks} at most, make the tables longer"
            )
        wrong = np.flatnonzero((ids < 0) | (ids >= self.num_blocks))
        if wrong.size:
            raise ValueError(
                f"{self.name}: row {rows[owner[wrong[0]]]}: block {ids[wrong[0]]} does not exist: "
                f"blocks are 0 to {self.num_blocks - 1}"
            )
        if not keep:
            self._table[rows] = NULL_BLOCK
        entries = np.arange(len(ids)) - np.repeat(np.cumsum(added) - added - before, added)
        self._flat[rows[owner] * self.max_blocks + entries] = ids
        self._counts[rows] = before + added
        self._mark(rows)

    def _mark(self, rows: Rows) -> None:
        if len(rows):
            low, high = int(np.min(rows)), int(np.max(rows)) + 1
            for device, (first, behind) in self._changed.items():
                self._changed[device] = min(first, low), max(behind, high)

    def _checked(self, rows: Rows) -> Slots:
        where = _integers(rows, self.name)
        wrong = where[(where < 0) | (where >= self.max_requests)]
        if wrong.size:
            raise ValueError(f"{self.name}: there is no row {wrong[0]}: rows are 0 to {self.max_requests - 1}")
        return where

    def _distinct(self, rows: Rows) -> Slots:
        where = self._checked(rows)
        unique, times = np.unique(where, return_counts=True)
        if len(unique) != len(where):
            raise ValueError(f"{self.name}: row {unique[times > 1][0]} is named twice: put its block ids into one list")
        return where

    def _pairs(self, rows: Rows, others: Rows, what: str) -> tuple[Slots, Slots]:
        one, other = _integers(rows, self.name), _integers(others, self.name)
        if len(one) != len(other):
            raise ValueError(f"{self.name}: {len(one)} rows but {len(other)} {what}: give one for each")
        return one, other

    def _unmapped(self, rows: Slots, positions: Slots) -> ValueError:
        """Why one of these tokens has no slot."""
        blocks = positions // self.block_size
        held = self._counts[rows]
        ids = self._table[rows, np.clip(blocks, 0, self.max_blocks - 1)]
        i = int(np.flatnonzero((positions < 0) | (blocks >= held) | (ids == NULL_BLOCK))[0])
        token = f"{self.name}: row {rows[i]}, position {positions[i]}"
        if positions[i] < 0:
            return ValueError(f"{token}: positions start at 0")
        if blocks[i] >= held[i]:
            return ValueError(
                f"{token}: its {held[i]} blocks of {self.block_size} tokens end before it "
                f"({held[i]} * {self.block_size} = {held[i] * self.block_size}): append the blocks allocated for it"
            )
        return ValueError(
            f"{token}: entry {blocks[i]} is null, so the token has no slot: "
            "write no token whose block was skipped or given back"
        )


def to_device(array: Integers, device: str | torch.device) -> torch.Tensor:
    """A copy of slots or other numbers on a device, by one copy; on CUDA from pinned memory and without waiting."""
    import torch

    where = torch.device(device)
    source = torch.from_numpy(np.ascontiguousarray(array))
    copied = torch.empty(source.shape, dtype=source.dtype, device=where)
    copied.copy_(_pinned(source, where), non_blocking=True)
    return copied


def _pinned(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy that a device can fetch while the host goes on; its memory is not used anew before that is done."""
    return source.pin_memory() if device.type == "cuda" else source


def _integers(values: Rows, name: str) -> Slots:
    """As flat int64. ValueError for fractions."""
    array = np.asarray(values)
    if array.dtype is INT64 and array.ndim == 1:
        return array
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: {array.dtype} where whole numbers are meant")
    return array.astype(np.int64).reshape(-1)


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view
