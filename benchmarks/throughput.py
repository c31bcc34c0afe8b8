"""Operations a second that the harness makes and fully compares, on one core; benchmarks/README.md says of what.

python benchmarks/throughput.py [--seconds S] [--rounds N] [--target vllm==0.23.0] [--write docs/evidence/numbers.md]
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import cycle
from statistics import median
from unittest.mock import patch

from blockproof.fuzz.engines.plan import RUN_OPERATIONS, Plan
from blockproof.fuzz.engines.seeded import FULL_LOOK_EVERY, run_engine
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, ORACLES
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs import open_run
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.workload.draw import Draw, SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Done, Kind, Shape
from written import bind_to_one_core, command, machine_lines, parser, put, table

BLOCKS = 64
RECORDED_RUNS = 92
"""Four of each attention type."""
WARM_UP_OPERATIONS = 2_000


def shape_of_64_blocks(draw: Draw, kinds: Sequence[Kind], block_sizes: Sequence[int] = (), **tuned: int) -> Shape:
    """Drawn like all shapes, but for the size of the pool."""
    return replace(draw_shape(draw, kinds, block_sizes, **tuned), num_blocks=BLOCKS)


@dataclass
class Case:
    """Something that is measured: `run(seed, seconds)` returns operations done and seconds taken."""

    name: str
    run: Callable[[int, float], tuple[int, float]]
    rates: list[float] = field(default_factory=list)
    """Operations a second, one of each round."""


def lockstep_case(
    name: str, engine: str, target: Target, oracles: tuple[str, ...] = ORACLES, tensors: str | None = None
) -> Case:
    """An engine on a target: operations are drawn, applied to both sides and compared."""

    def fuzz(plan: Plan) -> Summary:
        summary = run_engine(target, plan, Summary(target.name, engine, plan.seed))
        if summary.finding is not None:
            sys.exit(f"{name}: a difference, so there is nothing to measure\n{summary.finding}")
        return summary

    def run(seed: int, seconds: float) -> tuple[int, float]:
        summary = fuzz(Plan(seed, seconds=seconds, oracles=oracles, tensors=tensors))
        return summary.operations, summary.seconds

    # The target starts, modules are imported.
    fuzz(Plan(0, operations=WARM_UP_OPERATIONS, oracles=oracles, tensors=tensors))
    return Case(name, run)


def alone_case(name: str, traces: Sequence[Trace], apply: Callable[[Trace], None]) -> Case:
    """One side applies recorded operations; nothing is drawn and nothing compared."""

    def run(seed: int, seconds: float) -> tuple[int, float]:
        operations, start = 0, time.monotonic()
        for trace in cycle(traces):
            apply(trace)
            operations += len(trace.operations)
            passed = time.monotonic() - start
            if passed >= seconds:
                break
        return operations, passed

    return Case(name, run)


def recorded() -> list[Trace]:
    """Runs as the engine `random` makes them."""
    names, traces = list(ATTENTION), []
    for index in range(RECORDED_RUNS):
        draw = SeededDraw(f"recorded/{index}")
        shape = shape_of_64_blocks(draw, ATTENTION[names[index % len(names)]])
        model, workload, operations = Model(shape), Workload(draw, shape), []
        for _ in range(RUN_OPERATIONS):
            operations.append(workload.next(model))
            model.step(operations[-1])
        traces.append(Trace(shape, tuple(operations)))
    return traces


def follow_model(trace: Trace) -> None:
    model = Model(trace.shape)
    for operation in trace.operations:
        model.step(operation)


def follow(target: Target) -> Callable[[Trace], None]:
    def apply(trace: Trace) -> None:
        built, _ = target.start(trace.shape)
        assert built == Done(), trace.shape
        for operation in trace.operations:
            target.step(operation)

    return apply


def cases(release: str, stack: ExitStack) -> Iterator[Case]:
    """All that is measured; the first is what the others are set against."""

    def opened(spec: str, isolate: bool = False) -> Target:
        target = open_target(spec, isolate=isolate)
        stack.callback(target.close)
        return target

    yield lockstep_case("impl, engine random", "random", opened("impl"))
    yield lockstep_case("impl, engine random, `--oracle lockstep`", "random", opened("impl"), (LOCKSTEP,))
    if find_spec("torch"):
        yield lockstep_case("impl, engine random, `--tensors cpu`", "random", opened("impl"), tensors="cpu")
    else:
        print("torch is not installed, and tensors are left out: make tensors", file=sys.stderr)
    yield lockstep_case("impl, engine random, `--isolate`", "random", opened("impl", isolate=True))
    if environments.find(release) is not None:
        yield lockstep_case(f"{release} in a child process, engine random", "random", opened(release))
    else:
        print(f"{release} is not installed and is left out: blockproof targets install {release}", file=sys.stderr)
    traces = recorded()
    yield alone_case("model alone, recorded operations", traces, follow_model)
    yield alone_case("impl alone through its adapter, recorded operations", traces, follow(opened("impl")))


def measure(all_cases: Sequence[Case], seconds: float, rounds: int) -> None:
    """Every case in turn, again and again, so that what else the machine does hits all of them alike."""
    for number in range(rounds):
        for case in all_cases:
            operations, taken = case.run(number + 1, seconds)
            case.rates.append(operations / taken)
            print(f"round {number + 1}: {case.name}: {case.rates[-1]:,.0f}/s", file=sys.stderr)


def throughput_table(all_cases: Sequence[Case]) -> list[str]:
    rows = []
    for case in all_cases:
        ratio = median(own / first for own, first in zip(case.rates, all_cases[0].rates, strict=True))
        spread = f"{min(case.rates):,.0f} to {max(case.rates):,.0f}"
        rows.append([case.name, f"{median(case.rates):,.0f}", spread, f"{ratio:.2f}"])
    return table("what | operations/s, median: | least to most: | ratio to the first:", rows)


def page(load: float, all_cases: Sequence[Case], arguments: argparse.Namespace) -> str:
    lines = [
        "# Numbers",
        "",
        f"Written by `{command()}`;",
        "[what is measured and how](../../benchmarks/README.md).",
        "",
        *machine_lines(load, also="Hypothesis"),
        "",
        "## Throughput",
        "",
        f"Every pool has {BLOCKS} blocks. {arguments.rounds} rounds, {arguments.seconds:g} s for each line in a round.",
        "After every operation the outcome is compared, and of the state what it can change; the whole state",
        f"every {FULL_LOOK_EVERY} operations. The shadow memory reads back what is attended to.",
        "",
        *throughput_table(all_cases),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--seconds", type=float, default=3.0, help="for each line in each round")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--target", default="vllm==0.23.0", help="the release, measured if it is installed")
    arguments = asked.parse_args()
    load = os.getloadavg()[0]
    bind_to_one_core()
    with ExitStack() as stack:
        stack.enter_context(patch.object(open_run, "draw_shape", shape_of_64_blocks))
        all_cases = list(cases(arguments.target, stack))
        measure(all_cases, arguments.seconds, arguments.rounds)
    put(page(load, all_cases, arguments), arguments.write)


if __name__ == "__main__":
    main()
