"""What a command did while it was given something malformed: files it wrote elsewhere, programs it started, memory."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from .malformed import Answer, answer

MOST_MEMORY_MIB = 1_024
"""No malformed document may make a command take more, in MiB above what the process has anyway."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = frozenset({"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate"})
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "webbrowser.open"})
_OURS = ("python", "git")
"""Programs that commands start: their own, in another process, and the one that knows commits."""
_NOWHERE = ("/dev/null", "/proc/self/")


class Watch:
    """Notes what happens in a block that does not stay in its folder. A process has one, since an audit hook cannot be
    taken away."""

    _the_one: "Watch | None" = None

    def __init__(self) -> None:
        self._folder, self._noted = "", list[str]()
        sys.addaudithook(self._hook)

    @classmethod
    def here(cls) -> "Watch":
        """The one of this process."""
        cls._the_one = cls._the_one or cls()
        return cls._the_one

    @contextmanager
    def staying_in(self, folder: Path) -> Iterator[list[str]]:
        """What is noted in the block, a line each."""
        self._folder, self._noted = str(folder.resolve()), []
        try:
            # A module that is imported for the first time would be written anew beside itself, compiled.
            with patch.object(tempfile, "tempdir", self._folder), patch.object(sys, "dont_write_bytecode", True):
                yield self._noted
        finally:
            self._folder = ""

    def _hook(self, event: str, about: tuple[Any, ...]) -> None:
        if not self._folder:
            return
        if event in _STARTS:
            program = str(about[0])
            if event != "subprocess.Popen" or not Path(program).name.startswith(_OURS):
                self._noted.append(f"{event} {program[:100]}")
        elif event in _CHANGES or (event == "open" and isinstance(about[2], int) and about[2] & _WRITES):
            path = about[0]
            if event == "os.mkdir" and os.path.isdir(path):
                return  # the folder is there: nothing comes of it
            if isinstance(path, str | bytes) and not self._is_inside(os.fsdecode(path)):
                self._noted.append(f"{event} {os.fsdecode(path)[:100]!r} elsewhere")

    def _is_inside(self, path: str) -> bool:
        whole = os.path.realpath(path)
        return whole == self._folder or whole.startswith((f"{self._folder}/", *_NOWHERE)) or path.startswith(_NOWHERE)


def watched(words: Sequence[str], folder: Path) -> tuple[Answer, str, int]:
    """The answer of a command that may write into this folder alone, which promise it broke, empty if none, and the
    memory that it took, in MiB."""
    before = resident_mib(reset=True)
    with Watch.here().staying_in(folder) as noted:
        given = answer(words)
    taken = resident_mib() - before
    too_much = f"took {taken} MiB" if taken > MOST_MEMORY_MIB else ""
    return given, given.wrong or next(iter(noted), too_much), taken


def resident_mib(*, reset: bool = False) -> int:
    """The most memory since the last reset, in MiB; with `reset` what it is now. 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)
