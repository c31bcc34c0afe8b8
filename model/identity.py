"""What a block *is*: the content of its tokens and of everything before them.

An identity is never a digest here. It is the identity of the parent block, the tokens, and tagged extra keys, and two
identities are the same object exactly when all of this is equal. So a digest that says less than the content, or more,
shows as a difference between model and target (core.md §3, T22, T23).
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
    """Hands out one `Identity` object per content."""

    def __init__(self) -> None:
        self._known: dict[tuple[Identity | None, tuple[int, ...], tuple[ExtraKey, ...]], Identity] = {}

    def __call__(self, parent: Identity | None, tokens: Sequence[int], keys: tuple[ExtraKey, ...]) -> Identity:
        """The identity of these tokens with these keys behind this parent."""
        content = (parent, tuple(tokens), keys)
        if content not in self._known:
            self._known[content] = Identity(*content)
        return self._known[content]


def overlapping_items(items: Sequence[Item], start: int, end: int) -> list[Item]:
    """The items that have a token in `start .. end - 1`, in the order of the request."""
    return [item for item in items if item.offset < end and item.offset + item.length > start]


def extra_keys(submit: Submit, start: int, end: int) -> tuple[ExtraKey, ...]:
    """What else than tokens decides the content of the block over `start .. end - 1`: (tag, value) pairs.

    Multimodal items count with their offset relative to the block, since text tokens may equal the placeholder (report
    36708). The salt stands in the first block only: all others inherit it.
    """
    items = overlapping_items(submit.items, start, end)
    adapter: list[ExtraKey] = [("adapter", submit.adapter)] if submit.adapter else []
    item_keys: list[ExtraKey] = [("item", (item.identifier, item.offset - start)) for item in items]
    salt: list[ExtraKey] = [("salt", submit.salt)] if submit.salt and start == 0 else []
    embeds: list[ExtraKey] = [("embeds", submit.embeds[start:end])] if submit.embeds is not None else []
    return (*adapter, *item_keys, *salt, *embeds)
