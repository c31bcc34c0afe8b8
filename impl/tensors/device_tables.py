"""The block tables of all groups on a device, and the slots of a step: two kernels (core.md §11).

What a step changes is in a buffer of pinned memory, which the device reads where it lies or after one copy. Three
buffers are filled in turn: the kernels of a step say that those of the step before are done with theirs, so that only
the step before last is waited for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .block_tables import BlockTables
from .kernel_choice import kernel_module
from .queues import DeviceQueue, queue_of
from .table_layout import HEADER, TableLayout
from .torch_kernels import NO_SLOT

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("=7i")
BUFFERS = 3


class _Buffer:
    """Memory of the host that the device reads, and tells when it has."""

    def __init__(self, queue: DeviceQueue, layout: TableLayout, changes: int) -> None:
        self.memory = queue.memory(layout.staged(changes))
        self.numbers = self.memory.numpy()
        self.rows, self.starts, self.ends = self.numbers[HEADER:][: 3 * layout.max_requests].reshape(3, -1)
        self.own_rows = self.one_each = 0
        """So many requests have rows 0, 1, ...; so many have one token each."""
        self.filled = 0
        """How often it was filled; the device writes this number back."""
        self.replays: dict[tuple[int, int], list[Callable[[], None]]] = {}
        """By the changes and the tokens for which it was captured: what reads a copy, and what reads it in place."""


class DeviceTables:
    """The tables of `BlockTables` on a device, brought up to date by `commit`, and the places of a step's tokens.

    Addresses stay, so that captured graphs may read them. Kernels are Triton's on a GPU and torch's elsewhere.
    """

    def __init__(
        self,
        host: BlockTables,
        device: str | torch.device,
        max_tokens: int,
        *,
        max_changes: int = 16384,
        kernels: Any = None,
        queue: DeviceQueue | None = None,
    ) -> None:
        """Empty tables, and room for steps of `max_tokens` tokens. A step that changes more than `max_changes` entries
        takes several copies. `kernels` makes the kernels, `queue` replaces that of the device."""
        import torch

        self.host = host
        self.layout = layout = host.layout
        self.device = torch.device(device)
        self.max_tokens = max_tokens
        self.max_changes = max_changes
        self.queue = queue or queue_of(self.device)
        self.entries = torch.zeros(layout.device_entries, dtype=torch.int32, device=self.device)
        """All tables, one behind the other."""
        self.places = torch.full((len(layout.groups), max_tokens), NO_SLOT, dtype=torch.int64, device=self.device)
        """(groups, tokens): slots, or blocks of states; `NO_SLOT` for a token that this rank writes nowhere."""
        self._staged = torch.zeros(layout.staged(max_changes), dtype=torch.int32, device=self.device)
        self._turn = 0
        self._buffers = [_Buffer(self.queue, layout, max_changes) for _ in range(BUFFERS)]
        read = self.queue.memory(BUFFERS + 1)  # the last is of no buffer
        self._read = read.numpy()
        self.kernels = (kernels or kernel_module(self.device).for_tables)(layout, self.device, read)
        self._captured: list[tuple[int, int]] = []
        self._views: dict[int, torch.Tensor] = {}
        """Of `places`, by tokens: to make one takes longer than to find it."""
        host.mark_all()

    def table(self, group: int) -> torch.Tensor:
        """int32 (max_requests, entries of a row) as an attention kernel reads it; the same memory at every call."""
        base, stride = self.layout.numbers[group][2:4]
        return self.entries[base : base + self.layout.max_requests * stride].view(-1, stride)

    def commit(self, pad_to: int | None = None) -> torch.Tensor:
        """Bring the tables up to date, and return the places of the tokens scheduled: (groups, tokens).

        Places up to `pad_to` are `NO_SLOT`, for a graph that was captured with so many tokens. Work queued afterwards
        on the same stream sees both. Where nothing has changed and nothing is scheduled, nothing is launched.
        ValueError for more tokens than there is room for.
        """
        host = self.host
        tokens = host.num_tokens
        wanted = tokens if pad_to is None else pad_to
        if not tokens <= wanted <= self.max_tokens:
            raise ValueError(f"{tokens} tokens padded to {wanted}: there is room for {self.max_tokens}")
        while host.num_changed > self.max_changes:
            self.launch(self.upload(), 0)
        changes = host.num_changed
        if changes or wanted:
            for sizes in self._captured:
                if changes <= sizes[0] and wanted <= sizes[1]:
                    in_place = host.own_rows and host.one_each
                    self._fill()[0].replays[sizes][in_place]()
                    break
            else:
                self.launch(self.upload(), wanted)
        view = self._views.get(wanted)
        if view is None:
            if len(self._views) > self.layout.max_requests:
                self._views.clear()
            view = self._views[wanted] = self.places[:, :wanted]
        return view

    def upload(self) -> int:
        """Queue the copy of what has changed, and of the tokens if no changes are left for another copy.

        Returns the number of changed entries, for `launch`.
        """
        buffer, count, used = self._fill()
        self.queue.copy(self._staged[:used], buffer.memory[:used])
        return count

    def launch(self, changes: int, tokens: int) -> None:
        """Queue the kernels for a step of at most so many changed entries and tokens that `upload` has copied.

        This may be captured in a graph together with what reads the tables, to be replayed once for each `upload`: how
        much there is to do they read there. Where there is nothing of a kind, its kernel is left out.
        """
        self._launch(self._staged, changes, tokens)

    def _launch(self, staged: torch.Tensor, changes: int, tokens: int) -> None:
        if changes or not tokens:
            self.queue.call(self.kernels.write_entries, self.entries, staged, changes)
        if tokens:
            self.queue.call(self.kernels.map_tokens, self.entries, staged, self.places[:, :tokens])

    def capture(self, changes: int, tokens: int) -> None:
        """From now on `commit` replays a graph of kernels in steps of at most so many changes and tokens.

        Steps without changes, or without tokens, have graphs of their own, with one kernel. Of several graphs `commit`
        takes the smallest that fits. ValueError for more than there is room for.
        """
        if changes > self.max_changes or tokens > self.max_tokens:
            raise ValueError(f"there is room for {self.max_changes} changes and {self.max_tokens} tokens")
        import torch

        nothing = torch.tensor([0, 0, 0, 0, 0, BUFFERS, 0, 0], dtype=torch.int32, device=self.device)
        self.queue.call(self._staged[:HEADER].copy_, nothing)
        captured = {(changes, tokens), (changes, 0), (0, tokens)} - {(0, 0), *self._captured}
        for sizes in captured:
            self.launch(*sizes)  # compiles the kernels
            for buffer in self._buffers:
                steps = [partial(self._copied, buffer, *sizes)]
                if sizes[1] <= self.layout.max_requests:
                    steps.append(partial(self._launch, buffer.memory, *sizes))
                replays = [self.queue.capture(step) for step in steps]
                buffer.replays[sizes] = [replays[0], replays[-1]]
        self._captured = sorted({*self._captured, *captured}, key=sum)

    def _copied(self, buffer: _Buffer, changes: int, tokens: int) -> None:
        used = self.layout.staged(changes)
        self.queue.copy(self._staged[:used], buffer.memory[:used])
        self.launch(changes, tokens)

    def _fill(self) -> tuple[_Buffer, int, int]:
        """Write what has changed into the next buffer; returns it, the changes, and how much of it is used."""
        host, layout = self.host, self.layout
        before, turn = self._turn, (self._turn + 1) % BUFFERS
        self._turn, buffer, last = turn, self._buffers[turn], self._buffers[before].filled
        if self._read.item(turn) != buffer.filled:
            self.queue.wait(lambda: self._read.item(turn) == buffer.filled)
        buffer.filled = (buffer.filled + 1) & 0x3FFFFFFF
        changed, values = host.take_changes(self.max_changes)
        count, numbers = len(changed), buffer.numbers
        values_at = layout.changes_at + count
        if count:
            numbers[layout.changes_at : values_at] = changed
            numbers[values_at : values_at + count] = values
        own_rows, one_each = host.own_rows, host.one_each
        tokens, rows, starts, ends = host.take_step()
        requests = len(rows)
        if requests:
            buffer.starts[:requests] = starts
            if not own_rows or requests > buffer.own_rows:
                buffer.rows[:requests] = rows
                buffer.own_rows = requests if own_rows else 0
            if not one_each or requests > buffer.one_each:
                buffer.ends[:requests] = ends
                buffer.one_each = requests if one_each else 0
        rounds = 0 if own_rows and one_each else requests.bit_length()
        _HEADER.pack_into(numbers, 0, count, requests, tokens, values_at, last, before, rounds)
        return buffer, count, values_at + count
