"""Hashes of many blocks in a row: the digests of `hash_block_tokens`, with less work a block.

What is hashed for a block without extra keys is the encoding of (hash of its parent, its tokens, None). Only the first
of these has to wait for the block before. So the tokens of all blocks are encoded together; each block then costs a
concatenation and a digest. For 512 blocks of 16 tokens that takes 0.7 of the time of the definition with `sha256` and
`xxhash`, and a third with `sha256_cbor`. tests/impl/test_hash_chains.py compares both for every size and width.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from .block_hash import BlockHash
from .hash_functions import HashFunction, recipe_of

Definition = Callable[[BlockHash, Sequence[int]], BlockHash]
"""The hash of a block, of its parent's hash and its tokens."""

FEWEST = 8
"""Blocks that are hashed faster together than one by one."""
LARGEST = 1024
"""Tokens in a block for which there are chains: of larger ones there are too few in a prompt to pay for the heads."""


class Encoding(Protocol):
    """Encodes blocks of one size: what is hashed is a head, the parent's hash, `middle`, a body and `tail`."""

    heads: list[bytes]
    """By the length of the body in bytes, as far as ints of up to 31 bits go."""
    middle: bytes
    tail: bytes

    def bodies(self, tokens: Sequence[int]) -> list[bytes] | None:
        """The tokens of each block, encoded; None for tokens that have to be left to the definition."""


class Chain:
    """Hashes blocks of one size, each the child of the one before."""

    def __init__(self, new: Callable[[bytes], Any], encoding: Encoding) -> None:
        self._new, self._encoding = new, encoding
        self._parent_bytes = len(new(b"").digest())

    def __call__(self, parent: BlockHash, tokens: Sequence[int]) -> list[BlockHash] | None:
        """The hashes of the blocks that `tokens`, a whole number of blocks, fill behind the block `parent`.

        None where they have to be left to the definition: for a parent that is no digest of this function, for tokens
        that are no plain ints, and for very large ones.
        """
        bodies = self._encoding.bodies(tokens)
        if bodies is None or type(parent) is not bytes or len(parent) != self._parent_bytes:
            return None
        new, heads, middle, tail = self._new, self._encoding.heads, self._encoding.middle, self._encoding.tail
        hashes: list[BlockHash] = []
        try:
            for body in bodies:
                parent = new(heads[len(body)] + parent + middle + body + tail).digest()
                hashes.append(parent)
        except IndexError:  # there is no head for bodies of so many bytes
            return None
        return hashes


def chain_of(hash_function: HashFunction, size: int, definition: Definition) -> Chain | None:
    """The chain for blocks of `size` tokens.

    None for blocks of more than `LARGEST` tokens, for a function that is not in `RECIPES` or lacks its packages, and
    where the chain gives other hashes than the definition for tokens of every width: pickle and marshal
    may write other bytes in another Python, and pickle has forms of its own for tuples of less than 4.
    """
    recipe = recipe_of(hash_function)
    if recipe is None or not all(map(find_spec, recipe.packages)) or size > LARGEST:
        return None
    new = recipe.new()
    parent = BlockHash(new(b"").digest())
    chain = Chain(new, _encoding(recipe.encoding)(len(parent), size))
    tokens = [2 ** (i % 32) - 1 for i in range(size * -(-64 // size))]
    return chain if chain(parent, tokens) == [*_one_by_one(definition, parent, tokens, size)] else None


def _encoding(name: str) -> Callable[[int, int], Encoding]:
    if name == "pickle":
        return PickledBlocks
    from .cbor_blocks import CborBlocks  # brings numpy along, which the core does without

    return CborBlocks


def _one_by_one(definition: Definition, parent: BlockHash, tokens: Sequence[int], size: int) -> Iterator[BlockHash]:
    for start in range(0, len(tokens), size):
        parent = definition(parent, tokens[start : start + size])
        yield parent


class PickledBlocks:
    """Pickle: in the pickle of a list of tuples of ints, each tuple has the bytes that it has in a pickle of its own.

    For pickle refers back to what it has met before, but not to ints; and it says itself whether it could have: the
    number of the last thing in the list is how many such things came before, which must be the list and the tuples.
    """

    middle = pickle.MEMOIZE + pickle.MARK
    tail = pickle.TUPLE + pickle.MEMOIZE + pickle.NONE + pickle.TUPLE3 + pickle.MEMOIZE + pickle.STOP

    _PROTOCOL = 5
    _WIDEST = 5
    """Bytes: the opcode of an int, and the int."""
    _TOKENS, _BLOCKS = 8192, 990
    """In one pickle: it has one frame, up to 64 KiB, and its list one batch, up to 1000 items. Tokens that would fill
    more are too wide for a head."""
    _CUT = pickle.TUPLE + pickle.MEMOIZE + pickle.MARK

    def __init__(self, parent_bytes: int, size: int) -> None:
        parent = pickle.SHORT_BINBYTES + bytes([parent_bytes])
        around = len(parent) + parent_bytes + len(self.middle) + len(self.tail)
        self.heads = [self._intro(around + body) + parent for body in range(self._WIDEST * size + 1)]
        self._size = size
        self._step = max(1, min(self._BLOCKS, self._TOKENS // size))
        self._start = len(self._intro(0) + pickle.EMPTY_LIST + pickle.MEMOIZE + pickle.MARK + pickle.MARK)

    def bodies(self, tokens: Sequence[int]) -> list[bytes] | None:
        """The opcodes of the ints. None as well if a token holds the bytes between two tuples."""
        blocks: list[Any] = [*zip(*[iter(tokens)] * self._size, strict=True)]
        bodies: list[bytes] = []
        for start in range(0, len(blocks), self._step):
            part = self._bodies(blocks[start : start + self._step])
            if part is None:
                return None
            bodies += part
        return bodies

    def _bodies(self, blocks: list[Any]) -> list[bytes] | None:
        count = len(blocks)
        blocks += [[]] * 2  # one thing twice: the second time it is a reference by number
        end = pickle.TUPLE + pickle.MEMOIZE + pickle.EMPTY_LIST + pickle.MEMOIZE + _reference(count + 1) + b"e."
        data = pickle.dumps(blocks, self._PROTOCOL)
        if not data.endswith(end):
            return None
        bodies = data[self._start : -len(end)].split(self._CUT)
        return bodies if len(bodies) == count else None

    def _intro(self, length: int) -> bytes:
        return pickle.PROTO + bytes([self._PROTOCOL]) + pickle.FRAME + length.to_bytes(8, "little")


def _reference(number: int) -> bytes:
    """How pickle refers back to the thing of this number."""
    if number < 256:
        return pickle.BINGET + bytes([number])
    return pickle.LONG_BINGET + number.to_bytes(4, "little")
