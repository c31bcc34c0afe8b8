"""Reads SGLang's pools, tree and request rows as a `Snapshot`.

A block is a page. Block 0 is the null block: SGLang pads its batches with slot 0, which no request ever gets. The
sliding window has a pool of its own: page `p` of it is block `full_pages + p` of the snapshot, so that no two pages
have the same block id.

A page is free if the allocator has it, or if it can be evicted: the tree owns it and no request has locked it. A
request holds the pages of its row. Pages that the tree owns it holds through its lock. In the window's pool this lock
ends at the first node that covers the window, so earlier entries of the request's table are null, even if another
request holds those pages. Pages that the tree does not own belong to the request itself, until their slots are given
back.
"""

from collections.abc import Mapping
from typing import Any

from ....model.arith import cdiv
from ....model.ops import NULL, Value
from ....model.snapshot import Snapshot
from .engine import Cache
from .releases import CacheCalls


class SglangObserver:
    """Takes the snapshots of one cache, from its construction to its end."""

    def __init__(self, cache: Cache, calls: CacheCalls, num_groups: int, num_blocks: int) -> None:
        self._cache = cache
        self._calls = calls
        self._num_groups = num_groups
        self._num_blocks = num_blocks
        self._held_from: dict[str, tuple[object, int]] = {}
        """Per request: its lock, and the first position that this lock covers in the window's pool."""

    def snapshot(self, requests: Mapping[str, Any]) -> Snapshot:
        """The present state; `requests` by name."""
        groups = range(self._num_groups)
        holders = {name: request for name, request in requests.items() if request.kv.holds_kv}
        rows = {name: self.tables(request) for name, request in holders.items()}
        tables = [{name: row[group] for name, row in rows.items()} for group in groups]
        counts = [0] * self._num_blocks
        for row in rows.values():
            for block in {block for table in row for block in table if block != NULL}:
                if block < self._num_blocks:
                    counts[block] += 1
        return Snapshot(
            free=self._free(),
            num_free=self._num_free(),
            usage=0.0,
            ref_cnt=counts,
            tables=tables,
            registered=[{} for _ in groups],
            labels=[None] * self._num_blocks,
            earliest=[None] * self._num_blocks,
            num_identities=0,
            events=(),
            new_block_ids=[[] for _ in groups],
            stats=None,
        )

    # The pools.

    def _free(self) -> list[int]:
        """Free pages in ascending order; a page that the allocator has twice is listed twice."""
        cache = self._cache
        if not cache.swa_pages:
            return sorted(_pages_of(cache.allocator) + self._evictable(in_window=False))
        full = _pages_of(cache.allocator.full_attn_allocator) + self._evictable(in_window=False)
        swa = _pages_of(cache.allocator.swa_attn_allocator) + self._evictable(in_window=True)
        return sorted(full) + sorted(cache.full_pages + page for page in swa)

    def _evictable(self, *, in_window: bool) -> list[int]:
        """Pages in the tree that no request has locked."""
        cache = self._cache
        if cache.tree.disable:
            return []
        slots = cache.tree.tree_core.walk_for_kv_canary(True, in_window).slot_indices[:: cache.page]
        if in_window:
            slots = cache.allocator.full_to_swa_index_mapping[slots]
        pages: list[int] = (slots // cache.page).tolist()
        return pages

    def _num_free(self) -> int:
        """Free and evictable pages as SGLang counts them."""
        cache = self._cache
        tree, allocator = cache.tree, cache.allocator
        if not cache.swa_pages:
            return int(allocator.available_size() + tree.evictable_size()) // cache.page
        full = allocator.full_available_size() + tree.full_evictable_size()
        swa = allocator.swa_available_size() + tree.swa_evictable_size()
        return int(full) // cache.page + int(swa) // cache.page

    # Requests.

    def table_lengths(self, request: Any) -> int:
        """Number of entries of the request's tables, the same in every group."""
        return cdiv(request.kv.kv_allocated_len, self._cache.page) if request.kv.holds_kv else 0

    def tables(self, request: Any) -> list[list[int]]:
        """Per group, the pages that the request holds, by position."""
        cache, kv = self._cache, request.kv
        slots = cache.rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len : cache.page].long()
        full: list[int] = (slots // cache.page).tolist()
        if not cache.swa_pages:
            return [full]
        return [full, self._in_window(slots, self._held_from_position(request), kv.cache_protected_len)]

    def prefix(self, request: Any) -> Value:
        """Per group, the pages of the prefix that was just matched."""
        cache = self._cache
        length = self._calls.prefix(request)
        if not length:
            return tuple(() for _ in range(self._num_groups))
        slots = self._calls.prefix_slots(cache.tree, request)[:: cache.page]
        full = tuple((slots // cache.page).tolist())
        if not cache.swa_pages:
            return (full,)
        first = self._window_start(request.last_node)
        return (full, tuple(self._in_window(slots, first, length)))

    def _in_window(self, slots: Any, first: int, owned_by_tree: int) -> list[int]:
        """Pages of the window's pool for these slots (the first of each page), null where the request holds none."""
        cache = self._cache
        pages = (cache.allocator.full_to_swa_index_mapping[slots] // cache.page).tolist()
        return [
            cache.full_pages + page if page and not entry * cache.page < min(first, owned_by_tree) else NULL
            for entry, page in enumerate(pages)
        ]

    def _held_from_position(self, request: Any) -> int:
        """The first position whose page, owned by the tree, the request holds in the window's pool."""
        held = self._calls.locked_node(request)
        if held is None or self._cache.tree.disable:
            return int(request.kv.cache_protected_len)
        lock, node = held
        seen = self._held_from.get(request.rid)
        if seen is None or seen[0] is not lock:
            seen = self._held_from[request.rid] = (lock, self._window_start(node))
        return seen[1]

    def _window_start(self, node: Any) -> int:
        """The first position that a lock on this node covers in the window's pool."""
        spans = self._calls.path(self._cache.tree, node)
        if not spans:
            return 0
        needed = spans[-1][1] - self._cache.window
        return max((start for start, _ in spans if start <= needed), default=0)


def _pages_of(allocator: Any) -> list[int]:
    """The free pages of one allocator."""
    pages: list[int] = allocator.get_all_free_pages().tolist()
    return pages
