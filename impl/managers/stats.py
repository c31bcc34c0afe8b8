"""Prefix-cache statistics: what one interval saw, and the hit rate over the recent past (core.md §10)."""

from collections import deque
from dataclasses import dataclass


@dataclass
class BaseCacheStats:
    """Counts of one interval; `queries` and `hits` are in tokens. `reset` says that older counts are void."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0


@dataclass
class PrefixCacheStats(BaseCacheStats):
    """The same counts, and separately those of requests that had been preempted before."""

    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """Count one lookup of `num_tokens` tokens that found `num_hits` of them."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class CachingMetrics:
    """Hit rate over about the `max_recent_requests` most recent requests.

    Updates leave whole, oldest first, while more requests than the limit are held; the latest always stays, so that one
    large update still gives a rate.
    """

    def __init__(self, max_recent_requests: int = 1000) -> None:
        self.max_recent_requests = max_recent_requests
        self.reset()

    def reset(self) -> None:
        """Forget all updates."""
        self.aggregated_requests = 0
        self.aggregated_query_total = 0
        self.aggregated_query_hit = 0
        self.query_queue: deque[tuple[int, int, int]] = deque()

    def observe(self, stats: BaseCacheStats) -> None:
        """Take in one interval: clear first if it says `reset`, pass over it if it saw no request."""
        if stats.reset:
            self.reset()
        if not stats.requests:
            return
        self._add(stats.requests, stats.queries, stats.hits, sign=1)
        self.query_queue.append((stats.requests, stats.queries, stats.hits))
        while self.aggregated_requests > self.max_recent_requests and len(self.query_queue) > 1:
            self._add(*self.query_queue.popleft(), sign=-1)

    @property
    def empty(self) -> bool:
        """Whether no update is held."""
        return not self.aggregated_requests

    @property
    def hit_rate(self) -> float:
        """Hit tokens per queried token, 0.0 with nothing queried."""
        if not self.aggregated_query_total:
            return 0.0
        return self.aggregated_query_hit / self.aggregated_query_total

    def _add(self, requests: int, queries: int, hits: int, sign: int) -> None:
        self.aggregated_requests += sign * requests
        self.aggregated_query_total += sign * queries
        self.aggregated_query_hit += sign * hits


PrefixCachingMetrics = CachingMetrics
"""The name that older programs import."""
