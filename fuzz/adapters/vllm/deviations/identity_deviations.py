"""What vLLM's releases put into the name of a block instead of what decides its content (core.md §3).

Each is a function from the right extra keys of the block `start .. end - 1`, in the model's form, to those of the
release; for 0.23.0 all are applied one after the other, in the order of `CHANGES`. `late` says that the block was
filled behind the prompt and is named by itself (never of the keys in an event).
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .....model.identity import ExtraKey, overlapping_items
from .....model.ops import Item, Submit, Value
from ....targets.deviations import Deviation

Keys: TypeAlias = tuple[ExtraKey, ...]
Change: TypeAlias = Callable[[Keys, Submit, int, int, bool], Keys]

OVERLAPPING = Deviation(
    "overlapping-items",
    reason=(
        "the scan of multimodal items stops at the first one that goes on in the next block, and nothing is scanned "
        "behind the end of the last one: of items on the same tokens, as a video and its sound, one names the block"
    ),
    condition="items that overlap or nest, in a block behind which the first of them goes on",
    source="T23.overlap.",
    corrupts=True,
)
LATE = Deviation(
    "items-lost-on-restart",
    reason=(
        "a block that fills up during generation is hashed with the prompt's last multimodal item only; an earlier "
        "one in the same block is left out, so prompts that differ in it share the block"
    ),
    condition="the prompt's last, partial block holds two items or more, and fills up later",
    source="Found by lockstep; close to vllm-project/vllm#49448.",
    corrupts=True,
)
LENGTHS = Deviation(
    "item-lengths",
    reason="the length of an item is in no key, so one that ends in the block and a longer one of its name share it",
    condition="one identifier with two lengths, at the same place behind the same tokens",
    source="T23.items.lengths.",
    corrupts=True,
)
BY_NAME = Deviation(
    "adapter-by-name",
    reason="an adapter counts by its name alone: one loaded later under the name is served the blocks of the old one",
    condition="two adapters of one name that differ in what the caller says of them",
    source="T23.reloaded; vllm-project/vllm#30931, vllm-project/vllm#42125.",
    corrupts=True,
)
MASK = Deviation(
    "embeddings-mask",
    reason=(
        "which positions are embedded is in no key: a row of zeros and the token that it stands for share a block; "
        "and text in a prompt with embeddings is named as if it were embedded, so its blocks hit no plain text"
    ),
    condition="a prompt of which some positions are tokens and others rows of embeddings",
    source="T23.mask.",
    corrupts=True,
)
UNTAGGED = Deviation(
    "untagged-extra-keys",
    reason="adapter and salt enter the hash as bare strings, so an adapter named like a salt shares its blocks",
    condition="equal tokens with the same names of adapter and salt in another role",
    source="core.md, section 3; vllm-project/vllm#44701.",
    corrupts=True,
)


def _with_items(keys: Keys, start: int, items: Sequence[Item]) -> Keys:
    """The keys with these items in place of those that they name."""
    named = tuple(("item", (item.identifier, item.offset - start, item.length)) for item in items)
    at = [tag for tag, _ in keys].index("item") if any(tag == "item" for tag, _ in keys) else len(keys)
    return (*keys[:at], *named, *(key for key in keys[at:] if key[0] != "item"))


def up_to_the_first_that_goes_on(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """Only items up to the first one that ends behind the block, in the order of the request, which should be that of
    their places; none behind the end of the last item."""
    items = submit.items
    if not items or items[-1].offset + items[-1].length <= start:
        return _with_items(keys, start, ())
    seen: list[Item] = []
    for item in items:
        if item.offset >= end:
            break
        if item.offset + item.length > start:
            seen.append(item)
            if item.offset + item.length > end:
                break
    return _with_items(keys, start, seen)


def _end(item: Item) -> int:
    return item.offset + item.length


def items_ahead(items: Sequence[Item], start: int, end: int, ahead: int, begin: int) -> list[Item]:
    """The items that name the block `start .. end - 1` and `ahead` tokens behind it, if it is named in one go with the
    blocks from `begin` on.

    The scan of a block goes on where that of the block before it has stopped, and goes back over the items that end
    behind that block, up to the first one that does not. The first scan of a prompt begins with its first item, a later
    one with an item that is found by halving, as if items ended in their order.
    """
    size, seen = end - start, list[Item]()
    at = bisect_left(items, begin + 1, key=_end) if 0 < begin < _end(items[-1]) else 0
    for block in range(begin, end, size):
        seen, reach = [], block + size + ahead
        while block < _end(items[-1]) and at < len(items) and items[at].offset < reach:
            item = items[at]
            if _end(item) > block:
                seen.append(item)
                if _end(item) > reach:
                    break
            at += 1
        while at and _end(items[at - 1]) > block + size:
            at -= 1
    return seen


def only_the_last_item(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """The last item only, where naming goes on behind the prompt."""
    return _with_items(keys, start, overlapping_items(submit.items[-1:], start, end)) if late else keys


def without_lengths(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """Items by identifier and place."""

    def shorter(tag: str, value: Value) -> Value:
        return value[:2] if tag == "item" and isinstance(value, tuple) else value

    return tuple((tag, shorter(tag, value)) for tag, value in keys)


def adapter_by_name(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """The adapter's name without its version."""
    return tuple((tag, submit.adapter if tag == "adapter" else value) for tag, value in keys)


def every_row(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """All rows in the block, a token's being zeros; also where there is none."""
    if submit.embeds is None:
        return keys
    rows = tuple(row or 0 for row in submit.embeds[start:end])
    return (*(key for key in keys if key[0] != "embeds"), ("embeds", rows))


def untagged(keys: Keys, submit: Submit, start: int, end: int, late: bool) -> Keys:
    """Adapter and salt without their tags."""
    return tuple(("", value) if tag in ("adapter", "salt") else (tag, value) for tag, value in keys)


CHANGES: Mapping[str, tuple[Deviation, Change]] = {
    deviation.id: (deviation, change)
    for deviation, change in (
        (OVERLAPPING, up_to_the_first_that_goes_on),
        (LATE, only_the_last_item),
        (LENGTHS, without_lengths),
        (BY_NAME, adapter_by_name),
        (MASK, every_row),
        (UNTAGGED, untagged),
    )
}
"""By id, in the order in which they are applied."""
