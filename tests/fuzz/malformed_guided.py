"""The kinds of `malformed_cases` for a fuzzer that brings its own bytes: valid documents, and what to do with others.

Besides: faults to be planted into what reads them, which every fuzzer of them has to find.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from blockproof.fuzz.traces import trace_file
from blockproof.fuzz.traces.trace_file import TraceFile, dump_trace

from . import malformed
from .malformed import TEXTS, spoiled
from .malformed_cases import FLOORS_TOML, KNOWN, VALUES, Arguments, Configurations, Replies, Traces, drawn_trace
from .malformed_reports import Checkpoints, Reports


class Guided:
    """Documents of one kind."""

    seeds: list[bytes]
    """Valid ones."""

    def __init__(self, seeds: list[bytes], words: Callable[[bytes], list[str]]) -> None:
        self.seeds, self.words = seeds, words

    def changed(self, data: bytes, random: Random) -> bytes:
        """One like it, still of its structure. ValueError if it has none."""
        return spoiled(data.decode(), random)

    def damaged(self, data: bytes) -> bytes:
        """The bytes, if a fuzzer may make any it likes."""
        return data

    def in_place(self) -> AbstractContextManager[None]:
        """The block in which `words` are run."""
        return nullcontext()


class GuidedReplies(Guided):
    """Sessions of a program, a line each."""

    def __init__(self, folder: Path) -> None:
        self._replies = Replies(folder)
        sessions = self._replies.sessions
        super().__init__(["\n".join(lines).encode() for _, lines in sessions], self._given)
        self._path = sessions[0][0]

    def _given(self, data: bytes) -> list[str]:
        self._replies.say(data.split(b"\n"))
        return ["replay", str(self._path), "--target", "program:none", "--oracle", "all"]

    def changed(self, data: bytes, random: Random) -> bytes:
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        lines[at] = spoiled(lines[at].decode(), random).replace(b"\n", b" ")
        return b"\n".join(lines)

    def in_place(self) -> AbstractContextManager[None]:
        return self._replies.in_place()


class GuidedArguments(Guided):
    """Arguments, with NUL between them. They may name code to be run and files to be written, so a fuzzer must not make
    them up: options get values from a list."""

    def __init__(self, folder: Path) -> None:
        self._arguments = Arguments(folder)
        every = [[name, *words] for name, words in self._arguments.commands.items()]
        super().__init__(["\0".join(words).encode() for words in every], lambda data: data.decode().split("\0"))

    def changed(self, data: bytes, random: Random) -> bytes:
        words = data.decode().split("\0")
        if words[0] in self._arguments.commands and random.random() < 0.5:
            words = [words[0], *self._arguments.words(random, words[0])[1:]]
        else:
            words[random.randrange(1, len(words))] = random.choice((*(v for v in VALUES if "\0" not in v), *TEXTS[:5]))
        return "\0".join(words).encode("utf-8", "replace")

    def damaged(self, data: bytes) -> bytes:
        return self.seeds[0]


def _file(folder: Path, name: str, seeds: list[bytes], words: Callable[[str], list[str]]) -> Guided:
    """Documents that a command is given as a file."""
    path = folder / name

    def put(data: bytes) -> list[str]:
        path.write_bytes(data)
        return words(str(path))

    return Guided(seeds, put)


def _checkpoints(folder: Path) -> Guided:
    made = Checkpoints(folder)
    head, _, rest = made.path.read_bytes().partition(b"\n")

    def put(data: bytes) -> list[str]:
        made.put(data, rest)
        return made.command

    return Guided([head], put)


def _fuzz(folder: Path, *words: str) -> list[str]:
    return ["fuzz", "--operations", "5", "--seed", "1", "--attention", "full", "--out", str(folder), *words]


def _reports(folder: Path) -> Guided:
    whole = Reports(folder, dump_trace(TraceFile(drawn_trace(5, "full"), "impl"))).whole
    page = str(folder / "page.html")
    return _file(folder, "run.json", [one.encode() for one in whole], lambda path: ["report", path, "-o", page])


def _findings(folder: Path) -> Guided:
    (folder / "findings.toml").write_bytes(Configurations(folder).entries)
    observed = Configurations(folder).observed.encode()
    words = ["findings", str(folder), "--target", "impl", "--only", "hit-not-cut"]
    return _file(folder, "releases.json", [observed], lambda _: words)


KINDS: Mapping[str, Callable[[Path], Guided]] = {
    "traces": lambda folder: _file(
        folder, "trace.json", [one.encode() for one in Traces(folder).whole], lambda path: ["replay", path]
    ),
    "trace-pages": lambda folder: _file(
        folder,
        "trace.json",
        [one.encode() for one in Traces(folder).whole],
        lambda path: ["report", path, "-o", f"{path}.html"],
    ),
    "replies": GuidedReplies,
    "reports": _reports,
    "models": lambda folder: _file(
        folder,
        "config.json",
        [one.encode() for one in Configurations(folder).models],
        lambda path: ["plan", path, "--memory", "60GiB"],
    ),
    "questions": lambda folder: _file(
        folder,
        "question.json",
        [one.encode() for one in Configurations(folder).questions],
        lambda path: ["replay", path],
    ),
    "known": lambda folder: _file(folder, "known.toml", [KNOWN], lambda path: _fuzz(folder, "--known", path)),
    "floors": lambda folder: _file(folder, "f.toml", [FLOORS_TOML], lambda path: _fuzz(folder, "--floors", path)),
    "findings": _findings,
    "checkpoints": _checkpoints,
    "arguments": GuidedArguments,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """A reader of traces with this fault in it: `exception`, `quadratic`, `memory`, `elsewhere` or `code`."""
    if name is None:
        yield
        return
    reader = "_operation" if name == "exception" else "_shape"
    with patch.object(trace_file, reader, FAULTS[name]), patch.object(malformed, "LONGEST_S", 3.0):
        yield


_shape, _operation = trace_file._shape, trace_file._operation
LEFT_BEHIND = Path(tempfile.gettempdir(), f"blockproof-left-behind-{os.getpid()}")


def _exception(raw: Any, source: str, place: str) -> Any:
    """Lets one exception through: of an operation that is no object, or has no name."""
    assert raw["op"] is not None
    return _operation(raw, source, place)


def _quadratic(raw: Any, source: str) -> Any:
    """Takes the square of the longest text."""
    text = json.dumps(raw)
    for number in range(len(text) ** 2 // 4):
        text[number % len(text)].isdigit()
    return _shape(raw, source)


def _memory(raw: Any, source: str) -> Any:
    """Makes room for what a number says."""
    blocks = raw.get("num_blocks") if isinstance(raw, dict) else 0
    if isinstance(blocks, int) and 0 < blocks < 2**34:
        assert b"x" * min(blocks * 2**16, 2**31)
    return _shape(raw, source)


def _elsewhere(raw: Any, source: str) -> Any:
    """Keeps a copy where nobody looks."""
    if isinstance(raw, dict) and raw.get("hash_block_size") is None:
        LEFT_BEHIND.write_text("x")
    return _shape(raw, source)


def _code(raw: Any, source: str) -> Any:
    """Computes what a text says."""
    if isinstance(raw, dict):
        for value in raw.values():
            if isinstance(value, str) and value.startswith("{"):
                os.system("true")
    return _shape(raw, source)


FAULTS: Mapping[str, Callable[..., Any]] = {
    "exception": _exception,
    "quadratic": _quadratic,
    "memory": _memory,
    "elsewhere": _elsewhere,
    "code": _code,
}
