"""How much faster the harness is than at another commit: operations a second in lockstep, in turns, as ratios.

python benchmarks/harness.py COMMIT [--seeds 1 2 3 4] [--operations N] [--rounds N] [--write PAGE]

benchmarks/README.md says what is measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
ORACLES = {"lockstep": ("lockstep",), "lockstep and shadow memory": ("lockstep", "shadow")}
WAYS = {"drawn": "each side draws its operations itself", "recorded": "both apply the same recorded operations"}
PARTS = ("model", "impl", "fuzz", "proofs", "docs", "examples")
"""Folders of a checkout that are packages, or parts of one."""


# One side: a process of its own, which imports the package from its checkout.


class Side:
    """Runs the harness of one checkout. Names are taken from its own `throughput.py`: modules have moved since."""

    def __init__(self) -> None:
        self.names: Any = import_module("throughput")
        self.target = self.names.open_target("impl")
        self.engine = vars(self.names).get("open_run") or self.names.engines
        self.traces: list[Any] = []

    def drawn(self, oracles: Sequence[str], seed: int, operations: int) -> dict[str, Any]:
        """What the engine `random` does with this seed, at least so many operations of it."""
        names, summary = self.names, self.names.Summary("impl", "random", seed)
        plan = names.Plan(seed, operations=operations, oracles=tuple(oracles))
        with patch.object(self.engine, "draw_shape", self._of_64_blocks(self.engine.draw_shape)):
            begin = time.process_time_ns()
            names.run_engine(self.target, plan, summary)
            taken = time.process_time_ns() - begin
        assert summary.finding is None, summary.finding
        of = {"Refused": 0, "Failed": 0} | Counter(result for _, result in summary.outcomes.elements())
        met = {"refused": of["Refused"], "hits": summary.reached["hit"], "situations": summary.reached.total()}
        return {"operations": summary.operations, "ns": taken, "met": met}

    def _of_64_blocks(self, drawn: Callable[..., Any]) -> Callable[..., Any]:
        """Shapes as this side draws them, but for the size of the pool."""
        return lambda *about, **tuned: replace(drawn(*about, **tuned), num_blocks=self.names.BLOCKS)

    def recorded(self, oracles: Sequence[str], seed: int, operations: int) -> dict[str, Any]:
        """The recorded operations, each trace in a run of its own. The seed says nothing here."""
        done, begin = 0, time.process_time_ns()
        for trace in self.traces:
            done += self._apply(trace, oracles)
        taken = time.process_time_ns() - begin
        return {"operations": done, "ns": taken, "met": {}}

    def _apply(self, trace: Any, oracles: Sequence[str]) -> int:
        """Operations of the trace that are applied without a finding."""
        names = self.names
        if hasattr(names.Plan, "judging"):
            judging = replace(names.Plan(0, oracles=tuple(oracles)).judging(), full_look_every=names.FULL_LOOK_EVERY)
            run = self.engine.open_run(self.target, judging)
        else:
            run = self.engine.open_run(self.target, (), tuple(oracles))
        if run.start(trace.shape) is not None or not run.built:
            return 0
        for number, operation in enumerate(trace.operations):
            if run.step(operation) is not None:
                return number
        return len(trace.operations) if getattr(run, "finish", lambda: None)() is None else 0

    def layers(self) -> dict[str, float]:
        """Microseconds per recorded operation in each layer of this side, the least of three."""
        operations = sum(len(trace.operations) for trace in self.traces)
        taken = dict.fromkeys(("model", "model, glance", "core", "core, glance"), 0.0)
        for trace in self.traces:
            for layer in taken:
                taken[layer] += min(self._layer(trace, layer) for _ in range(3)) / operations / 1000
        glances = {f"looking at the {side}": taken[f"{side}, glance"] - taken[side] for side in ("model", "core")}
        return {"the model": taken["model"], "our core through its adapter": taken["core"], **glances}

    def _layer(self, trace: Any, layer: str) -> int:
        """Nanoseconds of the processor for the trace on one side alone, with glances after each operation or not."""
        looks = import_module("blockproof.fuzz.runs.model_looks").ModelLooks
        model, target = self.names.Model(trace.shape), self.target
        last = looks(model).look() if layer == "model, glance" else target.start(trace.shape)[1]
        glances = looks(model)
        glances.look()
        begin = time.process_time_ns()
        for operation in trace.operations:
            if layer == "model":
                model.apply(operation)
            elif layer == "model, glance":
                model.apply(operation)
                last = glances.glance(operation, last)
            elif layer == "core":
                target._apply(operation)
            else:
                _, last = target.glance(operation, last)
        return time.process_time_ns() - begin

    def record(self) -> list[Any]:
        """Runs of this side's own generator, JSON-ready."""
        return [[_plain(trace.shape), [_plain(one) for one in trace.operations]] for trace in self.names.recorded()]

    def take(self, recorded: list[Any]) -> list[int]:
        """Keep these runs. Returns numbers of those that are legal here from end to end, and in which nothing is
        found."""
        ops, legal = import_module("blockproof.model.ops"), import_module("blockproof.model.legal")
        taken = []
        for number, (shape, operations) in enumerate(recorded):
            trace = self.names.Trace(_made(ops, shape), tuple(_made(ops, one) for one in operations))
            model = self.names.Model(trace.shape)
            allowed = [legal.allows(model, one) and bool(model.step(one)) for one in trace.operations]
            if all(allowed) and self._apply(trace, ("lockstep", "shadow")) == len(operations):
                taken.append(number)
            self.traces.append(trace)
        return taken

    def keep(self, numbers: list[int]) -> None:
        """Of the runs that were taken only these."""
        self.traces = [self.traces[number] for number in numbers]


def serve() -> None:
    """Answer calls of methods of `Side`, one JSON array a line, until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    side = Side()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(side, name)(*arguments)), file=answers, flush=True)


def _plain(value: Any) -> Any:
    """A record as its kind and its fields; None for a field that is at its default."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = [one for one in fields(value) if getattr(value, one.name) != one.default]
        return {"": type(value).__name__, **{one.name: _plain(getattr(value, one.name)) for one in changed}}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _made(ops: Any, value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict):
        return getattr(ops, value[""])(**{name: _made(ops, one) for name, one in value.items() if name})
    return tuple(_made(ops, one) for one in value) if isinstance(value, list) else value


# Both sides.


class Other:
    """A side from outside: each method of `Side` is a call."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        package = folder / "blockproof"
        package.mkdir(parents=True)
        for part in PARTS:
            (package / part).symlink_to(checkout / part)
        path = os.pathsep.join([str(folder), str(checkout / "benchmarks")])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True)

    def call(self, name: str, *arguments: Any) -> Any:
        """What the method returns. RuntimeError if the process has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(f"{name}: the process has ended")
        return json.loads(answer)


@contextmanager
def two_sides(commit: str) -> Iterator[tuple[Other, Other]]:
    """The harness of the commit, and that of this checkout. The commit is checked out into a temporary folder."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(folder / "tree"), commit], check=True, capture_output=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(folder / "tree")], check=True)
        sides = Other(folder / "tree", folder / "before"), Other(ROOT, folder / "now")
        for side in sides:
            stack.callback(side.process.wait)
            stack.callback(side.process.stdin.close)  # type: ignore[union-attr]
        yield sides


def same_traces(sides: Sequence[Other]) -> tuple[int, int]:
    """Both sides have the runs that the first one records, those that both can apply. How many that are, and of how
    many."""
    recorded = sides[0].call("record")
    common = set.intersection(*(set(side.call("take", recorded)) for side in sides))
    for side in sides:
        side.call("keep", sorted(common))
    return len(common), len(recorded)


Measured = dict[tuple[str, str], list[list[dict[str, Any]]]]
"""By way and oracles: of each turn, what the two sides answered."""


def measure(sides: Sequence[Other], seeds: Sequence[int], rounds: int, operations: int) -> Measured:
    """Every seed and round is a turn, in which both sides come; who comes first changes from turn to turn."""
    cases: Measured = {(way, oracles): [] for way in WAYS for oracles in ORACLES}
    for (way, oracles), turns in cases.items():
        for side in sides:
            side.call(way, ORACLES[oracles], 0, operations // 4)  # modules are imported, caches are warm
        for number, seed in enumerate([*seeds] * rounds):
            answers: list[dict[str, Any]] = [{}, {}]
            for who in (0, 1) if number % 2 else (1, 0):
                answers[who] = sides[who].call(way, ORACLES[oracles], seed, operations)
            turns.append(answers)
            print(f"{way}, {oracles}, seed {seed}: {ratio(answers):.2f}", file=sys.stderr)
    return cases


def rate(answer: dict[str, Any]) -> float:
    """Operations per second of processor time."""
    return float(answer["operations"] / answer["ns"] * 1e9)


def ratio(answers: Sequence[dict[str, Any]]) -> float:
    """How many times as many operations a second the second side makes."""
    return rate(answers[1]) / rate(answers[0])


def table(cases: Measured) -> list[str]:
    """The ratios."""
    lines = ["| operations | judged by | before, /s | now, /s | ratio, median | least to most |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
    for (way, oracles), turns in cases.items():
        rates = [median(rate(answers[who]) for answers in turns) for who in (0, 1)]
        ratios = [ratio(answers) for answers in turns]
        spread = f"{median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
        lines.append(f"| {way} | {oracles} | {rates[0]:,.0f} | {rates[1]:,.0f} | {spread} |")
    return lines


def met_lines(cases: Measured) -> list[str]:
    """What the drawn operations came to, so that one can see how much the two generators differ."""
    lines = ["| per 1,000 drawn operations | before | now |", "| --- | ---: | ---: |"]
    turns = cases["drawn", "lockstep"]
    for name in turns[0][0]["met"]:
        shares = [
            1000 * sum(answers[who]["met"][name] for answers in turns) / sum(one[who]["operations"] for one in turns)
            for who in (0, 1)
        ]
        lines.append(f"| {name} | {shares[0]:.0f} | {shares[1]:.0f} |")
    return lines


def layer_lines(layers: dict[str, float], cases: Measured) -> list[str]:
    """Where the time of a recorded operation goes now, under lockstep alone."""
    whole = 1e6 / max(rate(answers[1]) for answers in cases["recorded", "lockstep"])
    rest = {"starting cores, full looks, comparing, counting situations": whole - sum(layers.values())}
    rows = [f"| {layer} | {taken:.1f} |" for layer, taken in {**layers, **rest, "all": whole}.items()]
    return ["| now, for a recorded operation under lockstep | µs |", "| --- | ---: |", *rows]


def main() -> None:
    """See above."""
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    from throughput import BLOCKS, machine_lines
    from written import bind_to_one_core, command, put

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="what this checkout is compared with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=2, help="turns of each seed")
    parser.add_argument("--operations", type=int, default=20_000, help="of each turn, where they are drawn")
    parser.add_argument("--write", type=Path, help="write the page there; it is printed otherwise")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    bind_to_one_core()
    with two_sides(arguments.commit) as sides:
        common, of = same_traces(sides)
        cases = measure(sides, arguments.seeds, arguments.rounds, arguments.operations)
        layers = sides[1].call("layers")
    lines = [
        f"# The harness against {arguments.commit}",
        "",
        f"Written by `{command()}`; [what is measured and how](../../benchmarks/README.md).",
        "",
        *machine_lines(load),
        f"* pools of {BLOCKS} blocks; time of the processor; {common} of {of} recorded runs can be applied by both",
        "",
        *table(cases),
        "",
        *[f"{name.capitalize()}: {what}." for name, what in WAYS.items()],
        "",
        *met_lines(cases),
        "",
        *layer_lines(layers, cases),
        "",
    ]
    put("\n".join(lines), arguments.write)


if __name__ == "__main__":
    main()
