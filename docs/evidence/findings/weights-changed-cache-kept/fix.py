"""The change that is proposed for transformers: a new session begins with an empty prefix cache.

`ContinuousBatchProcessor.reset` (generation/continuous_batching/continuous_api.py) calls `cache.reset()`, which forgets
what blocks hold, in place of `cache.free_all_requests()`. The same is needed where `pause` ends.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

    was_reset = ContinuousBatchProcessor.reset

    def reset(self: Any) -> None:
        was_reset(self)
        self.cache.reset()

    ContinuousBatchProcessor.reset = reset
