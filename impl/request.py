"""A request as far as the core needs one (core.md §10)."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .hashing.block_hash import BlockHash


class Request:
    """Tokens of a request and the hashes of its full blocks, which follow as tokens arrive.

    Give `prompt_token_ids` or `prompt_embeds` (one row per token), or both with `prompt_is_token_ids`, which says of
    each position whether its token or its row is read. Token ids where rows are read are 0. ValueError for no prompt,
    or for lengths that differ. Parameters of sampling, pooling and tracing are kept for the caller; the core does not
    need them.
    """

    __slots__ = (
        *("request_id", "num_computed_tokens", "block_hashes", "_all_token_ids", "num_prompt_tokens", "_next_full"),
        *("__dict__", "__weakref__"),
    )
    # What every step reads lies in the object itself: with thousands of requests memory is what is waited for.

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int] | None,
        sampling_params: Any = None,
        pooling_params: Any = None,
        client_index: int = 0,
        arrival_time: float | None = None,
        prompt_embeds: Any = None,
        prompt_is_token_ids: list[bool] | None = None,
        mm_features: list[Any] | None = None,
        lora_request: Any = None,
        cache_salt: str | None = None,
        priority: int = 0,
        trace_headers: Mapping[str, str] | None = None,
        block_hasher: Callable[["Request"], list[BlockHash]] | None = None,
        resumable: bool = False,
        reasoning_ended: bool | None = None,
        reasoning_parser_kwargs: dict[str, Any] | None = None,
        abort_immediately: bool = False,
        skip_reading_prefix_cache: bool | None = None,
    ) -> None:
        self.request_id = request_id
        self.num_computed_tokens = 0
        self.block_hashes: list[BlockHash] = []
        if prompt_token_ids is not None and prompt_embeds is None and prompt_is_token_ids is None:
            tokens = list(prompt_token_ids)
        else:
            tokens = _tokens_beside_rows(request_id, prompt_token_ids, prompt_embeds, prompt_is_token_ids)
        self._all_token_ids = tokens
        self.num_prompt_tokens = len(tokens)
        self.client_index = client_index
        self.priority = priority
        self.sampling_params = sampling_params
        self.pooling_params = pooling_params
        self.arrival_time = time.time() if arrival_time is None else arrival_time
        self.prompt_token_ids = prompt_token_ids
        self.prompt_embeds = prompt_embeds
        self.prompt_is_token_ids = prompt_is_token_ids
        self._prompt_embeds_per_block_hashes: dict[object, bytes] = {}
        self.mm_features = mm_features or []
        self.lora_request = lora_request
        self.cache_salt = cache_salt
        self.trace_headers = trace_headers
        self.resumable = resumable
        self.reasoning_ended = reasoning_ended
        self.reasoning_parser_kwargs = reasoning_parser_kwargs
        self.abort_immediately = abort_immediately
        self.skip_reading_prefix_cache = _skips_lookup(skip_reading_prefix_cache, sampling_params, pooling_params)
        self.spec_token_ids: list[int] = []
        self.num_preemptions = 0
        self._block_hasher = block_hasher
        self._block_size: int = getattr(block_hasher, "block_size", 0)
        self._tokens_ahead: int = getattr(block_hasher, "tokens_ahead", 0)
        self._next_full = sys.maxsize
        """From this number of tokens on, a block is full that has no hash; 0 if the hasher does not say its block size.
        Most tokens fill none, and to compare costs less than to ask the hasher.
        tests/impl/test_request.py looks at every length."""
        self.update_block_hashes()

    @property
    def all_token_ids(self) -> Sequence[int]:
        """Prompt and output token ids; read only, `append_output_token_ids` extends them."""
        return self._all_token_ids

    @property
    def output_token_ids(self) -> Sequence[int]:
        """Output token ids."""
        return self._all_token_ids[self.num_prompt_tokens :]

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return len(self._all_token_ids)

    @property
    def num_tokens_with_spec(self) -> int:
        """The same with the drafts not verified yet."""
        return len(self._all_token_ids) + len(self.spec_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens."""
        return len(self._all_token_ids) - self.num_prompt_tokens

    def append_output_token_ids(self, token_ids: int | list[int]) -> None:
        """Add output tokens, and the hashes of the blocks they fill."""
        tokens = self._all_token_ids
        if isinstance(token_ids, int):
            tokens.append(token_ids)
        else:
            tokens.extend(token_ids)
        if len(tokens) >= self._next_full:
            self.update_block_hashes()

    def update_block_hashes(self) -> None:
        """Append the hashes of full blocks that have none yet; nothing without a hasher.

        To be called after tokens or hashes are changed by other means than `append_output_token_ids`, which looks at
        the number of tokens only.
        """
        hasher = self._block_hasher
        if hasher is not None:
            self.block_hashes.extend(hasher(self))
            self._next_full = (len(self.block_hashes) + 1) * self._block_size + self._tokens_ahead


def _tokens_beside_rows(
    request_id: str, token_ids: list[int] | None, embeds: Any, is_token_ids: list[bool] | None
) -> list[int]:
    """The token ids of a prompt, 0 where a row is read. ValueError for no prompt, or parts of several lengths."""
    parts = [part for part in (token_ids, embeds) if part is not None]
    lengths = {len(part) for part in (*parts, is_token_ids) if part is not None}
    if not parts or len(lengths) != 1:
        raise ValueError(
            f"request {request_id}: prompt_token_ids, prompt_embeds and prompt_is_token_ids have lengths "
            f"{sorted(lengths)}: give one of the first two, or all of the same length"
        )
    tokens = list(token_ids) if token_ids is not None else [0] * lengths.pop()
    if is_token_ids is None:
        return tokens
    return [token if kept else 0 for token, kept in zip(tokens, is_token_ids, strict=True)]


def _skips_lookup(explicit: bool | None, *params: Any) -> bool:
    """What the caller said, else what the first parameters that have an opinion say, else False."""
    if explicit is not None:
        return bool(explicit)
    for param in params:
        opinion = getattr(param, "skip_reading_prefix_cache", None)
        if opinion is not None:
            return bool(opinion)
    return False
