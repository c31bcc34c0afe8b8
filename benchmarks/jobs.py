"""What a second process brings: `fuzz --jobs 2` beside `--jobs 1`, in turns.

    python benchmarks/jobs.py [--seconds 30] [--seconds 120] [--rounds 3] [--target impl] [--json]

Prints for each length the median over rounds of operations a second as the report says them, and over the whole
command, and of their ratios within a round. `two commands` are two with one job each, side by side: what the machine
gives two processes that know nothing of each other, so no `--jobs` can be better. Ratios of wall time mean something
on an idle machine only. Operations per second of *processor* time do on any: each job makes `--operations`, and what a
run of one operation takes is taken off.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ran:
    """One command."""

    operations: int
    reported: float
    """Operations a second, as in its report: from when the target is ready."""
    wall: float
    processor: float
    """Of all its processes, in seconds."""

    @property
    def whole(self) -> float:
        """Operations a second of the whole command."""
        return self.operations / self.wall


def ran(target: str, seed: int, jobs: int, *limit: str) -> Ran:
    """Run the command once. RuntimeError if it finds something or fails."""
    return _ended(*_begun(target, seed, jobs, *limit))


def two_commands(target: str, seed: int, seconds: float) -> tuple[Ran, Ran]:
    """Two with one job each at the same time."""
    begun = [_begun(target, one, 1, "--seconds", f"{seconds:g}") for one in (seed, seed + 1)]
    return _ended(*begun[0]), _ended(*begun[1])


def _begun(target: str, seed: int, jobs: int, *limit: str) -> "tuple[subprocess.Popen[str], list[str], float]":
    words = ["fuzz", "--target", target, "--seed", str(seed), "--jobs", str(jobs), *limit, "--json"]
    command = [sys.executable, "-m", "blockproof.fuzz.cli", *words]
    begin = time.monotonic()
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True), words, begin


def _ended(process: "subprocess.Popen[str]", words: list[str], begin: float) -> Ran:
    assert process.stdout is not None
    with process.stdout as output:
        text = output.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode, wall = os.waitstatus_to_exitcode(status), time.monotonic() - begin
    if process.returncode:
        raise RuntimeError(f"blockproof {' '.join(words)} ended with status {process.returncode}")
    report = json.loads(text)
    return Ran(report["operations"], report["operations_per_second"], wall, used.ru_utime + used.ru_stime)


def compared(target: str, seconds: float, rounds: int) -> dict[str, float]:
    """Medians over the rounds; which comes first changes from round to round."""
    found = list[tuple[Ran, Ran, tuple[Ran, Ran]]]()
    for number in range(rounds):
        seed, limit = 10 * number, ("--seconds", f"{seconds:g}")
        if number % 2:
            two, apart, one = (
                ran(target, seed, 2, *limit),
                two_commands(target, seed, seconds),
                ran(target, seed, 1, *limit),
            )
        else:
            one, apart, two = (
                ran(target, seed, 1, *limit),
                two_commands(target, seed, seconds),
                ran(target, seed, 2, *limit),
            )
        found.append((one, two, apart))
    return {
        "operations/s with 1 job": median(one.reported for one, _, _ in found),
        "operations/s with 2 jobs": median(two.reported for _, two, _ in found),
        "ratio of 2 jobs to 1": median(two.reported / one.reported for one, two, _ in found),
        "ratio of the whole commands": median(two.whole / one.whole for one, two, _ in found),
        "ratio of two commands to 1 job": median(
            sum(a.reported for a in apart) / one.reported for one, _, apart in found
        ),
        "ratio of 2 jobs to two commands": median(
            two.reported / sum(a.reported for a in apart) for _, two, apart in found
        ),
    }


def per_processor_second(target: str, operations: int, rounds: int) -> dict[str, float]:
    """What a job costs, whatever else the machine does."""
    start = {jobs: median(_processor(target, 1, jobs) for _ in range(rounds)) for jobs in (1, 2)}
    rates = [
        {jobs: operations * jobs / (_processor(target, operations, jobs) - start[jobs]) for jobs in order}
        for order in ([(1, 2), (2, 1)] * rounds)[:rounds]
    ]
    return {
        "operations per processor second with 1 job": median(of_round[1] for of_round in rates),
        "operations per processor second with 2 jobs": median(of_round[2] for of_round in rates),
        "their ratio": median(of_round[2] / of_round[1] for of_round in rates),
        "processor seconds to start with 1 job": start[1],
        "processor seconds to start with 2 jobs": start[2],
    }


def _processor(target: str, operations: int, jobs: int) -> float:
    return ran(target, 7, jobs, "--operations", str(operations * jobs)).processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, action="append", help="30 and 120 by default")
    parser.add_argument("--operations", type=int, default=30_000, help="of each job, for processor time")
    parser.add_argument("--no-wall", action="store_true", help="processor time alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default="impl")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    every = {"any machine": per_processor_second(given.target, given.operations, given.rounds)}
    for seconds in () if given.no_wall else given.seconds or (30, 120):
        every[f"idle machine, runs of {seconds:g} s"] = compared(given.target, seconds, given.rounds)
    if given.json:
        print(json.dumps(every, indent=1))
        return
    for length, found in every.items():
        print(length)
        for name, value in found.items():
            print(f"  {name}: {value:,.3f}" if value < 100 else f"  {name}: {value:,.0f}")


if __name__ == "__main__":
    main()
