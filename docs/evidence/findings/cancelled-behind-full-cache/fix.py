"""The change that is proposed for transformers: a cancel lets new requests in, as an end does.

`Scheduler.clear_cancelled_requests` (generation/continuous_batching/scheduler.py): where it has taken a request out,
`block_new_requests` is False, as `update_batch` has it behind a request that finished.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.scheduler import Scheduler

    cleared = Scheduler.clear_cancelled_requests

    def clear_cancelled_requests(self: Any) -> Any:
        states = cleared(self)
        if states:
            self.block_new_requests = False
        return states

    Scheduler.clear_cancelled_requests = clear_cancelled_requests
