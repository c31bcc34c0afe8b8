"""How much faster the harness is than at another commit: operations a second, in turns, as ratios (README.md).

python benchmarks/harness.py COMMIT [--seeds 1 2 3 4] [--operations N] [--rounds N] [--write PAGE]
"""

import json
import os
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
PARTS = ("model", "impl", "fuzz", "proofs", "docs", "examples")
"""Folders of a checkout that are packages, or parts of one."""


class Other:
    """A side from outside: each method of `Side` is a call."""

    def __init__(self, checkout: Path, folder: Path, number: int) -> None:
        path = os.pathsep.join([str(folder), str(checkout / "benchmarks")])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(number), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, str(Path(__file__).resolve().with_name("harness_side.py"))]
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
def two_sides(checkouts: Sequence[tuple[Path, Path]], number: int) -> Iterator[list[Other]]:
    """The harness of both, in new processes: where things lie in memory makes one process faster than the next."""
    with ExitStack() as stack:
        sides = [Other(*checkout, number) for checkout in checkouts]
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


def rate(answer: dict[str, Any]) -> float:
    """Operations per second of processor time."""
    return float(answer["operations"] / answer["ns"] * 1e9)


def ratio(answers: Sequence[dict[str, Any]]) -> float:
    """How many times as many operations a second the second side makes."""
    return rate(answers[1]) / rate(answers[0])


def ratio_table(cases: Measured) -> list[str]:
    """The ratios."""
    rows = []
    for (way, oracles), turns in cases.items():
        rates = [f"{median(rate(answers[who]) for answers in turns):,.0f}" for who in (0, 1)]
        ratios = [ratio(answers) for answers in turns]
        rows.append([way, oracles, *rates, f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"])
    return table("operations | judged by | before, /s: | now, /s: | ratio, median: | least to most:", rows)


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
    asked.add_argument("--rounds", type=int, default=5, help="turns of each seed, with new processes in each")
    asked.add_argument("--operations", type=int, default=8_000, help="of each turn, where they are drawn")
    arguments = asked.parse_args()
    load = os.getloadavg()[0]
    bind_to_one_core()
    cases: Measured = {(way, oracles): [] for way in WAYS for oracles in ORACLES}
    recorded: list[Any] = []
    common, of = 0, 0
    with two_checkouts(arguments.commit) as checkouts:
        for number in range(arguments.rounds):
            with two_sides(checkouts, number) as sides:
                recorded = recorded or sides[0].call("record")
                common, of = same_traces(sides, recorded), len(recorded)
                measure(sides, arguments.seeds, number, arguments.operations, cases)
    lines = [
        f"# The harness against {arguments.commit}",
        "",
        f"Written by `{command()}`; [what is measured and how](../../benchmarks/README.md).",
        "",
        *machine_lines(load, also="Hypothesis"),
        f"* pools of {BLOCKS} blocks; time of the processor; {common} of {of} recorded runs can be applied by both",
        "",
        *ratio_table(cases),
        "",
        *[f"{name.capitalize()}: {what}." for name, what in WAYS.items()],
        "",
        *met_table(cases),
        "",
    ]
    put("\n".join(lines), arguments.write)


if __name__ == "__main__":
    main()
