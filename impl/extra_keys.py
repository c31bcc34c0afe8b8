"""What, beside the tokens, goes into a block's identity: adapter, multimodal items, salt, embeddings (core.md §3)."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .kv_cache_block import BlockHash


class CacheableRequest(Protocol):
    """What the core reads of a request. Anything with these attributes will do (core.md §10)."""

    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    block_hashes: list[BlockHash]
    lora_request: Any
    mm_features: Any
    cache_salt: str | None
    prompt_embeds: Any
    skip_reading_prefix_cache: bool | None

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""

    @property
    def all_token_ids(self) -> Sequence[int]:
        """Prompt and output token ids."""


ExtraKeys = tuple[Any, ...]


def need_extra_keys(request: CacheableRequest) -> bool:
    """Whether features, an adapter or a salt stand in the request's identities."""
    return bool(request.mm_features) or request.lora_request is not None or request.cache_salt is not None


def generate_block_hash_extra_keys(
    request: CacheableRequest, start_token_idx: int, end_token_idx: int, start_mm_idx: int, tagged: bool = False
) -> tuple[ExtraKeys | None, int]:
    """Extra keys of the tokens `start_token_idx .. end_token_idx - 1`, and the feature index for the next block.

    The keys are, in this order: the adapter's name; a pair (identifier, offset relative to the block) per overlapping
    feature; the salt, in the first block only; the digest of the block's prompt embeddings. None if there are none.
    `tagged` puts the kind of each key before it, so that an adapter and a salt of the same name differ
    (core.md, "Known deviations" 2).
    """
    features, next_mm_idx = _feature_keys(request, start_token_idx, end_token_idx, start_mm_idx)
    by_kind: tuple[tuple[str, list[Any]], ...] = (
        ("adapter", [_shared(request.lora_request.lora_name)] if request.lora_request is not None else []),
        ("feature", features),
        ("salt", [_shared(request.cache_salt)] if not start_token_idx and request.cache_salt else []),
        ("embeddings", list(_embedding_keys(request, start_token_idx, end_token_idx))),
    )
    if tagged:
        keys: list[Any] = [(kind, key) for kind, found in by_kind for key in found]
    else:
        keys = [key for _, found in by_kind for key in found]
    return (tuple(keys) if keys else None), next_mm_idx


def _shared(text: str) -> str:
    """The same text as one object: pickle writes a text that it has met before differently from an equal copy of it.

    Without this the identity would depend on which texts happen to be one object in memory.
    """
    return sys.intern(text) if type(text) is str else text


def _feature_keys(request: CacheableRequest, start: int, end: int, mm_idx: int) -> tuple[list[Any], int]:
    """Keys of the features that overlap `[start, end)`, scanning from feature `mm_idx`, and where the scan stopped."""
    features = request.mm_features
    if not features or _feature_end(features[-1]) <= start:
        return [], mm_idx
    if mm_idx < 0:
        mm_idx += len(features)
    keys: list[Any] = []
    while mm_idx < len(features):
        feature = features[mm_idx]
        if feature.mm_position.offset >= end:
            break
        if _feature_end(feature) > start:
            keys.append((_shared(feature.identifier), feature.mm_position.offset - start))
            if _feature_end(feature) > end:
                break  # it goes on in the next block, which has to see it again
        mm_idx += 1
    return keys, mm_idx


def _feature_end(feature: Any) -> int:
    end: int = feature.mm_position.offset + feature.mm_position.length
    return end


def _embedding_keys(request: CacheableRequest, start: int, end: int) -> Iterator[bytes]:
    if request.prompt_embeds is None:
        return
    memo: dict[tuple[int, int], bytes] = getattr(request, "_prompt_embeds_per_block_hashes", {})
    digest = memo.get((start, end))
    if digest is None:
        digest = memo[start, end] = hashlib.sha256(_raw_bytes(request.prompt_embeds[start:end])).digest()
    yield digest


def _raw_bytes(rows: Any) -> bytes:
    """The bytes of a torch or numpy slice in row-major order, whatever its dtype, device or strides."""
    torch = sys.modules.get("torch")  # a tensor can only come from a torch that is loaded already
    if torch is not None and isinstance(rows, torch.Tensor):
        rows = rows.detach().cpu().contiguous().view(torch.uint8).numpy()
    raw: bytes = rows.tobytes()
    return raw
