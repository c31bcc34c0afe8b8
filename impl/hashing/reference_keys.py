"""Extra keys as vLLM 0.23.0 makes them, for those who share block hashes with it (core.md §3).

They name too little: a key does not say its kind, an item not its length, an adapter only its name, embeddings neither
dtype nor mask; and items that overlap or share the prompt's last block are left out. So blocks of different content can
have one identity.
Equal to the release's digests as far as those are determined: for `sha256_cbor` always; for `sha256`, which pickles,
where equal texts of a request are one object in memory.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from .extra_keys import CacheableRequest, ExtraKeys, raw_bytes, shared_text


def reference_keys_of_blocks(
    request: CacheableRequest, starts: Iterable[int], size: int, resumed: bool
) -> Iterator[ExtraKeys | None]:
    """The release's extra keys of the blocks of `size` tokens that begin at `starts`; None for a block without.

    `resumed`: earlier blocks were hashed before. Its hasher then begins at the last feature; what it shows in events is
    never resumed.
    """
    features = (request.mm_features or [])[-1 if resumed else None :]
    for start in starts:
        keys: list[Any] = [shared_text(request.lora_request.lora_name)] if request.lora_request is not None else []
        keys += _item_pairs(features, start, start + size)
        if not start and request.cache_salt:
            keys.append(shared_text(request.cache_salt))
        if request.prompt_embeds is not None:
            keys.append(_digest(request, start, start + size))
        yield tuple(keys) or None


def _item_pairs(features: Any, start: int, end: int) -> Iterator[tuple[Any, int]]:
    """(identifier, offset relative to the block) of the features up to the first that goes on behind the block."""
    ends = [feature.mm_position.offset + feature.mm_position.length for feature in features]
    if not ends or ends[-1] <= start:
        return
    for feature, feature_end in zip(features, ends, strict=True):
        offset = feature.mm_position.offset
        if offset >= end:
            return
        if feature_end > start:
            yield shared_text(feature.identifier), offset - start
            if feature_end > end:
                return


def _digest(request: CacheableRequest, start: int, end: int) -> bytes:
    memo: dict[object, bytes] = getattr(request, "_prompt_embeds_per_block_hashes", {})
    if (start, end) not in memo:
        memo[start, end] = hashlib.sha256(raw_bytes(request.prompt_embeds[start:end])).digest()
    return memo[start, end]
