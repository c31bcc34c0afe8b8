"""The change that is proposed for transformers: where one token is left, the sequences are made at once.

`Scheduler._schedule_request` (generation/continuous_batching/scheduler.py): nothing is held back of a single token; the
other sequences become waiting requests, as those do for which the cache has no room.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.scheduler import Scheduler

    scheduled = Scheduler._schedule_request

    def _schedule_request(self: Any, state: Any, request_tokens: list[int], *given: Any) -> None:
        if state.num_children and len(request_tokens) == 1:
            number, state.num_children = state.num_children, 0
            for i in range(number):
                child = state.create_equivalent_initial_request()
                child.request_id = f"{state.request_id}__child#{i}"
                self.add_waiting_request(child)
        scheduled(self, state, request_tokens, *given)

    Scheduler._schedule_request = _schedule_request
