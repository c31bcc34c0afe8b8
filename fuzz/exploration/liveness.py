"""L1: from every state the scheduler's own moves lead to one where all requests have finished."""

from collections.abc import Sequence

import numpy as np


def first_stuck(num_states: int, sources: Sequence[int], targets: Sequence[int], goals: Sequence[int]) -> int | None:
    """The first state from which no path along the transitions leads to a goal, or None.

    The transitions are followed backwards from the goals, a level at a time.
    """
    source, target = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
    by_target = np.argsort(target, kind="stable")
    into = source[by_target]
    starts = np.searchsorted(target[by_target], np.arange(num_states + 1))
    seen = np.zeros(num_states, dtype=bool)
    frontier = np.unique(np.asarray(goals, dtype=np.int64))
    seen[frontier] = True
    while frontier.size:
        counts = starts[frontier + 1] - starts[frontier]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        before = np.unique(into[np.repeat(starts[frontier], counts) + offsets])
        frontier = before[~seen[before]]
        seen[frontier] = True
    stuck = np.flatnonzero(~seen)
    return int(stuck[0]) if stuck.size else None
