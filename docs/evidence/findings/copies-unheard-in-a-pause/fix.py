"""The paused loop looks for copies that have ended."""

from typing import Any


def fix() -> None:
    """Where it receives requests, it does."""
    from sglang.srt.managers.scheduler import Scheduler

    ingest = Scheduler.ingest_requests

    def ingest_requests(self: Any, *given: Any) -> Any:
        if self._engine_paused:
            self._process_hicache_events(should_retry_storage_prefetch=False)
        return ingest(self, *given)

    Scheduler.ingest_requests = ingest_requests
