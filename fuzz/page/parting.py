"""Where two sides part, in a sentence, and where in the page to look."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ...model.ops import NULL, Allocate, AllocateBatch, Done, Failed, Lookup, Operation, Outcome, Refused
from ...model.shown.snapshot import Snapshot
from ..findings.difference import first_difference
from ..findings.words import outcome_text, plural
from ..targets.answers import answers_of, hit_of
from .answers import answer_words, field_words, rows_text
from .changes import Names, cut
from .document import Place

Sides = tuple[str, str]
Parting = tuple[str, Place | None]


def outcomes_part(names: Sides, operation: Operation | None, ours: Outcome | None, theirs: Outcome | None) -> str:
    """Two answers to one operation, in a sentence.

    >>> from blockproof.model.ops import Done, Lookup, Refused
    >>> outcomes_part(("model", "target"), Lookup("a"), Done((2, ((1,),))), Done((0, ((),))))
    'The model finds a hit of 2 tokens: blocks 1. The target finds no hit.'
    """
    said = [f"{_the(name)} {_said(operation, one)}." for name, one in zip(names, (ours, theirs), strict=True)]
    return " ".join(said)


def _said(operation: Operation | None, outcome: Outcome | None) -> str:
    """What one side answers, as the end of a sentence."""
    if outcome is None:
        return "gives no answer"
    if isinstance(operation, Lookup) and isinstance(outcome, Done) and (hit := hit_of(outcome)):
        return f"finds a hit of {plural(hit[0], 'token')}: {rows_text(hit[1])}" if hit[0] else "finds no hit"
    if isinstance(operation, Allocate) and isinstance(outcome, Refused):
        return "refuses: there is no room"
    if isinstance(operation, AllocateBatch) and (answers := answers_of(operation, outcome)):
        return "; ".join(f"for {part.request} {_said(part, answer)}" for part, answer in answers)
    if isinstance(operation, Allocate) and isinstance(outcome, Done) and isinstance(outcome.value, tuple):
        rows = [list(row) for row in outcome.value if isinstance(row, tuple)]
        return f"hands out {rows_text(rows)}" if any(rows) else "hands out nothing new"
    if isinstance(outcome, Failed):
        return cut(outcome_text(outcome), 300)
    return f"answers: {cut(answer_words(operation, outcome), 300)}"


def states_part(names: Sides, ours: Snapshot, theirs: Snapshot, requests: Names) -> Parting:
    """The first difference of two states, in a sentence, and its place; an empty sentence if there is none."""
    field = first_difference(ours, theirs)
    if field is None:
        return "", None
    one, other = getattr(ours, field), getattr(theirs, field)
    one_name, other_name = _the(names[0]), _small(_the(names[1]))
    if field == "free":
        return _queues(one_name, other_name, one, other)
    if field in ("tables", "registered"):
        return _rows(field, one_name, other_name, (one, other), requests)
    if field in ("ref_cnt", "labels", "earliest"):
        return _blocks(field, one_name, other_name, one, other)
    said = [cut(field_words(field, value), 200) for value in (one, other)]
    return f"{_WORDS.get(field, field)}: {_small(one_name)} shows {said[0]}, {other_name} {said[1]}.", None


_WORDS = {
    "num_free": "The number of free blocks",
    "usage": "The share of the pool in use",
    "num_identities": "The number of contents that a lookup can find",
    "events": "The events that wait to be drained",
    "new_block_ids": "The ids of new blocks that wait to be drained",
    "stats": "The statistics",
}


def _the(name: str) -> str:
    return f"The {name}" if name in ("model", "target") else name


def _queues(one_name: str, other_name: str, one: Sequence[int], other: Sequence[int]) -> Parting:
    place = next(i for i, (a, b) in enumerate(zip_longest(one, other)) if a != b)
    ours, theirs = (queue[place] if place < len(queue) else None for queue in (one, other))
    block = theirs if theirs is not None else ours
    where = "next" if place == 0 else f"after {plural(place, 'other')}"
    if ours is None:
        count = plural(len(other) - len(one), "free block")
        text = f"{other_name} has {count} more: block {theirs} is in its queue."
    elif theirs is None:
        text = (
            f"{other_name} has {plural(len(one) - len(other), 'free block')} fewer: block {ours} is not in its queue."
        )
    else:
        text = f"{one_name} would reuse block {ours} {where}, {other_name} block {theirs}."
        missing = [
            f" {who} does not count block {b} as free."
            for who, b, queue in ((_capital(other_name), ours, other), (one_name, theirs, one))
            if b not in queue
        ]
        text += "".join(missing[:1])
    return _capital(text), Place(block=block if block is not None else -1)


def _rows(
    field: str, one_name: str, other_name: str, both: tuple[Sequence[Mapping[str, object]], ...], requests: Names
) -> Parting:
    for group, (ours, theirs) in enumerate(zip(*both, strict=False)):
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            one, other = ours.get(name), theirs.get(name)
            if one == other:
                continue
            place = Place(request=requests(name), group=group)
            if field == "registered":
                said = [0 if count is None else count for count in (one, other)]
                counts = f"{one_name} counts {said[0]} leading entries as registered, {other_name} {said[1]}"
                return f"Request {name}, group {group}: {counts}.", place
            return _tables(name, group, (one_name, one), (other_name, other), place)
    return "The tables differ in the number of groups.", None


def _tables(name: str, group: int, ours: tuple[str, object], theirs: tuple[str, object], place: Place) -> Parting:
    (one_name, one), (other_name, other) = ours, theirs
    head = f"Request {name}, group {group}:"
    if not isinstance(one, list) or not isinstance(other, list):
        has, lacks = (one_name, other_name) if isinstance(one, list) else (_capital(other_name), _small(one_name))
        return f"{head} {has} has a table, {lacks} has none.", place
    entry = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    place.entry = entry
    if entry >= min(len(one), len(other)):
        lengths = f"{one_name} has {plural(len(one), 'entry', 'entries')}, {other_name} {len(other)}"
        return f"{head} {lengths}; they agree up to there.", place
    place.block = other[entry]
    said = ["null" if block == NULL else f"block {block}" for block in (one[entry], other[entry])]
    return f"{head} entry {entry} is {said[0]} for {_small(one_name)} and {said[1]} for {other_name}.", place


def _blocks(field: str, one_name: str, other_name: str, one: Sequence[object], other: Sequence[object]) -> Parting:
    pairs = list(zip_longest(one, other))
    block = next(i for i, (a, b) in enumerate(pairs) if a != b)
    ours, theirs = pairs[block]
    others = sum(a != b for a, b in pairs) - 1
    more = f" {plural(others, 'other block differs', 'other blocks differ')}, too." if others else ""
    low, high = _small(one_name), _capital(other_name)
    if field == "ref_cnt":
        text = f"Block {block} has {ours} references for {low} and {theirs} for {other_name}."
    elif field == "earliest":
        text = f"A lookup of the content of block {block} yields block {ours} for {low}, {theirs} for {other_name}."
    elif ours is None:
        text = f"{high} has registered block {block}, {low} has not."
    elif theirs is None:
        text = f"{one_name} has registered block {block}, {other_name} has not."
    else:
        text = f"Block {block} is registered as content {ours} for {low} and as content {theirs} for {other_name}."
    return text + more, Place(block=block)


def _capital(name: str) -> str:
    """As a sentence begins with it: names of targets stay as they are."""
    return f"The {name[4:]}" if name.startswith("the ") else name


def _small(name: str) -> str:
    """As it stands within a sentence."""
    return f"the {name[4:]}" if name.startswith("The ") else name
