"""The change that is proposed for transformers: the request that cannot be served fails, and no other.

`ContinuousBatchProcessor.prepare_next_batch` (generation/continuous_batching/continuous_api.py), where nothing can be
scheduled and nothing offloaded: if a step is in flight, take its results first, since they may end the request; else
fail the request that starves, or the first one that waits, and schedule again.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

    prepared = ContinuousBatchProcessor.prepare_next_batch

    def prepare_next_batch(self: Any) -> bool:
        while True:
            try:
                return bool(prepared(self))
            except RuntimeError as error:
                if "No requests can be scheduled" not in str(error):
                    raise
                if not _take_results(self):
                    _fail_one(self, error)

    ContinuousBatchProcessor.prepare_next_batch = prepare_next_batch


def _take_results(processor: Any) -> bool:
    """Update with the step in flight, if there is one; the loop finds nothing to update then."""
    ios = processor.inputs_and_outputs
    if not processor.use_async_batching or not ios.io_pairs[1 - ios.current_pair].host_io.requests_in_batch:
        return False
    ios.swap_io_pairs()
    try:
        processor.update_batch()
        ios.io_pairs[ios.current_pair].host_io.requests_in_batch = []
    finally:
        ios.swap_io_pairs()
    return True


def _fail_one(processor: Any, error: Exception) -> None:
    scheduler = processor.scheduler
    starved = [state for state, _ in scheduler.starved_requests]
    state = starved[-1] if starved else scheduler._get_waiting_candidates()[0]
    processor._handle_request_error(error, state)
    scheduler.waiting_requests.pop(state.request_id, None)
    scheduler._cleanup_waiting_queue({state.request_id})
    processor.offloading_manager.free_request_cpu_cache(state)
    scheduler.finish_request(state.request_id)
    scheduler.block_new_requests = False
