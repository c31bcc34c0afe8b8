"""Names for what a block contains (core.md §3)."""

import operator
import os
import sys
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import SupportsIndex, TypeAlias, overload

from .block_hash import BlockHash, BlockHashWithGroupId
from .chains import FEWEST, chain_of
from .extra_keys import CacheableRequest, ExtraKeys, extra_keys_of_blocks
from .hash_functions import HashFunction, recipe_of
from .reference_keys import reference_keys_of_blocks

ExternalBlockHash: TypeAlias = bytes | int
"""A hash as events show it."""

NONE_HASH: BlockHash
"""Parent of every first block; `init_none_hash` sets it."""

_GROUP_ID_BYTES = 4
_MANY = 8
"""So many digests are read faster together."""


def make_block_hash_with_group_id(block_hash: BlockHash, group_id: int) -> BlockHashWithGroupId:
    """The key of a block in one group: the hash, then the group id in 4 bytes, big endian."""
    return BlockHashWithGroupId(block_hash + group_id.to_bytes(_GROUP_ID_BYTES, "big"))


def get_block_hash(key: BlockHashWithGroupId) -> BlockHash:
    """The hash in a key."""
    return BlockHash(key[:-_GROUP_ID_BYTES])


def get_group_id(key: BlockHashWithGroupId) -> int:
    """The group id in a key."""
    return int.from_bytes(key[-_GROUP_ID_BYTES:], "big")


def maybe_convert_block_hash(hash_bytes: BlockHash) -> ExternalBlockHash:
    """The hash as events show it: its low 64 bits as an int, or the bytes.

    The environment variable VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES decides: 0 for bytes, 1 (the default) for an int.
    """
    if int(os.environ.get("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1")):
        return int.from_bytes(hash_bytes[-8:], "big")
    return hash_bytes


def external_hashes(hashes: Sequence[BlockHash]) -> list[ExternalBlockHash]:
    """`maybe_convert_block_hash` of each. The environment is asked once: that takes longer than all the rest. Many
    digests of one size are read as one row of numbers."""
    if not hashes or not isinstance(maybe_convert_block_hash(hashes[0]), int):
        return list(hashes)
    size = len(hashes[0])
    if len(hashes) < _MANY or size % 8 or set(map(len, hashes)) != {size}:
        return [int.from_bytes(content[-8:], "big") for content in hashes]
    words = array("Q", b"".join(hashes))[size // 8 - 1 :: size // 8]
    if sys.byteorder == "little":
        words.byteswap()
    return [*words]


def init_none_hash(hash_fn: HashFunction) -> None:
    """Set `NONE_HASH`: the hash of the environment's PYTHONHASHSEED, or 32 random bytes where that is unset.

    Warns if identities are to be reproducible across processes (a CBOR hash) and the seed is unset.
    """
    global NONE_HASH
    seed = os.environ.get("PYTHONHASHSEED")
    if seed is not None:
        NONE_HASH = BlockHash(hash_fn(seed))
        return
    recipe = recipe_of(hash_fn)
    if recipe is not None and recipe.encoding == "cbor":
        warnings.warn(
            "PYTHONHASHSEED is not set, so block hashes differ between processes although the hash function would "
            "reproduce them: set PYTHONHASHSEED to share cached blocks between processes",
            stacklevel=2,
        )
    NONE_HASH = BlockHash(os.urandom(32))


def hash_block_tokens(
    hash_function: HashFunction,
    parent_block_hash: BlockHash | None,
    curr_block_token_ids: Sequence[int],
    extra_keys: ExtraKeys | None = None,
) -> BlockHash:
    """Hash of a full block: names its tokens, its extra keys and, through the parent's hash, everything before it.

    NameError before the first `init_none_hash`.
    """
    if not parent_block_hash:
        try:
            parent_block_hash = NONE_HASH
        except NameError:
            raise NameError("NONE_HASH is not set: call init_none_hash(hash_fn) once before hashing blocks") from None
    return BlockHash(hash_function((parent_block_hash, tuple(curr_block_token_ids), extra_keys)))


def get_request_block_hasher(
    block_size: int, caching_hash_fn: HashFunction, reference_keys: bool = False
) -> Callable[[CacheableRequest], list[BlockHash]]:
    """A function from a request to the hashes of its full blocks of `block_size` tokens that are not hashed yet.

    `len(request.block_hashes)` blocks count as hashed. With `reference_keys` the hashes are those of vLLM 0.23.0, which
    name too little of the content (`reference_keys.py`): for caches and routers that are shared with it.
    """
    hasher = _Hasher(block_size, caching_hash_fn, reference_keys)

    def hash_new_blocks(request: CacheableRequest) -> list[BlockHash]:
        full = request.num_tokens // block_size
        return hasher.new_blocks(request, full) if full > len(request.block_hashes) else []

    # A request that knows the size asks only where a block is full.
    setattr(hash_new_blocks, "block_size", block_size)  # noqa: B010  # not for a type checker
    return hash_new_blocks


class _Hasher:
    """Hashes the blocks of requests."""

    def __init__(self, block_size: int, hash_function: HashFunction, reference_keys: bool) -> None:
        self._block_size, self._hash_function = block_size, hash_function
        self._reference_keys = reference_keys
        self._chain = chain_of(hash_function, block_size, partial(hash_block_tokens, hash_function))

    def new_blocks(self, request: CacheableRequest, full: int) -> list[BlockHash]:
        """The hashes of those of its first `full` blocks that have none yet: one at least."""
        known, size = request.block_hashes, self._block_size
        first = len(known)
        if request.mm_features or request.lora_request is not None or request.prompt_embeds is not None:
            return self._with_keys(request, range(first * size, full * size, size))
        # What is left is a salt: the first block has it, and its parent's hash may have another length.
        tokens, chain = request.all_token_ids, self._chain
        hashes: list[BlockHash] = []
        if not known and request.cache_salt:
            hashes = self._with_keys(request, range(0, size, size))
        elif not known:
            hashes.append(hash_block_tokens(self._hash_function, None, tokens[:size]))
        parent, start = hashes[-1] if hashes else known[-1], first + len(hashes)
        if chain is not None and full - start >= FEWEST:
            rest = chain(parent, tokens[start * size : full * size])
            if rest is not None:
                return hashes + rest
        for begin in range(start * size, full * size, size):
            parent = hash_block_tokens(self._hash_function, parent, tokens[begin : begin + size])
            hashes.append(parent)
        return hashes

    def _with_keys(self, request: CacheableRequest, starts: Sequence[int]) -> list[BlockHash]:
        """The hashes of the blocks that begin at `starts`, the first of which is the first that is not hashed."""
        tokens = request.all_token_ids
        hashes: list[BlockHash] = []
        parent = request.block_hashes[-1] if request.block_hashes else None
        keys_of = self._keys_of_blocks(request, starts)
        for start in starts:
            block = tokens[start : start + self._block_size]
            parent = hash_block_tokens(self._hash_function, parent, block, next(keys_of))
            hashes.append(parent)
        return hashes

    def _keys_of_blocks(self, request: CacheableRequest, starts: Sequence[int]) -> Iterator[ExtraKeys | None]:
        if self._reference_keys:
            return reference_keys_of_blocks(request, starts, self._block_size, resumed=bool(request.block_hashes))
        return extra_keys_of_blocks(request, starts, self._block_size)


class BlockHashListWithBlockSize(Sequence[BlockHash]):
    """Hashes of `target_block_size` tokens, served from hashes of `hash_block_size` tokens.

    Item `i` is the concatenation of the `scale_factor` small hashes it covers; a rest is dropped. The view follows
    later growth of the list it wraps. AssertionError unless the target is a multiple of the hash block size.
    """

    def __init__(self, block_hashes: list[BlockHash], hash_block_size: int, target_block_size: int) -> None:
        if target_block_size % hash_block_size != 0:
            raise AssertionError(
                f"target_block_size {target_block_size} is no multiple of hash_block_size {hash_block_size}"
            )
        self.block_hashes = block_hashes
        self.scale_factor = target_block_size // hash_block_size

    def __len__(self) -> int:
        return len(self.block_hashes) // self.scale_factor

    @overload
    def __getitem__(self, index: SupportsIndex) -> BlockHash: ...

    @overload
    def __getitem__(self, index: slice) -> list[BlockHash]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> BlockHash | list[BlockHash]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(f"index must be an integer or a slice, got {type(index).__name__}") from None
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} block hashes")
        return self._at(i)

    def __iter__(self) -> Iterator[BlockHash]:
        for i in count():
            if i >= len(self):
                return
            yield self._at(i)

    def _at(self, i: int) -> BlockHash:
        start = i * self.scale_factor
        return BlockHash(b"".join(self.block_hashes[start : start + self.scale_factor]))


BlockHashList: TypeAlias = list[BlockHash] | BlockHashListWithBlockSize
