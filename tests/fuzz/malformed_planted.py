"""Faults to be planted into what reads traces, each of which breaks a promise that `malformed_watch` knows."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from blockproof.fuzz.traces import trace_file

from . import malformed


@contextmanager
def planted(name: str) -> Iterator[None]:
    """A reader of traces with this fault in it: `exception`, `quadratic`, `memory`, `elsewhere` or `code`."""
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
