"""SGLang's scheduler in batches, judged by contract, shadow memory and liveness.

In the interpreter of the release, `python -m blockproof.fuzz.compat.batched SEED FIRST COUNT [faults]` runs the mixes
`FIRST .. FIRST + COUNT - 1`, which depend on SEED and their number only, and prints a line of JSON for each that
something was found in, and one with the sums at the end. With `faults` it plants each known mistake instead, and prints
which mix noticed it.
"""

import json
import sys
from collections import Counter

from ...model.ops import Done, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..adapters.sglang.batch_faults import FAULTS
from ..adapters.sglang.batch_runs import draw_mix, run_mix
from ..adapters.sglang.engine import Engine, load
from ..adapters.sglang.target import HIDES, LACKS, LOSES
from ..findings.oracle_names import CONTRACT, SHADOW
from ..runs.judging import Judging
from ..runs.model_free import ModelFreeRun


class _Playback:
    """A `Target` whose answers have been prepared."""

    name = "sglang in batches"
    hides, lacks, loses = HIDES, LACKS, LOSES

    def __init__(self, first: Snapshot) -> None:
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

    def start(self, shape: Shape, shown: Snapshot) -> None:
        """See `telling.Judge`."""
        self._core = _Playback(shown)
        self._run = ModelFreeRun(self._core, Judging((CONTRACT, SHADOW)))
        self._run.start(shape)

    def step(self, operation: Operation, outcome: Outcome, shown: Snapshot) -> str:
        """See `telling.Judge`."""
        self._core.next = (outcome, shown)
        finding = self._run.step(operation)
        return f"{finding.observable} at {type(operation).__name__}: {finding.detail}" if finding else ""


def notice(engine: Engine, seed: int, count: int) -> None:
    """Plant every fault in turn into `count` mixes; print which mix noticed it first, and how."""
    for fault in FAULTS:
        found = (
            (number, run_mix(engine, draw_mix(seed, number), ByOracles(), FAULTS[fault]).found)
            for number in range(count)
        )
        number, what = next(((number, what) for number, what in found if what), (None, []))
        print(json.dumps({"fault": fault, "mix": number, "found": what}), flush=True)


def main(arguments: list[str]) -> None:
    """Run mixes and print what came of them."""
    seed, first, count = map(int, arguments[:3])
    engine, sums = load(), Counter[str]()
    if arguments[3:]:
        notice(engine, seed, count)
        return
    for number in range(first, first + count):
        mix = run_mix(engine, draw_mix(seed, number), ByOracles())
        sums += mix.seen
        sums[f"mixes of {mix.kind}"] += 1
        sums[f"operations of {mix.kind}"] += mix.seen["operations"]
        if mix.found:
            sums["mixes with a finding"] += 1
            print(json.dumps({"mix": number, "kind": mix.kind, "found": mix.found}), flush=True)
    print(json.dumps({"release": engine.version, "seed": seed, "sums": dict(sorted(sums.items()))}))


if __name__ == "__main__":
    main(sys.argv[1:])
