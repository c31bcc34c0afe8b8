"""A search on disk: where it stands, so that another process can go on from there.

The file is one line of JSON, then the arrays. It names the scope and the sources it was made with: a search of
something else is not gone on with. A file is data only, and its digest is checked before anything in it is used.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .scope import Scope
from .search import Search
from .workers import Plant

Write: TypeAlias = Callable[[Path, Sequence[bytes]], None]
FORMAT = "blockproof exploration 1"
_PARTS = ("lengths", "states", "parents", "moves", "own_from", "own_to")
_COUNTS = ("at", "level_end", "depth", "transitions")
_SOURCES = Path(__file__).parents[2]


class CheckpointError(Exception):
    """A checkpoint that cannot be gone on with. The text is one line: file, what is wrong, what to do."""


def fingerprint(scope: Scope, plant: Plant | None) -> str:
    """Names what is explored: the scope, a planted fault, and the sources of model, core and exploration."""
    digest = hashlib.sha256(repr((scope, plant)).encode())
    for folder in ("model", "impl", "fuzz/exploration"):
        for path in sorted((_SOURCES / folder).rglob("*.py")):
            digest.update(str(path.relative_to(_SOURCES)).encode() + path.read_bytes())
    return digest.hexdigest()


def save(search: Search, path: Path, write: Write) -> None:
    """Write a search with `write`, which does so in one piece: an interruption leaves the old file or the new one."""
    parts = (
        array("H", map(len, search.states)).tobytes(),
        b"".join(search.states),
        *(getattr(search, name).tobytes() for name in _PARTS[2:]),
    )
    header: dict[str, Any] = {
        "format": FORMAT,
        "scope": search.scope.name,
        "fingerprint": fingerprint(search.scope, search.plant),
        "sizes": [len(part) for part in parts],
        "seconds": search.seconds,
        "cpu_seconds": search.cpu_seconds,
        "reached": dict(search.reached),
        **{name: getattr(search, name) for name in _COUNTS},
    }
    header["digest"] = _digest(header, parts)
    write(path, (json.dumps(header).encode() + b"\n", *parts))


def _digest(header: Mapping[str, Any], parts: Sequence[bytes]) -> str:
    """Of all that the file holds but the digest itself."""
    digest = hashlib.sha256(json.dumps({**header, "digest": ""}, sort_keys=True).encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def load(search: Search, path: Path) -> None:
    """Put a new search where the file says. CheckpointError if that cannot be done; the search is then of no use."""
    if not path.is_file():
        raise CheckpointError(f"{path}: is no regular file; delete it, or save into another folder")
    data = path.read_bytes()
    line, _, payload = data.partition(b"\n")
    header = _header(path, line)
    for what, name in ((search.scope.name, "scope"), (fingerprint(search.scope, search.plant), "fingerprint")):
        if header.get(name) != what:
            raise CheckpointError(
                f"{path}: was made for another scope or with other sources; delete it, or save into another folder"
            )
    sizes = header.get("sizes")
    whole = (
        isinstance(sizes, list)
        and len(sizes) == len(_PARTS)
        and all(isinstance(size, int) and size >= 0 for size in sizes)
        and sum(sizes) == len(payload)
        and header.get("digest") == _digest(header, [payload])
    )
    if not whole:
        raise CheckpointError(f"{path}: is damaged (its digest does not fit); delete it and start again")
    try:
        _fill(search, header, payload)
    except (ValueError, TypeError, LookupError) as error:
        raise CheckpointError(
            f"{path}: is damaged ({type(error).__name__}: {error}); delete it and start again"
        ) from None


def _header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError(f"{path}: is no checkpoint of an exploration; delete it, or save into another folder")
    return header


def _fill(search: Search, header: dict[str, Any], payload: bytes) -> None:
    parts = []
    for size in header["sizes"]:
        parts.append(payload[:size])
        payload = payload[size:]
    lengths = array("H")
    lengths.frombytes(parts[0])
    search.states, at = [], 0
    for length in lengths:
        search.states.append(parts[1][at : at + length])
        at += length
    search.index = {state: number for number, state in enumerate(search.states)}
    for name, part in zip(_PARTS[2:], parts[2:], strict=True):
        getattr(search, name)[:] = array(getattr(search, name).typecode, part)
    for name in _COUNTS:
        setattr(search, name, int(header[name]))
    if not 0 <= search.at <= search.level_end <= len(search.states) == len(search.parents) == len(search.moves):
        raise ValueError("the counts do not fit the states")
    if any(parent >= max(number, 1) for number, parent in enumerate(search.parents)):
        raise ValueError("a state was met before the one that it was met from")
    search.reached = Counter({str(name): int(times) for name, times in dict(header["reached"]).items()})
    search.seconds, search.cpu_seconds = float(header["seconds"]), float(header["cpu_seconds"])
