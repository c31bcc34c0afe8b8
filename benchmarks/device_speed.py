"""How long a step of block tables and slots takes: ours beside the release's kernels, in one run.

Times are in microseconds, from the new block ids to the end of the work on the device. Each step is staged
anew and brings new blocks. The release's kernels find requests and positions on the device already.

python benchmarks/device_speed.py

Without a GPU: the host's part alone, beside a device that does nothing and is never waited for.
"""

import gc
from collections.abc import Callable, Sequence
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
from blockproof.impl.tensors.queues import HostQueue
from blockproof.impl.tensors.table_layout import GroupTable
from device_release import release_tables, to_device

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


Step = Callable[[int], None]
"""Carries out the step of this number."""


def measured(steps: Sequence[Step], wait: Callable[[], None], turns: int, rounds: int) -> list[Times]:
    """Of each, the least of the medians of some turns: the machine is shared, and slow for a while now and then."""
    found = [Times(float("inf"), float("inf")) for _ in steps]
    gc.collect()
    gc.disable()
    for turn in range(turns):
        for step, least in zip(steps, found, strict=True):
            hosts, wholes = [], []
            for number in range(rounds + 10):
                began = perf_counter()
                step(turn * rounds + number)
                returned = perf_counter()
                wait()
                wholes.append((perf_counter() - began) * 1e6)
                hosts.append((returned - began) * 1e6)
            least.host = min(least.host, median(hosts[10:]))
            least.whole = min(least.whole, median(wholes[10:]))
    gc.enable()
    return found


def waiting(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def ours(work: Work, groups: int, device: str, captured: bool, lists: bool, queue: HostQueue | None = None) -> Step:
    """Block ids in an array, or in lists."""
    host = BlockTables([GroupTable(BLOCK, LONGEST // BLOCK)] * groups, REQUESTS)
    most = groups * LONGEST // BLOCK
    tables = DeviceTables(host, device, LONGEST, max_changes=max(most, 16384), queue=queue)
    rows = range(REQUESTS)
    for group in range(groups):
        host.append(group, rows, [range(1, 1 + HELD)] * REQUESTS)
        if work.tokens == LONGEST:
            host.replace(group, [0], [range(1, 1 + LONGEST // BLOCK)])
    tables.commit()
    if captured:
        for sizes in ((1024, REQUESTS), (2048, 8192), (most, LONGEST)):
            tables.capture(*sizes)
    of_step = np.arange(work.gains)
    ids = [np.arange(1 + i, 1 + i + work.gains * work.blocks * groups) for i in range(2)]
    as_lists = [[each.tolist() for each in np.split(some, max(work.gains * groups, 1))] for some in ids]
    of_each = None if lists or work.blocks < 2 else np.full(work.gains * groups, work.blocks)
    starts = np.zeros(work.requests, np.int64) if work.length > 1 else np.full(work.requests, 100)
    lengths = None if work.length == 1 else np.full(work.requests, work.length)
    change = host.replace if work.blocks > 1 else host.append

    def step(number: int) -> None:
        if work.gains:
            change(None, of_step, (as_lists if lists else ids)[number % 2], of_each)
        if work.length:
            host.schedule(starts, lengths)
        tables.commit(work.tokens)

    return step


def theirs(release: Any, work: Work, groups: int, device: str, engine: bool) -> Step:
    """Its kernels alone, with all that they are told on the device; or as its `engine` calls them.

    That sends in each step which rows the batch has and where its queries begin, and brings the tables into the order
    of the batch.
    """
    where = torch.device(device)
    tables = release([BLOCK] * groups, REQUESTS, LONGEST, [LONGEST // BLOCK] * groups, where)
    for row in range(REQUESTS):
        tables.append_block_ids(row, tuple([list(range(1, 1 + HELD))] * groups), True)
    if work.tokens == LONGEST:
        tables.append_block_ids(0, tuple([list(range(1, 1 + LONGEST // BLOCK))] * groups), True)
    tables.apply_staged_writes()
    count = work.requests or REQUESTS
    rows, begins = np.arange(count), np.arange(count + 1, dtype=np.int32) * work.length
    batch, ends = to_device(rows, where), to_device(begins, where)
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
        in_batch = to_device(rows, where) if engine else batch
        if engine:
            to_device(begins, out=ends)
            tables.gather_block_tables(in_batch, count)
        if work.length:
            tables.compute_slot_mappings(in_batch, ends, positions, work.tokens)

    return step


HEAD = (
    "step | groups: | host: | whole: | not captured: | ids in lists: | their kernels: | their engine: | "
    "ratio to engine: | ratio to kernels:"
)


@dataclass
class Measured:
    """The table of all steps, the ratios to the release, and what is not as it should be."""

    rows: list[list[str]]
    to_engine: list[float]
    to_kernels: list[float]
    missed: list[str]


def speed(device: str, packages: Path | None, turns: int = 5, rounds: int = 60) -> Measured:
    """All kinds of steps; without the release's packages ours alone."""
    release = release_tables(packages) if packages else None
    done = Measured([], [], [], [])
    for work in WORKS:
        for groups in (1, 3):
            name = f"{work.name}, {groups} group{'s' * (groups > 1)}"
            steps = [
                ours(work, groups, device, captured=captured, lists=lists)
                for captured, lists in ((True, False), (False, False), (True, True))
            ]
            if release is not None:
                steps += [theirs(release, work, groups, device, engine) for engine in (False, True)]
            graph, *others = measured(steps, waiting(device), turns, rounds)
            times = [graph.host, graph.whole, *(each.whole for each in others)]
            ratios: list[float] = []
            if release is not None:
                alone, engine = (each.whole for each in others[2:])
                ratios = [engine / graph.whole, alone / graph.whole]
                done.to_engine.append(ratios[0])
                done.to_kernels.append(ratios[1])
                for ratio, what in zip(ratios, ("release", "release's kernels"), strict=True):
                    if ratio < 2:
                        done.missed.append(f"{name}: {ratio:.1f} times as fast as the {what}")
            if work.length == 1 and graph.host > 20:
                done.missed.append(f"{name}: {graph.host:.1f} us of the host's time, more than 20")
            if work.length == 1 and graph.whole > 35:
                done.missed.append(f"{name}: {graph.whole:.1f} us in all, more than 35")
            done.rows.append([work.name, str(groups), *(f"{each:.1f}" for each in [*times, *ratios])])
            print(" | ".join(done.rows[-1]), flush=True)
    return done


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return float(prod(ratios) ** (1 / len(ratios)))


class NoDevice(HostQueue):
    """Does nothing, at once."""

    def call(self, kernel: Callable[..., None], *arguments: Any) -> None:
        pass

    def wait(self, done: Callable[[], bool]) -> None:
        pass

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


def main() -> None:
    """Prints the microseconds of a step that a twentieth of 400 takes at most: the machine may be busy otherwise."""
    print("step | groups | ids in arrays | ids in lists")
    for work in WORKS:
        for groups in (1, 3):
            found = []
            for lists in (False, True):
                step, times = ours(work, groups, "cpu", True, lists, NoDevice()), []
                for number in range(400):
                    began = perf_counter()
                    step(number)
                    times.append(perf_counter() - began)
                found.append(sorted(times)[20] * 1e6)
            print(f"{work.name} | {groups} | {found[0]:.1f} | {found[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
