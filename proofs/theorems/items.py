"""Multimodal items in extra keys (T23): which part of which item fills each position of a block."""

from collections.abc import Sequence
from typing import Any

from ..claims import every, implies, same, some
from ..roles.extra_keys import Content
from ..symbolic_bytes import alike, text
from ..theorem import NegativeControl, Theorem, on_releases

_BLOCK = {"start": "first token of the block", "b": "tokens per block"}


def _block(v: Any) -> list[Any]:
    return [v.start >= 0, v.b >= 1]


def _equal(keys: Any, contents: tuple[Content, Content], v: Any) -> Any:
    return alike(*(keys(content, v.start, v.start + v.b) for content in contents))


_ITEM = {"name": "number of the identifier", "offset": "first token", "length": "tokens"}


def _item_variables(numbers: Sequence[str]) -> dict[str, str]:
    return {f"{field}{number}": f"{meaning} of item {number}" for number in numbers for field, meaning in _ITEM.items()}


def _items(v: Any, *numbers: str) -> tuple[Any, ...]:
    return tuple(tuple(getattr(v, f"{field}{number}") for field in _ITEM) for number in numbers)


def _in_order(items: Sequence[Any]) -> list[Any]:
    """One after the other, each of at least one token and with an identifier."""
    ends = [0, *(offset + length for _, offset, length in items)]
    return [
        *(every(name >= 1, length >= 1) for name, _, length in items),
        *(end <= offset for end, (_, offset, _) in zip(ends, items, strict=False)),
    ]


def _one_length(items: Sequence[Any]) -> list[Any]:
    """An identifier stands for one content, hence for one length."""
    pairs = [(one, other) for i, one in enumerate(items) for other in items[:i]]
    return [implies(one[0] == other[0], one[2] == other[2]) for one, other in pairs]


def _fills(item: Any, token: Any) -> Any:
    return every(item[1] <= token, token < item[1] + item[2])


def _said(key: Any, items: Sequence[Any], place: Any) -> Any:
    """True if this key, with the lengths that identifiers have, says that its item fills that place of the block."""
    return some(*(every(key[0] == text(item[0]), key[1] <= place, place < key[1] + item[2]) for item in items))


def _items_said(f: Any, v: Any) -> Any:
    """Keys and lengths of identifiers say of each position what fills it: so they determine it."""
    items, place = _items(v, "1", "2"), v.token - v.start
    keys = f.extra_keys(Content(items=items), v.start, v.start + v.b)
    said = [(key, _said(key, items, place)) for key in _pairs(keys)]
    return [
        *(
            implies(
                _fills(item, v.token), some(*(every(is_said, *_same_part(key, item, v.start)) for key, is_said in said))
            )
            for item in items
        ),
        *(
            implies(is_said, some(*(every(_fills(item, v.token), *_same_part(key, item, v.start)) for item in items)))
            for key, is_said in said
        ),
    ]


def _pairs(keys: Sequence[Any]) -> list[Any]:
    """Identifier, relative offset and, if it has one, length in each key, without the tag before them."""
    untagged = [key[1:] if isinstance(key[0], str) and key[0] in ("item", "mm") else key for key in keys]
    return [key[0] if isinstance(key[0], tuple) else key for key in untagged]


def _same_part(key: Any, item: Any, start: Any) -> tuple[Any, Any]:
    return key[0] == text(item[0]), key[1] == item[1] - start


def _lengths_told_apart(f: Any, v: Any) -> Any:
    one, other = (v.name1, v.offset1, v.length1), (v.name2, v.offset2, v.length2)
    equal = _equal(f.extra_keys, (Content(items=(one,)), Content(items=(other,))), v)
    return implies(
        every(equal, v.start <= v.token, v.token < v.start + v.b), same(_fills(one, v.token), _fills(other, v.token))
    )


def _without_offsets(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    return tuple((text(name), 0) for name, offset, length in content.items if offset < end and offset + length > start)


def _whole_items_only(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    return tuple(
        (text(name), offset - start)
        for name, offset, length in content.items
        if offset + length <= end and offset + length > start
    )


def _without_lengths(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    return tuple(
        (text(name), offset - start)
        for name, offset, length in content.items
        if offset < end and offset + length > start
    )


def _by_place(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    first, second = content.items
    items = (second, first) if second[1] < first[1] else (first, second)
    return tuple(
        (text(name), offset - start, length)
        for name, offset, length in items
        if offset < end and offset + length > start
    )


def _up_to_one_that_goes_on(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for name, offset, length in content.items:
        if offset < end and offset + length > start:
            found.append((text(name), offset - start, length))
            if offset + length > end:
                break
    return tuple(found)


def _up_to_the_border(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    return tuple(
        (text(name), offset - start)
        for name, offset, length in content.items
        if offset < end - 1 and offset + length > start
    )


_TWO_ITEMS: Any = {
    "variables": {**_item_variables("12"), **_BLOCK, "token": "a position of the block"},
    "controls": (
        NegativeControl("offsets do not count", {"extra_keys": _without_offsets}),
        NegativeControl("items that go on in the next block do not count", {"extra_keys": _whole_items_only}),
        NegativeControl("the last position of the block does not count", {"extra_keys": _up_to_the_border}),
    ),
}


def _within(v: Any) -> list[Any]:
    return [*_block(v), v.start <= v.token, v.token < v.start + v.b]


T23_ITEMS = Theorem(
    id="T23.items",
    sentence="Extra keys determine which part of which item fills each position of a block, if an identifier always "
    "has one length.",
    variables=_TWO_ITEMS["variables"],
    assume=lambda v: [*_in_order(_items(v, "1", "2")), *_one_length(_items(v, "1", "2")), *_within(v)],
    claim=_items_said,
    controls=_TWO_ITEMS["controls"],
    bounded="two items: the scan looks at one item at a time and keeps nothing but where it is (T23.scan)",
)


def _nothing_else(f: Any, v: Any) -> Any:
    """As many keys as items with a token in the block, and each is that of such an item."""
    items, end = _items(v, "1", "2"), v.start + v.b
    inside = [every(offset < end, offset + length > v.start) for _, offset, length in items]
    keys = _pairs(f.extra_keys(Content(items=items), v.start, end))
    return [
        len(keys) == sum(inside),
        *(
            some(*(every(is_in, *_same_part(key, item, v.start)) for item, is_in in zip(items, inside, strict=True)))
            for key in keys
        ),
    ]


def _neighbours_too(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    return tuple(
        (text(name), offset - start)
        for name, offset, length in content.items
        if offset <= end and offset + length >= start
    )


T23_NOTHING_ELSE = Theorem(
    id="T23.items.only",
    sentence="Items without a token in the block do not count, and no item counts twice.",
    variables={**_item_variables("12"), **_BLOCK},
    assume=lambda v: [*_in_order(_items(v, "1", "2")), *_block(v)],
    claim=_nothing_else,
    controls=(
        NegativeControl("items that touch the block count", {"extra_keys": _neighbours_too}),
        NegativeControl(
            "all items count", {"extra_keys": lambda content, start, end: _neighbours_too(content, 0, start + end + 99)}
        ),
    ),
    bounded="two items, as T23.items",
    meaning="Requests that differ only in items that begin behind a block share it: no hit is lost.",
)

T23_LENGTHS = Theorem(
    id="T23.items.lengths",
    sentence="Extra keys determine which part of which item fills each position of a block, also where one identifier "
    "may have several lengths.",
    variables=_TWO_ITEMS["variables"],
    assume=lambda v: [*_in_order(_items(v, "1")), *_in_order(_items(v, "2")), *_within(v)],
    claim=_lengths_told_apart,
    controls=(
        *_TWO_ITEMS["controls"][:1],
        NegativeControl("lengths do not count", {"extra_keys": _without_lengths}),
    ),
    bounded="one item in each request: that each has a key of its own is T23.items.any",
    refuted_on=on_releases(
        "lengths are in no key: whoever chooses identifiers himself and lets one stand for 4 tokens "
        "here and 8 there gets the keys and values of the image where the other request has text"
    ),
)


# Items in any order, on any tokens.


def _well_formed(v: Any) -> list[Any]:
    return [every(name >= 1, offset >= 0, length >= 1) for name, offset, length in _items(v, "1", "2")]


def _inside(v: Any, item: Any, start: Any) -> Any:
    return every(item[1] < start + v.b, item[1] + item[2] > start)


def _exactly_those(keys: Any, v: Any, start: Any, said: slice) -> list[Any]:
    """The keys say this much of the items with a token in the block, one after the other as in the request."""
    expected = [item for item in _items(v, "1", "2") if _inside(v, item, start)]
    found = _pairs(keys)
    return [
        len(found) == len(expected),
        *(
            alike(key[said], (text(name), offset - start, length)[said])
            for key, (name, offset, length) in zip(found, expected, strict=False)
        ),
    ]


_ALL, _PLACE = slice(3), slice(2)


T23_ANY = Theorem(
    id="T23.items.any",
    sentence="The keys of a block name each item that has a token in it, with its place and its length, in the order "
    "of the request, and no other: in whatever order items stand, and however they overlap or nest.",
    variables={**_item_variables("12"), **_BLOCK},
    assume=lambda v: [*_well_formed(v), *_block(v)],
    claim=lambda f, v: _exactly_those(
        f.extra_keys(Content(items=_items(v, "1", "2")), v.start, v.start + v.b), v, v.start, _ALL
    ),
    controls=(
        NegativeControl("lengths do not count", {"extra_keys": _without_lengths}),
        NegativeControl("items in the order of their places", {"extra_keys": _by_place}),
        NegativeControl(
            "items up to the first that goes on in the next block", {"extra_keys": _up_to_one_that_goes_on}
        ),
    ),
    bounded="two items",
    refuted_on=on_releases(
        "keys have no lengths, and items behind one that goes on in the next block are missing "
        "(T23.items.lengths, T23.overlap)"
    ),
)


def _overlapping_told_apart(f: Any, v: Any) -> Any:
    first, second = _items(v, "1", "2")
    changed = (v.other, second[1], second[2])
    equal = _equal(f.extra_keys, (Content(items=(first, second)), Content(items=(first, changed))), v)
    return implies(equal, second[0] == v.other)


T23_OVERLAP = Theorem(
    id="T23.overlap",
    sentence="Two requests that differ in an item of the block have different keys, also where items overlap.",
    variables={**_item_variables("12"), "other": "number of the identifier in place of item 2", **_BLOCK},
    assume=lambda v: [*_block(v), *_well_formed(v), v.other >= 1, _inside(v, _items(v, "2")[0], v.start)],
    claim=_overlapping_told_apart,
    controls=(
        NegativeControl("items that go on in the next block do not count", {"extra_keys": _whole_items_only}),
        NegativeControl(
            "items up to the first that goes on in the next block", {"extra_keys": _up_to_one_that_goes_on}
        ),
    ),
    refuted_on=on_releases(
        "the scan stops at the first item that goes on in the next block. A video with its sound is "
        "two items on the same tokens (Qwen2.5-Omni with use_audio_in_video), so all blocks but the last are named "
        "after one of them only: two prompts with the same one and different others share those blocks, b tokens each"
    ),
    bounded="two items",
    meaning="A question about a video is never answered from the keys and values of its picture with another sound.",
)


def _scan_goes_on(f: Any, v: Any) -> Any:
    """What the scan has left behind is not in the next block; and beginning behind it changes nothing."""
    items, end = _items(v, "1", "2"), v.start + v.b
    keys, after = f.scanned_keys(Content(items=items), v.start, end, 0)
    claims = [offset + length <= end for _, offset, length in items[:after]]
    if v.offset1 + v.length1 <= v.start:
        claims.append(alike(keys, f.scanned_keys(Content(items=items), v.start, end, 1)[0]))
    return claims or True


def _wrong_scan(content: Content, start: Any, end: Any, index: int) -> tuple[Any, int]:
    """The next block begins behind every item seen in this one."""
    found = [
        (place, (text(name), offset - start))
        for place, (name, offset, length) in enumerate(content.items)
        if place >= index and offset < end and offset + length > start
    ]
    return tuple(key for _, key in found), found[-1][0] + 1 if found else index


T23_SCAN = Theorem(
    id="T23.scan",
    sentence="Where the scan of the block before has stopped is early enough for the next one.",
    variables={**_item_variables("12"), **_BLOCK},
    assume=lambda v: [*_well_formed(v), *_block(v)],
    claim=_scan_goes_on,
    controls=(NegativeControl("an item that goes on is taken for done", {"scanned_keys": _wrong_scan}),),
    bounded="two items",
)


T23_RESUMED = Theorem(
    id="T23.resumed",
    sentence="The keys of a block that generated tokens have filled name each item that has a token in it, no other.",
    variables={**_item_variables("12"), "known": "blocks hashed before", "b": "tokens per block"},
    assume=lambda v: [*_well_formed(v), v.b >= 1, v.known >= 1],
    claim=lambda f, v: _exactly_those(
        f.resumed_keys(Content(items=_items(v, "1", "2")), v.known, v.b), v, v.known * v.b, _PLACE
    ),
    unroll=2,
    controls=(
        NegativeControl(
            "only the first item is looked at",
            {
                "resumed_keys": lambda content, known, size: tuple(
                    (text(name), offset - known * size, length) for name, offset, length in content.items[:1]
                )
            },
        ),
    ),
    bounded="two items; one block is filled at a time",
    refuted_on={
        "vllm==0.23.0": "the hasher begins at the last item: of two images in the last, partial block of the prompt "
        "only the second is in its keys. Two prompts that differ in the first image share that block, b tokens, as "
        "soon as both have generated the same tokens behind it",
        "vllm==0.33.0": "of items that lie on the same tokens those that begin first may be left out "
        "(`overlapping-items`)",
    },
)

THEOREMS = (
    T23_ITEMS,
    T23_NOTHING_ELSE,
    T23_LENGTHS,
    T23_ANY,
    T23_OVERLAP,
    T23_SCAN,
    T23_RESUMED,
)
