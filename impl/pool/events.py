"""The events with which the pool reports registered and evicted blocks (core.md §5)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..hashing.block_hashing import BlockHashList, external_hashes, maybe_convert_block_hash
from ..hashing.extra_keys import CacheableRequest, ExtraKeys, extra_keys_of_blocks, need_extra_keys
from ..hashing.reference_keys import reference_keys_of_blocks

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
    `lookahead_token_ids`: where names look ahead, of each block the tokens behind it that its name covers.
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
    lookahead_token_ids: list[list[int]] | None = None


@dataclass(slots=True)
class BlockRemoved(KVCacheEvent):
    """One copy of each of these identities is gone; another copy may still be registered."""

    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None


@dataclass(slots=True)
class AllBlocksCleared(KVCacheEvent):
    """Every identity was forgotten at once."""


def blocks_stored(
    request: CacheableRequest,
    hashes: BlockHashList,
    chosen: Sequence[int],
    part: tuple[int, int, int, int],
    reference_keys: bool,
) -> BlockStored:
    """The event of the registered entries `chosen` of a part: its first and its end, the block size, the group.

    With `reference_keys` it shows the extra keys that vLLM 0.23.0 hashes.
    """
    first, end, block_size, group_id = part
    starts = [i * block_size for i in chosen]
    keys: Iterable[ExtraKeys | None] = [None] * len(starts)
    if need_extra_keys(request) or request.prompt_embeds is not None:
        given = request, starts, block_size
        keys = reference_keys_of_blocks(*given, False) if reference_keys else extra_keys_of_blocks(*given)
    adapter = request.lora_request
    return BlockStored(
        block_hashes=external_hashes([hashes[i] for i in chosen]),
        parent_block_hash=maybe_convert_block_hash(hashes[first - 1]) if first else None,
        token_ids=list(request.all_token_ids[first * block_size : end * block_size]),
        block_size=block_size,
        lora_id=adapter.adapter_id if adapter is not None else None,
        medium=MEDIUM_GPU,
        lora_name=adapter.name if adapter is not None else None,
        extra_keys=list(keys) or None,
        group_idx=group_id,
    )
