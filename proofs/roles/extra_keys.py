"""What else than tokens goes into an identity: adapters, items, salts, embeddings (T23)."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ...model import identity
from ...model.ops import Item, Submit
from ..bare import bare
from ..claims import negation, quotient_found
from ..solver import ProofError
from ..symbolic import Number, SymbolicInt
from ..symbolic_builtins import Counted
from ..symbolic_bytes import Name, any_range, globals_of, seeing, text

Names = Callable[[str], Any]
Feature = tuple[Number, Number, Number]
"""Number of its identifier, offset and length in tokens."""
Place = tuple[Any, Number]
"""Whether a row of embeddings is read there, and the number of that row's bytes."""


@dataclass(frozen=True)
class Content:
    """What a request says in addition to its tokens; number 0 is none."""

    adapter: Number = 0
    salt: Number = 0
    items: tuple[Feature, ...] = ()
    places: tuple[Place, ...] = ()
    """Of each position of the block; empty if the request has no embeddings."""
    path: Number = 1
    """From where the adapter's weights were read."""
    version: Number = 0
    """What the adapter says of its weights."""
    dtype: Number = 0
    """What the bytes of the rows mean."""
    width: Number = 0
    """How many elements a row has."""


def embedded(rows: Number) -> tuple[Place, ...]:
    """A block of one position with this row; none for 0."""
    return ((True, rows),) if rows != 0 else ()


# The model.


def _model_keys(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    submit = bare(
        Submit,
        adapter=text(content.adapter),
        adapter_version=_model_version(content),
        salt=text(content.salt),
        items=tuple(
            bare(Item, identifier=text(name), offset=offset, length=length) for name, offset, length in content.items
        ),
        embeds=_ModelRows(content) if content.places else None,
    )
    return identity.extra_keys(submit, start, end)


def _model_version(content: Content) -> Any:
    """What tells the adapter from others of its name: what it says, or else its path."""
    return ("version", text(content.version)) if content.version != 0 else ("path", text(content.path))


class _ModelRows:
    """All rows; a slice of them is what the content says of the block. A row's content is bytes, dtype and length."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def __getitem__(self, block: slice) -> list[Any]:
        said = self._content
        return [
            (_row(row), Name("dtype", said.dtype), Name("width", said.width)) if is_row else None
            for is_row, row in said.places
        ]


def _row(number: Number) -> Name:
    return Name("row", number)


# Cores with the API.


class _Stamps:
    """Texts that stand for values in what is hashed, and what was hashed in terms of these values."""

    def __init__(self) -> None:
        self._values: list[Name] = []

    def stamp(self, value: Name) -> str:
        """A text for this value. It must be in whatever is hashed later."""
        self._values.append(value)
        return self._text(len(self._values) - 1)

    @staticmethod
    def _text(number: int) -> str:
        return hashlib.sha256(b"value %d" % number).hexdigest()

    def pieces(self, data: Any) -> tuple[Any, ...]:
        """The bytes cut at the stamps, with the values in place of these. ProofError if one is not there as a whole."""
        texts = {self._text(number).encode(): value for number, value in enumerate(self._values)}
        parts = [part for part in re.split(b"(" + b"|".join(texts) + b")", bytes(data)) if part] if texts else [data]
        if missing := [value for stamped, value in texts.items() if stamped not in parts]:
            raise ProofError(f"{missing[0]} is read, and not hashed as it is: what its digest determines is not known")
        return tuple(texts.get(part, part) for part in parts)


class _Rows:
    """A tensor of which a block is read as bytes, as torch and numpy do it; of the rows only the block's are there."""

    def __init__(self, content: Content, stamps: _Stamps, rows: Sequence[Number]) -> None:
        self._content, self._stamps, self._rows = content, stamps, rows

    @property
    def dtype(self) -> Any:
        """What the bytes mean."""
        return _Shown(self._stamps, Name("dtype", self._content.dtype))

    @property
    def shape(self) -> tuple[Any, ...]:
        """Rows, and elements of a row."""
        return len(self._rows), _Shown(self._stamps, Name("width", self._content.width))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, chosen: Any) -> "_Rows":
        """The block, or the rows of the block that are listed."""
        rows = [self._rows[place] for place in chosen] if isinstance(chosen, list) else self._rows
        return _Rows(self._content, self._stamps, rows)

    def _same(self, *arguments: Any) -> "_Rows":
        return self

    flatten = cpu = contiguous = view = numpy = _same

    def tobytes(self) -> bytes:
        """Bytes that stand for those of the rows."""
        return "".join(self._stamps.stamp(_row(row)) for row in self._rows).encode()

    data = property(tobytes)


class _Shown:
    """A value that is shown by a stamp."""

    def __init__(self, stamps: _Stamps, value: Name) -> None:
        self._stamps, self._value = stamps, value

    def __repr__(self) -> str:
        return self._stamps.stamp(self._value)


class _Mask:
    """Which positions are tokens; a slice of it is what the content says of the block."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    def __getitem__(self, block: slice) -> list[Any]:
        return [negation(is_row) for is_row, _ in self._places]


class _NoMemo:
    """The digests known of a request: none."""

    def get(self, block: object) -> None:
        """Nothing is known of any block."""

    def __setitem__(self, block: object, digest: object) -> None:
        pass


def _request(content: Content, stamps: _Stamps) -> Any:
    adapter = SimpleNamespace(lora_name=text(content.adapter), lora_int_id=1, lora_path=text(content.path))
    if content.version != 0:
        adapter.content_version = text(content.version)
    return SimpleNamespace(
        lora_request=adapter if content.adapter != 0 else None,
        cache_salt=text(content.salt),
        mm_features=[
            SimpleNamespace(identifier=text(name), mm_position=SimpleNamespace(offset=offset, length=length))
            for name, offset, length in content.items
        ],
        prompt_embeds=_Rows(content, stamps, [row for _, row in content.places]) if content.places else None,
        prompt_is_token_ids=_Mask(content.places) if content.places else None,
        _prompt_embeds_per_block_hashes=_NoMemo(),
    )


@contextmanager
def _asked(function: Callable[..., Any], content: Content) -> Iterator[Any]:
    """The request of this content, while the function sees a digest that is what was hashed."""
    stamps = _Stamps()

    def sha256(data: Any) -> Any:
        return SimpleNamespace(digest=lambda: stamps.pieces(data))

    with seeing(globals_of(function), {"hashlib": SimpleNamespace(sha256=sha256)}):
        yield _request(content, stamps)


def _scan(names: Names) -> Any:
    function = names("generate_block_hash_extra_keys")

    def scan(content: Content, start: Number, end: Number, index: int) -> tuple[Any, int]:
        """Keys of a block, () for none, with the scan for items beginning at this one, and where it ended."""
        with _asked(function, content) as request:
            keys, after = function(request, start, end, index)
        return keys or (), after

    return scan


def _keys(names: Names) -> Any:
    scan = _scan(names)
    return lambda content, start, end: scan(content, start, end, 0)[0]


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
        request, seen = _request(content, _Stamps()), []
        request.num_tokens = (known + 1) * size
        request.block_hashes, request.all_token_ids = _Known(known), _Tokens()
        quotient_found((known + 1) * size, size, known + 1)

        def hashed(value: Any) -> Any:
            seen.append(value[2])
            return Name("digest", 1)

        hash_new_blocks = hasher(size, hashed)
        replaced = {"range": lambda *bounds: list(any_range(*bounds))} if isinstance(size, SymbolicInt) else {}
        with seeing(globals_of(hasher), replaced):  # what it returns need not be a function
            hash_new_blocks(request)
        (keys,) = seen
        return keys or ()

    return resumed


MODEL: dict[str, Any] = {
    "extra_keys": _model_keys,
    "resumed_keys": lambda content, known, size: _model_keys(content, known * size, (known + 1) * size),
}

API: dict[str, Any] = {
    "extra_keys": _keys,
    "scanned_keys": _scan,
    "resumed_keys": _resumed,
}
