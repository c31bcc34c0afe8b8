"""The identity of a block: the content of its tokens and of everything before them.

An identity is no digest: two are the same object exactly if the parent block's identity, the tokens and the tagged
extra keys are equal. So where a core's digest depends on less than the content, or on more, core and model differ
(core.md §3, T22, T23).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .ops import Item, Submit, Value

ExtraKey: TypeAlias = tuple[str, Value]


@dataclass(frozen=True, eq=False, slots=True)
class Identity:
    """Content up to the end of one hash block. Compare with `is`; made by `Identities` only."""

    parent: "Identity | None" = field(repr=False)
    tokens: tuple[int, ...]
    keys: tuple[ExtraKey, ...]


class Identities:
    """Makes one `Identity` object per content."""

    def __init__(self) -> None:
        self._known: dict[tuple[Identity | None, tuple[int, ...], tuple[ExtraKey, ...]], Identity] = {}

    def __call__(self, parent: Identity | None, tokens: Sequence[int], keys: tuple[ExtraKey, ...]) -> Identity:
        """The identity of these tokens with these keys behind this parent."""
        content = (parent, tuple(tokens), keys)
        return self._known.get(content) or self._known.setdefault(content, Identity(*content))


def overlapping_items(items: Sequence[Item], start: int, end: int) -> list[Item]:
    """The items that have a token in `start .. end - 1`, in the order of the request."""
    return [item for item in items if item.offset < end and item.offset + item.length > start]


def extra_keys(submit: Submit, start: int, end: int) -> tuple[ExtraKey, ...]:
    """What besides the tokens decides the content of the block `start .. end - 1`: (tag, value) pairs.

    An item counts with its place relative to the block, since text tokens may equal the placeholder
    (vllm-project/vllm#36708), and with its length, since an identifier may have several. Rows count with their places:
    where no row stands, the token is content. The salt is a key of the first block only: all others inherit it.
    """
    if not submit.adapter and not submit.items and not submit.salt and submit.embeds is None:
        return ()
    adapter: list[ExtraKey] = [("adapter", (submit.adapter, submit.adapter_version))] if submit.adapter else []
    items = overlapping_items(submit.items, start, end)
    placed: list[ExtraKey] = [("item", (item.identifier, item.offset - start, item.length)) for item in items]
    salt: list[ExtraKey] = [("salt", submit.salt)] if submit.salt and start == 0 else []
    embeds = submit.embeds[start:end] if submit.embeds is not None else ()
    rows = tuple((place, row) for place, row in enumerate(embeds) if row is not None)
    return (*adapter, *placed, *salt, *([("embeds", rows)] if rows else []))
