"""Tables and slots once more, in whole arrays of numpy, and all that may be asked wrongly: what `DeviceTables` must do.

python tests/impl/device_reference.py torch|triton FIRST CASES STEPS [DEVICE]

The reference knows nothing of `benchmarks/device_steps.py`, and says of each call whether it is legal, too: what is
not is refused, and changes nothing. The local position of a token of a rank is counted, not computed.
"""

import sys
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from blockproof.impl import BlockTables, DeviceTables, GroupTable
from blockproof.impl.tensors.kernel_choice import kernel_module

torch = pytest.importorskip("torch")

POSITIONS = 2**31


class Reference:
    """Block ids (requests, entries) of each group, null behind those held."""

    def __init__(self, groups, requests, num_blocks, rank, interleave):
        self.groups, self.requests, self.rank, self.interleave = groups, requests, rank, interleave
        self.ids = [np.zeros((requests, group.max_blocks), np.int64) for group in groups]
        self.held = [np.zeros(requests, np.int64) for _ in groups]
        self.splits = [group.block_size // (group.kernel_block_size or group.block_size) for group in groups]
        self.blocks = min([num_blocks, *(2**31 // split for split in self.splits)])

    def _exist(self, *rows):
        return all(0 <= row < self.requests for row in rows)

    def extend(self, group, rows, new, keep):
        if group is not None and not 0 <= group < len(self.groups):
            return False
        chosen = range(len(self.groups)) if group is None else [group]
        if not self._exist(*rows) or len({*rows}) < len(rows) or len(new) != len(rows) * len(chosen):
            return False
        if not all(0 <= block < self.blocks for ids in new for block in ids):
            return False
        of_cells = [(self.ids[g][row], self.held[g][row] * keep) for g in chosen for row in rows]
        if any(begin + len(ids) > len(row) for (row, begin), ids in zip(of_cells, new, strict=True)):
            return False
        for (row, begin), ids in zip(of_cells, new, strict=True):
            row[begin:] = [*ids, *[0] * (len(row) - begin - len(ids))]
        for number, ids in enumerate(new):
            g, row = chosen[number // len(rows)], rows[number % len(rows)]
            self.held[g][row] = self.held[g][row] * keep + len(ids)
        return True

    def null(self, group, rows, entries):
        if not self._exist(*rows) or any(not 0 <= e < self.held[group][r] for r, e in zip(rows, entries, strict=True)):
            return False
        self.ids[group][rows, entries] = 0
        return True

    def swap(self, one, other):
        if not self._exist(one, other):
            return False
        for each in (*self.ids, *self.held):
            each[[one, other]] = each[[other, one]]
        return True

    def move(self, source, target):
        if not self._exist(source, target):
            return False
        if source != target:
            for each in (*self.ids, *self.held):
                each[target], each[source] = each[source], 0
        return True

    def clear(self, rows):
        if not self._exist(*rows):
            return False
        for each in (*self.ids, *self.held):
            each[rows] = 0
        return True

    def on_device(self, group):
        """The table as an attention kernel reads it."""
        split = self.splits[group]
        wide = np.repeat(self.ids[group], split, axis=1)
        return np.where(wide == 0, 0, wide * split + np.tile(np.arange(split), self.groups[group].max_blocks))

    def places(self, number, rows, positions):
        """Of each token whether it may be scheduled, and its place."""
        group = self.groups[number]
        entry, inside = np.divmod(positions, group.tokens)
        legal = (positions >= 0) & (positions < POSITIONS)
        if group.ring:
            entry %= group.max_blocks
        if not (group.ring and group.state):
            legal &= entry < self.held[number][rows]
        block = self.ids[number][rows, entry.clip(0, group.max_blocks - 1)]
        if group.state:
            return legal, np.where(block == 0, -1, block)
        mine = np.arange(group.tokens) // self.interleave % group.parallel == self.rank * (group.parallel > 1)
        local = np.cumsum(mine) - 1
        return legal & (block != 0), np.where(mine[inside], block * group.block_size + local[inside], -1)


@dataclass
class Counts:
    """What was tried."""

    changed: int = 0
    refused: int = 0
    scheduled: int = 0
    schedules_refused: int = 0
    most_tokens: int = 0


class Trial:
    """Random calls, of the tables and of the reference."""

    def __init__(self, seed, kernels, counts, device):
        self.draw = draw = Random(seed)
        self.counts = counts
        self.many = draw.random() < 0.15
        parallel, interleave = draw.choice((1, 1, 2, 3, 4, 8)), draw.choice((1, 1, 2, 4))
        rings = draw.random() < 0.3
        self.groups = [self._group(parallel, interleave, rings) for _ in range(self._rare(0, draw.randint(1, 5)))]
        self.requests = self._rare(draw.randint(2049, 2500), draw.randint(1, 300)) if self.many else draw.randint(1, 8)
        self.num_blocks = draw.choice((1000, 50, 2**31, 2**31 - 1, 2))
        kept = {"num_blocks": self.num_blocks, "rank": draw.randrange(parallel), "interleave": interleave}
        self.reference = Reference(self.groups, self.requests, **kept)
        self.host = BlockTables(self.groups, self.requests, **kept)
        self.room, most = 4000 if self.many else 400, draw.choice((1, 7, 40, 300, 5000))
        module = kernel_module(torch.device(device), kernels) if isinstance(kernels, str) else kernels
        self.device = DeviceTables(self.host, device, self.room, max_changes=most, kernels=module.for_tables)

    def _rare(self, rare, usual):
        return rare if self.draw.random() < 0.04 else usual

    def _group(self, parallel, interleave, rings):
        draw = self.draw
        size, most = (
            draw.choice((1, 2, 3, 4, 5, 6, 8, 12, 16, 48)) * interleave,
            draw.randint(1, 60 if self.many else 9),
        )
        if draw.random() < 0.2:
            return GroupTable(size, most, state=True, ring=rings and draw.random() < 0.5)
        width = draw.choice([each for each in range(1, size + 1) if size % each == 0])
        shared = parallel if draw.random() < 0.8 else 1
        ring = rings and draw.random() < 0.8
        return GroupTable(size, most, draw.choice((None, width)), shared, ring)

    # What is given, in each form that it may have.

    def _block(self):
        wrong = -1, self.num_blocks, 2**31, 2**33, -(2**40)
        usual = self.draw.randrange(self.reference.blocks) if self.draw.random() < 0.9 else 0
        return self.draw.choice(wrong) if self.draw.random() < 0.003 else usual

    def _rows(self):
        number = self._rare(0, self.draw.randint(1, self.requests))
        rows = list(range(number)) if self.draw.random() < 0.4 else self.draw.sample(range(self.requests), number)
        if rows and self.draw.random() < 0.03:
            rows[self.draw.randrange(number)] = self.draw.choice((-1, self.requests, rows[0], 2**40))
        return rows

    def _given(self, numbers):
        if self.draw.random() < 0.4 or any(abs(number) >= 2**15 for number in numbers):
            return list(numbers)
        return np.array(numbers, self.draw.choice((np.int64, np.int32, np.int16)))

    def _ids(self, new):
        if self.draw.random() < 0.3:
            return (new,)
        if new and self.draw.random() < 0.1:
            return ([np.array(ids, np.int64) for ids in new],)
        flat = [block for ids in new for block in ids]
        small = all(-(2**31) <= block < 2**31 for block in flat)
        array = np.array(flat, self.draw.choice((np.int64, np.int32)) if small else np.int64)
        one_each = all(len(ids) == 1 for ids in new) and self.draw.random() < 0.8
        return (array,) if one_each else (array, self._given([len(ids) for ids in new]))

    def _same(self, call, wanted, what):
        """Whether it is refused, as it has to be, or done."""
        said = None
        try:
            call()
        except ValueError as refused:
            said = str(refused)
        assert (said is None) == wanted, (what, said)
        return wanted

    # Calls.

    def change(self):
        draw, kind = self.draw, self.draw.random()
        host, reference = self.host, self.reference
        if kind < 0.6:
            keep = draw.random() < 0.7
            group, rows, new = self._new_blocks(keep)
            call = host.append if keep else host.replace
            given = self._given(rows), *self._ids(new)
            done = self._same(lambda: call(group, *given), reference.extend(group, rows, new, keep), (group, rows, new))
        elif kind < 0.75 and self.groups:
            group = draw.randrange(len(self.groups))
            held = reference.held[group].tolist()
            pairs = [(row, entry) for row in range(self.requests) for entry in range(held[row]) if draw.random() < 0.15]
            pairs += self._rare([draw.choice(((-1, 0), (0, -1), (self.requests, 0), (0, held[0])))], [])
            rows, entries = ([pair[i] for pair in pairs] for i in (0, 1))
            wanted = reference.null(group, rows, entries)
            done = self._same(lambda: host.null(group, self._given(rows), self._given(entries)), wanted, pairs)
        elif kind < 0.85:
            what = draw.choice(("swap", "move"))
            pair = [self._rare(draw.choice((-1, self.requests)), draw.randrange(self.requests)) for _ in range(2)]
            done = self._same(lambda: getattr(host, what)(*pair), getattr(reference, what)(*pair), (what, pair))
        else:
            rows = self._rows()[: draw.choice((1, 3, self.requests))]
            done = self._same(lambda: host.clear(self._given(rows)), reference.clear(rows), rows)
        self.counts.changed += done
        self.counts.refused += not done
        for group in range(len(self.groups)):
            assert (host.table(group) == reference.ids[group]).all()
            assert (host.counts[group] == reference.held[group]).all()

    def _new_blocks(self, keep):
        draw, reference = self.draw, self.reference
        group = draw.randrange(len(self.groups)) if self.groups and draw.random() < 0.5 else None
        group = draw.choice((-1, len(self.groups))) if draw.random() < 0.01 else group
        chosen = [g for g in (range(len(self.groups)) if group is None else [group]) if 0 <= g < len(self.groups)]
        rows, one_each = self._rows(), draw.random() < 0.5
        if one_each and draw.random() < 0.8:
            full = [reference.held[g] >= self.groups[g].max_blocks for g in chosen]
            rows = [row for row in rows if not 0 <= row < self.requests or not any(each[row] for each in full)]
        new = []
        for g in chosen:
            for row in rows:
                inside = keep and 0 <= row < self.requests
                room = self.groups[g].max_blocks - (reference.held[g][row] if inside else 0)
                number = 1 if one_each else draw.randint(0, int(room) + (draw.random() < 0.02))
                new.append([self._block() for _ in range(number)])
        return group, rows, self._rare(new[:-1], new)

    def step(self):
        """Schedule tokens, commit, and compare."""
        draw, reference = self.draw, self.reference
        rows, starts, lengths = self._batch()
        groups = (
            None if draw.random() < 0.8 else draw.sample(range(len(self.groups)), draw.randint(0, len(self.groups)))
        )
        of_tokens = np.repeat(rows, lengths).astype(np.int64)
        runs = [start + np.arange(length) for start, length in zip(starts, lengths, strict=True)]
        positions = np.concatenate([*runs, np.zeros(0, np.int64)])
        found = [reference.places(group, of_tokens, positions) for group in range(len(self.groups))]
        asked = range(len(self.groups)) if groups is None else groups
        wanted = bool(((positions >= 0) & (positions < POSITIONS)).all()) and all(found[g][0].all() for g in asked)
        one_each = all(length == 1 for length in lengths) and draw.random() < 0.8
        in_order = rows == list(range(len(rows))) and draw.random() < 0.8
        given = None if one_each else self._given(lengths), None if in_order else self._given(rows)
        begun = self._given(starts)
        done = self._same(
            lambda: self.host.schedule(begun, *given, groups=groups), wanted, (starts, lengths, rows, groups)
        )
        self.counts.scheduled += done
        self.counts.schedules_refused += not done
        tokens = len(positions) * done
        self.counts.most_tokens = max(self.counts.most_tokens, tokens)
        pad_to = draw.choice((None, min(tokens + draw.choice((0, 3, 20, 300)), self.room)))
        places = self.device.commit(pad_to).cpu().numpy()
        assert places.shape == (len(self.groups), tokens if pad_to is None else pad_to)
        assert (places[:, tokens:] == -1).all()
        for group in range(len(self.groups)):
            assert (self.device.table(group).cpu().numpy() == reference.on_device(group)).all()
            if tokens and group in asked:
                assert places[group, :tokens].tolist() == found[group][1].tolist()

    def _batch(self):
        """Rows, first positions and lengths: mostly of tokens that have places."""
        draw, reference, batch = self.draw, self.reference, []
        one_each, in_order = draw.random() < 0.4, draw.random() < 0.5
        chosen = draw.sample(range(self.requests), draw.randint(0, self.requests))
        held = [size * group.tokens for size, group in zip(reference.held, self.groups, strict=True) if not group.ring]
        left = self.room
        for row in range(len(chosen)) if in_order else chosen:
            end = min((int(each[row]) for each in held), default=POSITIONS) + self._rare(1, 0)
            start = draw.randrange(min(max(end, 1), draw.choice((1000, POSITIONS))))
            length = 1 if one_each else draw.randint(0, max(min(end - start, 200 if self.many else 30, left), 0))
            if draw.random() < 0.005:
                start = draw.choice((-1, -5, POSITIONS - 1, POSITIONS, 2**40))
            run = start + np.arange(length)
            places = [reference.places(group, np.full(length, row), run)[0].all() for group in range(len(self.groups))]
            if length <= left and (all(places) or draw.random() < 0.01):
                batch.append((row, start, length))
                left -= length
            elif in_order and one_each:
                break
        return [[each[i] for each in batch] for i in range(3)]


def tried(kernels, seeds, steps, device="cpu"):
    """Carries out so many steps of each, with kernels of a name or of a module; AssertionError, with the seed, where
    anything differs."""
    counts = Counts()
    for seed in seeds:
        try:
            trial = Trial(seed, kernels, counts, device)
            for step in range(steps):
                if step in (steps // 3, steps // 2):
                    changes, tokens = trial.draw.choice((0, 4, 300)), trial.draw.choice((1, 8, 60, 300))
                    trial.device.capture(min(changes, trial.device.max_changes), tokens)
                for _ in range(trial.draw.choice((0, 1, 1, 2, 4))):
                    trial.change()
                trial.step()
        except Exception as error:
            raise AssertionError(f"{kernels}, seed {seed}: {type(error).__name__}: {error}") from error
    return counts


if __name__ == "__main__":
    first, cases, steps_of_each = map(int, sys.argv[2:5])
    print(tried(sys.argv[1], range(first, first + cases), steps_of_each, *sys.argv[5:]))
