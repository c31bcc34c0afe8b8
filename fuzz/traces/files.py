"""What all files of findings have in common: how they are read, and what is said of one that is broken.

Reading one builds numbers, texts and tuples, and runs nothing. Whatever is wrong with a file is said in one line
(`TraceError`). Sizes are limited, so that a broken or hostile file costs no more than its own size.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ..findings.reading import MAX_FILE_BYTES, UnreadableError, read_bytes
from ..findings.visible import one_line

T = TypeVar("T")
STORY, QUESTION = "blockproof_scheduler", "blockproof_configuration"
"""The first field of a finding that is no trace: the story of an engine (`simulate`), and a question about a
configuration (`fuzz-config`)."""
_FIRST = re.compile(rb'\s*{\s*"(' + "|".join((STORY, QUESTION)).encode() + rb')"\s*:')


class TraceError(Exception):
    """A file of a finding that cannot be used. The text is one line: file, place in it, what is wrong, what to do."""

    def __init__(self, source: str, place: str, problem: str) -> None:
        super().__init__(one_line(": ".join(part for part in (source, place, problem) if part)))


@dataclass(frozen=True)
class Form:
    """A kind of file: a JSON object with the version of its form in one field."""

    noun: str
    """What errors call it."""
    written_by: str
    """The commands that write it."""
    version_field: str
    version: int


def other_form(path: Path) -> str | None:
    """Which other form than that of a trace a file has; None for a trace, and for what cannot be read."""
    try:
        with path.open("rb") as file:
            first = _FIRST.match(file.read(200))
    except OSError:
        return None
    return None if first is None else first[1].decode()


def read_file(path: Path, form: Form, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a regular file of at most `max_bytes`. TraceError if that is not possible."""
    try:
        return read_bytes(path, form.noun, max_bytes)
    except UnreadableError as error:
        raise TraceError(str(path), "", str(error)) from None


def envelope(raw: bytes, kind: type[T], form: Form, source: str) -> T:
    """The outer layer of a file, once its version is known to be the right one. TraceError for anything else."""
    if not raw.strip():
        raise TraceError(source, "", f"is empty; write the {form.noun} again")
    field, remedy = form.version_field, f"name a file that {form.written_by} wrote"
    if not raw.lstrip().startswith(b"{"):
        raise TraceError(source, "", f"is no {form.noun}: it does not hold a JSON object; {remedy}")
    version = getattr(decode(raw, msgspec.defstruct("Version", [(field, int | None, None)]), form, source), field)
    if version is None:
        raise TraceError(source, "", f"is no {form.noun}: it has no field `{field}`; {remedy}")
    if version != form.version:
        problem = f"is {version}, this blockproof reads {form.version}; use the version that wrote the file"
        raise TraceError(source, field, problem)
    return decode(raw, kind, form, source)


def decode(raw: bytes | msgspec.Raw, kind: type[T], form: Form, source: str, place: str = "") -> T:
    """JSON of the given type, or a TraceError that names the place."""
    noun = form.noun
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        where = path.rstrip("`").removeprefix("$").removeprefix(".")
        raise TraceError(source, place or where, f"{problem}; a {noun} is what {form.written_by} wrote") from None
    except UnicodeDecodeError as error:
        raise TraceError(source, place or f"byte {error.start}", f"is not UTF-8 text; is this a {noun}?") from None
    except msgspec.DecodeError as error:
        # msgspec reports the offset in bytes; a person looks for a line.
        problem, _, offset = str(error).rstrip(")").partition(" (byte ")
        line = f"line {bytes(raw).count(10, 0, int(offset)) + 1}" if offset.isdigit() else ""
        raise TraceError(source, place or line, f"{problem}; the file is broken or cut off, get it again") from None
    except RecursionError:
        problem = f"is nested too deeply; a {noun} is never more than a few levels deep"
        raise TraceError(source, place, problem) from None
