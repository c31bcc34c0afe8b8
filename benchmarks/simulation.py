"""How soon `simulate` finds each of the mistakes planted into examples/my-scheduler-engine and examples/my-pair, and by
which judge.

`python benchmarks/simulation.py` prints the table of docs/evidence/simulation.md.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.findings.story_finding import StoryFinding
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.simulation.run import SimulatedRun

ROOT = Path(__file__).parents[1]
EXAMPLE, PAIR = ROOT / "examples" / "my-scheduler-engine", ROOT / "examples" / "my-pair"
sys.path.insert(0, str(ROOT))

from tests.fuzz.pair_mistakes import ADAPTED, PAIRED  # noqa: E402
from tests.fuzz.scheduler_mistakes import MISTAKES, OFFLOADING  # noqa: E402
from tests.fuzz.tier_mistakes import TIERED  # noqa: E402

PLACES = (
    (MISTAKES, EXAMPLE, "scheduler_engine.py", "simulated.py:make_engine"),
    (OFFLOADING, EXAMPLE, "offloading.py", "simulated.py:make_offloading_engine"),
    (TIERED, EXAMPLE, "tiered.py", "simulated_tier.py:make_engine"),
    (PAIRED, PAIR, "pair_engine.py", "simulated.py:make_engine"),
    (ADAPTED, PAIR, "simulated.py", "simulated.py:make_engine"),
)
"""Mistakes, the folder and the file that have them, and the engine."""
EVERY = {name: mistake for mistakes, *_ in PLACES for name, mistake in mistakes.items()}


def planted(name: str, folder: Path) -> SimulatedFamily:
    """The engine with this mistake, in a folder of its own."""
    folder.mkdir()
    _, example, in_file, factory = next(place for place in PLACES if name in place[0])
    for file in example.glob("*.py"):
        source = file.read_text(encoding="utf-8")
        if file.name == in_file:
            mistake = EVERY[name]
            assert source.count(mistake.old) == 1, (name, source.count(mistake.old))
            source = source.replace(mistake.old, mistake.new)
        (folder / file.name).write_text(source, encoding="utf-8")
    return SimulatedFamily(open_engine_here(f"{folder / factory}"))


def found_in(family: SimulatedFamily, seed: int, most: int) -> tuple[StoryFinding | None, int]:
    """The first finding within so many steps, and how many there were until then."""
    steps = number = 0
    while steps < most:
        run = SimulatedRun(family.engine, family.draw(seed, number))
        found, number = run.run(3000), number + 1
        steps += run.steps
        if found:
            return found[0], steps
    return None, steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    print("| mistake | judge | steps until found, by seed | what is said |\n| --- | --- | ---: | --- |")
    begun, missed = time.process_time(), 0
    with TemporaryDirectory() as scratch:
        for name in [name for name in EVERY if asked.only in name]:
            family = planted(name, Path(scratch) / name)
            found = [found_in(family, seed, asked.steps) for seed in range(1, asked.seeds + 1)]
            missed += sum(one is None for one, _ in found)
            judges = ", ".join(dict.fromkeys(one.judge if one else "nobody" for one, _ in found))
            counts = ", ".join(f"{steps:,}" if one else f"not in {steps:,}" for one, steps in found)
            said = found[0][0].rule if found[0][0] else ""
            print(f"| {EVERY[name].what} (`{name}`) | {judges} | {counts} | {said} |", flush=True)
    print(f"\n{len(EVERY)} mistakes, {missed} times not found, {time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
