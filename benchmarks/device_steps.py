"""Random steps of block tables and slots, on a device and by the definition; and faults of kernels, to be found.

python benchmarks/device_steps.py [--device cuda] [--kernels triton] [--steps N] [--seed S] [--faults]

With TRITON_INTERPRET=1 and `--kernels triton` Triton's kernels run on a CPU.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import torch
from blockproof.impl.tensors import device_tables
from blockproof.impl.tensors.block_tables import BlockTables
from blockproof.impl.tensors.kernel_choice import kernel_module
from blockproof.impl.tensors.queues import CudaQueue, HostQueue
from blockproof.impl.tensors.table_layout import GroupTable

PACKAGE = device_tables.__package__
NUM_BLOCKS = 1000
STEPS_OF_A_CASE = 50
MANY, STEPS_OF_MANY = 400, 5
"""So many requests, and steps, has a case in which one program of a kernel cannot do all there is to do."""


class LateQueue(HostQueue):
    """A device that is as late as it may be: it works only when somebody waits for it."""

    def __init__(self) -> None:
        self._todo: list[Callable[[], None]] = []
        self._done = 0

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self._todo.append(lambda: super(LateQueue, self).copy(target, source))

    def call(self, kernel: Callable[..., None], *arguments: Any) -> None:
        self._todo.append(lambda: kernel(*arguments))

    def wait(self, done: Callable[[], bool]) -> None:
        while not done():
            self._done += 1
            self._todo[self._done - 1]()

    def beside(self) -> "LateQueue":
        return LateQueue()

    def after(self, other: HostQueue) -> None:
        assert isinstance(other, LateQueue)
        self._todo.append(partial(other.finish, len(other._todo)))

    def finish(self, number: int | None = None) -> None:
        """All that is queued is done, or so much of it."""
        most = len(self._todo) if number is None else number
        self.wait(lambda: self._done >= most)


@dataclass
class Expected:
    """What is expected behind a step: all entries on the device, and the places."""

    tables: list[list[int]]
    places: list[list[int]]


class Case:
    """Groups, a batch and its changes, by the definition: lists of block ids."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.interleave = draw.choice((1, 1, 2))
        parallel = draw.choice((1, 1, 2, 3))
        self.rank = draw.randrange(parallel)
        rings = draw.random() < 0.2  # beside a table that ends no ring begins anew
        self.groups = [self._group(parallel, rings) for _ in range(draw.randint(1, 3))]
        self.many = draw.random() < 0.03
        self.requests = draw.randint(MANY // 2, MANY) if self.many else draw.randint(1, 6)
        self.rows: list[list[list[int]]] = [[[] for _ in range(self.requests)] for _ in self.groups]

    def _group(self, parallel: int, rings: bool) -> GroupTable:
        size, most, kind = self.draw.choice((2, 4, 8)), self.draw.randint(1, 7), self.draw.random()
        if kind < 0.2:
            return GroupTable(size, most, state=True)
        width = self.draw.choice((size, size, size // 2))
        return GroupTable(size, most, kernel_block_size=width, parallel=parallel, ring=rings or kind > 0.85)

    def change(self, host: BlockTables) -> None:
        """One change, in the tables and here."""
        draw, kind = self.draw, self.draw.random()
        rows = sorted(draw.sample(range(self.requests), draw.randint(1, self.requests)))
        rows = list(range(len(rows))) if draw.random() < 0.3 else rows
        if kind < 0.65:
            self._new_blocks(host, rows, kind < 0.35)
        elif kind < 0.8:
            group = draw.randrange(len(self.groups))
            of_group = self.rows[group]
            pairs = [(row, entry) for row in rows for entry in range(len(of_group[row])) if draw.random() < 0.3]
            host.null(group, [row for row, _ in pairs], [entry for _, entry in pairs])
            for row, entry in pairs:
                of_group[row][entry] = 0
        else:
            self._whole_rows(host, kind, rows)

    def _new_blocks(self, host: BlockTables, rows: list[int], one_each: bool) -> None:
        """One block for each row, or some; in one group, or in all by one call."""
        draw, groups = self.draw, list(range(len(self.groups)))
        chosen = groups if draw.random() < 0.3 else [draw.choice(groups)]
        keep = draw.random() < (0.9 if one_each else 0.6)
        if keep and one_each:
            rows = [row for row in rows if all(len(self.rows[i][row]) < self.groups[i].max_blocks for i in chosen)]
        new = []
        for group in chosen:
            for row in rows:
                room = self.groups[group].max_blocks - len(self.rows[group][row]) * keep
                count = 1 if one_each else draw.randint(0, room)
                new.append([draw.randrange(one_each, NUM_BLOCKS) for _ in range(count)])
        named = None if len(chosen) > 1 or draw.random() < 0.3 * (len(groups) == 1) else chosen[0]
        (host.append if keep else host.replace)(named, rows, *self._given(new, one_each))
        for number, ids in enumerate(new):
            of_group, row = self.rows[chosen[number // len(rows)]], rows[number % len(rows)]
            of_group[row] = of_group[row] * keep + ids

    def _given(self, new: list[list[int]], one_each: bool) -> tuple[Any, ...]:
        """These block ids as lists, or in one array of 32 or 64 bits; with lengths, or without where these are one."""
        if self.draw.random() < 0.3:
            return (new,)
        flat = np.array([block for ids in new for block in ids], self.draw.choice((np.int32, np.int64)))
        return (flat,) if one_each and self.draw.random() < 0.8 else (flat, [len(ids) for ids in new])

    def _whole_rows(self, host: BlockTables, kind: float, rows: list[int]) -> None:
        one, other = self.draw.randrange(self.requests), self.draw.randrange(self.requests)
        if kind < 0.88:
            host.swap(one, other)
        elif kind < 0.94:
            host.move(one, other)
        else:
            host.clear(rows[:2])
        for of_group in self.rows:
            if kind < 0.88:
                of_group[one], of_group[other] = of_group[other], of_group[one]
            elif kind < 0.94:
                if one != other:
                    of_group[other], of_group[one] = of_group[one], []
            else:
                for row in rows[:2]:
                    of_group[row] = []

    def schedule(self, host: BlockTables) -> list[tuple[int, int]]:
        """Some tokens that have places: row and position of each."""
        draw, tokens = self.draw, []
        rows = draw.sample(range(self.requests), draw.randint(0, self.requests))
        rows = range(len(rows)) if draw.random() < 0.5 else rows  # type: ignore[assignment]
        one_each = draw.random() < 0.4
        chosen, starts, lengths = [], [], []
        for row in rows:
            start = draw.randrange(40)
            fits = [position for position in range(start, start + 30) if self._written(row, position)]
            run = next((i for i, position in enumerate(fits) if position != start + i), len(fits))
            length = draw.randint(0, run) if not one_each else 1
            if run >= length:
                chosen.append(row)
                starts.append(start)
                lengths.append(length)
                tokens += [(row, start + i) for i in range(length)]
        in_order = one_each and chosen == list(range(len(chosen)))
        host.schedule(starts, None if one_each else lengths, None if in_order else chosen)
        return tokens

    def _written(self, row: int, position: int) -> bool:
        for group, rows in zip(self.groups, self.rows, strict=True):
            entry = position // group.tokens
            entry = entry % group.max_blocks if group.ring else entry
            if entry >= len(rows[row]):
                return False
            if not group.state and rows[row][entry] == 0:
                return False
        return True

    def place(self, group: GroupTable, row: Sequence[int], position: int) -> int:
        """By the definition of context parallelism: `interleave` tokens for each rank in turn."""
        block = row[position // group.tokens % group.max_blocks]
        if group.state:
            return block or -1
        if group.parallel > 1:
            turn, inside = divmod(position % group.tokens, self.interleave)
            if turn % group.parallel != self.rank:
                return -1
            return block * group.block_size + turn // group.parallel * self.interleave + inside
        return block * group.block_size + position % group.block_size

    def expected(self, tokens: Sequence[tuple[int, int]], wanted: int) -> Expected:
        tables = []
        for group, rows in zip(self.groups, self.rows, strict=True):
            split = group.block_size // (group.kernel_block_size or group.block_size)
            for row in rows:
                entries = [block * split + part if block else 0 for block in row for part in range(split)]
                tables += entries + [0] * (group.max_blocks * split - len(entries))
        places = [
            [self.place(group, rows[row], position) for row, position in tokens] + [-1] * (wanted - len(tokens))
            for group, rows in zip(self.groups, self.rows, strict=True)
        ]
        return Expected([tables], places)


def steps(
    number: int, seed: int, open_tables: Callable[[BlockTables, int], Any], tables: type[BlockTables] = BlockTables
) -> Iterator[str | None]:
    """Carry out so many steps; yields for each what is wrong with it, or None.

    `open_tables` gives device tables, `tables` are those of the host."""
    draw = Random(seed)
    done = 0
    while done < number:
        case = Case(draw)
        host = tables(case.groups, case.requests, num_blocks=NUM_BLOCKS, rank=case.rank, interleave=case.interleave)
        device = open_tables(host, 20_000 if case.many else 250)
        if draw.random() < 0.3:
            device.kernels.held = 0  # Triton's search in memory, as they do among more requests
        captured = [draw.randrange(2 * (STEPS_OF_MANY if case.many else STEPS_OF_A_CASE)) for _ in range(2)]
        waiting: list[tuple[Expected, list[torch.Tensor]]] = []
        for step in range(min(STEPS_OF_MANY if case.many else STEPS_OF_A_CASE, number - done)):
            done += 1
            if step == captured[0]:
                device.capture(draw.choice((4, 30)), draw.choice((8, 60)))
            if step == captured[1]:
                device.capture(600 if case.many else 30, case.requests)  # read in place
            for _ in range(draw.choice((0, 1, 1, 2, 4))):
                case.change(host)
            tokens = case.schedule(host)
            wanted = len(tokens) + draw.choice((0, 0, 3, 20))
            places = device.commit(wanted)
            seen: list[torch.Tensor] = []
            device.queue.call(
                lambda seen, *now: seen.extend(each.clone() for each in now), seen, device.entries, places
            )
            waiting.append((case.expected(tokens, wanted), seen))
        if isinstance(device.queue, LateQueue):
            device.queue.finish()
        for expected, (table, places) in waiting:
            if table.tolist() != expected.tables[0]:
                yield f"tables {table.tolist()} and not {expected.tables[0]}"
            elif places.tolist() != expected.places:
                yield f"places {places.tolist()} and not {expected.places}"
            else:
                yield None


def opener(kernels: str, device: str, queue: type[HostQueue], module: Any = device_tables) -> Any:
    """Opens device tables with these kernels (a name, or a module that has them) on a device."""
    where = torch.device(device)
    make = (kernel_module(where, kernels) if isinstance(kernels, str) else kernels).for_tables

    def open_tables(host: BlockTables, most: int) -> Any:
        changes = 40 if host.max_requests < MANY // 2 else 600
        return module.DeviceTables(host, where, most, max_changes=changes, kernels=make, queue=queue())

    return open_tables


# Faults.

FAULTS: dict[str, list[tuple[str, str, str]]] = {
    "triton_kernels": [
        ("all programs write the first one's entries", "at = tl.program_id(0) * TILE", "at = tl.program_id(0) * 0"),
        ("all programs map the first one's tokens", "token = tl.program_id(0) * TILE", "token = tl.program_id(0) * 0"),
        ("slots are one too high", "wide * width + offset_in_block", "wide * width + offset_in_block + 1"),
        ("slots come from the first group's table", "at = tl.load(there + 2) + row", "at = tl.load(numbers + 2) + row"),
        ("entries come to the first group's table", "tl.load(there + 2) + row * tl", "tl.load(numbers + 2) + row * tl"),
        ("entries come one too early", "entry * of_group, first)", "tl.maximum(entry - 1, 0) * of_group, first)"),
        ("the last changed entry stays as it was", "inside = at < count", "inside = at < count - 1"),
        ("what fills a step up is not written", "mask=token < wanted", "mask=inside"),
        ("the row of the request before", "tl.gather(rows, low, 0)", "tl.gather(rows, tl.maximum(low - 1, 0), 0)"),
        ("a token belongs to the request that ends before it", ", 0) > token", ", 0) >= token"),
        ("all tokens are the first request's", "tl.where(rounds == 0, token, 0)", "token * 0"),
        ("a search ends early", "for _ in range(rounds):", "for _ in range(rounds - 1):"),
        ("a search in memory ends early", "end > token, low, middle + 1)", "end > token, low, middle)"),
        ("a search in memory begins with the request", "+ low - 1, mask=inside & (low > 0)", "+ low, mask=inside"),
        ("another rank's tokens are written, too", "== tl.load(there + 8)", ">= 0"),
        ("a ring is left", "entry = entry % tl.load(there + 9)", "entry = entry * 1"),
        ("null becomes a block", "tl.where(block == 0, 0, block * split + part)", "block * split + part"),
        ("only the first part of a block is written", "range(most_parts)", "range(1)"),
        ("a state has slots", "tl.where(tl.load(there + 10) != 0, wide, ", "tl.where(tl.load(there + 10) > 1, wide, "),
        ("a null state has a place", "tl.where(block != 0, found, -1)", "tl.where(mine, found, -1)"),
    ],
    "torch_kernels": [
        ("slots are one too high", "block_id * width + position % width", "block_id * width + position % width + 1"),
        ("slots come from the first group's table", "table[base + rows", "table[rows"),
        (
            "the last changed entry stays as it was",
            "        index = staged[",
            "        count = max(0, count - 1)\n        index = staged[",
        ),
        ("what fills a step up is not written", "        places.fill_(NO_SLOT)\n", ""),
        ("the request that ends with the token", "ends, token, right=True", "ends, token"),
        ("another rank's tokens are written, too", "% parallel == rank", "% parallel >= 0"),
        ("null becomes a block", "torch.where(block == 0, 0, block * split + part)", "block * split + part"),
    ],
    "device_tables": [
        ("a buffer is not waited for", "if self._read[buffer.number] != buffer.filled:", "if False:"),
        ("two buffers are filled while they are read", "if self._read[", "if not buffer.number and self._read["),
        (
            "a buffer counts as read by the first kernel that reads it",
            "before.filled, before.number, rounds",
            "buffer.filled, buffer.number, rounds",
        ),
        (
            "what is read as a copy is not copied",
            "buffer.memory[:used])\n        self.launch(",
            "buffer.memory[:4])\n        self.launch(",
        ),
        (
            "the tables are not committed",
            "self.launch(self.upload(), wanted)",
            "self.launch(0 * self.upload(), wanted)",
        ),
        ("the places of the step before", "if tokens:", "if tokens > 4:"),
        ("rows are those of the step before", "            elif not buffer.own_rows:", "            elif False:"),
        ("lengths are those of the step before", "            elif not buffer.one_each:", "            elif False:"),
        ("rows are taken for those in order", "buffer.own_rows = False\n            elif", "pass\n            elif"),
        ("lengths are taken for one each", "buffer.one_each = False\n            elif", "pass\n            elif"),
        ("a graph for fewer tokens is replayed", "if room >= wanted", "if room >= wanted // 2"),
        ("a graph for fewer changes is replayed", "if changes <= most:", "if changes <= most + 4:"),
    ],
    "block_tables": [
        (
            "entries are as they were when first changed",
            "self._changes = [(changed, self._flat[changed])]",
            "self._changes = [(changed, np.concatenate([each for _, each in self._changes[::-1]]))]",
        ),
        ("what is sent first has the ids of the rest", "values[left:]", "values[:-left]"),
        ("rows in order do not grow", "last[...] = last_now", "last[...] = last"),
        ("other rows do not grow", "self._last[cells] = at", "self._last[cells] = at - ONE"),
        ("the rest of a row that is replaced stays", "if rest.size and", "if rest.size > 3 and"),
    ],
}
"""What is wrong in the kernels of a module or around them, the text there, and what it is replaced by."""


def broken(module: str, old: str, new: str, folder: Path) -> Any:
    """The module with another text in place of one that it has once."""
    file = import_module(f"{PACKAGE}.{module}").__file__
    text = Path(str(file)).read_text(encoding="utf-8")
    if text.count(old) < 1:
        raise ValueError(f"{module} has no {old!r}")
    path = folder / f"{module}_{abs(hash(old + new))}.py"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    spec = spec_from_file_location(f"{PACKAGE}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    sys.modules[made.__name__] = made
    spec.loader.exec_module(made)
    return made


def found(module: str, old: str, new: str, kernels: str, device: str, most: int = 3000) -> int | None:
    """The number of the step at which a fault is found; None if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        changed = broken(module, old, new, Path(folder))
        queue = CudaQueue if device == "cuda" else LateQueue
        used = changed if module == "device_tables" else device_tables
        made = opener(changed if module.endswith("_kernels") else kernels, device, queue, used)
        tables = changed.BlockTables if module == "block_tables" else BlockTables
        number = 0
        try:
            for number, wrong in enumerate(steps(most, 7, made, tables), 1):
                if wrong:
                    return number
        except (IndexError, RuntimeError, ValueError):
            # torch would read or write outside, what is waited for was never queued, or what is right is refused
            return number + 1
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kernels", default=None, help="triton or torch")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", nargs="*", metavar="MODULE", help="plant each fault, too; of these modules alone")
    asked = parser.parse_args()
    kernels = asked.kernels or ("triton" if asked.device == "cuda" else "torch")
    queue: type[HostQueue] = CudaQueue if asked.device == "cuda" else LateQueue
    began = perf_counter()
    wrong = [each for each in steps(asked.steps, asked.seed, opener(kernels, asked.device, queue)) if each]
    seconds = perf_counter() - began
    print(f"{asked.steps:,} steps, {kernels} on {asked.device}: {len(wrong)} differ ({seconds:.0f} s)")
    for each in wrong[:3]:
        print(each)
    missed = 0
    if asked.faults is not None:
        for module in asked.faults or (f"{kernels}_kernels", "device_tables", "block_tables"):
            for what, old, new in FAULTS[module]:
                number = found(module, old, new, kernels, asked.device)
                missed += number is None
                print(f"{module}: {what}: " + (f"found at step {number}" if number else "NOT FOUND"))
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
