"""What else than tokens goes into an identity: adapters, items, salts, embeddings (T23)."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ...model import identity
from ...model.ops import Item, Submit
from ..claims import quotient_found
from ..symbolic import Number, SymbolicInt
from ..symbolic_builtins import Counted
from ..symbolic_bytes import Name, any_range, globals_of, seeing, text
from .bare import bare

Names = Callable[[str], Any]
Feature = tuple[Number, Number, Number]
"""Number of its identifier, offset and length in tokens."""


@dataclass(frozen=True)
class Content:
    """What a request says in addition to its tokens; number 0 is none."""

    adapter: Number = 0
    salt: Number = 0
    items: tuple[Feature, ...] = ()
    rows: Number = 0
    """Which rows of embeddings stand in the block."""
    adapter_file: Number = 1
    """From where the adapter's weights were read."""
    dtype: Number = 0
    """What the bytes of the rows mean."""
    mask: Number = 0
    """Which positions are tokens, and which are rows."""


# The model.


def _model_keys(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    submit = bare(
        Submit,
        adapter=text(content.adapter),
        salt=text(content.salt),
        items=tuple(
            bare(Item, identifier=text(name), offset=offset, length=length) for name, offset, length in content.items
        ),
        embeds=_ModelRows(content.rows) if content.rows != 0 else None,
    )
    return identity.extra_keys(submit, start, end)


class _ModelRows:
    """The contents of all rows; a slice of them is what the number stands for."""

    def __init__(self, number: Number) -> None:
        self._number = number

    def __getitem__(self, block: slice) -> Name:
        return Name("rows", self._number)


# Cores with the API.


class _Rows:
    """A tensor of which a block is read as bytes, as torch and numpy do it. Its bytes are told apart by number."""

    def __init__(self, number: Number) -> None:
        self._number = number

    def __getitem__(self, block: slice) -> "_Rows":
        return self

    def _same(self, *arguments: Any) -> "_Rows":
        return self

    flatten = cpu = contiguous = view = numpy = _same

    def tobytes(self) -> bytes:
        """Bytes that stand for those of the rows."""
        return f"rows {getattr(self._number, 'term', self._number)}".encode()

    data = property(tobytes)


class _NoMemo:
    """The digests known of a request: none."""

    def get(self, block: object) -> None:
        """Nothing is known of any block."""

    def __setitem__(self, block: object, digest: object) -> None:
        pass


def _request(content: Content) -> Any:
    adapter = SimpleNamespace(lora_name=text(content.adapter), lora_int_id=1, lora_path=content.adapter_file)
    return SimpleNamespace(
        lora_request=adapter if content.adapter != 0 else None,
        cache_salt=text(content.salt),
        mm_features=[
            SimpleNamespace(identifier=text(name), mm_position=SimpleNamespace(offset=offset, length=length))
            for name, offset, length in content.items
        ],
        prompt_embeds=_Rows(content.rows) if content.rows != 0 else None,
        prompt_is_token_ids=content.mask,
        _prompt_embeds_per_block_hashes=_NoMemo(),
    )


def _named(content: Content, keys: Any) -> tuple[Any, ...]:
    """The keys, none being (), with the number of the rows in place of their digest."""
    if keys is None:
        return ()
    digest = hashlib.sha256(_Rows(content.rows).tobytes()).digest()
    name = Name("rows", content.rows)
    return tuple(
        name if isinstance(key, bytes) and key == digest else (key[0], name) if _holds(key, digest) else key
        for key in keys
    )


def _holds(key: Any, digest: bytes) -> bool:
    return isinstance(key, tuple) and isinstance(key[1], bytes) and key[1] == digest


def _api_keys(*tagged: bool) -> Callable[[Names], Any]:
    def bind(names: Names) -> Any:
        function = names("generate_block_hash_extra_keys")
        if tagged and "tagged" not in function.__code__.co_varnames[: function.__code__.co_argcount]:
            return names("generate_block_hash_extra_keys with tags")  # says that there is none

        def keys(content: Content, start: Number, end: Number) -> Any:
            return _named(content, function(_request(content), start, end, 0, *tagged)[0])

        return keys

    return bind


def _scan(names: Names) -> Any:
    function = names("generate_block_hash_extra_keys")

    def scan(content: Content, start: Number, end: Number, index: int) -> tuple[Any, int]:
        """Keys of a block with the scan for items beginning at this one, and where it ended."""
        keys, after = function(_request(content), start, end, index)
        return _named(content, keys), after

    return scan


class _Known(Counted):
    """The hashes of the first blocks of a request."""

    def __bool__(self) -> bool:
        return bool(self.length != 0)

    def __getitem__(self, index: int) -> Any:
        return Name("digest", 1)


class _Tokens:
    """Token ids of a request."""

    def __getitem__(self, block: slice) -> list[Any]:
        return [Name("tokens", 1)]


def _resumed(names: Names) -> Any:
    """Keys of the block that generated tokens have filled, `known` being hashed before."""
    hasher = names("get_request_block_hasher")

    def resumed(content: Content, known: Number, size: Number) -> Any:
        request, seen = _request(content), []
        request.num_tokens = (known + 1) * size
        request.block_hashes, request.all_token_ids = _Known(known), _Tokens()
        quotient_found((known + 1) * size, size, known + 1)

        def hashed(value: Any) -> Any:
            seen.append(value[2])
            return Name("digest", 1)

        hash_new_blocks = hasher(size, hashed)
        replaced = {"range": any_range} if isinstance(size, SymbolicInt) else {}
        with seeing(globals_of(hash_new_blocks), replaced):
            hash_new_blocks(request)
        (keys,) = seen
        return _named(content, keys)

    return resumed


MODEL: dict[str, Any] = {
    "extra_keys": _model_keys,
    "resumed_keys": lambda content, known, size: _model_keys(content, known * size, (known + 1) * size),
}

API: dict[str, Any] = {
    "extra_keys": _api_keys(),
    "tagged_extra_keys": _api_keys(True),
    "full_extra_keys": _api_keys(),
    "scanned_keys": _scan,
    "resumed_keys": _resumed,
}
