"""What, beside the tokens, goes into a block's identity: adapter, multimodal items, salt, embeddings (core.md §3)."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

from .block_hash import BlockHash


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
    request: CacheableRequest, start_token_idx: int, end_token_idx: int, start_mm_idx: int
) -> tuple[ExtraKeys | None, int]:
    """Extra keys of the tokens `start_token_idx .. end_token_idx - 1`, and the feature index for the next block.

    The keys are those of `extra_keys_of_blocks`, None if there are none; identities and events are made of the same.
    Features before `start_mm_idx` are taken to end before the block, as those before the index that the call for an
    earlier block has returned do. 0 is always right, and a negative index, which means the last feature to the
    reference, counts as 0: an earlier feature may reach as far.
    """
    features = request.mm_features or ()
    index = max(0, start_mm_idx)
    (items,) = _item_keys(features[index:], [start_token_idx], end_token_idx - start_token_idx)
    while index < len(features) and _feature_end(features[index]) <= end_token_idx:
        index += 1
    return _all_keys(request, _adapter_keys(request), items, start_token_idx, end_token_idx), index


def extra_keys_of_blocks(request: CacheableRequest, starts: Iterable[int], size: int) -> Iterator[ExtraKeys | None]:
    """The extra keys of the blocks of `size` tokens that begin at `starts`, in rising order; None for a block without.

    A key is a tuple that begins with its kind. In this order:
    ("lora", name, path) or, for an adapter that states one, ("lora_version", name, content version);
    ("mm", identifier, offset relative to the block, length) for each feature that has a token in the block, in the
    order of the request, however features overlap; ("cache_salt", salt) in the block at 0; ("prompt_embeds", digest) if
    a position of the block is embedded.
    """
    blocks = list(starts)
    adapter = _adapter_keys(request)
    features = request.mm_features or ()
    for start, items in zip(blocks, _item_keys(features, blocks, size) if features else repeat(()), strict=False):
        yield _all_keys(request, adapter, items, start, start + size)


def _all_keys(
    request: CacheableRequest, adapter: ExtraKeys, items: Sequence[ExtraKeys], start: int, end: int
) -> ExtraKeys | None:
    keys = (*adapter, *items) if items else adapter
    if not start and request.cache_salt:
        keys = (*keys, ("cache_salt", shared_text(request.cache_salt)))
    if request.prompt_embeds is not None:
        keys = (*keys, *_embedding_keys(request, start, end))
    return keys or None


def _adapter_keys(request: CacheableRequest) -> ExtraKeys:
    """The adapter, if there is one, by name and by what tells other weights of that name apart.

    That is its `content_version` (a text or a number), where the caller has given it one: it is the same on every
    machine that has these weights. Else it is the path. The adapter's integer id differs from process to process, so it
    would keep equal blocks apart.
    """
    adapter = request.lora_request
    if adapter is None:
        return ()
    version = getattr(adapter, "content_version", None)
    if version is not None:
        return (("lora_version", shared_text(adapter.lora_name), shared_text(version)),)
    return (("lora", shared_text(adapter.lora_name), shared_text(getattr(adapter, "lora_path", None))),)


def shared_text(text: Any) -> Any:
    """The same text as one object: pickle writes a text that it has met before differently from an equal copy of it.

    Without this the identity would depend on which texts happen to be one object in memory.
    """
    return sys.intern(text) if type(text) is str else text


def _item_keys(features: Sequence[Any], starts: Sequence[int], size: int) -> Iterator[list[ExtraKeys]]:
    """Of each block, the keys of the features that have a token in it."""
    first = next(iter(starts), 0)
    found = [
        (place.offset, number, end, shared_text(feature.identifier))
        for number, feature in enumerate(features)
        if (end := (place := feature.mm_position).offset + place.length) > first
    ]
    waiting = sorted(found, reverse=True)  # the one that begins first is the last, where it is taken from
    inside: list[tuple[int, int, int, Any]] = []
    for start in starts:
        inside = [feature for feature in inside if feature[2] > start]
        while waiting and waiting[-1][0] < start + size:
            offset, number, end, identifier = waiting.pop()
            if end > start:
                inside.append((number, offset, end, identifier))
        inside.sort()  # the order of the request: it may decide which of two features on one token counts
        yield [("mm", identifier, offset - start, end - offset) for _, offset, end, identifier in inside]


def _feature_end(feature: Any) -> int:
    end: int = feature.mm_position.offset + feature.mm_position.length
    return end


def _embedding_keys(request: CacheableRequest, start: int, end: int) -> Iterator[ExtraKeys]:
    """The digest of the rows that are read at `start .. end - 1`: their places, dtype, shape and bytes.

    No key where all positions are tokens (`request.prompt_is_token_ids`), so that text has the same identity in a
    prompt with embeddings as in one without.
    """
    memo: dict[object, bytes] = getattr(request, "_prompt_embeds_per_block_hashes", {})
    place = "rows", start, end  # (start, end) is where vLLM's own functions keep their digest of the same block
    digest = memo.get(place)
    if digest is None:
        digest = memo[place] = _digest_of_rows(request, start, end)
    if digest:
        yield "prompt_embeds", digest


def _digest_of_rows(request: CacheableRequest, start: int, end: int) -> bytes:
    """The digest, empty if no position is embedded."""
    mask = getattr(request, "prompt_is_token_ids", None)
    rows = request.prompt_embeds[start:end]
    embedded = b"\1" * len(rows)
    if mask is not None:
        embedded = bytes(0 if is_token else 1 for is_token in mask[start:end]).rstrip(b"\0")
        rows = rows[[place for place, is_row in enumerate(embedded) if is_row]]
    if not embedded:
        return b""
    dtype = str(rows.dtype).removeprefix("torch.")
    meaning = repr((embedded.hex(), dtype, tuple(rows.shape[1:]))).encode()  # says where it ends: the rows follow
    return hashlib.sha256(meaning + raw_bytes(rows)).digest()


def raw_bytes(rows: Any) -> bytes:
    """The bytes of a torch or numpy slice in row-major order, whatever its dtype, device or strides."""
    torch = sys.modules.get("torch")  # a tensor can only come from a torch that is loaded already
    if torch is not None and isinstance(rows, torch.Tensor):
        rows = rows.detach().cpu().contiguous().view(torch.uint8).numpy()
    raw: bytes = rows.tobytes()
    return raw
