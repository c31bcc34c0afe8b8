"""What a command prints goes through here: no text of a file or of a target moves the cursor, hides a line or names the
window, and none ends the command because the terminal's encoding has no such character.

Nor is a finding lost because nothing can be printed any more: the disk that the output goes to is full, the terminal is
gone, a target has closed the stream. What could not be printed is said at the end (`Screen.problem`).
Tables, colours and progress are drawn by rich, which finds the stream as it is (`rich_proxied_file`); it is given texts
that were made visible before.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO, cast

from ..findings.visible import visible


class _Guarded:
    """A stream that shows what cannot be printed as an escape."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        self.problem: OSError | None = None
        """The first that kept something from being printed."""
        self._spare: int | None = None
        with suppress(OSError, ValueError):
            self._spare = os.dup(stream.fileno())

    def __getattr__(self, name: str) -> object:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write the text, made visible."""
        self._try(lambda: self._write(visible(text)))
        return len(text)

    def flush(self) -> None:
        """See `io.TextIOBase`."""
        self._try(lambda: self.rich_proxied_file.flush())

    def close(self) -> None:
        """Nothing: the stream is not that of whoever prints to it."""

    def end(self) -> None:
        """The block has ended: what is still to be printed is."""
        self.flush()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _write(self, shown: str) -> None:
        stream = self.rich_proxied_file
        try:
            stream.write(shown)
        except UnicodeEncodeError as error:
            stream.write(shown.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def _try(self, write: Callable[[], None]) -> None:
        """Write; if the stream was closed meanwhile, to another one that leads to the same place."""
        try:
            if self.rich_proxied_file.closed:
                self._open_again()
            write()
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno != errno.EBADF or not self._open_again():
                self.problem = self.problem or error
                return
            with suppress(OSError):
                write()

    def _open_again(self) -> bool:
        if self._spare is None:
            return False
        old = self.rich_proxied_file
        self.rich_proxied_file = open(  # noqa: SIM115 - it is the program's own
            os.dup(self._spare), "w", encoding=old.encoding, errors=old.errors, buffering=1
        )
        return True


class Screen:
    """Both streams of a program."""

    def __init__(self, *streams: TextIO) -> None:
        self._streams = [stream for stream in streams if isinstance(stream, _Guarded)]

    @property
    def problem(self) -> OSError | None:
        """Why not all was printed; None if it was."""
        return next((stream.problem for stream in self._streams if stream.problem is not None), None)


@contextmanager
def guarded() -> Iterator[Screen]:
    """Both streams are guarded in the block."""
    out, err = _of(sys.stdout), _of(sys.stderr)
    mine = [new for new, old in ((out, sys.stdout), (err, sys.stderr)) if new is not old]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            yield Screen(out, err)
        finally:
            for stream in mine:
                cast(_Guarded, stream).end()


def unguarded(stream: TextIO) -> TextIO:
    """The stream as it is, for what draws on a terminal."""
    return stream.rich_proxied_file if isinstance(stream, _Guarded) else stream


def _of(stream: TextIO) -> TextIO:
    return cast(TextIO, stream if isinstance(stream, _Guarded) or stream is None else _Guarded(stream))
