"""The events with which the pool reports registered and evicted blocks (core.md §5)."""

from dataclasses import dataclass
from typing import Any

MEDIUM_GPU = "GPU"
"""Where the blocks of this core lie."""


@dataclass(slots=True)
class KVCacheEvent:
    """Base of all events."""


@dataclass(slots=True)
class BlockStored(KVCacheEvent):
    """Blocks of one request became available to others.

    `token_ids` are those of the whole range looked at, `block_hashes` and `extra_keys` belong to the blocks that were
    registered in it, `parent_block_hash` to the block before the range. `block_size` is in tokens.
    """

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


@dataclass(slots=True)
class BlockRemoved(KVCacheEvent):
    """One copy of each of these identities is gone; another copy may still be registered."""

    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None


@dataclass(slots=True)
class AllBlocksCleared(KVCacheEvent):
    """Every identity was forgotten at once."""
