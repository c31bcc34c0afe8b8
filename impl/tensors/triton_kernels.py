"""The kernels of the data plane in Triton; `torch_kernels` says what each computes.

A kernel reads how much there is to do from what is staged, not from its arguments, so that it can be launched for the
largest step and replayed in a CUDA graph for any. With `TRITON_INTERPRET=1` they run on a CPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from .table_layout import FIELDS, HEADER, TableLayout
from .torch_kernels import numbers_on

if TYPE_CHECKING:
    import torch

TILE = 256
"""Entries or tokens of one program."""


@triton.jit(do_not_specialize=["changes_at", "groups", "most_parts"])
def _write_entries(
    table,
    staged,
    numbers,
    fetched,
    changes_at,
    groups,
    most_parts,
    SPLIT: tl.constexpr,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
):
    if tl.program_id(0) == 0:  # what is staged here is the device's own: the host may fill its buffer anew
        tl.store(fetched + tl.load(staged + 5), tl.load(staged + 4))
    count = tl.load(staged)
    values_at = tl.load(staged + 3)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    index = tl.load(staged + changes_at + at, mask=inside, other=0)
    block = tl.load(staged + values_at + at, mask=inside, other=0)
    if not SPLIT:
        tl.store(table + index, block, mask=inside)
    else:
        first = index * 0
        split = index * 0 + 1
        for group in range(groups):
            there = numbers + group * FIELDS
            behind = index >= tl.load(there)
            of_group = tl.load(there + 3)
            first = tl.where(behind, tl.load(there + 1) + (index - tl.load(there)) * of_group, first)
            split = tl.where(behind, of_group, split)
        for part in range(most_parts):
            value = tl.where(block == 0, 0, block * split + part)
            tl.store(table + first + part, value, mask=inside & (part < split))


@triton.jit(do_not_specialize=["most_requests", "rounds", "interleave", "stride", "wanted"])
def _map_tokens(
    places,
    table,
    staged,
    numbers,
    most_requests,
    rounds,
    interleave,
    stride,
    wanted,
    HEADER: tl.constexpr,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
):
    rows = staged + HEADER
    starts = rows + most_requests
    ends = starts + most_requests
    requests = tl.load(staged + 1)
    tokens = tl.load(staged + 2)
    token = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = token < tokens
    # The request of a token is the first that ends behind it.
    low = token * 0
    high = low + requests
    for _ in range(rounds):
        middle = (low + high) // 2
        end = tl.load(ends + middle, mask=inside & (middle < requests), other=2147483647)
        behind = end > token
        high = tl.where(behind, middle, high)
        low = tl.where(behind, low, middle + 1)
    begin = tl.load(ends + low - 1, mask=inside & (low > 0), other=0)
    row = tl.load(rows + low, mask=inside, other=0)
    position = tl.load(starts + low, mask=inside, other=0) + token - begin
    group = tl.program_id(1)
    there = numbers + group * FIELDS
    size = tl.load(there + 4)
    width = tl.load(there + 5)
    parallel = tl.load(there + 6)
    offset = position % (size * parallel)
    mine = offset // interleave % parallel == tl.load(there + 7)
    local = position // (size * parallel) * size
    local += offset // (interleave * parallel) * interleave + offset % interleave
    entry = local // width % tl.load(there + 8)
    at = tl.load(there + 1) + row * tl.load(there + 2) + entry
    block = tl.load(table + at, mask=inside & mine, other=0)
    wide = block.to(tl.int64)
    found = tl.where(tl.load(there + 9) != 0, wide, wide * width + local % width)
    found = tl.where(block != 0, found, -1)
    tl.store(places + group * stride + token, found, mask=token < wanted)


class Kernels:
    """The kernels of tables and slots for one layout on one device, called as those of `torch_kernels`."""

    def __init__(self, layout: TableLayout, device: torch.device, fetched: torch.Tensor) -> None:
        self.layout = layout
        self.fetched = fetched
        self.numbers = numbers_on(layout, device)

    def write_entries(self, table: torch.Tensor, staged: torch.Tensor, most: int) -> None:
        """Write the changed entries that are staged, at most so many."""
        layout = self.layout
        sizes = layout.changes_at, len(layout.groups), layout.split
        _write_entries[(max(triton.cdiv(most, TILE), 1),)](
            table, staged, self.numbers, self.fetched, *sizes, SPLIT=layout.split > 1, FIELDS=len(FIELDS), TILE=TILE
        )

    def map_tokens(self, table: torch.Tensor, staged: torch.Tensor, places: torch.Tensor) -> None:
        """Write into `places`, of shape (groups, tokens), where the tokens that are staged lie."""
        layout, (groups, tokens) = self.layout, places.shape
        sizes = layout.max_requests, layout.rounds, layout.interleave, places.stride(0), tokens
        _map_tokens[(triton.cdiv(tokens, TILE), groups)](
            places, table, staged, self.numbers, *sizes, HEADER=HEADER, FIELDS=len(FIELDS), TILE=TILE
        )
