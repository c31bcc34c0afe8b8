"""Malformed files and replies, and what the commands answer to them (`tests/fuzz/malformed_cases.py`).

python benchmarks/hostile.py [--traces N] [--replies N] [--configurations N] [--arguments N] [--seed N] [--keep FOLDER]

Prints how many came to which end; the longest time and the memory that this process took at most. Exits with 1 if one
broke a promise: a traceback, more than a line about what is wrong, something printed that moves the cursor, code of
the file that ran, or no end. `--keep` keeps the files that did.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.fuzz import malformed, malformed_cases  # these stand beside the tests

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
    outcomes, longest = Counter[str](), (0.0, 0)
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name, suppress(KeyboardInterrupt):
        folder = Path(name)
        cases = malformed_cases.KINDS[kind](folder)
        os.chdir(folder)
        with cases.in_place() if isinstance(cases, malformed_cases.Replies) else nullcontext():
            for number in range(seed, seed + count):
                answer = malformed.answer(cases.words(Random(f"{kind} {number}")))
                outcome = outcome_of(answer, cases, folder)
                outcomes[outcome] += 1
                longest = max(longest, (answer.seconds, number))
                if outcome.startswith("WRONG"):
                    print(f"{kind} {number}: {outcome}\n{answer.error[-2000:]}", file=sys.stderr)
                    if keep is not None:
                        shutil.copytree(folder, keep / f"{kind}-{number}", dirs_exist_ok=True)
    os.chdir(before)
    print(f"{outcomes.total():,} malformed {kind}, seeds from {seed}")
    for outcome, times in outcomes.most_common():
        print(f"{times:8,}  {outcome}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"longest {longest[0]:.1f} s (seed {longest[1]}); memory at most {most} MiB", flush=True)
    return sum(times for outcome, times in outcomes.items() if outcome.startswith("WRONG"))


def outcome_of(answer: malformed.Answer, cases: malformed_cases.Cases, folder: Path) -> str:
    """What is counted."""
    if (folder / MARK).exists():
        return "WRONG: it ran code"
    if answer.wrong == malformed.TOO_LONG and isinstance(cases, malformed_cases.Traces) and cases.takes_long():
        return f"a valid trace of a large pool, stopped after {malformed.LONGEST_S:.0f} s"
    return answer.outcome


if __name__ == "__main__":
    sys.exit(main())
