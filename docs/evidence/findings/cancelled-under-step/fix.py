"""The change that is proposed for transformers: a cancelled request has ended for the step that is in flight, too.

`Scheduler.clear_cancelled_requests` (generation/continuous_batching/scheduler.py): the status of what it takes out is
FINISHED, so `update_batch` goes on to the next request, as it does for requests that were offloaded under a step; and
none of it is forked any more.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.requests import RequestStatus
    from transformers.generation.continuous_batching.scheduler import Scheduler

    cleared = Scheduler.clear_cancelled_requests

    def clear_cancelled_requests(self: Any) -> Any:
        states = cleared(self)
        for state in states:
            state.status = RequestStatus.FINISHED
        self._requests_to_fork = [one for one in self._requests_to_fork if all(one is not state for state in states)]
        return states

    Scheduler.clear_cancelled_requests = clear_cancelled_requests
