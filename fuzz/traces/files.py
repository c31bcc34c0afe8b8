"""What all files of findings have in common: how they are read and written, and what is said of one that is broken.

Reading one builds numbers, texts and tuples, and runs nothing. Whatever is wrong with a file is said in one line
(`TraceError`). Sizes are limited, so that a broken or hostile file costs no more than its own size.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

MAX_FILE_BYTES = 64 * 2**20
MAX_ERROR = 800
"""Longest error, in characters: what is wrong with a file may be a very long name in it."""
T = TypeVar("T")


class TraceError(Exception):
    """A file of a finding that cannot be used. The text is one line: file, place in it, what is wrong, what to do."""

    def __init__(self, source: str, place: str, problem: str) -> None:
        text = ": ".join(part for part in (source, place, problem) if part)
        if len(text) > MAX_ERROR:
            text = f"{text[: MAX_ERROR // 2]} ... {text[-MAX_ERROR // 2 :]}"
        super().__init__("".join(c if c.isprintable() else " " for c in text))


@dataclass(frozen=True)
class Form:
    """A kind of file: a JSON object with the version of its form in one field."""

    noun: str
    """What errors call it."""
    written_by: str
    """The commands that write it."""
    version_field: str
    version: int


def read_file(path: Path, form: Form, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a regular file of at most `max_bytes`. TraceError if that is not possible."""
    source, noun = str(path), form.noun
    try:
        if path.is_dir():
            raise TraceError(source, "", f"is a directory; name a {noun} file in it")
        if not path.is_file():
            problem = f"is no regular file; name a {noun} file" if path.exists() else "no such file; check the path"
            raise TraceError(source, "", problem)
        size = path.stat().st_size
        if size > max_bytes:
            problem = f"{size} bytes, more than the {max_bytes} a {noun} may have; shrink it first"
            raise TraceError(source, "", problem)
        return path.read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); check the path and its permissions"
        raise TraceError(source, "", problem) from None


def write_file(path: Path, text: str) -> None:
    """Write a file in one piece, and its folder: an interruption leaves either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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
