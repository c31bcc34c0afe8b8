"""The change that is proposed for transformers: register what any chunk has completed.

`ContinuousBatchProcessor.update_batch` (generation/continuous_batching/continuous_api.py): also where the request has
no new token and has begun to decode in the step behind.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor
    from transformers.generation.continuous_batching.requests import RequestStatus

    updated = ContinuousBatchProcessor.update_batch

    def update_batch(self: Any) -> None:
        for one in self.inputs_and_outputs.prepare_batch_update()[0]:
            if not one.has_new_token and one.state.status == RequestStatus.DECODING:
                self.cache.mark_complete_blocks(one.state, one.complete_blocks)
        updated(self)

    ContinuousBatchProcessor.update_batch = update_batch
