"""The kernels of the data plane in Triton; `torch_kernels` says what each computes.

A kernel reads how much there is to do from what is staged, not from its arguments, so that it can be launched for the
largest step and replayed in a CUDA graph for any. With `TRITON_INTERPRET=1` they run on a CPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from .table_layout import FIELDS, HEADER, TableLayout
from .torch_kernels import PagedKeys, numbers_on

if TYPE_CHECKING:
    import torch


TILE = 256
"""Entries or tokens of one program."""


@triton.jit
def _say_read(staged, read):
    """The kernels of the step before are done: the host may fill its buffer anew.

    Last in a kernel, since what follows a write waits for what is written, and that may come from the host.
    """
    tl.store(read + tl.load(staged + 5), tl.load(staged + 4))


@triton.jit(do_not_specialize=["changes_at", "groups", "most_parts"])
def _write_entries(
    table,
    staged,
    numbers,
    read,
    changes_at,
    groups,
    most_parts,
    SPLIT: tl.constexpr,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
):
    count = tl.load(staged)
    values_at = tl.load(staged + 3)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    index = tl.load(staged + changes_at + at, mask=inside, other=0)
    block = tl.load(staged + values_at + at, mask=inside, other=0)
    first = index * 0
    split = first + 1
    for group in range(groups):
        there = numbers + group * FIELDS
        behind = index >= tl.load(there)
        offset = index - tl.load(there)
        row = offset // tl.load(there + 1)
        of_group = tl.load(there + 4)
        entry = offset - row * tl.load(there + 1)
        first = tl.where(behind, tl.load(there + 2) + row * tl.load(there + 3) + entry * of_group, first)
        split = tl.where(behind, of_group, split)
    if SPLIT:
        for part in range(most_parts):
            value = tl.where(block == 0, 0, block * split + part)
            tl.store(table + first + part, value, mask=inside & (part < split))
    else:
        tl.store(table + first, block, mask=inside)
    if tl.program_id(0) == 0:
        _say_read(staged, read)


@triton.jit(do_not_specialize=["most_requests", "interleave", "stride", "wanted"])
def _map_tokens(
    places,
    table,
    staged,
    numbers,
    read,
    most_requests,
    interleave,
    stride,
    wanted,
    PARALLEL: tl.constexpr,
    RING: tl.constexpr,
    STATE: tl.constexpr,
    ALONE: tl.constexpr,
    REQUESTS: tl.constexpr,
    HEADER: tl.constexpr,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
):
    group = tl.program_id(1)
    requests = tl.load(staged + 1)
    tokens = tl.load(staged + 2)
    rounds = tl.load(staged + 6)
    token = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = token < tokens
    of_requests = staged + HEADER
    low = tl.where(rounds == 0, token, 0)
    if REQUESTS:
        # All requests are read at once, since each read may go to the host's memory; a program alone does not wait for
        # their number.
        number = tl.arange(0, REQUESTS)
        asked = number < (most_requests if ALONE else requests)
        rows = tl.load(of_requests + number, mask=asked, other=0)
        starts = tl.load(of_requests + most_requests + number, mask=asked, other=0)
        ends = tl.load(of_requests + 2 * most_requests + number, mask=asked, other=0)
        ends = tl.where(number < requests, ends, 2147483647)
        # The request of a token is the first that ends behind it.
        high = low * 0 + requests
        for _ in range(rounds):
            middle = (low + high) // 2
            behind = tl.gather(ends, tl.minimum(middle, REQUESTS - 1), 0) > token
            high = tl.where(behind, middle, high)
            low = tl.where(behind, low, middle + 1)
        low = tl.minimum(low, REQUESTS - 1)
        begin = tl.where(low > 0, tl.gather(ends, tl.maximum(low - 1, 0), 0), 0)
        row = tl.gather(rows, low, 0)
        start = tl.gather(starts, low, 0)
    else:
        high = low * 0 + requests
        for _ in range(rounds):
            middle = (low + high) // 2
            end = tl.load(of_requests + 2 * most_requests + middle, mask=inside & (middle < requests), other=2147483647)
            high = tl.where(end > token, middle, high)
            low = tl.where(end > token, low, middle + 1)
        begin = tl.load(of_requests + 2 * most_requests + low - 1, mask=inside & (low > 0), other=0)
        row = tl.load(of_requests + low, mask=inside, other=0)
        start = tl.load(of_requests + most_requests + low, mask=inside, other=0)
    row = tl.where(inside, row, 0)
    local = tl.where(inside, start + token - begin, 0)
    there = numbers + group * FIELDS
    width = tl.load(there + 6)
    mine = inside
    if PARALLEL:
        size = tl.load(there + 5)
        parallel = tl.load(there + 7)
        offset = local % (size * parallel)
        mine = inside & (offset // interleave % parallel == tl.load(there + 8))
        local = local // (size * parallel) * size
        local += offset // (interleave * parallel) * interleave + offset % interleave
    entry = local // width
    offset_in_block = local - entry * width
    if RING:
        entry = entry % tl.load(there + 9)
    else:  # a token of no interest in this group reads inside all the same
        entry = tl.minimum(entry, tl.load(there + 9) - 1)
    at = tl.load(there + 2) + row * tl.load(there + 3) + entry
    block = tl.load(table + at, mask=mine, other=0)
    wide = block.to(tl.int64)
    found = wide * width + offset_in_block
    if STATE:
        found = tl.where(tl.load(there + 10) != 0, wide, found)
    found = tl.where(block != 0, found, -1)
    tl.store(places + group * stride + token, found, mask=token < wanted)
    if tl.program_id(0) + group == 0:
        _say_read(staged, read)


class TritonKernels:
    """The kernels of tables and slots for one layout on one device, called as those of `torch_kernels`."""

    held = 2048
    """The requests of which so many there may be a program holds in registers; among more it searches in memory."""

    def __init__(self, layout: TableLayout, device: torch.device, read: torch.Tensor) -> None:
        self.layout = layout
        self.read = read
        self.numbers = numbers_on(layout, device)
        # What no group of the layout has is no part of the kernel.
        self.has = {
            "PARALLEL": any(group.parallel > 1 for group in layout.groups),
            "RING": any(group.ring for group in layout.groups),
            "STATE": any(group.state for group in layout.groups),
        }

    def write_entries(self, table: torch.Tensor, staged: torch.Tensor, most: int) -> None:
        """Write the changed entries that are staged, at most so many."""
        layout = self.layout
        sizes = layout.changes_at, len(layout.groups), layout.split
        _write_entries[(max(triton.cdiv(most, TILE), 1),)](
            table, staged, self.numbers, self.read, *sizes, SPLIT=layout.split > 1, FIELDS=len(FIELDS), TILE=TILE
        )

    def map_tokens(self, table: torch.Tensor, staged: torch.Tensor, places: torch.Tensor) -> None:
        """Write into `places`, of shape (groups, tokens), where the tokens that are staged lie."""
        layout, (groups, tokens) = self.layout, places.shape
        sizes = layout.max_requests, layout.interleave, places.stride(0), tokens
        _map_tokens[(triton.cdiv(tokens, TILE), groups)](
            places,
            table,
            staged,
            self.numbers,
            self.read,
            *sizes,
            **self.has,
            ALONE=tokens <= TILE,
            REQUESTS=max(triton.next_power_of_2(most), 2) if (most := layout.max_requests) <= self.held else 0,
            HEADER=HEADER,
            FIELDS=len(FIELDS),
            TILE=TILE,
        )


for_tables = TritonKernels

# Whole pages.


@triton.jit
def _zero_pages(addresses, block_ids, page, WORD: tl.constexpr, TILE: tl.constexpr):
    pages = tl.load(addresses + tl.program_id(1)).to(tl.pointer_type(WORD))
    first = tl.load(block_ids + tl.program_id(0)) * page
    at = tl.program_id(2) * TILE + tl.arange(0, TILE)
    tl.store(pages + first + at, tl.zeros((TILE,), WORD), mask=at < page)


@triton.jit
def _copy_pages(sources, targets, pairs, page, WORD: tl.constexpr, TILE: tl.constexpr):
    source = tl.load(sources + tl.program_id(1)).to(tl.pointer_type(WORD))
    target = tl.load(targets + tl.program_id(1)).to(tl.pointer_type(WORD))
    pair = pairs + tl.program_id(0) * 2
    at = tl.program_id(2) * TILE + tl.arange(0, TILE)
    read = tl.load(source + tl.load(pair) * page + at, mask=at < page, other=0)
    tl.store(target + tl.load(pair + 1) * page + at, read, mask=at < page)


@lru_cache(maxsize=64)
def _kept(device: torch.device, stream: int, addresses: tuple[int, ...]) -> torch.Tensor:
    import torch

    return torch.tensor(addresses, dtype=torch.int64, device=device)


def _on(device: torch.device, pages: Sequence[torch.Tensor]) -> torch.Tensor:
    """Their addresses. Each stream has its own: what is dropped may be anybody's, once this stream is done with it."""
    import torch

    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _kept(device, stream, tuple(each.data_ptr() for each in pages))


def _words(pages: Sequence[torch.Tensor]) -> tuple[int, Any]:
    """How many words a page has, and their type."""
    size = pages[0].shape[1]
    wide = size % 4 == 0 and all(each.data_ptr() % 4 == 0 for each in pages)
    return (size // 4, tl.int32) if wide else (size, tl.int8)


def zero_pages(pages: Sequence[torch.Tensor], block_ids: torch.Tensor) -> None:
    """Zero these blocks, at least one, in each of the buffers, of shape (blocks, bytes)."""
    page, word = _words(pages)
    tile = min(triton.next_power_of_2(page), 4096)
    grid = len(block_ids), len(pages), triton.cdiv(page, tile)
    _zero_pages[grid](_on(block_ids.device, pages), block_ids, page, WORD=word, TILE=tile)


def copy_pages(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], pairs: torch.Tensor) -> None:
    """Copy blocks `pairs[:, 0]`, at least one, to blocks `pairs[:, 1]`; pinned memory of the host is read in place."""
    page, word = _words([*sources, *targets])
    tile = min(triton.next_power_of_2(page), 4096)
    grid = len(pairs), len(sources), triton.cdiv(page, tile)
    read, written = (_on(pairs.device, side) for side in (sources, targets))
    _copy_pages[grid](read, written, pairs, page, WORD=word, TILE=tile)


# Attention of one query of each request.


@triton.jit
def _decode(
    out,
    query,
    keys,
    values,
    table,
    rows,
    positions,
    scale,
    window,
    size,
    stride_row,
    key_block,
    key_token,
    key_head,
    value_block,
    value_token,
    value_head,
    PER_HEAD: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(positions + token).to(tl.int32)
    blocks = table + tl.load(rows + token).to(tl.int64) * stride_row
    of_head = tl.arange(0, QUERIES)
    at_width = tl.arange(0, WIDE)
    there = (of_head[:, None] < PER_HEAD) & (at_width[None, :] < WIDTH)
    at = (token * HEADS + head * PER_HEAD + of_head[:, None]) * WIDTH + at_width[None, :]
    asked = tl.load(query + at, mask=there, other=0.0)
    most = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    found = tl.zeros((QUERIES, WIDE), tl.float32)
    first = tl.maximum(position + 1 - window, 0)
    for begin in range(first // TILE * TILE, position + 1, TILE):
        context = begin + tl.arange(0, TILE)
        read = (context >= first) & (context <= position)
        block = tl.load(blocks + context // size, mask=read, other=0).to(tl.int64)
        offset = context % size
        inside = read[:, None] & (at_width[None, :] < WIDTH)
        key = keys + block * key_block + offset * key_token + head * key_head
        value = values + block * value_block + offset * value_token + head * value_head
        keyed = tl.load(key[:, None] + at_width[None, :], mask=inside, other=0.0)
        score = tl.dot(asked, tl.trans(keyed), input_precision="ieee") * scale
        score = tl.where(read[None, :], score, float("-inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        kept = tl.exp(most - higher)
        valued = tl.load(value[:, None] + at_width[None, :], mask=inside, other=0.0)
        found = found * kept[:, None] + tl.dot(weight.to(valued.dtype), valued, input_precision="ieee")
        total = total * kept + tl.sum(weight, 1)
        most = higher
    tl.store(out + at, (found / total[:, None]).to(out.dtype.element_ty), mask=there)


def attention(query: torch.Tensor, cache: PagedKeys, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """See `paged_attention.attention`. A program reads the whole context of one token and one head of the keys."""
    tokens, heads, width = query.shape
    per_head = heads // cache.keys.shape[2]
    wide = max(triton.next_power_of_2(width), 16)
    tile = min(max(32768 // (wide * cache.keys.element_size()), 16), 64)  # so that small GPUs have room for it, too
    query, rows, positions = query.contiguous(), rows.contiguous(), positions.contiguous()
    out = query.new_empty(query.shape)
    _decode[(tokens, cache.keys.shape[2])](
        out,
        query,
        cache.keys,
        cache.values,
        cache.table,
        rows,
        positions,
        cache.scale,
        cache.window,
        cache.keys.shape[1],
        cache.table.stride(0),
        *cache.keys.stride()[:3],
        *cache.values.stride()[:3],
        PER_HEAD=per_head,
        QUERIES=max(triton.next_power_of_2(per_head), 16),
        HEADS=heads,
        WIDTH=width,
        WIDE=wide,
        TILE=tile,
    )
    return out
