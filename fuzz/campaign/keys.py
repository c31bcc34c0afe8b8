"""What a run has reached, as keys: a campaign looks for runs with new ones, and its corpus is a set that has them all.

A key is a text that means the same on every machine. Three kinds are read off a run that is over:

* a situation and how often it came up, in classes that double: `hit x4` is 4 to 7 times;
* two situations in one run: `hit + preemption`;
* what an operation came to, with why: `Allocate: Refused, asked for drafts`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import combinations

from ...model.ops import Failed
from ..runs.run import Run

DIGEST_BYTES = 8


def keys_of(run: Run) -> tuple[str, ...]:
    """All that the run has reached, in the order of the alphabet."""
    return tuple(sorted(set(_keys(run))))


def _keys(run: Run) -> Iterator[str]:
    reached = {name: count for name, count in run.reached().items() if count > 0}
    for name, count in reached.items():
        yield f"{name} x{1 << (count.bit_length() - 1)}"
    yield from (" + ".join(pair) for pair in combinations(sorted(reached), 2))
    for operation, outcome in zip(run.operations, run.outcomes, strict=False):  # a target that is lost has no outcome
        yield f"{type(operation).__name__}: {outcome.error if isinstance(outcome, Failed) else type(outcome).__name__}"
    yield from (f"{operation}: {result}, {why}" for operation, result, why in run.causes)


def digest(key: str) -> bytes:
    """A short name of a key."""
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).digest()[:DIGEST_BYTES]


def packed(digests: Iterable[bytes]) -> bytes:
    """Digests in a row, sorted."""
    return b"".join(sorted(digests))


def unpacked(data: bytes) -> frozenset[bytes]:
    """The digests of `packed`."""
    return frozenset(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))
