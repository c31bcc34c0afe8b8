"""The block tables of all groups on a device, and the slots of a step: two kernels (core.md §11).

What a step changes is in a buffer of pinned memory, which the device reads where it lies or after one copy. Three
buffers are filled in turn: the kernels of a step say that those of the step before are done with theirs, so that only
the step before last is waited for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .block_tables import KEPT, NOTHING, BlockTables
from .kernel_choice import kernel_module, usable_device
from .queues import HostQueue, queue_of, zeros
from .table_layout import HEADER, TableLayout
from .torch_kernels import NO_SLOT, TorchKernels

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("=7i")
BUFFERS = 3

Replays: TypeAlias = tuple[Callable[[], None], Callable[[], None]]
"""What replays a graph of one buffer that reads a copy of it, and of one that reads it in place."""

OfTokens: TypeAlias = "tuple[torch.Tensor, list[tuple[int, list[Replays]]]]"
"""What is kept for steps of so many tokens, since to make it takes longer than to find it: their view of `places`; and
the graphs that fit, the smallest first, each behind the changes for which it was captured."""


class _Buffer:
    """Memory of the host that the device reads, and tells when it has."""

    next: _Buffer
    """The one that is filled for the next step."""

    def __init__(self, queue: HostQueue, layout: TableLayout, changes: int, number: int) -> None:
        self.number = number
        self.memory = queue.memory(layout.staged(changes))
        self.numbers = self.memory.numpy()
        self.header = self.numbers.data
        self.rows, self.starts, self.ends = self.numbers[HEADER:][: 3 * layout.max_requests].reshape(3, -1)
        self.own_rows = self.one_each = False
        """Whether rows are 0, 1, ..., and whether each request has one token, up to the last request there may be."""
        self.filled = 0
        """How often it was filled; the device writes this number back."""


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
        queue: HostQueue | None = None,
    ) -> None:
        """Empty tables, and room for steps of `max_tokens` tokens. A step that changes more than `max_changes` entries
        takes several copies. `kernels` makes the kernels, `queue` replaces that of the device. One for each `host`,
        which tells once what has changed. ValueError for sizes that are no room, and for a device that cannot be used.
        """
        import torch

        if max_tokens < 0 or max_changes < 1:
            raise ValueError(f"room for {max_tokens} tokens and {max_changes} changes: give 0 and 1 at least")
        self.host = host
        self.layout = layout = host.layout
        self.device = usable_device(device)
        self.max_tokens = max_tokens
        self.max_changes = max_changes
        self.queue = queue or queue_of(self.device)
        self.queue.keeps(self)
        self.entries = zeros((layout.device_entries,), torch.int32, self.device)
        """All tables, one behind the other."""
        self.places = zeros((len(layout.groups), max_tokens), torch.int64, self.device).fill_(NO_SLOT)
        """(groups, tokens): slots, or blocks of states; `NO_SLOT` for a token that this rank writes nowhere."""
        self._staged = zeros((layout.staged(max_changes),), torch.int32, self.device)
        self._buffers = [_Buffer(self.queue, layout, max_changes, number) for number in range(BUFFERS)]
        for buffer in self._buffers:
            buffer.next = self._buffers[(buffer.number + 1) % BUFFERS]
        self._buffer = self._buffers[0]
        read = self.queue.memory(BUFFERS + 1)  # the last is of no buffer
        self._read = read.numpy().data
        if not layout.groups:
            kernels = TorchKernels  # there is nothing to launch, and nothing to point at
        self.kernels = (kernels or kernel_module(self.device).for_tables)(layout, self.device, read)
        self._graphs: dict[tuple[int, int], list[Replays]] = {}
        """By the changes and the tokens for which they were captured, the smallest first; of each buffer."""
        self._of_tokens: dict[int, OfTokens] = {}
        self._numbers = np.arange(layout.max_requests)
        host.mark_all()

    def table(self, group: int) -> torch.Tensor:
        """int32 (max_requests, entries of a row) as an attention kernel reads it; the same memory at every call."""
        base, stride = self.layout.of_group(group)[2:4]
        return self.entries[base : base + self.layout.max_requests * stride].view(-1, stride)

    def commit(self, pad_to: int | None = None) -> torch.Tensor:
        """Bring the tables up to date, and return the places of the tokens scheduled: (groups, tokens).

        Places up to `pad_to` are `NO_SLOT`, for a graph that was captured with so many tokens. Work queued afterwards
        on the same stream sees both. All steps are on one stream, since each says that the one before has been read.
        Where nothing has changed and nothing is scheduled, nothing is launched. ValueError for more tokens than there
        is room for.
        """
        host = self.host
        tokens = host.num_tokens
        wanted = tokens if pad_to is None else pad_to
        made = self._of_tokens.get(wanted)
        view, graphs = self._prepared(tokens, wanted) if made is None or tokens > wanted else made
        while host.num_changed > self.max_changes:
            self.launch(self.upload(), 0)
        changes = host.num_changed
        if changes or wanted:
            for most, replays in graphs:
                if changes <= most:
                    buffer, _, in_place = self._fill()
                    replays[buffer.number][in_place]()
                    break
            else:
                self.launch(self.upload(), wanted)
        return view

    def _prepared(self, tokens: int, wanted: int) -> OfTokens:
        if not tokens <= wanted <= self.max_tokens:
            raise ValueError(f"{tokens} tokens padded to {wanted}: there is room for {self.max_tokens}")
        if len(self._of_tokens) > KEPT:
            self._of_tokens.clear()
        fit = [(most, replays) for (most, room), replays in self._graphs.items() if room >= wanted]
        made = self._of_tokens[wanted] = self.places[:, :wanted], fit
        return made

    def upload(self, changes: int | None = None, tokens: int | None = None) -> int:
        """Queue the copy of what has changed, and of the tokens if no changes are left for another copy.

        Returns the number of changed entries, for `launch`. Given what a graph of yours was captured for, changes
        beyond are written first; ValueError for more tokens.
        """
        host = self.host
        self._check_room(changes or 0, tokens or 0)
        if tokens is not None and host.num_tokens > tokens:
            raise ValueError(
                f"{host.num_tokens} tokens, but room for {tokens}: launch without a graph, or a larger one"
            )
        fit = host.num_changed if changes is None else changes
        while host.num_changed > fit:
            self.launch(self._copy(*self._fill(min(host.num_changed - fit, self.max_changes))[:2]), 0)
        return self._copy(*self._fill()[:2])

    def _copy(self, buffer: _Buffer, count: int) -> int:
        used = self.layout.staged(count)
        self.queue.copy(self._staged[:used], buffer.memory[:used])
        return count

    def launch(self, changes: int, tokens: int) -> None:
        """Queue the kernels for a step of at most so many changed entries and tokens that `upload` has copied.

        This may be captured in a graph together with what reads the tables, to be replayed once for each `upload`: how
        much there is to do they read there. Where there is nothing of a kind, its kernel is left out. ValueError for
        more than there is room for.
        """
        self._check_room(changes, tokens)
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
        self._check_room(changes, tokens)
        if not self.layout.groups:
            return
        if isinstance(self.kernels, TorchKernels) and self.device.type == "cuda":
            raise ValueError("torch's kernels read on the host how much there is to do: graphs need Triton")
        import torch

        nothing = torch.tensor([0, 0, 0, 0, 0, BUFFERS, 0, 0], dtype=torch.int32, device=self.device)
        self.queue.call(self._staged[:HEADER].copy_, nothing)
        for sizes in {(changes, tokens), (changes, 0), (0, tokens)} - {(0, 0), *self._graphs}:
            self.launch(*sizes)  # compiles the kernels
            replays = []
            for buffer in self._buffers:
                copied = self.queue.capture(partial(self._copied, buffer, *sizes))
                in_place = copied
                if sizes[1] <= self.layout.max_requests:
                    in_place = self.queue.capture(partial(self._launch, buffer.memory, *sizes))
                replays.append((copied, in_place))
            self._graphs[sizes] = replays
        self._graphs = dict(sorted(self._graphs.items(), key=lambda graph: sum(graph[0])))
        self._of_tokens.clear()

    def _check_room(self, changes: int, tokens: int) -> None:
        if not (0 <= changes <= self.max_changes and 0 <= tokens <= self.max_tokens):
            raise ValueError(
                f"{changes} changes and {tokens} tokens: there is room for {self.max_changes} and {self.max_tokens}"
            )

    def _copied(self, buffer: _Buffer, changes: int, tokens: int) -> None:
        used = self.layout.staged(changes)
        self.queue.copy(self._staged[:used], buffer.memory[:used])
        self.launch(changes, tokens)

    def _fill(self, part: int | None = None) -> tuple[_Buffer, int, bool]:
        """Write what has changed into the next buffer, or so much of it and no tokens; returns it, the changes, and
        whether it may be read in place."""
        host, changes_at, before = self.host, self.layout.changes_at, self._buffer
        self._buffer = buffer = before.next
        if self._read[buffer.number] != buffer.filled:
            self.queue.wait(lambda: self._read[buffer.number] == buffer.filled)
        buffer.filled = (buffer.filled + 1) & 0x3FFFFFFF
        count = 0
        if host.num_changed:
            changed, values = host.take_changes(part or self.max_changes)
            count = len(changed)
            buffer.numbers[changes_at : changes_at + count] = changed
            buffer.numbers[changes_at + count : changes_at + 2 * count] = values
        tokens, rows, starts, ends = NOTHING if part else host.take_step()
        requests = len(starts)
        if requests:
            buffer.starts[:requests] = starts
            if rows is not None:
                buffer.rows[:requests] = rows
                buffer.own_rows = False
            elif not buffer.own_rows:
                buffer.rows[:] = self._numbers
                buffer.own_rows = True
            if ends is not None:
                buffer.ends[:requests] = ends
                buffer.one_each = False
            elif not buffer.one_each:
                buffer.ends[:] = self._numbers + 1
                buffer.one_each = True
        in_place = rows is None and ends is None
        rounds = 0 if in_place else requests.bit_length()
        at = changes_at + count
        _HEADER.pack_into(buffer.header, 0, count, requests, tokens, at, before.filled, before.number, rounds)
        return buffer, count, in_place
