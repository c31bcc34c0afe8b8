"""The change that is proposed for transformers: make room for what is scheduled, not for the token that is held back.

`PagedAttentionCache.can_store_request_tokens` (generation/continuous_batching/cache.py) is asked for one token less
where `_schedule_request` will hold one back for a fork.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.cache import PagedAttentionCache

    stored = PagedAttentionCache.can_store_request_tokens

    def can_store_request_tokens(self: Any, state: Any, request_len: int, dry_run: bool = False) -> bool:
        if state.num_children and request_len > 1 and request_len == len(state.remaining_prefill_tokens):
            request_len -= 1
        return bool(stored(self, state, request_len, dry_run))

    PagedAttentionCache.can_store_request_tokens = can_store_request_tokens
