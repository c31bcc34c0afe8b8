"""`python -m blockproof.proofs.fuzzing --cases N --seed S`: attack the prover, and say what was found."""

import argparse
import time

from .structures import fuzz_structures
from .trial import Tally, fuzz


def main() -> int:
    """Print what came of it; 1 if an answer of the prover was not true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="claims about functions of integers")
    parser.add_argument("--structures", type=int, default=1_000, help="claims about tables, bytes, loops and heaps")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    for name, attack, cases in (
        ("integers", fuzz, arguments.cases),
        ("tables, bytes, loops, heaps", fuzz_structures, arguments.structures),
    ):
        start = time.perf_counter()
        tally: Tally = attack(cases, arguments.seed)
        counts = ", ".join(f"{number:,} {status}" for status, number in sorted(tally.statuses.items()))
        print(
            f"{name}: {tally.cases:,} claims: {counts}; {len(tally.wrong)} wrong; {time.perf_counter() - start:.1f} s"
        )
        for reason, number in tally.reasons.most_common(8):
            print(f"  {number:6,} undecided: {reason}")
        for one in tally.wrong:
            print(one)
        wrong += len(tally.wrong)
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
