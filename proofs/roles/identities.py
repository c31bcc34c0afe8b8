"""Names of blocks: packing, concatenation, what events show, and the chain of contents (T22)."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ...model.identity import Identities
from ..claims import quotient_found
from ..symbolic import Number
from ..symbolic_builtins import Counted
from ..symbolic_bytes import (
    OPERATOR,
    ByteParts,
    Integer,
    Name,
    SymbolicBytes,
    alike,
    any_range,
    concatenated,
    globals_of,
    seeing,
    whole,
)
from .stand_ins import key

Names = Callable[[str], Any]
Content = tuple[Number, Sequence[Number], Number]
"""Of one block: the number of its parent (0 for none), its tokens, and the number of its one extra key (0 for none)."""


# The model.


class _Known(Name):
    """A name that can be in a dict: all have one hash, so that a lookup compares, and a comparison forks."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # a `Name` has none
        return 1


def _model_content(content: Content) -> tuple[Any, Any, Any]:
    parent, tokens, extra = content
    keys = (("salt", _Known("text", extra)),) if extra != 0 else ()
    return _Known("identity", parent) if parent != 0 else None, [key(token) for token in tokens], keys


def _model_same(first: Content, second: Content) -> bool:
    identities = Identities()
    return identities(*_model_content(first)) is identities(*_model_content(second))


# Cores with the API.


def _lenient(function: Any) -> AbstractContextManager[None]:
    return seeing(globals_of(function), {"int": Integer, "operator": OPERATOR, "range": any_range})


def _packed(names: Names) -> Any:
    function = names("make_block_hash_with_group_id")
    return lambda block_hash, group: function(block_hash, whole(group))


def _unpacked(name: str) -> Callable[[Names], Any]:
    def bind(names: Names) -> Any:
        function = names(name)

        def unpacked(packed: Any) -> Any:
            with _lenient(function):
                return function(packed)

        return unpacked

    return bind


def _event_hash(as_numbers: str) -> Callable[[Names], Any]:
    def bind(names: Names) -> Any:
        function = names("maybe_convert_block_hash")

        def event_hash(block_hash: Any) -> Any:
            with _lenient(function), patch.dict(os.environ, VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=as_numbers):
                return function(block_hash)

        return event_hash

    return bind


class _Hashes(Counted):
    """The first `known` hashes of a request; the one at `i` stands for the number `i`."""

    def __init__(self, known: Number, parts: ByteParts) -> None:
        super().__init__(known)
        self._parts = parts

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._parts.part(_Numbers(self.length)[index])
        return [self._parts.part(i) for i in any_range(index.start, min(index.stop, self.length))]


class _Numbers(Counted):
    """The first hashes of a request, each of which is its own index."""

    def __getitem__(self, index: Number) -> Number:
        if index < 0 or index >= self.length:
            raise IndexError(index)
        return index


def _view(names: Names) -> tuple[type, Any]:
    """The view of hashes of fewer tokens, with a length that may be symbolic; and one of its methods."""
    kind = names("BlockHashListWithBlockSize")
    return type(kind.__name__, (kind,), {"symbolic_len": kind.__len__}), kind.__init__


def _covered(names: Names) -> Any:
    kind, method = _view(names)

    def covered(i: Number, scale: Number, fine: Number, known: Number) -> list[Any]:
        """Indices of the small hashes in item `i` of a view of blocks of `scale * fine` tokens."""
        parts = ByteParts()
        quotient_found(scale * fine, fine, scale)
        with _lenient(method):
            return parts.values(kind(_Hashes(known, parts), fine, scale * fine)[i])

    return covered


def _last_covered(names: Names) -> Any:
    kind, method = _view(names)

    def last_covered(i: Number, scale: Number, fine: Number, known: Number) -> Any:
        """The index of the small hash that is item `i` of a view of blocks of `scale * fine` tokens."""
        quotient_found(scale * fine, fine, scale)
        with _lenient(method):
            return kind(_Numbers(known), fine, scale * fine)[i]

    return last_covered


def _coarse_hash(names: Names) -> Any:
    kind, _ = _view(names)

    def coarse_hash(hashes: Sequence[Any]) -> Any:
        """The hash of a block that consists of the blocks with these hashes."""
        if not any(isinstance(each, SymbolicBytes) for each in hashes):
            return kind(list(hashes), 1, len(hashes))[0]
        parts = ByteParts()
        stamped = [parts.part(each) for each in hashes]
        return concatenated(parts.values(kind(stamped, 1, len(stamped))[0]))

    return coarse_hash


def _same_hash(names: Names) -> Any:
    function = names("hash_block_tokens")

    def hashed(content: Content) -> Any:
        parent, tokens, extra = content
        keys = (Name("text", extra),) if extra != 0 else None
        parent_hash = Name("digest", parent) if parent != 0 else None
        # What is hashed stands for its hash: that the hash function has no collisions is assumed, not proved.
        with seeing(globals_of(function), {"NONE_HASH": Name("digest", 0)}):
            return function(lambda value: value, parent_hash, list(tokens), keys)

    return lambda first, second: alike(hashed(first), hashed(second))


MODEL: dict[str, Any] = {"same_identity": _model_same}

API: dict[str, Any] = {
    "packed": _packed,
    "unpacked_hash": _unpacked("get_block_hash"),
    "unpacked_group": _unpacked("get_group_id"),
    "event_hash": _event_hash("1"),
    "event_bytes": _event_hash("0"),
    "covered": _covered,
    "item": _covered,
    "last_covered": _last_covered,
    "coarse_hash": _coarse_hash,
    "joined": _coarse_hash,
    "same_identity": _same_hash,
}
