"""How long sampled blocks live, lie idle and wait between uses (core.md §5)."""

import random
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from .block import KVCacheBlock

NANOSECONDS = 1e9


@dataclass(frozen=True)
class KVCacheEvictionEvent:
    """The life of one evicted block, in seconds."""

    lifetime_seconds: float
    idle_seconds: float
    reuse_gaps_seconds: tuple[float, ...]


class BlockMetricsState:
    """Times of one sampled block, in nanoseconds of the monotonic clock; the last 4 accesses are kept."""

    def __init__(self) -> None:
        now = time.monotonic_ns()
        self.birth_time_ns = now
        self.last_access_ns = now
        self.access_history: deque[int] = deque(maxlen=4)

    def record_access(self) -> None:
        """Note a use of the block now."""
        self.last_access_ns = time.monotonic_ns()
        self.access_history.append(self.last_access_ns)

    def get_lifetime_seconds(self) -> float:
        """Seconds since the block was handed out."""
        return (time.monotonic_ns() - self.birth_time_ns) / NANOSECONDS

    def get_idle_time_seconds(self) -> float:
        """Seconds since the last use, or since birth if there was none."""
        return (time.monotonic_ns() - self.last_access_ns) / NANOSECONDS

    def get_reuse_gaps_seconds(self) -> list[float]:
        """Seconds between the uses kept, oldest first."""
        return [(later - earlier) / NANOSECONDS for earlier, later in pairwise(self.access_history)]


class KVCacheMetricsCollector:
    """Follows a random share of the blocks. AssertionError unless `sample_rate` lies in (0, 1]."""

    def __init__(self, sample_rate: float = 0.01) -> None:
        if not (0 < sample_rate <= 1):
            raise AssertionError(f"sample_rate is {sample_rate}: give a share above 0 and up to 1")
        self.sample_rate = sample_rate
        self.block_metrics: dict[int, BlockMetricsState] = {}
        self._eviction_events: list[KVCacheEvictionEvent] = []

    def should_sample_block(self) -> bool:
        """Draw whether to follow the next block."""
        return random.random() < self.sample_rate

    def on_block_allocated(self, block: KVCacheBlock) -> None:
        """The pool hands out the block."""
        if self.should_sample_block():
            self.block_metrics[block.block_id] = BlockMetricsState()

    def on_block_accessed(self, block: KVCacheBlock) -> None:
        """A cache hit uses the block."""
        state = self.block_metrics.get(block.block_id)
        if state is not None:
            state.record_access()

    def on_block_evicted(self, block: KVCacheBlock) -> None:
        """The pool takes the block for another use; ends its record."""
        state = self.block_metrics.pop(block.block_id, None)
        if state is not None:
            idle = state.get_idle_time_seconds()  # first, so that a block never lived for less than it was idle
            lifetime, gaps = state.get_lifetime_seconds(), tuple(state.get_reuse_gaps_seconds())
            self._eviction_events.append(KVCacheEvictionEvent(lifetime, idle, gaps))

    def reset(self) -> None:
        """Forget all blocks followed and all events not handed out yet."""
        self.block_metrics.clear()
        self._eviction_events.clear()

    def drain_events(self) -> list[KVCacheEvictionEvent]:
        """The events since the last call."""
        events, self._eviction_events = self._eviction_events, []
        return events
