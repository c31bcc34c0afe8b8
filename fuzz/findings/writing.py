"""How every file is written: in one piece, so that whatever ends the program leaves the old file or the new one.

The text goes to a file of another name in the same folder, is brought to the disk, and takes the place of the old file.
A program that is killed in between leaves that other file; it is removed when the next one writes to the folder.
"""

import errno
import fcntl
import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .visible import one_line

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{16}\.unfinished")


def write_file(path: Path, content: str | Sequence[bytes]) -> None:
    """Write a file, and the folders it is in. A text is written as UTF-8, half characters as escapes (`\\ud800`).

    A link stays a link: the file that it leads to is replaced. OSError, which names the file, if that is not possible.
    """
    parts = [content.encode("utf-8", "backslashreplace")] if isinstance(content, str) else content
    with named(path):
        path = path.resolve() if path.is_symlink() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # no other file can take the place of /dev/stdout or a pipe
            with path.open("wb") as file:
                file.writelines(parts)
            return
        _remove_unfinished(path.parent)
        while not _replaced(path, parts):
            pass
        _bring_to_disk(path.parent)


def try_folder(path: Path) -> None:
    """OSError if nothing can be written to this folder, which need not be there. Nothing of the try is left."""
    with suppress(FileNotFoundError):
        os.stat(path)  # a name that is too long, or leads in a circle
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    tried = there / f".tried.{secrets.token_hex(8)}.unfinished"
    try:
        with named(tried), tried.open("xb") as file:
            file.write(b"\0")
    finally:
        tried.unlink(missing_ok=True)


def try_file(path: Path) -> None:
    """OSError if this file cannot be written; it is left as it is."""
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.exists() or path.is_file():
        try_folder(path.absolute().parent)
        with suppress(FileNotFoundError):
            os.stat(path)
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError in the block says which file it is about: those of a full disk do not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).endswith(".unfinished")):
            error.filename = str(path)
            error.filename2 = None
        raise


@contextmanager
def told_if_lost() -> Iterator[None]:
    """For the files of a finding: if one cannot be written, that is told in a line, and the finding all the same."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"blockproof: {one_line(not_written(error))}", file=sys.stderr)


def not_written(error: OSError) -> str:
    """What could not be written, why, and what to do."""
    what = error.filename or "the output"
    return f"{what}: {error.strerror or error}; it is not written: make room, or name another place"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Nobody else is in such a block with a file of this folder, which is made: to read a file, change it, write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replaced(path: Path, parts: Sequence[bytes]) -> bool:
    """Write the other file and let it take the place of this one. False if somebody took it for one that is left."""
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.unfinished")
    try:
        with unfinished.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed: so others know that its writer is alive
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            if os.fstat(file.fileno()).st_nlink == 0:  # removed before it was locked
                return False
            unfinished.replace(path)
        return True
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_unfinished(folder: Path) -> None:
    """Remove what killed programs have left."""
    for entry in os.scandir(folder):
        if not _UNFINISHED.fullmatch(entry.name):
            continue
        with suppress(OSError), open(entry.path, "rb") as file:  # somebody else may have removed it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(entry.path)


def _bring_to_disk(folder: Path) -> None:
    """The names in a folder, too."""
    with suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
