"""What a command prints goes through here: no text of a file or of a target moves the cursor, hides a line or names the
window, and none ends the command because the terminal's encoding has no such character.

Tables, colours and progress are drawn by rich, which finds the stream as it is (`rich_proxied_file`); it is given texts
that were made visible before.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from ..findings.visible import visible


class _Guarded:
    """A stream that shows what cannot be printed as an escape."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write the text, made visible."""
        shown, stream = visible(text), self.rich_proxied_file
        try:
            stream.write(shown)
        except UnicodeEncodeError as error:
            stream.write(shown.encode(error.encoding, "backslashreplace").decode(error.encoding))
        return len(text)


@contextmanager
def guarded() -> Iterator[None]:
    """Both streams are guarded in the block."""
    with redirect_stdout(_of(sys.stdout)), redirect_stderr(_of(sys.stderr)):
        yield


def unguarded(stream: TextIO) -> TextIO:
    """The stream as it is, for what draws on a terminal."""
    return stream.rich_proxied_file if isinstance(stream, _Guarded) else stream


def _of(stream: TextIO) -> TextIO:
    return cast(TextIO, stream if isinstance(stream, _Guarded) or stream is None else _Guarded(stream))
