"""How long a step of block tables and slots takes: ours beside the release's kernels, in one run.

Times are medians in microseconds, from the new block ids to the end of the work on the device. Each step is staged
anew and brings new blocks. The release's kernels find requests and positions on the device already.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from blockproof.impl.tensors.block_tables import BlockTables
from blockproof.impl.tensors.device_tables import DeviceTables
from blockproof.impl.tensors.table_layout import GroupTable
from device_release import release_tables

REQUESTS, BLOCK, LONGEST = 256, 16, 131_072
HELD = 9
"""Blocks that each request has before the first step."""


@dataclass(frozen=True)
class Work:
    """One kind of step."""

    name: str
    gains: int
    """Requests that gain `blocks` blocks in every group."""
    blocks: int
    requests: int
    length: int
    """Tokens of each request; 0 for tables alone."""
    captured: bool
    """Whether an engine captures such a step."""

    @property
    def tokens(self) -> int:
        return self.requests * self.length


WORKS = (
    Work("decode, 256 requests, none gains a block", 0, 0, 256, 1, True),
    Work("decode, 256 requests, 1 gains a block", 1, 1, 256, 1, True),
    Work("decode, 256 requests, 16 gain a block", 16, 1, 256, 1, True),
    Work("decode, 256 requests, 256 gain a block", 256, 1, 256, 1, True),
    Work("tables, 1 row gains a block", 1, 1, 0, 0, True),
    Work("tables, 16 rows gain a block", 16, 1, 0, 0, True),
    Work("tables, 256 rows gain a block", 256, 1, 0, 0, True),
    Work("prefill, 131,072 tokens: slots", 0, 0, 1, LONGEST, False),
    Work("prefill, 131,072 tokens: tables and slots", 1, LONGEST // BLOCK, 1, LONGEST, False),
    Work("64 x 128 tokens: slots", 0, 0, 64, 128, False),
    Work("64 x 128 tokens: tables and slots", 64, 8, 64, 128, False),
)


@dataclass
class Times:
    """Medians: of the call, and until the device is done."""

    host: float
    whole: float


def measured(step: Callable[[int], None], wait: Callable[[], None], rounds: int) -> Times:
    """A step is given its number."""
    hosts, wholes = [], []
    gc.collect()
    gc.disable()
    for number in range(rounds + 10):
        began = perf_counter()
        step(number)
        returned = perf_counter()
        wait()
        hosts.append((returned - began) * 1e6)
        wholes.append((perf_counter() - began) * 1e6)
    gc.enable()
    return Times(median(hosts[10:]), median(wholes[10:]))


def waiting(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def ours(work: Work, groups: int, device: str, captured: bool, lists: bool, rounds: int) -> Times:
    """Block ids in arrays, or in lists."""
    host = BlockTables([GroupTable(BLOCK, LONGEST // BLOCK)] * groups, REQUESTS)
    tables = DeviceTables(host, device, LONGEST)
    long = work.blocks == LONGEST // BLOCK
    rows = range(REQUESTS)
    for group in range(groups):
        host.append(group, rows, [range(1, 1 + HELD)] * REQUESTS)
        if work.tokens == LONGEST:
            host.replace(group, [0], [range(1, 1 + LONGEST // BLOCK)])
    tables.commit()
    if captured:
        tables.capture(1024, REQUESTS) if work.captured else tables.capture(16384, LONGEST)
    of_step = np.arange(work.gains)
    ids = [np.arange(1 + i, 1 + i + work.gains * work.blocks * groups) for i in range(2)]
    as_lists = [[each.tolist() for each in np.split(some, max(work.gains * groups, 1))] for some in ids]
    as_arrays = [list(np.split(some, max(work.gains * groups, 1))) for some in ids]
    starts = np.zeros(work.requests, np.int64) if work.length > 1 else np.full(work.requests, 100)
    lengths = None if work.length == 1 else np.full(work.requests, work.length)
    change = host.replace if work.blocks > 1 else host.append

    def step(number: int) -> None:
        if work.gains:
            turn = number % 2
            new: Any = as_lists[turn] if lists else as_arrays[turn] if work.blocks > 1 else ids[turn]
            change(None, of_step, new)
        if work.length:
            host.schedule(starts, lengths)
        tables.commit(work.tokens)

    return measured(step, waiting(device), rounds if not long else rounds // 2)


def theirs(release: Any, work: Work, groups: int, device: str, gather: bool, rounds: int) -> Times:
    """Rows and positions are on the device; `gather` brings the tables into the order of the batch."""
    where = torch.device(device)
    tables = release([BLOCK] * groups, REQUESTS, LONGEST, [LONGEST // BLOCK] * groups, where)
    for row in range(REQUESTS):
        tables.append_block_ids(row, tuple([list(range(1, 1 + HELD))] * groups), True)
    if work.tokens == LONGEST:
        tables.append_block_ids(0, tuple([list(range(1, 1 + LONGEST // BLOCK))] * groups), True)
    tables.apply_staged_writes()
    count = work.requests or REQUESTS
    batch = torch.arange(count, dtype=torch.int32, device=where)
    ends = torch.arange(count + 1, dtype=torch.int32, device=where) * work.length
    if work.length == 1:
        positions = torch.full((work.tokens,), 100, device=where)
    else:
        positions = torch.arange(max(work.length, 1), device=where).repeat(count)
    new = [tuple([list(range(1 + i, 1 + i + work.blocks))] * groups) for i in range(2)]

    def step(number: int) -> None:
        for row in range(work.gains):
            tables.append_block_ids(row, new[number % 2], work.blocks > 1)
        if work.gains:
            tables.apply_staged_writes()
        if gather:
            tables.gather_block_tables(batch, count)
        if work.length:
            tables.compute_slot_mappings(batch, ends, positions, work.tokens)

    return measured(step, waiting(device), rounds)


def speed(device: str, packages: Path | None, rounds: int = 300) -> tuple[list[list[str]], list[float], list[str]]:
    """Rows of a table, the ratio of each cell, and what is not as it should be."""
    release = release_tables(packages) if packages else None
    rows: list[list[str]] = []
    ratios: list[float] = []
    wrong: list[str] = []
    for work in WORKS:
        for groups in (1, 3):
            graph = ours(work, groups, device, True, False, rounds)
            eager = ours(work, groups, device, False, False, rounds)
            lists = ours(work, groups, device, True, True, rounds)
            cells = [
                work.name,
                str(groups),
                *(f"{each:.1f}" for each in (graph.host, graph.whole, eager.whole, lists.whole)),
            ]
            if release is not None:
                plain = theirs(release, work, groups, device, False, rounds)
                whole = theirs(release, work, groups, device, True, rounds)
                ratio = plain.whole / graph.whole
                ratios.append(ratio)
                cells += [
                    f"{plain.whole:.1f}",
                    f"{whole.whole:.1f}",
                    f"{ratio:.1f}",
                    f"{plain.whole / lists.whole:.1f}",
                ]
                if ratio < 2:
                    wrong.append(f"{work.name}, {groups} groups: {ratio:.2f} times as fast as the release's kernels")
            if work.length == 1 and graph.host > 20:
                wrong.append(f"{work.name}, {groups} groups: {graph.host:.1f} us of the host's time")
            if work.length == 1 and graph.whole > 35:
                wrong.append(f"{work.name}, {groups} groups: {graph.whole:.1f} us a step")
            rows.append(cells)
            print(" | ".join(cells), flush=True)
    if ratios:
        print(f"geometric mean {mean(ratios):.1f}, least {min(ratios):.1f}")
    return rows, ratios, wrong


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return float(prod(ratios) ** (1 / len(ratios)))


if __name__ == "__main__":
    import sys

    missed = speed(
        "cuda" if torch.cuda.is_available() else "cpu",
        Path(sys.argv[1]) if sys.argv[1:] else None,
        int((sys.argv[2:] or ["300"])[0]),
    )[2]
    print("\n".join(missed))
