"""What the kernels on a device compute, in torch: where there is no Triton, and to compare with.

Where a token lies: the entry of its block holds an id, and the slot is `id * width + position % width`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .table_layout import FIELDS, HEADER, TableLayout

if TYPE_CHECKING:
    import torch

NO_SLOT = -1
"""The place of a token that another rank writes, of a state that nobody keeps, and of what only fills a step up."""

FULL = 2**30
"""A window that no request reaches."""


@dataclass(frozen=True)
class PagedKeys:
    """What the attention of a layer reads."""

    keys: torch.Tensor
    """(blocks, tokens of a block, heads, size of a head): the view of the layer."""
    values: torch.Tensor
    table: torch.Tensor
    """int32 (rows, entries): the blocks of each request."""
    scale: float
    """What scores are multiplied by."""
    window: int = FULL
    """How many tokens a query reads, itself among them."""


def place(block_id: Any, position: Any, width: Any) -> Any:
    """The slot of a position of this rank, whose block is this one, of `width` tokens."""
    return block_id * width + position % width


class TorchKernels:
    """The kernels of tables and slots for one layout on one device.

    `staged` is a buffer that `DeviceTables` has filled, or a copy: its header says how much there is to do. Each kernel
    says first that those of the step before are done with its buffer, since a step may have only one of them.
    """

    def __init__(self, layout: TableLayout, device: torch.device, read: torch.Tensor) -> None:
        """`read` is memory of the host, in which each buffer is told how often it was read."""
        self.layout = layout
        self.read = read
        self.numbers = numbers_on(layout, device).long()
        self.bases = self.numbers[:, 0].contiguous()

    def write_entries(self, table: torch.Tensor, staged: torch.Tensor, most: int) -> None:
        """Write the changed entries that are staged, at most so many, into the tables of all groups."""
        import torch

        count, _, _, values_at = self._header(staged)
        index = staged[self.layout.changes_at : self.layout.changes_at + count].long()
        block = staged[values_at : values_at + count]
        base, host_row, device_base, stride, split = self.numbers[
            torch.searchsorted(self.bases, index, right=True) - 1, :5
        ].T
        row = (index - base) // host_row
        first = device_base + row * stride + (index - base - row * host_row) * split
        for part in range(self.layout.split):
            there = split > part
            value = torch.where(block == 0, 0, block * split + part)
            table[first[there] + part] = value[there].int()

    def map_tokens(self, table: torch.Tensor, staged: torch.Tensor, places: torch.Tensor) -> None:
        """Write into `places`, of shape (groups, tokens), where the staged tokens lie; `NO_SLOT` behind them."""
        import torch

        layout = self.layout
        _, requests, tokens, _ = self._header(staged)
        places.fill_(NO_SLOT)
        if not tokens:
            return
        of_requests = staged[HEADER : HEADER + 3 * layout.max_requests].view(3, -1)
        rows, starts, ends = of_requests[:, :requests].long()
        token = torch.arange(tokens, device=staged.device)
        request = torch.searchsorted(ends, token, right=True)
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        position = (starts - begins)[request] + token
        for group, (_, _, base, stride, _, size, width, parallel, rank, entries, state) in enumerate(layout.numbers):
            offset = position % (size * parallel)
            mine = offset // layout.interleave % parallel == rank
            local = position // (size * parallel) * size
            local += offset // (layout.interleave * parallel) * layout.interleave + offset % layout.interleave
            block = table[base + rows[request] * stride + local // width % entries].long()
            found = block if state else place(block, local, width)
            places[group, :tokens] = torch.where(mine & (block != 0), found, NO_SLOT)

    def _header(self, staged: torch.Tensor) -> list[int]:
        """Its first four numbers; the host may fill the buffer of the step before anew."""
        numbers: list[int] = staged[:6].tolist()
        self.read[numbers[5]] = numbers[4]
        return numbers[:4]


for_tables = TorchKernels


def numbers_on(layout: TableLayout, device: torch.device) -> torch.Tensor:
    """int32 (groups, fields): what the kernels are told of each group."""
    import torch

    return torch.from_numpy(np.array(layout.numbers, np.int32).reshape(-1, len(FIELDS))).to(device)


def zero_pages(pages: Sequence[torch.Tensor], block_ids: torch.Tensor) -> None:
    """Zero these blocks in each of the buffers, of shape (blocks, bytes)."""
    for each in pages:
        each.index_fill_(0, block_ids, 0)


def copy_pages(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], pairs: torch.Tensor) -> None:
    """Copy blocks `pairs[:, 0]` of each source to blocks `pairs[:, 1]` of the target of the same number.

    `pairs` is on the device; sources or targets may be memory of the host. No block is copied from and to.
    """
    for source, target in zip(sources, targets, strict=True):
        read = source[pairs[:, 0].to(source.device)]
        target[pairs[:, 1].to(target.device)] = read.to(target.device)


def attention(query: torch.Tensor, cache: PagedKeys, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """See `paged_attention.attention`; every token is given all entries of its row that any token needs."""
    import torch

    last = int(positions.max()) + 1 if len(positions) else 0
    at = torch.arange(last, device=query.device)
    size = cache.keys.shape[1]
    blocks = cache.table[rows.long()][:, at // size].long()
    keys, values = (part[blocks, at % size].float() for part in (cache.keys, cache.values))
    tokens, heads, width = query.shape
    grouped = query.float().view(tokens, keys.shape[2], -1, width)
    scores = torch.einsum("tghd,tlgd->tghl", grouped, keys) * cache.scale
    reads = (at <= positions[:, None]) & (at > positions[:, None] - cache.window)
    weights = scores.masked_fill(~reads[:, None, None], float("-inf")).softmax(dim=-1)
    values = values.masked_fill(~reads[:, :, None, None], 0)  # what nobody reads may be anything
    found = torch.einsum("tghl,tlgd->tghd", weights, values)
    return found.reshape(tokens, heads, -1).to(query.dtype)
