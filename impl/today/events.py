"""The event of stored blocks by the rule of today: its keys are those that a listener knows, without tags."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import external_hashes
from ..hashing.extra_keys import CacheableRequest, ExtraKeys, extra_keys_of_blocks
from ..pool.events import MEDIUM_GPU, BlockStored


@dataclass(frozen=True, slots=True)
class Places:
    """Where stored blocks lie in their request: from where to where each, in tokens, and which range is told of."""

    starts: Sequence[int]
    size: int
    told: tuple[int, int]
    ahead: int


def blocks_stored(
    request: CacheableRequest, hashes: Sequence[BlockHash], parent: BlockHash | None, places: Places, group_id: int
) -> BlockStored:
    """The event of blocks of these hashes; `places.size` is also the size that it names."""
    tokens, adapter, (first, end) = request.all_token_ids, request.lora_request, places.told
    keys = extra_keys_of_blocks(request, places.starts, places.size + places.ahead)
    ahead = None
    if places.ahead:
        ends = [start + places.size for start in places.starts]
        ahead = [list(tokens[at : at + places.ahead]) for at in ends]
    return BlockStored(
        block_hashes=external_hashes(hashes),
        parent_block_hash=None if parent is None else external_hashes([parent])[0],
        token_ids=list(tokens[first:end]),
        block_size=places.size,
        lora_id=adapter.adapter_id if adapter is not None else None,
        medium=MEDIUM_GPU,
        lora_name=adapter.name if adapter is not None else None,
        extra_keys=[_untagged(of_block) for of_block in keys] or None,
        group_idx=group_id,
        lookahead_token_ids=ahead,
    )


def _untagged(keys: ExtraKeys | None) -> tuple[Any, ...] | None:
    """An adapter by its name alone, an item by identifier, place and length, the rest by its value."""
    return None if keys is None else tuple(_plain(keys))


def _plain(keys: Iterable[tuple[Any, ...]]) -> Iterable[Any]:
    for kind, *values in keys:
        yield tuple(values) if kind == "mm" else values[0]
