"""Small numpy arrays of rows and block ids: a step has little time on the host, and each call costs as much as it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Rows: TypeAlias = Sequence[int] | Integers
BlockIds: TypeAlias = Sequence[Sequence[int] | Integers] | Integers
"""A list of block ids for each row; or an array: one block id for each, or as many as lengths beside it say."""

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
ONE = np.array(1)
"""Takes half the time of a plain 1, which numpy would make an array of."""


def least_and_most(numbers: Integers) -> tuple[int, int]:
    """0 and 0 if there are none; `min` and `max` cost several times as much on few."""
    if not numbers.size:
        return 0, 0
    return numbers.item(numbers.argmin()), numbers.item(numbers.argmax())


def ranges(first: Places, lengths: Places) -> Places:
    """The numbers `first[i]`, `first[i] + 1`, ..., `lengths[i]` of them, for every i."""
    least, most = least_and_most(lengths)
    if least == most:
        return (first[:, None] + np.arange(most)).reshape(-1)
    before = np.cumsum(lengths) - lengths
    numbers: Places = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
    return numbers


def listed(block_ids: BlockIds, lengths: Rows | None) -> tuple[Integers, Places | None]:
    """All block ids, and how many each row has; None if one each. ValueError for lengths that do not fit."""
    if isinstance(block_ids, np.ndarray):
        ids = block_ids if block_ids.dtype is INT32 and block_ids.ndim == 1 else whole_numbers(block_ids)
        if lengths is None:
            return ids, None
        added = whole_numbers(lengths)
        least, most = least_and_most(added)
        if least < 0 or (most * len(added) if least == most else added.sum()) != len(ids):
            raise ValueError(f"{len(ids)} block ids, but lengths {added.tolist()}: give as many as these say")
        return ids, added
    if lengths is not None:
        raise ValueError("lists of block ids have lengths of their own: leave `lengths` out, or give one array")
    sizes: Places | None = None
    try:
        try:  # as most steps have it, and in a third of the time
            flat = [block for (block,) in block_ids]
        except ValueError:
            sizes = np.array(list(map(len, block_ids)), np.int64)
            if isinstance(block_ids[0], np.ndarray):
                return whole_numbers(np.concatenate(block_ids)), sizes
            flat = []
            for some in block_ids:
                flat += some
        return np.frombuffer(array("q", flat), INT64, len(flat)), sizes  # `fromiter` would cut fractions off
    except (TypeError, OverflowError) as error:
        raise ValueError(f"give a list of block ids, whole numbers, for each row, or one array: {error}") from error


def pairs_of(values: Sequence[tuple[int, int]]) -> Places:
    """(pairs, 2). ValueError for anything else."""
    if any(len(pair) != 2 for pair in values):
        raise ValueError(f"{list(values)}: give pairs, what is read before what is written")
    return whole_numbers([each for pair in values for each in pair]).reshape(-1, 2)


def whole_numbers(values: Rows) -> Places:
    """As flat int64. ValueError for fractions."""
    array = np.asarray(values)
    if array.dtype is INT64 and array.ndim == 1:
        return array
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{array.dtype} where whole numbers are meant")
    return array.astype(np.int64).reshape(-1)
