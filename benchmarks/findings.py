"""Many findings without a model, and whether each keeps its promises (`tests/fuzz/promises.py`).

python benchmarks/findings.py [--engine my-engine|nano-vllm] [--findings N] [--seconds S] [--out FOLDER]

Mistakes are planted into the example's engine, or into nano-vllm from the checkout that NANO_VLLM names. Prints a page
with what was found by mistake, and each broken promise; exits with 1 if there is one.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "tests" / "fuzz"
sys.path.append(str(HERE))

import faulty_engines  # type: ignore[import-not-found]  # noqa: E402  # both stand beside the tests
import promises  # type: ignore[import-not-found]  # noqa: E402

BATCH = 100
"""Findings whose pytest files are run by one process."""


def main() -> int:
    """Find, check, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("my-engine", "nano-vllm"), default="my-engine")
    parser.add_argument("--findings", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5.0, help="for shrinking each")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    out = (asked.out or Path(tempfile.mkdtemp(prefix="findings-"))).resolve()
    os.chdir(HERE)  # the targets are named as seen from there
    nano = asked.engine == "nano-vllm"
    begin, by_mistake, identities = time.monotonic(), Counter[str](), Counter[tuple[str, ...]]()
    broken, tries, incomplete, tests, waiting = list[str](), 0, 0, 0, list[Path]()
    for number, mistake, seed in turns(faulty_engines.NANO if nano else faulty_engines.MINE):
        if sum(by_mistake.values()) == asked.findings:
            break
        form = "faulty_engines" if number % 2 else "faulty_engines.py"  # a module, or a file
        folder = out / mistake / str(seed)
        left = promises.left_by(f"{form}:make_{'nano_' if nano else ''}{mistake}", seed, folder, asked.seconds)
        if left is None:
            continue
        by_mistake[mistake] += 1
        finding = promises.read_trace(left.shrunk).finding
        identities[finding.identity if finding else ()] += 1
        tries, incomplete = tries + left.tries, incomplete + (not left.complete)
        broken += promises.broken_by(left)
        waiting.append(folder)
        if len(waiting) == BATCH:
            tests += run_tests(waiting, out, broken)
            print(f"{sum(by_mistake.values())} findings, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    tests += run_tests(waiting, out, broken)
    print(f"{asked.engine}: {sum(by_mistake.values())} findings of {len(identities)} causes", end=" ")
    print(f"in {time.monotonic() - begin:.0f} s; {tries:,} tries to shrink them, {incomplete} given up", end=" ")
    traces = 2 * sum(by_mistake.values())
    print(f"after {asked.seconds:g} s; {traces} traces, {tests} tests; {len(broken)} broken promises")
    for mistake, times in by_mistake.most_common():
        print(f"  {mistake:28} {times}")
    for identity, times in identities.most_common():
        print(f"  {times:5}  {', '.join(identity)}")
    print("\n".join(broken))
    return 1 if broken else 0


def turns(mistakes: Sequence[Callable[..., object]]) -> Iterator[tuple[int, str, int]]:
    """Number of the turn, name of the mistake, and seed, without end."""
    for number in count():
        yield number, mistakes[number % len(mistakes)].__name__, number // len(mistakes)


def run_tests(waiting: list[Path], out: Path, broken: list[str]) -> int:
    """Run the tests of these folders from another folder, and forget the folders. Returns how many tests there were."""
    if not waiting:
        return 0
    elsewhere = out / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    number: int
    number, wrong = promises.passing_of(waiting, elsewhere)
    broken += wrong
    broken += [f"{number} tests for {len(waiting)} findings"] if number != 2 * len(waiting) else []
    waiting.clear()
    return number


if __name__ == "__main__":
    sys.exit(main())
