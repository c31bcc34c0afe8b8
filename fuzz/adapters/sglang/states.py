"""The states of Mamba layers, in SGLang's own pool: written by each step, read back by the next.

A state is a number that stands for all tokens up to a position. A step reads the state of its request, which must stand
for the tokens before the step, and writes the one for the tokens behind it. All in between is SGLang's: which slot is
whose, which is copied for a hit, cleared for a new request, copied or given to the tree, and evicted.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from .engine import Cache

_BITS = 0xFFFFFF
"""Numbers up to this are exact in the pool's 32-bit floats."""


def _state_of(request: Any, tokens: int) -> float:
    """The state behind so many tokens of a request; 0 for none."""
    if not tokens:
        return 0.0
    known = [*request.origin_input_ids, *request.output_ids][:tokens]
    return float(crc32(f"{request.cache_salt}/{known}".encode()) & _BITS | 1)


class StatePool:
    """The state pool of one cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._pool = cache, cache.rows.mamba_pool
        self._memory = self._pool.mamba_cache.temporal

    def run(self, requests: Sequence[Any], starts: Sequence[int], ends: Sequence[int], batch: Any) -> list[str]:
        """A batch runs: its copies and clears first, then every request. Returns what is wrong."""
        if batch.mamba_clear_indices is not None:
            self._pool.clear_slots(batch.mamba_clear_indices)
        if batch.mamba_cow_src_indices is not None:
            self._pool.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        slots = [int(request.kv.mamba_pool_idx) for request in requests]
        found = [f"state: {slots} are not all different"] if len(set(slots)) < len(slots) else []
        for request, start, slot in zip(requests, starts, slots, strict=True):
            read, expected = float(self._memory[0, slot].flatten()[0]), _state_of(request, start)
            if read != expected:
                found.append(
                    f"state: {request.rid} reads {read} from slot {slot} behind {start} tokens, not {expected}"
                )
        for request, end, slot in zip(requests, ends, slots, strict=True):
            self._memory[0, slot] = _state_of(request, end)
        return found

    def problems(self, requests: Iterable[Any]) -> list[str]:
        """Every slot is free, in the tree or a request's, and just one of these."""
        rows, tree = self._cache.rows, self._cache.tree
        free = rows.mamba_allocator.free_slots.tolist()
        kept = tree.all_mamba_values_flatten().tolist()
        held = [int(request.kv.mamba_pool_idx) for request in requests if request.kv.holds_mamba]
        if sorted([*free, *kept, *held]) == list(range(1, self._cache.states + 1)):
            return []
        return [f"slots of states: free {sorted(free)}, in the tree {sorted(kept)}, held {sorted(held)}"]
