"""How much faster the harness is than at another commit: operations a second, in turns, as ratios (README.md).

python benchmarks/harness.py COMMIT [--seeds 1 2 3 4] [--operations N] [--rounds N] [--instructions] [--write PAGE]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from throughput import BLOCKS
from written import bind_to_one_core, command, machine_lines, parser, put, table

ROOT = Path(__file__).resolve().parent.parent
ORACLES = {
    "lockstep": ("lockstep",),
    "lockstep and shadow memory": ("lockstep", "shadow"),
    "shadow memory and contract": ("shadow", "contract"),
}
WAYS = {"drawn": "each side draws its operations itself", "recorded": "both apply the same recorded operations"}
COUNTING = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
PARTS = ("model", "impl", "fuzz", "proofs", "docs", "examples")
"""Folders of a checkout that are packages, or parts of one."""


class Other:
    """A side from outside: each method of `Side` is a call. `log`: where its instructions are counted, if they are."""

    def __init__(self, checkout: Path, folder: Path, number: int, log: Path | None) -> None:
        path = os.pathsep.join([str(folder), str(checkout / "benchmarks")])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(number), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, str(Path(__file__).resolve().with_name("harness_side.py"))]
        command = command if log is None else [*COUNTING, f"--log-file={log}", *command]
        self.log = log
        self.process = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True)

    def ask(self, name: str, *arguments: Any) -> None:
        """Call a method; `answer` returns what it returns."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What the method returns. RuntimeError if the process has ended."""
        assert self.process.stdout is not None
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError("the process has ended")
        return json.loads(answer)

    def call(self, name: str, *arguments: Any) -> Any:
        """Both at once."""
        self.ask(name, *arguments)
        return self.answer()

    def counted(self) -> dict[str, Any]:
        """The answer of `Side.counted` less what it had at its beginning, with instructions as `cost`."""
        (first, begun), (last, done) = self.answer()
        assert self.log is not None
        told = dict(re.findall(r"==(\d+)== I +refs: +([0-9,]+)", self.log.read_text()))
        cost = [int(told[str(child)].replace(",", "")) for child in (first, last)]
        met = {name: times - begun["met"].get(name, 0) for name, times in done["met"].items()}
        return {"operations": done["operations"] - begun["operations"], "cost": cost[1] - cost[0], "met": met}


@contextmanager
def two_checkouts(commit: str) -> Iterator[list[tuple[Path, Path]]]:
    """The checkout of the commit, in a temporary folder, and this one; with each a folder with it as a package."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(folder / "tree"), commit], check=True, capture_output=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(folder / "tree")], check=True)
        checkouts = [(folder / "tree", folder / "before"), (ROOT, folder / "now")]
        for checkout, packages in checkouts:
            (packages / "blockproof").mkdir(parents=True)
            for part in PARTS:
                (packages / "blockproof" / part).symlink_to(checkout / part)
        yield checkouts


@contextmanager
def two_sides(checkouts: Sequence[tuple[Path, Path]], number: int, counted: bool) -> Iterator[list[Other]]:
    """The harness of both, in new processes: where things lie in memory makes one process faster than the next."""
    with ExitStack() as stack:
        logs = [folder.with_suffix(f".{number}") if counted else None for _, folder in checkouts]
        sides = [Other(*checkout, number, log) for checkout, log in zip(checkouts, logs, strict=True)]
        for side in sides:
            stack.callback(side.process.wait)
            stack.callback(side.process.stdin.close)  # type: ignore[union-attr]
        yield sides


def same_traces(sides: Sequence[Other], recorded: list[Any]) -> int:
    """Both sides have the runs that were recorded, those that both can apply. How many that are."""
    common = set.intersection(*(set(side.call("take", recorded)) for side in sides))
    for side in sides:
        side.call("keep", sorted(common))
    return len(common)


Measured = dict[tuple[str, str], list[list[dict[str, Any]]]]
"""By way and oracles: of each turn, what the two sides answered."""


def measure(sides: Sequence[Other], seeds: Sequence[int], number: int, operations: int, cases: Measured) -> None:
    """A round: every seed is a turn, in which both sides come; who comes first changes from turn to turn."""
    for (way, oracles), turns in cases.items():
        for side in sides:
            side.call(way, ORACLES[oracles], 0, operations // 4)  # modules are imported, caches are warm
        for turn, seed in enumerate(seeds, number):
            answers: list[dict[str, Any]] = [{}, {}]
            for who in (0, 1) if turn % 2 else (1, 0):
                answers[who] = sides[who].call(way, ORACLES[oracles], seed, operations)
            turns.append(answers)
            print(f"round {number + 1}: {way}, {oracles}, seed {seed}: {ratio(answers):.2f}", file=sys.stderr)


def count(sides: Sequence[Other], seeds: Sequence[int], operations: int, cases: Measured) -> None:
    """The same by instructions, which do not depend on what else the machine does: both sides work at once. What is
    recorded is the same for every seed."""
    for judges in ORACLES.values():  # modules are imported, caches are warm
        for side in sides:
            side.ask("drawn", judges, 0, operations // 4)
        for side in sides:
            side.answer()
    for (way, oracles), turns in cases.items():
        for seed in seeds if way == "drawn" else seeds[:1]:
            for side in sides:
                side.ask("counted", way, ORACLES[oracles], seed, operations)
            turns.append([side.counted() for side in sides])
            print(f"{way}, {oracles}, seed {seed}: {ratio(turns[-1]):.3f}", file=sys.stderr)


def rate(answer: dict[str, Any]) -> float:
    """Operations in a second of processor time, or in 10^9 instructions."""
    return float(answer["operations"] / answer["cost"] * 1e9)


def ratio(answers: Sequence[dict[str, Any]]) -> float:
    """How many times as many operations the second side makes in that."""
    return rate(answers[1]) / rate(answers[0])


def ratio_table(cases: Measured, unit: str) -> list[str]:
    """The ratios."""
    rows = []
    for (way, oracles), turns in cases.items():
        rates = [f"{median(rate(answers[who]) for answers in turns):,.0f}" for who in (0, 1)]
        ratios = [ratio(answers) for answers in turns]
        rows.append([way, oracles, *rates, f"{median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"])
    return table(f"operations | judged by | before, /{unit}: | now, /{unit}: | ratio, median: | least to most:", rows)


def met_table(cases: Measured) -> list[str]:
    """What the drawn operations came to, so that one can see how much the two generators differ."""
    turns, rows = cases["drawn", "lockstep"], []
    for name in turns[0][0]["met"]:
        met = [sum(answers[who]["met"][name] for answers in turns) for who in (0, 1)]
        of = [sum(answers[who]["operations"] for answers in turns) for who in (0, 1)]
        rows.append([name, *(f"{1000 * times / all:.0f}" for times, all in zip(met, of, strict=True))])
    return table("per 1,000 drawn operations | before: | now:", rows)


def main() -> None:
    """See above."""

    asked = parser(__doc__)
    asked.add_argument("commit", help="what this checkout is compared with")
    asked.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    asked.add_argument("--rounds", type=int, help="turns of each seed, with new processes in each: 5, or 1 of counting")
    asked.add_argument("--operations", type=int, default=8_000, help="of each turn, where they are drawn")
    asked.add_argument("--instructions", action="store_true", help="count instructions (valgrind) in place of time")
    arguments = asked.parse_args()
    counted: bool = arguments.instructions
    if counted and shutil.which(COUNTING[0]) is None:
        asked.error("--instructions needs valgrind: install it, or measure time")
    load = os.getloadavg()[0]
    if not counted:
        bind_to_one_core()
    cases: Measured = {(way, oracles): [] for way in WAYS for oracles in ORACLES}
    recorded: list[Any] = []
    common, of = 0, 0
    with two_checkouts(arguments.commit) as checkouts:
        for number in range(arguments.rounds or (1 if counted else 5)):
            if not recorded:
                with two_sides(checkouts, number, counted=False) as sides:
                    recorded = sides[0].call("record")
                recorded = recorded[: arguments.operations // len(recorded[0][1])] if counted else recorded
            with two_sides(checkouts, number, counted) as sides:
                common, of = same_traces(sides, recorded), len(recorded)
                if counted:
                    count(sides, arguments.seeds, arguments.operations, cases)
                else:
                    measure(sides, arguments.seeds, number, arguments.operations, cases)
    measured, unit = ("instructions", "10^9 instructions") if counted else ("time of the processor", "s")
    lines = [
        f"# The harness against {arguments.commit}",
        "",
        f"Written by `{command()}`; [what is measured and how](../../benchmarks/README.md).",
        "",
        *machine_lines(load, also="Hypothesis"),
        f"* pools of {BLOCKS} blocks; {measured}; {common} of {of} recorded runs can be applied by both",
        "",
        *ratio_table(cases, unit),
        "",
        *[f"{name.capitalize()}: {what}." for name, what in WAYS.items()],
        "",
        *met_table(cases),
        "",
    ]
    put("\n".join(lines), arguments.write)


if __name__ == "__main__":
    main()
