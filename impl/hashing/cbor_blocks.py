"""Tokens of many blocks in canonical CBOR, encoded at once."""

import marshal
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .hash_functions import canonical_cbor

_WIDEST = 5
"""Bytes of the longest encoding of an int of up to 31 bits."""
_INT = b"i"
"""In front of an int of up to 32 bits in a `marshal`."""
_RECORD = np.dtype([("kind", "S1"), ("value", "<i4")])


class CborBlocks:
    """An int in canonical CBOR: a byte up to 23; else one that says how many follow, and these, big endian.

    The rest is cut out of an example: in CBOR a value is encoded the same wherever it stands.
    """

    def __init__(self, parent_bytes: int, size: int) -> None:
        self._size = size
        self.tail = canonical_cbor(None)
        parent = b"\xff" * parent_bytes
        head, _, behind = canonical_cbor((parent, (None,) * size, None)).partition(parent)
        self.heads = [head] * (_WIDEST * size + 1)
        self.middle = behind[: -len(self.tail) * (size + 1)]

    def bodies(self, tokens: Sequence[int]) -> list[bytes] | None:
        """The ints of each block. None if a token is no plain int, negative, or has more than 31 bits."""
        values = _values(tokens)
        if values is None or values.min(initial=0) < 0:
            return None
        more = values > 0xFFFF, values > 0xFFFF, values > 0xFF, values > 23
        records = np.empty((len(tokens), _WIDEST), np.uint8)  # of which the last 1, 2, 3 or 5 are kept
        records[:, 0] = 0x1A
        records[:, 1:] = values.astype(">i4").view(np.uint8).reshape(-1, 4)
        records[~more[1], 2] = 0x19
        records[~more[2], 3] = 0x18
        kept = np.stack([*more, np.ones(len(tokens), bool)], axis=1)
        ends = np.cumsum(kept.reshape(-1, _WIDEST * self._size).sum(axis=1)).tolist()
        packed = records[kept].tobytes()
        return [packed[start:end] for start, end in pairwise([0, *ends])]


def _values(tokens: Sequence[Any]) -> NDArray[np.int32] | None:
    """The tokens, None if one is no plain int of up to 32 bits.

    A `marshal` of the list has 5 bytes for each such int. It is read in a quarter of the time that numpy takes for the
    list, and it tells True from 1.
    """
    try:
        data = marshal.dumps([*tokens], 2)
    except ValueError:  # an object it has no form for
        return None
    if len(data) != _RECORD.itemsize * (len(tokens) + 1) or data[5::5] != _INT * len(tokens):
        return None
    values: NDArray[np.int32] = np.frombuffer(data, _RECORD, offset=5)["value"].astype(np.int32)
    return values
