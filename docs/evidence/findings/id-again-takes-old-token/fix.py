"""The change that is proposed for transformers: take a token over from the same request, not from one of its name.

`ContinuousBatchingAsyncIOs.infer_carry_over_ids` (generation/continuous_batching/input_outputs.py): where the two steps
hold different RequestStates under one name, nothing is taken over.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingAsyncIOs

    inferred = ContinuousBatchingAsyncIOs.infer_carry_over_ids

    def infer_carry_over_ids(self: Any) -> Any:
        ids = inferred(self)
        new, old = (self.io_pairs[number].host_io for number in (self.current_pair, 1 - self.current_pair))
        before = {one.state.request_id: one.state for one in old.requests_in_batch}
        for one in new.requests_in_batch:
            name = one.state.request_id
            if name in new.req_id_to_new_token_position and before.get(name, one.state) is not one.state:
                ids[new.req_id_to_new_token_position[name]] = -1
        return ids

    ContinuousBatchingAsyncIOs.infer_carry_over_ids = infer_carry_over_ids
