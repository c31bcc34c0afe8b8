"""Reference sliding window: a query reads the whole prompt of its request and, of what was generated since, itself and
the last tokens before it. The blocks between are given back."""

from dataclasses import dataclass

from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock
from ..specs.attention import FullAttentionSpec
from ..specs.base import cdiv
from .managers import FullToday


@dataclass(frozen=True, kw_only=True)
class RSWASpec(FullAttentionSpec):
    """Every token attends to the prompt and, behind it, to itself and the `rswa_window - 1` tokens before it.

    Behind this window a token is another one than in a longer prompt: give the block hasher the least `rswa_window` of
    a model as `reference_window`.
    """

    rswa_window: int


class ReferenceWindowManager(FullToday):
    """As full attention, but for the gap between prompt and window. Hits have none, and rooms are those of the whole
    length, as pools are sized by it."""

    def __post_init__(self, *given: object, **named: object) -> None:
        super().__post_init__(*given, **named)
        self.window: int = getattr(self.kv_cache_spec, "rswa_window", 0)
        self.prompts: dict[str, int] = {}
        """Tokens of the prompts of requests."""

    def note_request(self, request: CacheableRequest) -> None:
        """The next calls are about a step of this request."""
        self.prompts[request.request_id] = request.num_prompt_tokens

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Null the blocks that lie in the gap as a whole, the last one first."""
        table, prompt = self.req_to_blocks.get(request_id), self.prompts.get(request_id)
        if not table or prompt is None:
            return
        size, null = self.block_size, self._null_block
        first, end = cdiv(prompt, size), max(prompt, total_computed_tokens - self.window + 1) // size
        gone = [block for block in table[first:end] if block is not null]
        if gone:
            table[first:end] = [null] * len(table[first:end])
            self._give_back(gone[::-1])

    def pop_table(self, request_id: str) -> list[KVCacheBlock]:
        """Forget the request; its table stays held."""
        self.prompts.pop(request_id, None)
        return super().pop_table(request_id)
