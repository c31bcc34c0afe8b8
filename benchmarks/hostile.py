"""Malformed files and replies, and what the commands answer to them (`tests/fuzz/malformed_cases.py`).

python benchmarks/hostile.py [--traces N] [--replies N] [--configurations N] [--arguments N] [--reports N]
                             [--checkpoints N] [--seed N] [--keep FOLDER]

Prints how many came to which end; the longest time and the memory that this process took at most. Exits with 1 if one
broke a promise: a traceback, more than a line about what is wrong, something printed that moves the cursor, code of
the file that ran, a program that was started, a file elsewhere, more than a GiB, or no end. `--keep` keeps the files
that did.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.fuzz import malformed, malformed_cases, malformed_watch  # these stand beside the tests

INTERRUPTED = 130
MARK = "blockproof-was-here"
"""The file that a trace would make if it could run a program."""


def main() -> int:
    """Spoil, ask, count, print."""
    parser = argparse.ArgumentParser()
    for kind in malformed_cases.KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    bad = 0
    for kind in malformed_cases.KINDS:
        if count := getattr(asked, kind):
            bad += run(kind, count, asked.seed, asked.keep)
    return 1 if bad else 0


def run(kind: str, count: int, seed: int, keep: Path | None) -> int:
    """So many of a kind, or as many as were done when Ctrl-C ended it. Returns how many broke a promise."""
    outcomes, longest, most = Counter[str](), (0.0, 0), 0
    before, begin, used = Path.cwd(), time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name, suppress(KeyboardInterrupt):
        folder = Path(name)
        here = folder / "so" / "deep"  # that `../../x` stays in the folder
        here.mkdir(parents=True)
        cases = malformed_cases.KINDS[kind](here)
        os.chdir(here)
        with cases.in_place() if isinstance(cases, malformed_cases.Replies) else nullcontext():
            for number in range(seed, seed + count):
                answer, wrong, taken = malformed_watch.watched(cases.words(Random(f"{kind} {number}")), folder)
                if answer.code == INTERRUPTED:
                    break
                outcome = outcome_of(answer, wrong, cases, here)
                outcomes[outcome] += 1
                most = max(most, taken)
                longest = max(longest, (answer.seconds, number))
                if outcome.startswith("WRONG"):
                    print(f"{kind} {number}: {outcome}\n{answer.error[-2000:]}", file=sys.stderr)
                    if keep is not None:
                        shutil.copytree(folder, keep / f"{kind}-{number}", dirs_exist_ok=True)
    os.chdir(before)
    print(f"{outcomes.total():,} malformed {kind}, seeds from {seed}")
    print("".join(f"{times:8,}  {outcome}\n" for outcome, times in outcomes.most_common()), end="")
    print(f"longest {longest[0]:.1f} s (seed {longest[1]}); most memory for one {most} MiB")
    print(f"{time.monotonic() - begin:.0f} s, {time.process_time() - used:.0f} s of processor time", flush=True)
    return sum(times for outcome, times in outcomes.items() if outcome.startswith("WRONG"))


def outcome_of(answer: malformed.Answer, wrong: str, cases: malformed_cases.Cases, folder: Path) -> str:
    """What is counted."""
    if (folder / MARK).exists():
        return "WRONG: it ran code"
    may_be_long = isinstance(cases, malformed_cases.Traces | malformed_cases.Arguments) and cases.takes_long()
    if answer.wrong == malformed.TOO_LONG and may_be_long:
        return f"valid, and as long as was asked for: stopped after {malformed.LONGEST_S:.0f} s"
    return f"WRONG: {wrong}" if wrong else answer.outcome


if __name__ == "__main__":
    sys.exit(main())
