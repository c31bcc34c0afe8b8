"""What a change means for the theorems: which functions under them differ, and whether they still hold.

The record of theorems (`docs/reference/theorems/functions.json`) says which functions each of them covers. Those over
functions whose source differs between the two sides are settled again, on both; the others are about the same source.
"""

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..adapters import family_of
from ..findings.words import plural
from ..opening.child import environment_of
from ..opening.commands import run
from ..opening.targets import home_of
from .bisect import one_line

RECORD = Path(__file__).resolve().parents[2] / "docs" / "reference" / "theorems" / "functions.json"
_ROOT = (__package__ or "").split(".")[0]
_PROVED, _REFUTED = "proved", "refuted"


@dataclass(frozen=True)
class Proofs:
    """The theorems over functions that differ, settled on both sides."""

    compared: int
    """Functions that theorems cover."""
    changed: tuple[str, ...]
    """Those of them that differ, `module:name`."""
    statuses: Mapping[str, tuple[str, str]]
    """By theorem: `proved`, `refuted`, `undecided` or `unavailable`, on the old side and on the new one."""

    @property
    def broken(self) -> list[str]:
        """Theorems that were proved on the old side and are refuted on the new one."""
        return [name for name, sides in self.statuses.items() if sides == (_PROVED, _REFUTED)]

    def text(self) -> str:
        """What came of them; a sentence."""
        if not self.changed:
            return f"none of the {plural(self.compared, 'function')} under the theorems differs, so all still hold"
        first = f"{len(self.changed)} of {plural(self.compared, 'function')} under the theorems differ"
        if not self.statuses:
            return first
        news = [sides[1] for sides in self.statuses.values()]
        counts = ", ".join(f"{news.count(status)} {status}" for status in dict.fromkeys(sorted(news)))
        text = f"{first}; {plural(len(news), 'theorem')} over them on the new side: {counts}"
        settled = {_PROVED, _REFUTED}
        both = [name for name, sides in self.statuses.items() if settled.issuperset(sides)]
        others = [name for name in both if self.statuses[name][0] != self.statuses[name][1]]
        text += f"; other than on the old side: {', '.join(map(self._change, others))}" if others else ""
        return f"{text}; settled on both sides: {len(both)}" + ("" if others else ", with the same result")

    def as_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        statuses = {name: {"old": old, "new": new} for name, (old, new) in self.statuses.items()}
        return {"functions": self.compared, "changed": list(self.changed), "theorems": statuses, "text": self.text()}

    def _change(self, name: str) -> str:
        return f"{name} ({' -> '.join(self.statuses[name])})"


def reprove(old: str, new: str, record: Path = RECORD, seconds: float | None = None) -> Proofs | str:
    """Settle the theorems over functions that differ between two targets, within so many seconds; a line that says why
    if that cannot be."""
    end = None if seconds is None else time.monotonic() + seconds
    if seconds == 0.0:
        return f"not proved: the time was over; give more --seconds, or: blockproof prove --target {new}"
    subjects = [_subject(spec) for spec in (old, new)]
    if None in subjects:
        return "there are no theorems about this engine"
    if subjects[0] != subjects[1]:
        command = f"blockproof prove --target {shlex.quote(new)}"
        return f"{old} and {new} have no functions in common; {command} settles all theorems"
    try:
        theorems = json.loads(record.read_text(encoding="utf-8"))["theorems"]
        covered = {name: _functions(sides, str(subjects[0])) for name, sides in theorems.items()}
        names = sorted({function for functions in covered.values() for function in functions})
        before, after = (hashes_of(spec, names) for spec in (old, new))
    except (OSError, ValueError) as error:
        return f"not proved: {one_line(str(error))}"
    changed = tuple(name for name in names if before[name] != after[name])
    wanted = [name for name, functions in covered.items() if not functions.isdisjoint(changed)]
    left = None if end is None else max(1.0, end - time.monotonic())
    statuses = _settled(wanted, old, new, left) if wanted else {}
    return statuses if isinstance(statuses, str) else Proofs(len(names), changed, statuses)


def _subject(spec: str) -> str | None:
    """Under which name the record has functions that this target has, too; None if it has none."""
    if spec == "impl":
        return spec
    family = family_of(spec)
    return None if family is None or family.reference is None else family.spec(family.reference)


def _functions(sides: Mapping[str, Any], subject: str) -> set[str]:
    return set(sides.get(subject, {}).get("functions", ()))


def hashes_of(spec: str, names: Sequence[str]) -> dict[str, str | None]:
    """The hash of each function in the environment of a target. OSError or ValueError if it cannot be asked."""
    place = home_of(spec).place
    with TemporaryDirectory(prefix="blockproof-hashes-") as modules:
        python = sys.executable if place is None else str(place.python)
        done = run(
            [python, "-P", "-m", f"{_ROOT}.proofs.hashes"],
            given="\n".join(names),
            environment=environment_of(place, Path(modules), ("model", "impl", "proofs")),
        )
    if done.status:
        raise ValueError(f"{done.error} (exit status {done.status})")
    hashes: dict[str, str | None] = json.loads(done.output)
    return hashes


def _settled(
    theorems: Sequence[str], old: str, new: str, seconds: float | None = None
) -> dict[str, tuple[str, str]] | str:
    """What each theorem comes to on both sides; a line that says why if that cannot be."""
    command = [sys.executable, "-P", "-m", f"{_ROOT}.fuzz.cli", "prove", *theorems, "--json", "--no-cross-check"]
    with TemporaryDirectory(prefix="blockproof-prove-") as out:
        targets = ["--target", old, "--target", new, "--out", out]
        done = run([*command, *targets], seconds=seconds)
    if done.status is None:
        few = f"{plural(len(theorems), 'theorem')} of functions that differ were not settled in {seconds or 0.0:.0f} s"
        return f"not proved: {few}; give more --seconds, or: blockproof prove --target {new}"
    try:
        results = json.loads(done.output)["results"]
    except ValueError:
        return f"not proved: {one_line(done.errors) or f'exit status {done.status}'}"
    found: dict[str, dict[str, str]] = {name: {} for name in theorems}
    for result in results:
        if result["theorem"] in found:  # `prove T1` settles T1.full as well
            found[result["theorem"]][result["subject"]] = result["status"]
    missing = "unavailable"
    return {name: (said.get(old, missing), said.get(new, missing)) for name, said in found.items() if said}


if __name__ == "__main__":  # of two releases, as JSON: `releases.watch` runs it in a process of its own
    answer = reprove(sys.argv[1], sys.argv[2])
    print(json.dumps(answer if isinstance(answer, str) else answer.as_json()))
