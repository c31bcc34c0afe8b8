"""Names of blocks by the rule of today: of a block of several hash blocks the name is that of the last one, since that
names all before it; and where a draft model reads on, a name covers tokens behind the block."""

from collections.abc import Callable
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashListWithBlockSize, hash_block_tokens
from ..hashing.block_hashing import get_request_block_hasher as plain_hasher
from ..hashing.extra_keys import CacheableRequest, extra_keys_of_blocks
from ..hashing.hash_functions import HashFunction


class LastHashes(BlockHashListWithBlockSize):
    """Hashes of larger blocks: each is one of the small hashes, so that none is made, and many are one slice."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            scale = self.scale_factor
            if index.step is None:
                first, end, _ = index.indices(len(self))
                return self.block_hashes[first * scale + scale - 1 : end * scale : scale]
            return self.block_hashes[scale - 1 :: scale][index]
        return super().__getitem__(index)

    def _at(self, i: int) -> BlockHash:
        return self.block_hashes[(i + 1) * self.scale_factor - 1]


def get_request_block_hasher(
    block_size: int,
    caching_hash_fn: HashFunction,
    num_hash_lookahead_tokens: int = 0,
    reference_window: int | None = None,
) -> Callable[[CacheableRequest], list[BlockHash]]:
    """As of the older rule; a block has a hash once so many tokens behind it are known, and the hash covers them.

    With a reference window of so many tokens (R-SWA) what was generated behind it has not read what the same tokens
    would in a longer prompt: there the hash covers the length of the prompt, too.
    """
    ahead = num_hash_lookahead_tokens
    if not ahead and reference_window is None:
        return plain_hasher(block_size, caching_hash_fn)

    def hash_new_blocks(request: CacheableRequest) -> list[BlockHash]:
        first, end = len(request.block_hashes), (request.num_tokens - ahead) // block_size
        starts = range(first * block_size, end * block_size, block_size)
        tokens, hashes, prompt = request.all_token_ids, list[BlockHash](), request.num_prompt_tokens
        parent = request.block_hashes[-1] if first else None
        for start, keys in zip(starts, extra_keys_of_blocks(request, starts, block_size + ahead), strict=True):
            if reference_window is not None and start + block_size > prompt + reference_window:
                keys = (*(keys or ()), ("prompt", prompt))
            parent = hash_block_tokens(caching_hash_fn, parent, tokens[start : start + block_size + ahead], keys)
            hashes.append(parent)
        return hashes

    setattr(hash_new_blocks, "block_size", block_size)  # noqa: B010  # not for a type checker
    setattr(hash_new_blocks, "tokens_ahead", ahead)  # noqa: B010
    return hash_new_blocks
