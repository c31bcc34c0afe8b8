"""The file of known findings: TOML with an entry for each (docs/guide/triage.md).

[[known]]
id = "hit-lost-at-preemption"
reason = "blocks of a preempted request are forgotten; our ticket 123, a hit less and nothing worse"
property = "S14"
operation = "Lookup"
oracle = "contract"
attention = ["full"]
uses = [["Advance", "Allocate", "Lookup", "Preempt", "Submit"]]
"""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec

from ..findings.known import KnownFinding
from ..findings.oracle_names import BLOCKPROOF, DIFFERENCE, EVERY, TARGET
from ..findings.starved import EVERY_OPERATION
from ..findings.words import did_you_mean
from ..findings.writing import alone, write_file
from .files import Form, TraceError, read_file

FORM = Form("file of known findings", "`blockproof fuzz --write-known FILE`", "", 0)
REMEDY = "`blockproof fuzz --write-known FILE` writes entries"
MAX_BYTES = 2**20


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    reason: str
    property: str
    operation: str
    oracle: str
    attention: tuple[str, ...]
    uses: tuple[tuple[str, ...], ...]
    exception: str = ""
    sentence: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    known: list[_Entry] = []


def read_known(path: Path) -> tuple[KnownFinding, ...]:
    """The entries of a file. TraceError, one line with file, place and remedy, if it cannot be used as it is."""
    known: list[KnownFinding] = []
    for number, entry in enumerate(_entries(path)):
        place = f"known[{number}]" + (f" ({entry.id})" if entry.id else "")
        if problem := _problem(entry, [one.id for one in known]):
            raise TraceError(str(path), place, problem)
        uses = tuple(tuple(sorted(set(names))) for names in entry.uses)
        known.append(KnownFinding(**{**msgspec.structs.asdict(entry), "uses": uses}))
    return tuple(known)


def _entries(path: Path) -> list[_Entry]:
    """What a file says, if it has the form of entries. TraceError if not."""
    source = str(path)
    try:
        return msgspec.convert(tomllib.loads(read_file(path, FORM, MAX_BYTES).decode()), _File).known
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        where = place.rstrip("`").removeprefix("$").removeprefix(".")
        raise TraceError(source, where, f"{problem}; {REMEDY}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(source, "", f"is no TOML: {error}; correct the file") from None


def _problem(entry: _Entry, ids: Sequence[str]) -> str:
    """What is wrong with an entry, and what to do; empty if nothing is."""
    if not re.fullmatch(r"[\w.-]{1,100}", entry.id):
        return "id: letters, digits, `-`, `_` and `.` only, and at most 100; give it such a name"
    if entry.id in ids:
        return "id: another entry has the same; give each a name of its own"
    if not entry.reason.strip():
        return "reason: is empty; write why this finding is to be lived with"
    known = (*EVERY, DIFFERENCE, TARGET, BLOCKPROOF)
    if entry.oracle not in known:
        return f"oracle: {entry.oracle!r} is unknown; {did_you_mean(entry.oracle, known)}"
    if entry.operation not in (*EVERY_OPERATION, "start"):
        return (
            f"operation: {entry.operation!r} is unknown; {did_you_mean(entry.operation, (*EVERY_OPERATION, 'start'))}"
        )
    if not entry.uses:
        return f"uses: is empty; {REMEDY}"
    names = {name for line in entry.uses for name in line}
    if unknown := sorted(name for name in names if not _is_use(name)):
        return f"uses: {unknown[0]!r} is no operation and no field of one; {REMEDY}"
    return ""


def _is_use(name: str) -> bool:
    kind, _, field = name.partition(".")
    return kind in EVERY_OPERATION and (not field or field in EVERY_OPERATION[kind].__dataclass_fields__)


def entry_text(entry: KnownFinding, about: str) -> str:
    """An entry as TOML, below a comment of one line."""
    lines = [f"# {' '.join(about.split())}", "[[known]]"]
    for name in ("id", "reason", "property", "operation", "oracle", "exception", "sentence"):
        if name not in ("exception", "sentence") or getattr(entry, name):
            lines.append(f"{name} = {_text(getattr(entry, name))}")
    lines.append(f"attention = [{_list(entry.attention)}]")
    return "\n".join([*lines, f"uses = [{', '.join(f'[{_list(names)}]' for names in entry.uses)}]", ""])


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_text, names))


def _text(value: str) -> str:
    # A JSON string is a TOML string, but for one character that TOML wants escaped.
    return json.dumps(value).replace("\x7f", "\\u007f")


def add_known(path: Path, found: Sequence[tuple[KnownFinding, str]]) -> list[str]:
    """Add entries to a file, which is made if missing, each below a comment. Returns their ids.

    An id that is taken gets a number.

    TraceError if the file has not the form of entries; their reasons may still be missing.
    """
    with alone(path):
        taken = [entry.id for entry in _entries(path)] if path.exists() else []
        before = path.read_text(encoding="utf-8").rstrip() if path.exists() else ""
        texts = [f"{before}\n"] if before else []
        for entry, about in found:
            id = next(name for name in _names(entry.id) if name not in taken)
            taken.append(id)
            texts.append(entry_text(replace(entry, id=id), about))
        write_file(path, "\n".join(texts))
    return taken[len(taken) - len(found) :]


def _names(id: str) -> Iterator[str]:
    yield id
    yield from (f"{id}-{number}" for number in count(2))
