"""Everything in a scope that does not change while it is explored: token sequences, contents, their numbers.

Numbers are given out in an order that depends on the scope alone, so they mean the same in every process and after a
restart.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from ...model.core import Model
from ...model.identity import Identity
from ...model.ops import Free, Submit
from ...model.state import Key
from ..adapters.impl import bind_impl
from .scope import MAX_CODE, Scope, ScopeError

HASH_BYTES = 8


class Numbers:
    """A hash function without collisions: equal values get one number, other values other numbers."""

    def __init__(self) -> None:
        self._known: dict[object, bytes] = {}

    def __call__(self, value: object) -> bytes:
        """The number of this value, as bytes."""
        return self._known.setdefault(value, (len(self._known) + 1).to_bytes(HASH_BYTES, "big"))


class Contents:
    """The token sequences that requests can have, and the contents that blocks can have, with their numbers.

    Sequence 0 stands for no request, content 0 for none. ScopeError if there are too many for a byte.
    """

    def __init__(self, scope: Scope, model: Model) -> None:
        self.scope, shape = scope, scope.shape
        self._names = names = bind_impl().names
        hasher_of = names("get_request_block_hasher")
        self.hasher: Any = hasher_of(shape.hash_block_size, Numbers()) if shape.caching else None
        self.number: dict[tuple[int, tuple[int, ...]], int] = {}
        """By length of the prompt and all tokens."""
        self.sequences: list[tuple[tuple[int, ...], int]] = [((), 0)]
        self.chains: list[list[Identity]] = [[]]
        """For each sequence, what the model says its hash blocks are, and what our core says."""
        self.hashes: list[list[bytes]] = [[]]
        self.prefix_of_identity: dict[Identity | None, int] = {None: 0}
        self.prefix_of_hash: dict[bytes | int | None, int] = {None: 0}
        """As events show hashes: whole, or their low 64 bits as an int."""
        self._number_sequences(model)
        self.token_lists = [list(tokens) for tokens, _ in self.sequences]
        self.keys: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
        """Group and tokens of what a block can be registered as."""
        self.code: dict[tuple[int, tuple[int, ...]], int] = {}
        self.code_of_event: dict[tuple[int, int], int] = {}
        """The same by the number of the prefix, as events name it."""
        self.model_keys: list[Key | None] = [None]
        self.core_keys: list[bytes | None] = [None]
        self.core_names: list[tuple[int, bytes] | None] = [None]
        """The same as our core keeps it: group and hash."""
        self.places: list[tuple[int, int]] = [(0, 0)]
        """Index in a table of a block with this content, and the content before it there, 0 for none. A content comes
        after the one before it."""
        self._number_keys()
        self.code_of_model_key = {key: code for code, key in enumerate(self.model_keys)}
        self.code_of_core_name = {name: code for code, name in enumerate(self.core_names)}
        if max(len(self.sequences), len(self.keys)) > MAX_CODE:
            raise ScopeError(
                f"scope {scope.name}: {len(self.sequences)} token sequences, {len(self.keys)} block contents: at most "
                f"{MAX_CODE} of each; use fewer prompts, outputs or token values"
            )

    def sequence(self, number: int) -> tuple[tuple[int, ...], int]:
        """Tokens of a request, and how many of them are its prompt."""
        return self.sequences[number]

    def _number_sequences(self, model: Model) -> None:
        for prompt, tokens in _sequences(self.scope):
            self.number[prompt, tokens] = len(self.sequences)
            self.sequences.append((tokens, prompt))
            hashes = self._names("Request")("", list(tokens), block_hasher=self.hasher).block_hashes
            self.hashes.append(list(hashes))
            model.step(Submit("", tokens))
            chain = model.requests[""].chain
            model.step(Free(""))
            self.chains.append(chain)
            for identity, digest in zip(chain, hashes, strict=True):
                prefix = self.prefix_of_identity.setdefault(identity, len(self.prefix_of_identity))
                self.prefix_of_hash[digest] = self.prefix_of_hash[int.from_bytes(digest, "big")] = prefix

    def _number_keys(self) -> None:
        shape = self.scope.shape
        size = shape.hash_block_size
        for group, spec in enumerate(shape.groups):
            b = spec.block_size * shape.parallel
            for (tokens, _), chain, hashes in zip(self.sequences, self.chains, self.hashes, strict=True):
                for end in range(b, len(chain) * size + 1, b):
                    if (group, tokens[:end]) in self.code:
                        continue
                    identity = chain[end // size - 1]
                    code = self.code[group, tokens[:end]] = len(self.keys)
                    self.code_of_event[group, self.prefix_of_identity[identity]] = code
                    self.keys.append((group, tokens[:end]))
                    self.model_keys.append((group, identity))
                    whole = self._names("BlockHash")(b"".join(hashes[(end - b) // size : end // size]))
                    self.core_keys.append(self._names("make_block_hash_with_group_id")(whole, group))
                    self.core_names.append((group, whole))
                    self.places.append((end // b - 1, self.code.get((group, tokens[: end - b]), 0)))


def _sequences(scope: Scope) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Prompt length and tokens of everything a request may become."""
    for prompt in scope.prompts:
        for outputs in range(scope.outputs + 1):
            for sampled in product(scope.sampled, repeat=outputs):
                yield len(prompt), prompt + sampled
