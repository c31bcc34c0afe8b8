"""Malformed documents that are led by what they reach in the code (atheris), beside those drawn by `hostile.py`.

python benchmarks/guided.py KIND [--seconds N] [--seed N] [--keep FOLDER] [--plant FAULT] [--write PAGE]

Begins with valid documents. A new one is changed either as `hostile.py` does it, which knows the structure of JSON, or
in its bytes; what reaches a line of blockproof that none has reached before is kept and changed further. Held against
the promises is the same as there, and besides: nothing is written outside the folder, no program is started, and no
document takes more than a GiB. Exits with 1 if a promise was broken; `--keep` keeps the documents that did.

atheris instead of HypoFuzz: both follow coverage, but atheris is given bytes and a mutator of ours, so what it has
found is a file for the command; HypoFuzz needs the tests written as strategies, and replays what it finds only there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from written import HOSTILE_PAGE, put_section

sys.path.append(str(Path(__file__).resolve().parents[1]))

MISSING = "guided fuzzing needs atheris, which is not installed; run: pip install '/path/to/blockproof[guided]'"
INSTRUMENTED = (
    "blockproof.fuzz.traces", "blockproof.fuzz.findings", "blockproof.fuzz.page", "blockproof.fuzz.planning",
    "blockproof.fuzz.configuration", "blockproof.fuzz.reports", "blockproof.fuzz.opening", "blockproof.fuzz.targets",
    "blockproof.fuzz.releases", "blockproof.fuzz.cli", "blockproof.model", "blockproof.proofs.exploration.checkpoint",
)  # fmt: skip
TALLY = "tally.json"


def main() -> int:
    """Run the fuzzer as a child, which ends by itself, and tell what it has counted."""
    asked = parsed()
    try:
        import atheris  # noqa: F401
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="guided-") as name:
        folder = Path(name)
        words = [sys.executable, __file__, asked.kind, "--seconds", str(asked.seconds), "--seed", str(asked.seed)]
        words += ["--child", str(folder), *(["--plant", asked.plant] if asked.plant else [])]
        words += ["--keep", str(asked.keep.resolve())] if asked.keep else []
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=folder)
        if not (folder / TALLY).exists():
            raise SystemExit(f"the fuzzer did not run: {done.stderr[-2000:]}")
        tally = json.loads((folder / TALLY).read_text())
    outcomes = Counter(tally["outcomes"])
    said = [f"{outcomes.total():,} {asked.kind} led by coverage in {asked.seconds} s, seed {asked.seed}"]
    said += [f"{times:8,}  {outcome}" for outcome, times in outcomes.most_common()]
    reached = [line for line in done.stderr.splitlines() if " cov: " in line]
    said += (
        [f"edges reached: {_edges(reached[0])} by the valid ones, {_edges(reached[-1])} in the end"] if reached else []
    )
    name = f"Led by coverage: {asked.kind}" + (f", with a planted fault ({asked.plant})" if asked.plant else "")
    put_section(asked.write, name, HOSTILE_PAGE, said)
    return 1 if any(outcome.startswith("WRONG") for outcome in outcomes) else 0


def _edges(line: str) -> str:
    return line.partition(" cov: ")[2].split()[0]


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--plant")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def fuzz(asked: argparse.Namespace) -> None:
    """The child: never returns."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz import malformed_guided, malformed_watch

    folder = asked.child / "so" / "deep"  # that `../../x` stays in the folder of this process
    folder.mkdir(parents=True)
    cases = malformed_guided.KINDS[asked.kind](folder)
    corpus = asked.child / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(cases.seeds):
        (corpus / str(number)).write_bytes(seed)
    outcomes = Counter[str]()

    def one(data: bytes) -> None:
        given, wrong, _ = malformed_watch.watched(cases.words(data), asked.child)
        outcomes[f"WRONG: {wrong}" if wrong else given.outcome] += 1
        if wrong and asked.keep:
            asked.keep.mkdir(parents=True, exist_ok=True)
            (asked.keep / f"{asked.kind}-{outcomes.total()}").write_bytes(data)
            (asked.keep / f"{asked.kind}-{outcomes.total()}.txt").write_text(f"{wrong}\n{given.error[-3000:]}")
        (asked.child / TALLY).write_text(json.dumps({"outcomes": outcomes}))

    def changed(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        try:
            if random.random() < 0.7:
                return cases.changed(data, random)[:most]
        except (ValueError, RecursionError):
            pass
        return cases.damaged(atheris.Mutate(data, most))

    options = [f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", "-max_len=200000", "-timeout=0"]
    options += ["-rss_limit_mb=0", "-len_control=0"]
    with cases.in_place(), malformed_guided.planted(asked.plant):
        arguments: list[Any] = [sys.argv[0], *options, str(corpus)]
        atheris.Setup(arguments, one, custom_mutator=changed)
        atheris.Fuzz()


if __name__ == "__main__":
    if "--child" in sys.argv:
        fuzz(parsed())
    sys.exit(main())
