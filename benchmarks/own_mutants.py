"""Random mutants of this project itself: does the harness, or do its tests, notice them?

python benchmarks/own_mutants.py hunt PART --keep FILE [--random 150] [--seed 1] [--again]
python benchmarks/own_mutants.py page FILE ... [--before FILE ...] [--write docs/evidence/own-mutants.md]

Mutants of the oracles and of the reducer are hunted by their tests. Those of our core are hunted by `blockproof mutants
--of impl --keep FILE`; this goes on with the tests of the core where the harness has found nothing. `--again` hunts
those that have survived once more, as after a test was sharpened. A part without a FILE keeps its section of the page.
Exits with 1 if a survivor is not judged.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.mutation.drawing import draw_mutants, drawn_again
from blockproof.fuzz.mutation.report import NO_MISTAKE, Asked, Told, kept_text, place, read_kept
from blockproof.fuzz.mutation.subject import Subject, subject_of
from blockproof.fuzz.targets.family import Mutable
from noticing import Noticing, told
from own_mutants_page import page

HERE = Path(__file__).resolve().parent
FUZZ = "blockproof.fuzz"


@dataclass(frozen=True)
class Part:
    """A part of the project, and the tests that are to notice its mutants."""

    modules: tuple[str, ...]
    """Below `blockproof.fuzz`; none for our core, which says itself what may be changed."""
    tests: tuple[str, ...]
    """Files and folders."""
    kept: tuple[str, ...] = ("blockproof.model", "blockproof.impl")
    """What has nothing of these modules."""


def _in(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}.{name}" for name in names.split())


def _all_in(folder: str) -> tuple[str, ...]:
    found = sorted(HERE.parent.joinpath("fuzz", *folder.split(".")).glob("*.py"))
    return _in(folder, " ".join(path.stem for path in found if path.stem != "__init__"))


def _tests(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/fuzz/{folder}/test_{name}.py" for name in names.split())


PARTS = {
    "impl": Part((), ("tests/impl",), ("blockproof.model",)),
    "contract": Part(
        _all_in("oracles.contract"),
        _tests(
            "oracles",
            "contract contract_contents contract_counts contract_details contract_events contract_faults contract_hits"
            " contract_played contract_pool contract_tables landing",
        ),
    ),
    "liveness": Part(
        _in("oracles.liveness", "bounds driven judge rules scheduler script"),
        _tests("oracles", "liveness liveness_bounds liveness_scripts"),
    ),
    "shadow": Part(
        _in("oracles.shadow", "engine engine_state mamba memory"), _tests("oracles", "shadow shadow_stories")
    ),
    "lockstep": Part(
        _in("runs", "judging lockstep model_looks pair run"),
        (
            *_tests("runs", "canary conformance glance hidden lockstep model_free pair"),
            *_tests("adapters", "deviations"),
            *_tests("oracles", "landing shadow"),
            *_tests("targets", "answers"),
            *_tests("traffic", "fuzz_traffic"),
        ),
    ),
    "reducer": Part(
        _in("traces", "reducer shrink simplify simplify_shape simplify_story"),
        _tests("traces", "reducer shrink simplify promises replayed"),
    ),
}
"""What can be hunted here. The memory on tensors is left out: where torch is missing nothing runs it."""


def subject(name: str) -> Subject:
    """A part as what is mutated."""
    part = PARTS[name]
    if not part.modules:
        return subject_of(name)
    judged = HERE / "own_survivors" / f"{name}.toml"
    survivors = judged.read_text(encoding="utf-8") if judged.exists() else ""
    modules = tuple(f"{FUZZ}.{module}" for module in part.modules)
    return Subject(name, name, Mutable(modules, FUZZ, lambda: None, {}, survivors), None)


def read(path: Path) -> Told:
    """What a file has kept."""
    asked, hunted = read_kept(path.read_text(encoding="utf-8"))
    return Told(asked, subject(asked.of), [one.mutant for one in hunted], hunted)


def go_on(result: Told) -> None:
    """Draw what is left of a run. If the sources were edited since, it is those mutants alone that were hunted already,
    as they stand now."""
    sources, kept = result.subject.sources(), {one.mutant.place: one for one in result.hunted}
    drawn = draw_mutants(sources, result.asked.random, result.asked.seed)
    pairs = [(one, one) for one in drawn if one.place in kept]
    if len(pairs) < len(kept):
        pairs = drawn_again(sources, [one.mutant for one in result.hunted])
        drawn = [now for _, now in pairs]
    result.mutants = drawn
    result.hunted = [replace(kept[before.place], mutant=now) for before, now in pairs]


def hunt(name: str, drawn: tuple[int, int], keep: Path, again: bool, learned: Path | None) -> int:
    """Hunt the mutants of a part of which the file has no fate, `drawn` so many from a seed; 1 if one is not judged."""
    part, result = PARTS[name], read(keep) if keep.exists() else Told(Asked(name, *drawn, 0, 0), subject(name), [])
    if result.asked.of != name:
        raise ValueError(f"{keep} is of {result.asked.of}")
    go_on(result)
    alive = {one.mutant.place for one, kind in result.survivors if kind not in NO_MISTAKE}
    done = {one.mutant.place for one in result.hunted}
    left = [one for one in result.mutants if one.place not in done] if part.modules else []
    if again or not part.modules:
        left += [one for one in result.mutants if one.place in alive]
    noticing = Noticing(result.subject.mutable.modules, part.tests, part.kept, learned)
    told(noticing, lambda text: print(text, flush=True))
    for number, mutant in enumerate(left, 1):
        one = noticing.hunt(mutant)
        result.hunted = [*(other for other in result.hunted if other.mutant.place != mutant.place), one]
        write_file(keep, kept_text(result))
        print(f"{number}/{len(left)} {one.status:8} {one.seconds:6.1f} s  {place(mutant)}  {one.by}", flush=True)
    print("\n".join(result.lines()))
    return result.exit_code


def main() -> int:
    """Hunt, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    hunting = commands.add_parser("hunt", help="Hunt the mutants of a part.")
    hunting.add_argument("part", choices=PARTS)
    hunting.add_argument("--random", type=int, default=150, help="How many are drawn.")
    hunting.add_argument("--seed", type=int, default=1)
    hunting.add_argument("--keep", type=Path, required=True, help="Keep the result here, and go on from it.")
    hunting.add_argument("--again", action="store_true", help="Hunt those that have survived once more.")
    hunting.add_argument("--learned", type=Path, help="Keep here which lines each test runs.")
    writing = commands.add_parser("page", help="Write the page of some results.")
    writing.add_argument("files", nargs="+", type=Path, metavar="FILE")
    writing.add_argument("--before", nargs="*", type=Path, default=[], help="The same before tests were sharpened.")
    writing.add_argument("--write", type=Path, help="Write the page here.")
    arguments = parser.parse_args()
    if arguments.command == "hunt":
        drawn = (arguments.random, arguments.seed)
        return hunt(arguments.part, drawn, arguments.keep, arguments.again, arguments.learned)
    return write(arguments.files, arguments.before, arguments.write)


def write(files: Sequence[Path], before: Sequence[Path], to: Path | None) -> int:
    """Write the page; 1 if a survivor is not judged."""
    runs = [read(path) for path in files]
    old = to.read_text(encoding="utf-8") if to and to.exists() else ""
    text = page(list(PARTS), runs, [read(path) for path in before], old)
    if to:
        write_file(to, text)
    print(text, end="")
    return 1 if any(run.unjudged for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
