"""What each theorem must come to for a core, and whether a run came to it: files in `expected/`, one for each core.

The files alone decide; a run that comes to anything else has failed. `blockproof prove --write-expected` writes them
anew, and their diff, a line for each theorem, is what is reviewed.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from .campaign import Result
from .verdict import Verdict

WriteText: TypeAlias = Callable[[Path, str], None]
"""Writes a file, and the folders it is in, in one piece: the command line has it (`write_file`), nothing here."""
FOLDER = Path(__file__).parent / "expected"
NONE_RAN = "none of its functions ran"
"""What a theorem comes to that holds, but of no function of this core: it says nothing about the core."""
BOUNDED = "proved (bounded)"
"""What a theorem comes to that holds within the bounds that it names (`Statement.bounded`)."""
AGAIN = "if that is right, run: blockproof prove --write-expected proofs/expected"


@dataclass(frozen=True)
class Expected:
    """What a theorem comes to for one core."""

    outcome: str
    """`proved`, `BOUNDED`, `refuted`, `unavailable`, or `NONE_RAN`."""
    witness: str = ""
    """The kind of counterexample, if it is refuted: which claim fails or which error is raised."""
    reason: str = ""
    """Which function the core lacks, if it is unavailable."""
    ran: tuple[str, ...] = ()
    """Functions of the core that must run, `module:name`."""


Expectations = Mapping[str, Mapping[str, Expected]]
"""By core, then by theorem; a core without a file is not among them."""


def come_to(verdict: Verdict) -> Expected:
    """What a theorem came to."""
    return Expected(
        outcome(verdict),
        witness(verdict) if verdict.status == "refuted" else "",
        verdict.message if verdict.status == "unavailable" else "",
        tuple(sorted(verdict.covered)),
    )


def outcome(verdict: Verdict) -> str:
    """See `Expected.outcome`; `undecided` is one that is never expected."""
    if verdict.status != "proved":
        return verdict.status
    if not verdict.covered:
        return NONE_RAN
    return BOUNDED if verdict.bounded else verdict.status


def witness(verdict: Verdict) -> str:
    """The kind of a counterexample: `claim 2 fails`, `raises AssertionError`, `a hit, but a longer one exists`."""
    if found := re.match(r"claim (\d+) of \d+ fails", verdict.message):
        return f"claim {found[1]} fails"
    if found := re.match(r"raises (\w+)", verdict.message):
        return found[0]
    return ": ".join(verdict.message.split(": ")[1:-1]) or verdict.message  # a scope, what is wrong, the search


def read(subjects: Sequence[str], folder: Path = FOLDER) -> Expectations:
    """What is expected of these cores, as far as there are files. ValueError if one cannot be read."""
    found = {}
    for subject in subjects:
        path = folder / file_name(subject)
        if path.exists():
            document = json.loads(path.read_text(encoding="utf-8"))
            found[subject] = {
                name: Expected(**fields | {"ran": tuple(fields.get("ran", ()))}) for name, fields in document.items()
            }
    return found


def write(folder: Path, results: Sequence[Result], theorems: Sequence[str], to: WriteText) -> list[Path]:
    """Let what these results came to be expected, and return the files.

    What is undecided is left out. What the files say of other theorems stays, unless none of `theorems`, all that there
    are, has such a name.
    """
    paths = []
    subjects = dict.fromkeys(result.verdict.subject for result in results)
    before = read(list(subjects), folder)
    for subject in subjects:
        settled = [result.verdict for result in results if result.verdict.subject == subject]
        now = dict(before.get(subject, {})) | {one.theorem: come_to(one) for one in settled}
        for one in settled:
            if one.status == "undecided":
                del now[one.theorem]
        lines = [_line(name, now[name]) for name in theorems if name in now]
        paths.append(folder / file_name(subject))
        to(paths[-1], "{\n" + ",\n".join(lines) + "\n}\n")
    return paths


def _line(name: str, expected: Expected) -> str:
    fields = {field: value for field, value in asdict(expected).items() if value}
    return f"{json.dumps(name)}: {json.dumps(fields, ensure_ascii=False)}"


def file_name(subject: str) -> str:
    """Of the file that says what is expected of a core."""
    return re.sub("[^a-z0-9.]+", "-", subject) + ".json"


def differences(verdict: Verdict, expected: Expected) -> list[str]:
    """How what came out differs from what is expected, a line each."""
    now = come_to(verdict)
    if now.outcome != expected.outcome:
        declared = f"{expected.outcome} ({expected.witness})" if expected.witness else expected.outcome
        return [f"{_told(verdict)}, but declared {declared}; {AGAIN}"]
    if now.witness != expected.witness:
        return [f"{_told(verdict)}, but declared to be refuted by another counterexample: {expected.witness}; {AGAIN}"]
    if now.reason != expected.reason:
        return [f"{_told(verdict)}, but declared unavailable because {expected.reason}; {AGAIN}"]
    missing = sorted(set(expected.ran) - set(now.ran))
    return [f"{now.outcome} without {', '.join(missing)}, which must run; {AGAIN}"] if missing else []


def _told(verdict: Verdict) -> str:
    if verdict.status == "refuted":
        return f"refuted by {verdict.counterexample}: {verdict.message}"
    return f"{outcome(verdict)}: {verdict.message}" if verdict.message else outcome(verdict)
