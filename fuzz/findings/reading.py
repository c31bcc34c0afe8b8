"""How every file from elsewhere is read: regular files only, of bounded size, and JSON of bounded depth.

Reading one builds numbers, texts, lists and dictionaries, and runs nothing.
"""

import json
import os
import stat
from pathlib import Path
from typing import NoReturn

MAX_FILE_BYTES = 64 * 2**20
MISSING = "no such file; check the path"
MAX_DEPTH = 64
"""How deep arrays and objects may stand in each other: no document of ours goes beyond ten."""


class UnreadableError(Exception):
    """A file that cannot be read; one line that says what is wrong with it and what to do, without its name."""


def read_bytes(path: Path, noun: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a regular file of at most `max_bytes`. UnreadableError, which calls it a `noun`, if it is none."""
    try:
        # Not to wait for somebody to write into a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise UnreadableError(f"is no regular file; name a {noun} file")
            data = file.read(max_bytes + 1) if about.st_size <= max_bytes else b""
    except IsADirectoryError:
        raise UnreadableError(f"is a directory; name a {noun} file in it") from None
    except FileNotFoundError:
        raise UnreadableError(MISSING) from None
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror}); check the path and its permissions") from None
    except ValueError as error:  # a name with a character that no file name has
        raise UnreadableError(f"cannot be read ({error}); check the path") from None
    if (size := max(len(data), about.st_size)) > max_bytes:  # it may have grown meanwhile
        raise UnreadableError(f"{size} bytes, more than the {max_bytes} a {noun} may have; shorten it first")
    return data


def json_of(data: bytes) -> object:
    """The document in these bytes. ValueError, in one line, for what is none: NaN and infinity are no JSON either."""
    try:
        document: object = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    check_depth(document)
    return document


def check_depth(document: object) -> None:
    """ValueError if arrays and objects of a document stand in each other too deeply."""
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level if isinstance(value, dict | list) for inner in _inner(value)]
        if not level:
            return
    raise ValueError(f"is nested too deeply, more than {MAX_DEPTH} levels")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _inner(value: "dict[str, object] | list[object]") -> list[object]:
    return list(value.values()) if isinstance(value, dict) else value
