"""A release's own scheduler in batches, judged by contract, shadow memory and liveness.

In the interpreter of the release, `python -m blockproof.fuzz.compat.batched FAMILY SEED FIRST COUNT [faults]` runs the
mixes `FIRST .. FIRST + COUNT - 1`, which depend on SEED and their number only, and prints a line of JSON for each that
something was found in, and one with the sums at the end. With `faults` it plants each known mistake instead, and prints
which mix noticed it. The family's adapter has the mixes (`Family.batches`).
"""

import json
import sys
from collections import Counter
from importlib import import_module
from typing import Any

from ...model.ops import Done, Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from ..adapters import families
from ..findings.oracle_names import CONTRACT, SHADOW
from ..runs.judging import Judging
from ..runs.model_free import ModelFreeRun


class _Playback:
    """A `Target` whose answers have been prepared."""

    name = "a scheduler in batches"

    def __init__(self, runs: Any, first: Snapshot) -> None:
        """`runs`: the adapter's module, which says what its core hides, lacks and loses."""
        self.hides, self.lacks, self.loses = runs.HIDES, runs.LACKS, runs.LOSES
        self._first = first
        self.next: tuple[Outcome, Snapshot] = (Done(), first)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot]:
        """The core is there already."""
        return Done(), self._first

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """The prepared answer."""
        return self.next

    def close(self) -> None:
        """Nothing to end."""


class ByOracles:
    """A judge: contract and shadow memory, in a run without a model."""

    def __init__(self, runs: Any) -> None:
        self._runs = runs

    def start(self, shape: Shape, shown: Snapshot) -> None:
        """Begin with what the core shows before any request."""
        self._core = _Playback(self._runs, shown)
        self._run = ModelFreeRun(self._core, Judging((CONTRACT, SHADOW)))
        self._run.start(shape)

    def step(self, operation: Operation, outcome: Outcome, shown: Snapshot) -> str:
        """What an operation that was told shows to be wrong; empty for nothing."""
        self._core.next = (outcome, shown)
        finding = self._run.step(operation)
        return f"{finding.observable} at {type(operation).__name__}: {finding.detail}" if finding else ""


def notice(runs: Any, seed: int, count: int) -> None:
    """Plant every fault in turn into `count` mixes; print which mix noticed it first, and how."""
    engine = runs.load()
    for fault, plant in runs.FAULTS.items():
        found = (
            (number, runs.run_mix(engine, runs.draw_mix(seed, number), ByOracles(runs), plant).found)
            for number in range(count)
        )
        number, what = next(((number, what) for number, what in found if what), (None, []))
        print(json.dumps({"fault": fault, "mix": number, "found": what}), flush=True)


def main(arguments: list[str]) -> None:
    """Run mixes and print what came of them."""
    runs = import_module(families()[arguments[0]].batches)
    seed, first, count = map(int, arguments[1:4])
    if arguments[4:]:
        notice(runs, seed, count)
        return
    engine, sums = runs.load(), Counter[str]()
    for number in range(first, first + count):
        mix = runs.run_mix(engine, runs.draw_mix(seed, number), ByOracles(runs))
        sums += mix.seen
        sums[f"mixes of {mix.kind}"] += 1
        sums[f"operations of {mix.kind}"] += mix.seen["operations"]
        if mix.found:
            sums["mixes with a finding"] += 1
            print(json.dumps({"mix": number, "kind": mix.kind, "found": mix.found}), flush=True)
    print(json.dumps({"release": engine.version, "seed": seed, "sums": dict(sorted(sums.items()))}))


if __name__ == "__main__":
    main(sys.argv[1:])
