"""Rings: layers that keep the last few tokens only, in one block of their request that is written round and round."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..pool.block import KVCacheBlock
from ..specs.attention import AttentionSpec
from .managers import ByNames

ENDLESS = 1 << 40
"""Tokens: more than any request has."""


@dataclass(frozen=True)
class CircularBufferSpec(AttentionSpec):
    """A layer that keeps the last `block_size` tokens."""


class RingManager(ByNames):
    """One block for each request, from its first step or with its tokens from outside to its end. It is scratch: never
    named, of no use to a hit, and it need not be cleared."""

    search_type = None
    drafts_read_behind = False

    def make_endless(self) -> None:
        """From now on its one entry stands for all tokens that a request can have."""
        self.block_size = ENDLESS

    def attach_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> int:
        """As before; nothing of it counts as registered."""
        given = num_local_computed_tokens, num_external_computed_tokens, num_settled_tokens
        missing = super().attach_computed_blocks(request_id, new_computed_blocks, *given)
        self.num_cached_block.pop(request_id, None)
        return missing

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: no request reads what another one has."""
        return 0
