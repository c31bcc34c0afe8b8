"""The block tables of all groups as the host knows them, checked, and what a step changes in them (core.md §11).

All is numpy. `DeviceTables` brings the changes to a device and makes the slots of a step there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from .arrays import ONE, BlockIds, Integers, Places, Rows, all_true, least_and_most, listed, ranges, whole_numbers
from .table_layout import GroupTable, TableLayout

NULL_BLOCK = 0
UNSIGNED = np.dtype(np.uint64)
LONG = 64
"""Block ids of a row from which on they are copied row by row."""

Entries: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Change: TypeAlias = tuple[Integers, Entries]
"""Entries that were changed, as indices into all, and the block ids that they then had."""


StepTokens: TypeAlias = tuple[int, Places, Places, Places]
"""The tokens of a step: how many; of each request its row, its first position, and the tokens up to and with it."""

NONE = np.zeros(0, np.int64)
NOTHING: StepTokens = (0, NONE, NONE, NONE)


class BlockTables:
    """The block ids of up to `max_requests` requests, in every group a row for each of them.

    Entry i of a row is the block of tokens `i * tokens` to `(i + 1) * tokens - 1` of a request; null where none is
    held, and behind the last entry. Every method checks all it is given before it changes anything, and raises
    ValueError with the group, the row and the remedy.
    """

    def __init__(
        self,
        groups: Sequence[GroupTable],
        max_requests: int,
        *,
        num_blocks: int = 2**31,
        rank: int = 0,
        interleave: int = 1,
    ) -> None:
        """Empty rows. `num_blocks` bounds the ids; `rank` and `interleave` matter where ranks share tokens."""
        self.layout = TableLayout(groups, max_requests, rank, interleave)
        self.groups = self.layout.groups
        self.max_requests = max_requests
        self.num_blocks = min(num_blocks, 2**31)  # what int32 can name
        self._flat = np.zeros(self.layout.entries, np.int32)
        # A cell is a row of a group, counted over all groups. Of each: where it begins and ends, up to where it is
        # filled, and from where on it has no null entry.
        self._rows = np.arange(max_requests)
        in_order = [
            base + self._rows * numbers[1] for base, numbers in zip(self.layout.bases, self.layout.numbers, strict=True)
        ]
        self._starts = np.concatenate(in_order or [NONE])
        self._ends = self._starts + np.repeat([group.max_blocks for group in groups], max_requests).astype(np.int64)
        self._next = self._starts.copy()
        self._next_of = self._next.reshape(len(groups), max_requests)  # the same, by group
        self._whole = self._starts.copy()
        self._first_cells = np.arange(0, len(self._starts), max_requests)[:, None]
        self._row_bytes = self._rows.tobytes()
        self._one_each = np.arange(1, max_requests + 1)
        self._tokens = np.array([[group.tokens] for group in groups])
        self._same_tokens = len({group.tokens for group in groups}) == 1
        self._step_of_all = np.array(groups[0].tokens if groups else 0)
        # Tokens of a row have places in all groups from `_first` on, up to `_behind`.
        self._first, self._behind = np.zeros((2, max_requests), np.int64)
        self._some_null = False  # whether `_first` was ever more than 0
        self._stamps = np.zeros(max_requests, np.int64)
        # No row has more entries; the shortest holds so many.
        self._fullest, self._shortest = 0, min((group.max_blocks for group in groups), default=0)
        self._states = np.repeat([group.state for group in groups], max_requests)
        self._any_ring = any(group.ring for group in groups)
        self._changes: list[Change] = []
        self.num_changed = 0
        """Entries that the device is to be told of; one may be counted twice."""
        self.num_tokens = 0
        """Tokens scheduled."""
        self._step = NOTHING
        self.own_rows = self.one_each = True
        """Whether rows of the step are 0, 1, ...; whether each has one token. With both, token i is request i's."""

    def table(self, group: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """(max_requests, max_blocks) as it is now; cannot be written through."""
        host_row = self.layout.numbers[group][1]
        rows = self._flat[self.layout.bases[group] :][: self.max_requests * host_row].reshape(self.max_requests, -1)
        view = rows[:, : self.groups[group].max_blocks]
        view.flags.writeable = False
        return view

    @property
    def counts(self) -> Places:
        """(groups, max_requests): entries of each row, null ones included."""
        return (self._next - self._starts).reshape(self._next_of.shape)

    # Rows.

    def append(self, group: int | None, rows: Rows, block_ids: BlockIds, lengths: Rows | None = None) -> None:
        """Add to each of these rows, which are different ones, its new block ids.

        None is all groups: then there are block ids for the rows of the first group, then for those of the next. With
        `lengths` they come in one array, one row behind the other: so many of each.
        """
        ids, added = listed(block_ids, lengths)
        if added is not None and not (all_true(added == ONE) and added.size):
            self._extend(group, rows, ids, added, keep=True)
            return
        where, in_order = self._different(rows)
        if in_order:
            filled = self._next_of[:, : len(where)] if group is None else self._next_of[self._checked_group(group)]
            filled = filled if group is None else filled[: len(where)]
            at = filled.copy().ravel()
        else:
            cells = self._cells(group, where)
            at = self._next.take(cells)
        if len(ids) != len(at):
            raise ValueError(f"{len(at)} rows but {len(ids)} block ids: give one for each")
        if not ids.size:
            return
        if self._fullest >= self._shortest:
            self._check_room(self._cells(group, where), at, np.ones_like(at))
        least = self._checked_ids(ids, group, where, added)
        values = ids.astype(np.int32)
        self._flat[at] = values
        if in_order:
            filled[...] = filled + ONE  # `add` in place takes three times as long on one
        else:
            self._next[cells] = at + ONE
        self._fullest += 1
        self._mark(at, values)
        if least == NULL_BLOCK:
            self._note_null(self._cells(group, where), at, ids)
        elif self._same_tokens and (group is None or len(self.groups) == 1):
            # With the next block of every group there are places for so many more tokens.
            if in_order:
                behind = self._behind[: len(where)]
                behind[...] = behind + self._step_of_all
            else:
                self._behind[where] = self._behind.take(where) + self._step_of_all
            return
        self._bound(where)

    def replace(self, group: int | None, rows: Rows, block_ids: BlockIds, lengths: Rows | None = None) -> None:
        """Make these the block ids of each of these rows, which are different ones; given as to `append`."""
        ids, added = listed(block_ids, lengths)
        self._extend(group, rows, ids, np.ones(len(ids), np.int64) if added is None else added, keep=False)

    def null(self, group: int, rows: Rows, entries: Rows) -> None:
        """Forget the block of each pair of row and entry, as when it has left the window."""
        where, which = self._checked(whole_numbers(rows)), whole_numbers(entries)
        if len(where) != len(which):
            raise ValueError(f"{len(where)} rows but {len(which)} entries: give one for each")
        cells = where + self._first_cell(group)
        at = self._starts.take(cells) + which
        wrong = np.flatnonzero((which < 0) | (at >= self._next.take(cells)))
        if wrong.size:
            cell, entry = cells[wrong[0]], which[wrong[0]]
            held = self._next[cell] - self._starts[cell]
            raise ValueError(f"{self._named(cell)} has no entry {entry} to null: it has {held} entries, from 0")
        self._flat[at] = NULL_BLOCK
        self._mark(at, self._flat.take(at))
        self._note_null(cells, at, np.zeros_like(at))
        self._bound(where)

    def move(self, source: int, target: int) -> None:
        """Make row `target` of every group what `source` is, and `source` empty."""
        if source != target:
            self.swap(source, target)
            self.clear([source])

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows in every group."""
        self._checked(whole_numbers([one, other]))
        for first in self._first_cells.flat:
            pair = np.array([first + one, first + other])
            begins = self._starts[pair]
            held = self._next[pair] - begins
            at, to = (begin + np.arange(held.max()) for begin in begins)
            self._flat[at], self._flat[to] = self._flat[to], self._flat[at]
            self._next[pair] = begins + held[::-1]
            self._whole[pair] = begins + (self._whole[pair] - begins)[::-1]
            for changed in (at, to):
                self._mark(changed, self._flat.take(changed))
        self._bound(np.array([one, other]))

    def clear(self, rows: Rows) -> None:
        """Make rows empty, in every group."""
        where = np.unique(self._checked(whole_numbers(rows)))
        self._extend(None, where, NONE, np.zeros(len(where) * len(self.groups), np.int64), keep=False)

    # A step.

    def schedule(
        self,
        starts: Rows,
        lengths: Rows | None = None,
        rows: Rows | None = None,
        groups: Sequence[int] | None = None,
    ) -> int:
        """Say which tokens the step computes: `lengths[i]` of row `rows[i]` from position `starts[i]` on.

        One token of each request, rows 0, 1, ..., and all groups unless given; in other groups the places of these
        tokens mean nothing. Returns how many tokens they are, in the order of the requests, then of positions.
        ValueError, with row and position, for a negative position, for one behind the entries of its row, and for one
        whose entry is null: what is written there would be lost, or would be somebody else's. A state may be null,
        since most tokens leave none.
        """
        first = whole_numbers(starts)
        if len(first) > self.max_requests:
            raise ValueError(f"{len(first)} requests in a step: at most {self.max_requests}")
        where = self._rows[: len(first)] if rows is None else self._checked(whole_numbers(rows))
        if len(where) != len(first) or (lengths is not None and len(lengths) != len(first)):
            raise ValueError(f"{len(first)} start positions but {len(where)} rows: give one of all for each request")
        if lengths is None:
            sizes, ends = None, self._one_each[: len(first)]
        else:
            sizes = whole_numbers(lengths)
            ends = np.add.accumulate(sizes)
        if groups is not None or not self._have_places(where, first, sizes):
            of_groups = range(len(self.groups)) if groups is None else groups
            self._check_runs(where, first, np.ones_like(first) if sizes is None else sizes, of_groups)
        self.num_tokens = tokens = ends.item(-1) if len(ends) else 0
        self._step = tokens, where, first, ends
        self.own_rows, self.one_each = rows is None, lengths is None
        return tokens

    # What a device is told.

    def take_changes(self, most: int) -> Change:
        """At most so many of the entries that have changed, as indices into all entries, and those as they are now.

        These are known from now on. One may be among them twice.
        """
        if len(self._changes) > 1:  # an entry of one change may have been changed again by the next
            changed = np.concatenate([each for each, _ in self._changes])
            self._changes = [(changed, self._flat.take(changed))]
        if not self._changes:
            return NONE, self._flat[:0]
        changed, values = self._changes.pop()
        self.num_changed = max(len(changed) - most, 0)
        if self.num_changed:
            self._changes.append((changed[: self.num_changed], values[: self.num_changed]))
            return changed[self.num_changed :], values[self.num_changed :]
        return changed, values

    def take_step(self) -> StepTokens:
        """What was scheduled; nothing while changes are left to take."""
        if self.num_changed:
            return NOTHING
        taken, self._step, self.num_tokens = self._step, NOTHING, 0
        self.own_rows = self.one_each = True
        return taken

    def mark_all(self) -> None:
        """What is in the tables is new to the device."""
        self._changes, self.num_changed = [], 0
        held = np.flatnonzero(self._flat)
        self._mark(held, self._flat.take(held))

    # Checks.

    def _have_places(self, rows: Places, first: Places, sizes: Places | None) -> bool:
        """Whether all is well, as it is in most steps. Few passes: this is what a decode step waits for."""
        if self._any_ring:
            return False
        if rows.base is self._rows:
            whole, behind = self._first[: len(rows)], self._behind[: len(rows)]
        else:
            whole, behind = self._first.take(rows), self._behind.take(rows)
        if self._some_null and not all_true(first >= whole):
            return False
        # A negative number is more than any as an unsigned one.
        if not all_true(first.view(UNSIGNED) < behind.view(UNSIGNED)):
            return False
        return sizes is None or all_true((sizes - ONE).view(UNSIGNED) < (behind - first).view(UNSIGNED))

    def _check_runs(self, rows: Places, starts: Places, lengths: Places, groups: Sequence[int]) -> None:
        """Raises ValueError unless so many tokens of each of these rows have places."""
        if len(lengths) and lengths.min() < 0:
            i = int(lengths.argmin())
            raise ValueError(f"row {rows[i]}: {lengths[i]} tokens cannot be scheduled")
        some = np.flatnonzero(lengths)
        for index in groups:
            group = self.groups[index]
            cells = rows[some] + self._first_cell(index)
            held = (self._next - self._starts)[cells] * group.tokens if not group.ring else np.full(len(some), 2**31)
            wrong = np.flatnonzero((starts[some] < 0) | (lengths[some] > held - starts[some]))
            if wrong.size:
                i = wrong[0]
                at = starts[some][i]
                raise self._unmapped(cells[i], at if at < 0 else max(at, held[i]))
            if group.state:
                continue
            first, last = starts[some] // group.tokens, (starts[some] + lengths[some] - 1) // group.tokens
            entry, owner = ranges(first, last + 1 - first), np.repeat(np.arange(len(some)), last + 1 - first)
            null = self._flat[self._starts[cells[owner]] + entry % group.max_blocks] == NULL_BLOCK
            if null.any():
                i = int(null.argmax())
                raise self._unmapped(cells[owner[i]], max(starts[some][owner[i]], entry[i] * group.tokens))

    def _extend(self, group: int | None, rows: Rows, ids: Integers, added: Places, keep: bool) -> None:
        where, _ = self._different(rows)
        cells = self._cells(group, where)
        if len(added) != len(cells):
            raise ValueError(f"{len(cells)} rows but {len(added)} lists of block ids: give one for each")
        begins, filled = self._starts.take(cells), self._next.take(cells)
        before = filled if keep else begins
        after = before + added
        if not all_true(after <= self._ends.take(cells)):
            self._check_room(cells, before, added)
        least = self._checked_ids(ids, group, where, added)
        values = ids.astype(np.int32)
        if not keep:
            rest = filled - after
            if rest.size and rest.item(rest.argmax()) > 0:
                old = ranges(after, np.maximum(rest, 0))
                self._flat[old] = NULL_BLOCK
                self._mark(old, np.zeros(len(old), np.int32))
            if self._some_null:
                self._whole[cells] = begins
        at = ranges(before, added)
        if len(ids) < LONG * len(cells):
            self._flat[at] = values
        else:
            first = 0
            for begin, end in zip(before.tolist(), after.tolist(), strict=True):
                self._flat[begin:end] = values[first : first + end - begin]
                first += end - begin
        self._next[cells] = after
        counts = after - begins
        self._fullest = max(self._fullest, counts.item(counts.argmax()) if counts.size else 0)
        self._mark(at, values)
        if least == NULL_BLOCK:
            self._note_null(np.repeat(cells, added), at, ids)
        elif not self._some_null and (group is None or len(self.groups) == 1):
            held = counts.reshape(len(self.groups), len(where)) * self._tokens
            self._behind[where] = held[0] if len(held) == 1 else held.min(axis=0)
            return
        self._bound(where)

    def _note_null(self, cells: Places, at: Places, ids: Integers) -> None:
        """Of these entries, each in one of the cells, those that are null bound what is whole. A state may be null."""
        null = (ids == NULL_BLOCK) & ~self._states[cells]
        np.maximum.at(self._whole, cells[null], at[null] + 1)

    def _bound(self, rows: Places) -> None:
        """Find anew which tokens of these rows have places in all groups."""
        begins, filled, whole = (
            each.reshape(len(self.groups), -1).take(rows, axis=1) for each in (self._starts, self._next, self._whole)
        )
        self._first[rows] = first = ((whole - begins) * self._tokens).max(axis=0)
        self._some_null |= bool(first.any())
        self._behind[rows] = ((filled - begins) * self._tokens).min(axis=0)

    def _mark(self, at: Integers, values: Entries) -> None:
        if at.size:
            self._changes.append((at, values))
            self.num_changed += len(at)

    def _different(self, rows: Rows) -> tuple[Places, bool]:
        """These rows, which exist and are different ones, and whether they are 0, 1, ..."""
        where = whole_numbers(rows)
        if where.tobytes() == self._row_bytes[: where.nbytes]:
            return where, True
        self._checked(where)
        numbers = self._rows[: len(where)]
        if len(numbers) == len(where):  # of a row that is named twice only the last number stays
            self._stamps[where] = numbers
        if len(numbers) < len(where) or self._stamps.take(where).tobytes() != numbers.tobytes():
            unique, times = np.unique(where, return_counts=True)
            raise ValueError(f"row {unique[times > 1][0]} is named twice: put its block ids into one list")
        return where, False

    def _cells(self, group: int | None, where: Places) -> Places:
        """These rows of a group, or of all."""
        if group is None:
            cells: Places = (where + self._first_cells).reshape(-1)
            return cells
        return where + first if (first := self._first_cell(group)) else where

    def _first_cell(self, group: int) -> int:
        return self._checked_group(group) * self.max_requests

    def _checked_group(self, group: int) -> int:
        if not 0 <= group < len(self.groups):
            raise ValueError(f"there is no group {group}: groups are 0 to {len(self.groups) - 1}")
        return group

    def _checked(self, rows: Places) -> Places:
        unsigned = rows.view(UNSIGNED)
        if rows.size and unsigned.item(unsigned.argmax()) >= self.max_requests:
            wrong = rows[(rows < 0) | (rows >= self.max_requests)]
            raise ValueError(f"there is no row {wrong[0]}: rows are 0 to {self.max_requests - 1}")
        return rows

    def _checked_ids(self, ids: Integers, group: int | None, rows: Places, added: Places | None) -> int:
        """The least of these block ids, `added[i]` of each cell or one, all of which exist; 1 of none."""
        least, most = least_and_most(ids) if ids.size else (1, 1)
        if least >= 0 and most < self.num_blocks:
            return least
        cells = np.repeat(self._cells(group, rows), 1 if added is None else added)
        i = int(((ids < 0) | (ids >= self.num_blocks)).argmax())
        raise ValueError(
            f"{self._named(cells[i])}: block {ids[i]} does not exist: blocks are 0 to {self.num_blocks - 1}"
        )

    def _check_room(self, cells: Places, before: Places, added: Places) -> None:
        long = before + added > self._ends[cells]
        if long.any():
            i = int(long.argmax())
            room, held = (int(at - self._starts[cells[i]]) for at in (self._ends[cells[i]], before[i]))
            raise ValueError(
                f"{self._named(cells[i])} would have {held} + {added[i]} = {held + added[i]} entries: "
                f"it holds {room} at most, make the tables longer"
            )
        self._fullest = int((self._next - self._starts).max())

    def _named(self, cell: int) -> str:
        group, row = divmod(int(cell), self.max_requests)
        return f"group {group}, row {row}"

    def _unmapped(self, cell: int, position: int) -> ValueError:
        """Why this token has no slot."""
        token = f"{self._named(cell)}, position {position}"
        group, held = self.groups[int(cell) // self.max_requests], self._next[cell] - self._starts[cell]
        if position < 0:
            return ValueError(f"{token}: positions start at 0")
        if position >= held * group.tokens and not group.ring:
            return ValueError(
                f"{token}: its {held} blocks of {group.tokens} tokens end before it "
                f"({held} * {group.tokens} = {held * group.tokens}): append the blocks allocated for it"
            )
        return ValueError(
            f"{token}: entry {position // group.tokens % group.max_blocks} is null, so the token has no slot: "
            "write no token whose block was skipped or given back"
        )
