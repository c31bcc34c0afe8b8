"""The block tables of all groups as the host knows them, checked, and what a step changes in them (core.md §11).

All is numpy. `DeviceTables` brings the changes to a device and makes the slots of a step there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy import less, less_equal

from .arrays import INT32, ONE, BlockIds, Integers, Places, Rows, least_and_most, listed, ranges, whole_numbers
from .table_layout import POSITIONS, GroupTable, TableLayout

NULL_BLOCK = 0
UNSIGNED = np.dtype(np.uint64)
LONG = 64
"""Block ids of a row from which on they are copied row by row."""
KEPT = 256
"""For so many sizes of a step views are kept."""

Entries: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Change: TypeAlias = tuple[Integers, Entries]
"""Entries that were changed, as indices into all, and the block ids that they then had."""

StepTokens: TypeAlias = tuple[int, Places | None, Places, Places | None]
"""The tokens of a step: how many; of each request its row, its first position, and the tokens up to and with it.

None where rows are 0, 1, ..., and where each request has one token. With both, token i is request i's."""

NONE = np.zeros(0, np.int64)
NOTHING: StepTokens = (0, None, NONE, None)


class _Leading:
    """Rows 0, 1, ..., as many as some step has: views of what is known of them, which are found sooner than made."""

    __slots__ = ("begun", "behind", "checked", "first", "inside", "last", "row_bytes", "rows")

    def __init__(self, tables: BlockTables, number: int) -> None:
        self.rows, self.last = tables._rows[:number], tables._last_of[:, :number]
        self.row_bytes = self.rows.tobytes()
        self.first, self.behind = tables._first[:number], tables._behind[:number]
        self.begun, self.inside = flags = np.zeros((2, number), np.bool_)  # what a check says of each
        self.checked = flags.reshape(-1)


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
        """Empty rows. `num_blocks` bounds the ids, as does what 32 bits can name of the parts of split blocks; `rank`
        and `interleave` matter where ranks share tokens."""
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}: give at least 1, the null block")
        self.layout = TableLayout(groups, max_requests, rank, interleave)
        self.groups = self.layout.groups
        self.max_requests = max_requests
        self.num_blocks = min(num_blocks, 2**31 // self.layout.split)
        self._flat = np.zeros(self.layout.entries, np.int32)
        # A cell is a row of a group, counted over all groups. Of each: the entry before its first one, the last one it
        # may have, the last one it has, and the last one that is null.
        self._rows = np.arange(max_requests)
        of_groups = [self._rows * row + base for base, row, *_ in self.layout.numbers]
        self._before = np.concatenate(of_groups or [NONE]) - ONE
        self._full = self._before + np.repeat([group.max_blocks for group in groups], max_requests).astype(np.int64)
        self._last, self._null = self._before.copy(), self._before.copy()
        self._last_of = self._last.reshape(len(groups), max_requests)  # the same, by group
        self._first_cells = np.arange(0, len(self._last), max_requests)[:, None]
        self._tokens = np.array([group.tokens for group in groups], np.int64)[:, None]
        self._tokens_of_all = np.array(groups[0].tokens) if len({*self._tokens.flat}) == 1 else None
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
        self._leading: dict[int, _Leading] = {}
        """By their number."""

    def table(self, group: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """(max_requests, max_blocks) as it is now; cannot be written through. ValueError for a group there is not."""
        base, row = self.layout.of_group(group)[:2]
        rows = self._flat[base : base + self.max_requests * row].reshape(self.max_requests, row)
        view = rows[:, : self.groups[group].max_blocks]
        view.flags.writeable = False
        return view

    @property
    def counts(self) -> Places:
        """(groups, max_requests): entries of each row, null ones included."""
        counts: Places = self._last_of - self._before.reshape(self._last_of.shape)
        return counts

    # Rows.

    def append(self, group: int | None, rows: Rows, block_ids: BlockIds, lengths: Rows | None = None) -> None:
        """Add to each of these rows, which are different ones, its new block ids.

        None is all groups: then there are block ids for the rows of the first group, then for those of the next. With
        `lengths` they come in one array, one row behind the other: so many of each.
        """
        ids, added = listed(block_ids, lengths)
        if added is not None:
            self._extend(group, rows, ids, added, keep=True)
            return
        where = whole_numbers(rows)
        leading = self._leading.get(len(where)) or self._first_rows(len(where))
        if in_order := where.tobytes() == leading.row_bytes:
            last = leading.last if group is None else leading.last[self._existing(group)]
            last_now = last + ONE
            at = last_now.ravel()
        else:
            cells = self._cells(group, self._different(where))
            at = self._last[cells] + ONE
        if len(ids) != len(at):
            raise ValueError(f"{len(at)} rows but {len(ids)} block ids: give one for each")
        if not len(ids):
            return
        if self._fullest >= self._shortest:
            self._check_room(self._cells(group, where), at - ONE, np.ones_like(at))
        least = ids.item(ids.argmin())  # `min` costs several times as much on few
        if least < 0 or ids.item(ids.argmax()) >= self.num_blocks:
            raise self._no_such_block(ids, self._cells(group, where))
        values = ids.astype(INT32)
        self._flat[at] = values
        if in_order:
            last[...] = last_now
        else:
            self._last[cells] = at
        self._fullest += 1
        self._changes.append((at, values))
        self.num_changed += len(at)
        if least == NULL_BLOCK:
            self._note_null(self._cells(group, where), at, ids)
        elif self._tokens_of_all is not None and (group is None or len(self.groups) == 1):
            # With the next block of every group there are places for so many more tokens.
            if in_order:
                leading.behind[...] = leading.behind + self._tokens_of_all
            else:
                self._behind[where] = self._behind[where] + self._tokens_of_all
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
        at = self._before[cells] + ONE + which
        wrong = np.flatnonzero((which < 0) | (at > self._last[cells]))
        if wrong.size:
            cell, entry = cells[wrong[0]], which[wrong[0]]
            held = self._last[cell] - self._before[cell]
            raise ValueError(f"{self._named(cell)} has no entry {entry} to null: it has {held} entries, from 0")
        self._flat[at] = NULL_BLOCK
        self._mark(at, self._flat.take(at))
        self._note_null(cells, at, np.zeros_like(at))
        self._bound(where)

    def move(self, source: int, target: int) -> None:
        """Make row `target` of every group what `source` is, and `source` empty."""
        self._checked(whole_numbers([source, target]))
        if source != target:
            self.swap(source, target)
            self.clear([source])

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows in every group."""
        self._checked(whole_numbers([one, other]))
        for cell in self._first_cells.flat:
            pair = np.array([cell + one, cell + other])
            before = self._before[pair]
            held, nulls = self._last[pair] - before, self._null[pair] - before
            at, to = (first + np.arange(1, held.max() + 1) for first in before)
            self._flat[at], self._flat[to] = self._flat[to], self._flat[at]
            self._last[pair], self._null[pair] = before + held[::-1], before + nulls[::-1]
            self._mark(both := np.concatenate([at, to]), self._flat[both])
        self._bound(np.array([one, other]))

    def clear(self, rows: Rows) -> None:
        """Make rows empty, in every group."""
        where = np.unique(self._checked(whole_numbers(rows)))
        self._extend(None, where, NONE, np.zeros(len(where) * len(self.groups), np.int64), keep=False)

    # A step.

    def schedule(
        self, starts: Rows, lengths: Rows | None = None, rows: Rows | None = None, groups: Sequence[int] | None = None
    ) -> int:
        """Say which tokens the step computes: `lengths[i]` of row `rows[i]` from position `starts[i]` on.

        One token of each request, rows 0, 1, ..., and all groups unless given; in other groups the places of these
        tokens mean nothing. Returns how many tokens they are, in the order of the requests, then of positions.
        ValueError, with row and position, for a negative position, for one behind the entries of its row, and for one
        whose entry is null: what is written there would be lost, or would be somebody else's. A state may be null,
        since most tokens leave none. Arrays that are given here must stay as they are until `commit`.
        """
        first = whole_numbers(starts)
        requests = len(first)
        leading = self._leading.get(requests) or self._first_rows(requests)
        where = None if rows is None else self._checked(_as_many(requests, rows, "rows"))
        sizes = None if lengths is None else _as_many(requests, lengths, "lengths")
        if groups is not None or not self._have_places(leading, where, first, sizes):
            each = np.ones_like(first) if sizes is None else sizes
            self._check_runs(leading.rows if where is None else where, first, each, groups)
        ends = None if sizes is None else np.add.accumulate(sizes)
        self.num_tokens = tokens = requests if ends is None else ends.item(-1) if requests else 0
        self._step = tokens, where, first, ends
        return tokens

    # What a device is told.

    def take_changes(self, most: int) -> Change:
        """At most so many of the entries that have changed, of which there are some: indices into all entries, and
        those as they are now. These are known from now on. One may be among them twice."""
        if len(self._changes) > 1:  # an entry of one change may have been changed again by the next
            changed = np.concatenate([each for each, _ in self._changes])
            self._changes = [(changed, self._flat[changed])]
        changed, values = self._changes.pop()
        self.num_changed = left = max(len(changed) - most, 0)
        if left:
            self._changes.append((changed[:left], values[:left]))
            return changed[left:], values[left:]
        return changed, values

    def take_step(self) -> StepTokens:
        """What was scheduled; nothing while changes are left to take."""
        if self.num_changed:
            return NOTHING
        taken, self._step, self.num_tokens = self._step, NOTHING, 0
        return taken

    def mark_all(self) -> None:
        """What is in the tables is new to the device."""
        self._changes, self.num_changed = [], 0
        self._mark(held := np.flatnonzero(self._flat), self._flat[held])

    # Checks.

    def _have_places(self, leading: _Leading, rows: Places | None, first: Places, sizes: Places | None) -> bool:
        """Whether all is well, as it is in most steps. Few passes: this is what a decode step waits for."""
        if self._any_ring:
            return False
        if rows is None:
            whole, behind = leading.first, leading.behind
        else:
            whole, behind = self._first[rows], self._behind[rows]
        less_equal(whole, first, leading.begun)
        if sizes is None:
            less(first, behind, leading.inside)
        else:
            if len(sizes) and sizes.item(sizes.argmin()) < 0:
                return False
            less_equal(sizes, behind - first, leading.inside)
        return 0 not in leading.checked.tobytes()

    def _check_runs(self, rows: Places, starts: Places, lengths: Places, groups: Sequence[int] | None) -> None:
        """Raises ValueError unless so many tokens of each of these rows have places in these groups, or in all."""
        if len(lengths) and lengths[i := int(lengths.argmin())] < 0:
            raise ValueError(f"row {rows[i]}: {lengths[i]} tokens cannot be scheduled")
        some = np.flatnonzero(lengths)
        for index in range(len(self.groups)) if groups is None else groups:
            cells = rows[some] + self._first_cell(index)
            group = self.groups[index]
            held = (
                (self._last - self._before)[cells] * group.tokens if not group.ring else np.full(len(some), POSITIONS)
            )
            wrong = np.flatnonzero((starts[some] < 0) | (lengths[some] > held - starts[some]))
            if wrong.size:
                at = starts[some][i := wrong[0]]
                raise self._unmapped(cells[i], at if at < 0 else max(at, held[i]))
            if group.state:
                continue
            first, last = starts[some] // group.tokens, (starts[some] + lengths[some] - 1) // group.tokens
            entry, owner = ranges(first, last + 1 - first), np.repeat(np.arange(len(some)), last + 1 - first)
            null = self._flat[self._before[cells[owner]] + ONE + entry % group.max_blocks] == NULL_BLOCK
            if null.any():
                i = int(null.argmax())
                raise self._unmapped(cells[owner[i]], max(starts[some][owner[i]], entry[i] * group.tokens))
        if (wrong := some[(starts[some] < 0) | (lengths[some] > POSITIONS - starts[some])]).size:  # of no group asked
            at = starts[i := wrong[0]]
            raise ValueError(f"row {rows[i]}, {lengths[i]} tokens from {at}: positions are 0 to {POSITIONS - 1}")

    def _extend(self, group: int | None, rows: Rows, ids: Integers, added: Places, keep: bool) -> None:
        cells = self._cells(group, where := self._different(whole_numbers(rows)))
        if len(added) != len(cells):
            raise ValueError(f"{len(cells)} rows but {len(added)} lists of block ids: give one for each")
        begins, last = self._before[cells], self._last[cells]
        before = last if keep else begins
        after = before + added
        if 0 in (after <= self._full[cells]).tobytes():
            self._check_room(cells, before, added)
        least, most = least_and_most(ids) if ids.size else (1, 1)
        if least < 0 or most >= self.num_blocks:
            raise self._no_such_block(ids, np.repeat(cells, added))
        values = ids.astype(INT32)
        if not keep:
            rest = last - after
            if rest.size and rest.item(rest.argmax()) > 0:
                old = ranges(after + ONE, np.maximum(rest, 0))
                self._flat[old] = NULL_BLOCK
                self._mark(old, np.zeros(len(old), np.int32))
            if self._some_null:
                self._null[cells] = begins
        at = ranges(before + ONE, added)
        if len(ids) < LONG * len(cells):
            self._flat[at] = values
        else:
            done = 0
            for first, count in zip((before + ONE).tolist(), added.tolist(), strict=True):
                self._flat[first : first + count] = values[done : done + count]
                done += count
        self._last[cells] = after
        counts = after - begins
        self._fullest = max(self._fullest, counts.item(counts.argmax()) if counts.size else 0)
        self._mark(at, values)
        if least == NULL_BLOCK:
            self._note_null(np.repeat(cells, added), at, ids)
        elif not self._some_null and (group is None or len(self.groups) == 1):
            held = counts.reshape(len(self.groups), len(where)) * self._tokens
            self._behind[where] = held[0] if len(held) == 1 else held.min(axis=0, initial=POSITIONS)
            return
        self._bound(where)

    def _note_null(self, cells: Places, at: Places, ids: Integers) -> None:
        """Of these entries, each in one of the cells, those that are null. A state may be null."""
        null = (ids == NULL_BLOCK) & ~self._states[cells]
        np.maximum.at(self._null, cells[null], at[null])

    def _bound(self, rows: Places) -> None:
        """Find anew which tokens of these rows have places in all groups."""
        before, last, null = (
            each.reshape(self._last_of.shape).take(rows, axis=1) for each in (self._before, self._last, self._null)
        )
        self._first[rows] = first = ((null - before) * self._tokens).max(axis=0, initial=0)
        self._some_null |= bool(first.any())
        self._behind[rows] = ((last - before) * self._tokens).min(axis=0, initial=POSITIONS)

    def _mark(self, at: Integers, values: Entries) -> None:
        if at.size:
            self._changes.append((at, values))
            self.num_changed += len(at)

    def _first_rows(self, number: int) -> _Leading:
        if number > self.max_requests:
            raise ValueError(
                f"{number} requests, but rows are 0 to {self.max_requests - 1}: name each row once at most"
            )
        if len(self._leading) > KEPT:
            self._leading.clear()
        made = self._leading[number] = _Leading(self, number)
        return made

    def _different(self, where: Places) -> Places:
        """These rows, which exist and are different ones."""
        leading = self._leading.get(len(where)) or self._first_rows(len(where))
        if where.tobytes() != leading.row_bytes:
            self._checked(where)
            self._stamps[where] = leading.rows  # of a row that is named twice only the last number stays
            if self._stamps[where].tobytes() != leading.row_bytes:
                unique, times = np.unique(where, return_counts=True)
                raise ValueError(f"row {unique[times > 1][0]} is named twice: put its block ids into one list")
        return where

    def _cells(self, group: int | None, where: Places) -> Places:
        """These rows of a group, or of all."""
        if group is None:
            cells: Places = (where + self._first_cells).reshape(-1)
            return cells
        return where + first if (first := self._first_cell(group)) else where

    def _first_cell(self, group: int) -> int:
        return self._existing(group) * self.max_requests

    def _existing(self, group: int) -> int:
        self.layout.of_group(group)
        return group

    def _checked(self, rows: Places) -> Places:
        unsigned = rows.view(UNSIGNED)
        if rows.size and unsigned.item(unsigned.argmax()) >= self.max_requests:
            wrong = rows[(rows < 0) | (rows >= self.max_requests)]
            raise ValueError(f"there is no row {wrong[0]}: rows are 0 to {self.max_requests - 1}")
        return rows

    def _no_such_block(self, ids: Integers, cells: Places) -> ValueError:
        """Names the first of these block ids, one for each of the cells, that does not exist."""
        i, last = int(((ids < 0) | (ids >= self.num_blocks)).argmax()), self.num_blocks - 1
        return ValueError(f"{self._named(cells[i])}: block {ids[i]} does not exist: blocks are 0 to {last}")

    def _check_room(self, cells: Places, before: Places, added: Places) -> None:
        long = before + added > self._full[cells]
        if long.any():
            i = int(long.argmax())
            room, held = (int(at - self._before[cells[i]]) for at in (self._full[cells[i]], before[i]))
            raise ValueError(
                f"{self._named(cells[i])} would have {held} + {added[i]} = {held + added[i]} entries: "
                f"it holds {room} at most, make the tables longer"
            )
        self._fullest = int((self._last - self._before).max())

    def _named(self, cell: int) -> str:
        group, row = divmod(int(cell), self.max_requests)
        return f"group {group}, row {row}"

    def _unmapped(self, cell: int, position: int) -> ValueError:
        """Why this token has no slot."""
        token = f"{self._named(cell)}, position {position}"
        group, held = self.groups[int(cell) // self.max_requests], self._last[cell] - self._before[cell]
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


def _as_many(requests: int, values: Rows, what: str) -> Places:
    """One for each request."""
    array = whole_numbers(values)
    if len(array) != requests:
        raise ValueError(f"{requests} start positions but {len(array)} {what}: give one of each for every request")
    return array
