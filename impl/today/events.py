"""The event of stored blocks by the rule of today: its keys are those that a listener knows, without tags."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import external_hashes
from ..hashing.extra_keys import CacheableRequest, ExtraKeys, extra_keys_of_blocks, need_extra_keys
from ..pool.events import MEDIUM_GPU, BlockStored


@dataclass(frozen=True, slots=True)
class Places:
    """Where stored blocks lie in their request, in tokens: where each starts, and which range is told of."""

    starts: Sequence[int]
    told: tuple[int, int]
    size: int
    """The size of a block that the event names, in tokens; the last one ends where the range does, if not before."""
    ahead: int

    @property
    def ends(self) -> list[int]:
        """Where each of them ends."""
        return [min(start + self.size, self.told[1]) for start in self.starts]


def blocks_stored(
    request: CacheableRequest, hashes: Sequence[BlockHash], parent: BlockHash | None, places: Places, group_id: int
) -> BlockStored:
    """The event of blocks of these hashes."""
    tokens, adapter, (first, end) = request.all_token_ids, request.lora_request, places.told
    told = tokens[first:end]
    ahead = [list(tokens[at : at + places.ahead]) for at in places.ends] if places.ahead else None
    shown = external_hashes(hashes if parent is None else [parent, *hashes])
    return BlockStored(
        block_hashes=shown if parent is None else shown[1:],
        parent_block_hash=None if parent is None else shown[0],
        token_ids=told if type(told) is list else list(told),
        block_size=places.size,
        lora_id=adapter.adapter_id if adapter is not None else None,
        medium=MEDIUM_GPU,
        lora_name=adapter.name if adapter is not None else None,
        extra_keys=_keys(request, places) or None,
        group_idx=group_id,
        lookahead_token_ids=ahead or None,
    )


def _keys(request: CacheableRequest, places: Places) -> list[tuple[Any, ...] | None]:
    """The extra keys of each block; where the last one is a part they are looked for apart."""
    starts, size, ahead = places.starts, places.size, places.ahead
    if not starts or (not need_extra_keys(request) and request.prompt_embeds is None):
        return [None] * len(starts)
    found: list[ExtraKeys | None] = []
    if starts[-1] + size <= places.told[1]:
        found += extra_keys_of_blocks(request, starts, size + ahead)
    else:
        for start, end in zip(starts, places.ends, strict=True):
            found += extra_keys_of_blocks(request, [start], end - start + ahead)
    return [_untagged(keys) for keys in found]


def _untagged(keys: ExtraKeys | None) -> tuple[Any, ...] | None:
    """An adapter by its name alone, an item by identifier, place and length, the rest by its value."""
    return None if keys is None else tuple(_plain(keys))


def _plain(keys: Iterable[tuple[Any, ...]]) -> Iterable[Any]:
    for kind, *values in keys:
        yield tuple(values) if kind == "mm" else values[0]
