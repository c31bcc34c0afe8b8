"""When each situation of the floors is first reached, from several seeds: what optimisations of a core are about.

    python benchmarks/reached.py [--target impl] [--seeds 10] [--operations 10000] [--situation PART]

A line for each situation whose name has the part in it (those of steps, without it): the operations after which it was
reached for the first time from each seed, and how often in all. Exits with 1 if one was not reached from some seed.
"""

import argparse
import sys
from collections import Counter

from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary

OPTIMISED = (
    "same-step refusal of a state of decoding",
    "many blocks: taken together",
    "many blocks: given back together",
    "many blocks: found by a lookup",
    "many blocks: hit used",
    "many blocks: evicted together",
    "tokens in flight",
    "block kept for tokens in flight",
    "batch of requests",
    "batch that goes on behind a refusal",
    "batch of which several take blocks",
    "batch in which a request takes no block",
)
"""What a core that does things in bulk, in batches or not at all can do wrong (`runs.situations`)."""


def first_reached(target: str, seed: int, operations: int) -> tuple[dict[str, int], Counter[str]]:
    """The operations of one seed after which each situation was first reached, and how often each was."""
    first: dict[str, int] = {}

    def note(summary: Summary) -> None:
        for name in summary.reached.keys() - first.keys():
            if summary.reached[name]:
                first[name] = summary.operations

    plan = Plan(seed, None, operations)
    summary = run_random(open_target(target), plan, Summary(target, "random", seed), note)
    if summary.finding is not None:
        raise SystemExit(f"seed {seed}: {summary.finding.observable} after {summary.operations} operations")
    return first, summary.reached


def main() -> int:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="impl")
    parser.add_argument("--seeds", type=int, default=10, help="from 1 on")
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--situation", default="", help="a part of names")
    wanted = parser.parse_args()
    seeds = [first_reached(wanted.target, seed, wanted.operations) for seed in range(1, wanted.seeds + 1)]
    names = set().union(*(first for first, _ in seeds)) if wanted.situation else set(OPTIMISED)
    missing = 0
    for name in sorted(name for name in names if wanted.situation in name):
        after = [first.get(name) for first, _ in seeds]
        missing += None in after
        times = sum(reached[name] for _, reached in seeds)
        shown = " ".join(f"{'never' if one is None else f'{one:,}':>6}" for one in after)
        print(f"{name:42} {shown}   {times:,} times in all")
    print(f"{len(seeds)} seeds, {wanted.operations:,} operations each; not reached from some seed: {missing}")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
