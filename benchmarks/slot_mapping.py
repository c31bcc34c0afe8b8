"""How long block tables, slot mappings and a dry run of the tensors take; benchmarks/README.md says against what.

python benchmarks/slot_mapping.py [--rounds N] [--seconds S] [--write docs/evidence/slot-mapping.md]
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from blockproof import impl
from written import bind_to_one_core, command, processor, put

BLOCK_SIZE = 16
MAX_TOKENS = 131_072
REQUESTS = 256
DRY_RUN_BYTES = 60 * 2**30
SEED = 0
Slots: TypeAlias = Any
"""One number for each token, as an array, a list or a tensor."""


@dataclass(frozen=True)
class Step:
    """Tokens that a step writes: `lengths[i]` of request i from `starts[i]` on, and the same token by token."""

    name: str
    tables: impl.BlockTables
    lengths: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    positions: np.ndarray


def step(name: str, lengths: Sequence[int], starts: Sequence[int]) -> Step:
    """A step over tables that hold all its tokens, with block ids drawn at random."""
    draw = np.random.default_rng(SEED)
    tables = impl.BlockTables(BLOCK_SIZE, REQUESTS, MAX_TOKENS // BLOCK_SIZE)
    for row, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        tables.append([row], [draw.integers(1, 10**6, -(-(start + length) // BLOCK_SIZE)).tolist()])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.concatenate([np.arange(s, s + n) for n, s in zip(lengths, starts, strict=True)])
    return Step(name, tables, np.array(lengths), np.array(starts), rows, positions)


def steps() -> list[Step]:
    starts = np.random.default_rng(SEED).integers(0, MAX_TOKENS, REQUESTS).tolist()
    return [
        step(f"{REQUESTS} requests x 1 token", [1] * REQUESTS, starts),
        step(f"one prefill of {MAX_TOKENS:,} tokens", [MAX_TOKENS], [0]),
        step(f"{REQUESTS - 1} x 1 token and 8,192 of a prefill", [1] * (REQUESTS - 1) + [8_192], [*starts[:-1], 8_192]),
    ]


def token_by_token(
    table: Sequence[Sequence[int]] | np.ndarray,
    counts: Sequence[int] | np.ndarray,
    rows: Sequence[int] | np.ndarray,
    positions: Sequence[int] | np.ndarray,
    slots: list[int] | np.ndarray,
) -> None:
    """The definition with the errors it asks for, written into `slots`; arrays or lists, whatever is given."""
    for i, (row, position) in enumerate(zip(rows, positions, strict=True)):
        block = position // BLOCK_SIZE
        if position < 0 or block >= counts[row]:
            raise ValueError(f"row {row}, position {position} has no block")
        block_id = table[row][block]
        if block_id == 0:
            raise ValueError(f"row {row}, position {position} has a null block")
        slots[i] = block_id * BLOCK_SIZE + position % BLOCK_SIZE


@dataclass
class Case:
    """A way to get the slots of a step; `run` returns them."""

    name: str
    run: Callable[[], Slots]
    times: list[float] = field(default_factory=list)
    """Seconds for a step, one of each round."""

    def measure(self, seconds: float) -> None:
        """One round: the mean over as many steps as fit in the time, one at least."""
        count, start = 0, time.perf_counter()
        while True:
            self.run()
            count += 1
            passed = time.perf_counter() - start
            if passed >= seconds:
                break
        self.times.append(passed / count)


def cases(of: Step) -> list[Case]:
    """The first is what the others are set against. All give the same slots."""
    table, counts, slots = of.tables.table, of.tables.counts, np.empty(len(of.rows), np.int64)
    lists = table.tolist(), counts.tolist(), of.rows.tolist(), of.positions.tolist()
    listed = [0] * len(of.rows)

    def over_arrays() -> Slots:
        token_by_token(table, counts, of.rows, of.positions, slots)
        return slots

    def over_lists() -> Slots:
        token_by_token(*lists, listed)
        return listed

    made = [
        Case("`step_slot_mapping`", lambda: of.tables.step_slot_mapping(of.lengths, of.starts)),
        Case("`slot_mapping`", lambda: of.tables.slot_mapping(of.rows, of.positions)),
        Case("Python loop over the same arrays", over_arrays),
        Case("Python loop over lists, into a list", over_lists),
    ]
    wanted = made[0].run()
    for case in made:
        if not np.array_equal(case.run(), wanted):
            sys.exit(f"{of.name}: {case.name} gives other slots, so there is nothing to measure")
    return made


# What needs torch.


def upload_cases(device: str) -> list[Case]:
    """What a worker does for a step of decoding; the first is what the others are set against."""
    import torch

    of = step("", [1] * REQUESTS, [MAX_TOKENS - 1] * REQUESTS)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def slots() -> Slots:
        arrived = impl.to_device(of.tables.step_slot_mapping(of.lengths, of.starts), device)
        wait()
        return arrived

    def table(first: int, second: int) -> Slots:
        of.tables.swap(first, second)
        arrived = of.tables.commit(device)
        wait()
        return arrived

    def both() -> Slots:
        of.tables.swap(0, REQUESTS - 1)
        of.tables.commit(device)
        return slots()

    return [
        Case(f"slots of {REQUESTS} tokens: mapped and uploaded", slots),
        Case("block table: two neighbouring rows changed, uploaded", lambda: table(0, 1)),
        Case(f"block table: first and last row changed, all {REQUESTS} rows uploaded", lambda: table(0, REQUESTS - 1)),
        Case("all rows of the block table, and slots", both),
    ]


def dry_run_case() -> Case:
    """A pool of 60 GiB for a model of 32 layers, on a device without memory."""
    spec = impl.FullAttentionSpec(16, num_kv_heads=8, head_size=128, dtype=np.dtype(np.float16))
    layers = [f"model.layers.{index}.self_attn" for index in range(32)]
    num_blocks = DRY_RUN_BYTES // (len(layers) * spec.page_size_bytes)
    tensors = [impl.KVCacheTensor(num_blocks * spec.page_size_bytes, [layer]) for layer in layers]
    config = impl.KVCacheConfig(num_blocks, tensors, [impl.KVCacheGroupSpec(layers, spec)])
    return Case("60 GiB in 32 layers", lambda: [len(impl.allocate_kv_cache(config, "meta").layers)])


def device_name(device: str) -> str:
    import torch

    return str(torch.cuda.get_device_name()) if device == "cuda" else processor()


def measure(made: Sequence[Case], seconds: float, rounds: int) -> None:
    """Every case in turn, again and again, so that what else the machine does hits all of them alike."""
    for case in made:
        case.run()
    for _ in range(rounds):
        for case in made:
            case.measure(seconds)


def tensor_lines(seconds: float, rounds: int) -> list[str]:
    if find_spec("torch") is None:
        return ["What needs torch was left out: it is not installed (`make tensors`).", ""]
    import torch

    lines = []
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        made = upload_cases(device)
        measure(made, seconds, rounds)
        title = f'To the device "{device}" ({device_name(device)}, torch {torch.__version__})'
        lines += case_table(title, made)
    dry = dry_run_case()
    measure([dry], seconds, rounds)
    return [*lines, *case_table('Dry run: all views of a configuration on the device "meta"', [dry])]


# The page.


def case_table(title: str, made: Sequence[Case]) -> list[str]:
    lines = [
        f"## {title}",
        "",
        "| what | µs, median | least to most | times the first |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case in made:
        ratio = median(own / first for own, first in zip(case.times, made[0].times, strict=True))
        spread = f"{min(case.times) * 1e6:,.1f} to {max(case.times) * 1e6:,.1f}"
        lines.append(f"| {case.name} | {median(case.times) * 1e6:,.1f} | {spread} | {ratio:,.1f} |")
    return [*lines, ""]


def page(command: str, load: float, rounds: int, seconds: float) -> str:
    lines = [
        "# Block tables and slot mappings",
        "",
        f"Written by `{command}`;",
        "[what is measured and how](../../benchmarks/README.md).",
        "",
        f"* {date.today().isoformat()}, {processor()}, {os.cpu_count()} cores, of which one is used",
        f"* Python {platform.python_version()} on {platform.system()}, numpy {np.__version__}, "
        f"blockproof {version('blockproof')}",
        f"* load of the machine before the run: {load:.1f} (the machine is shared; compare ratios, not numbers)",
        f"* {rounds} rounds, {seconds:g} s for each line in a round; blocks of {BLOCK_SIZE} tokens",
        "",
    ]
    for of in steps():
        made = cases(of)
        measure(made, seconds, rounds)
        lines += case_table(f"Slots of {of.name}", made)
    return "\n".join([*lines, *tensor_lines(seconds, rounds)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each line in each round")
    parser.add_argument("--write", type=Path, help="write the page there; it is printed otherwise")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    bind_to_one_core()
    put(page(command(), load, arguments.rounds, arguments.seconds), arguments.write)


if __name__ == "__main__":
    main()
