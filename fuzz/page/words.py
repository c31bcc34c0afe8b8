"""Operations, groups, answers and what gathers as sentences, for a reader who does not know the calls; and where two
sides part, in a sentence, with the place in the page.

An answer that has not the form that it must have is given as it is, after what is wrong with it: it may be anything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest

from ...model import ops
from ...model.ops import (
    NULL,
    Allocate,
    AllocateBatch,
    Done,
    Failed,
    Group,
    Lookup,
    Operation,
    Outcome,
    Refused,
    Shape,
)
from ...model.snapshot import Snapshot
from ..findings.difference import first_difference
from ..findings.starved import Starved
from ..findings.words import operation_text, outcome_text, plural
from ..kinds import KINDS
from ..reports.story import Place
from ..targets.answers import answers_of, hit_of

MAX_TEXT = 2_000
"""Longest text that is kept of an answer, in characters."""
MOST = 12
"""Blocks or contents that a sentence lists."""
ODD = "of another form than it must have: "
Sides = tuple[str, str]
Parting = tuple[str, Place | None]
MOST_BLOCKS = 12
"""Blocks that a sentence lists."""


class RequestNumbers:
    """Numbers requests in the order in which they are first named."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """The number of a request."""
        return self.known.setdefault(name, len(self.known))


def cut(text: str, most: int = MAX_TEXT) -> str:
    """The text; of a longer one the beginning, and how long it is."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


def operation_words(operation: Operation) -> str:
    """What the operation asks for, in a sentence.

    >>> operation_words(ops.Allocate("a", 3, hit=True))
    'Request a asks for room for 3 tokens, using the hit of its lookup.'
    """
    match operation:
        case ops.Submit():
            return f"Request {operation.request} arrives with {', '.join(_arrival(operation))}."
        case Starved():
            served = f"the first {plural(operation.served, 'call')}" if operation.served else "none"
            gives = f"while the world answers {served} of those that may fail"
            return f"{operation_words(operation.allocation)[:-1]}, {gives}."
        case ops.Allocate():
            return f"Request {operation.request} asks for room for {', '.join(_room(operation))}."
        case ops.AllocateBatch(names, count, lookahead, in_flight):
            each = ", ".join(_room(ops.Allocate("", count, lookahead=lookahead, in_flight=in_flight)))
            return f"In one call, requests {', '.join(names)} ask for room for {each} each."
        case ops.Advance(name, sampled, rejected):
            taken = f"; {plural(rejected, 'draft')} rejected" if rejected else ""
            said = f", which samples {plural(len(sampled), 'token')}" if sampled else ""
            return f"The step of request {name} has run{said}{taken}."
        case ops.Reject(name, count):
            return f"{plural(count, 'draft')} of request {name} rejected after the step was counted."
        case ops.Arrive(name, missing) if missing:
            return f"The external tokens of request {name} have arrived, but for the last {missing}: its load failed."
        case ops.OnRequest(name):
            return _PLAIN[type(operation)].format(name)
        case ops.Evict(blocks):
            return f"The content of {_listed(blocks)} is forgotten."
        case ops.Take(count):
            return f"An outside holder takes {plural(count, 'block')} from the pool."
        case ops.Touch(blocks):
            return f"An outside holder holds {_listed(blocks)}, too."
        case ops.Release(blocks, prepend):
            return f"An outside holder gives back {_listed(blocks)}{', to the front of the queue' if prepend else ''}."
    return _PLAIN[type(operation)]


def step_text(operation: Operation) -> str:
    """The operation as in traces, lists of numbers in square brackets.

    >>> step_text(ops.Submit("a", (0,))), step_text(ops.Advance("a", (3, 4)))
    ('Submit a, prompt=[0]', 'Advance a, sampled=[3, 4]')
    """
    text, before = operation_text(operation), ""
    while text != before:  # from the inside out
        text, before = _NUMBERS.sub(r"[\1]", text), text
    return text


_NUMBERS = re.compile(r"(?<![\w.])\(((?:[-+.\de]+|\[[^()]*\]|None)(?:, (?:[-+.\de]+|\[[^()]*\]|None))*|),?\)")
"""A tuple of numbers, or of such lists, as Python writes it."""
_PLAIN = {
    ops.Lookup: "Request {} looks for the longest prefix of it that is cached.",
    ops.Arrive: "The external tokens of request {} have arrived.",
    ops.Landed: "The oldest step of request {} that still runs has left the device.",
    ops.Free: "Request {} ends and gives its blocks back.",
    ops.Preempt: "Request {} is preempted: it gives its blocks back and starts again.",
    ops.RemoveSkipped: "Request {} gives back the blocks that no query of it reads any more.",
    ops.CommonPrefix: "How many leading blocks do all running requests share with {}?",
    ops.ReadTable: "Which blocks does request {} hold?",
    ops.Reset: "The cache is reset: every content is to be forgotten.",
    ops.StepStart: "A scheduler step begins.",
    ops.TakeEvents: "The events since the last call are drained.",
    ops.TakeNewBlockIds: "The ids of newly handed out blocks are drained.",
    ops.TakeStats: "The statistics since the last call are drained.",
}


def _arrival(operation: ops.Submit) -> list[str]:
    version = f" ({operation.adapter_version})" if operation.adapter_version else ""
    return [
        f"a prompt of {plural(len(operation.prompt), 'token')}",
        *([f"adapter {operation.adapter}{version}"] if operation.adapter else []),
        *([f"salt {operation.salt}"] if operation.salt else []),
        *([plural(len(operation.items), "multimodal item")] if operation.items else []),
        *(["embeddings in place of tokens"] if operation.embeds is not None else []),
        *(["without looking into the cache"] if operation.skip_lookup else []),
    ]


def _room(operation: ops.Allocate) -> list[str]:
    return [
        plural(operation.new_tokens, "token"),
        *(["using the hit of its lookup"] if operation.hit else []),
        *([f"{plural(operation.lookahead, 'token')} of lookahead"] if operation.lookahead else []),
        *([f"{plural(operation.external, 'token')} from outside"] if operation.external else []),
        *(["which arrive later"] if operation.delay else []),
        *([f"{plural(operation.encoder_tokens, 'token')} of the encoder"] if operation.encoder_tokens else []),
        *(["if the whole sequence fits"] if operation.gate else []),
        *([f"leaving {plural(operation.reserved, 'block')} to others"] if operation.reserved else []),
        *([f"with {plural(operation.in_flight, 'token')} in flight"] if operation.in_flight else []),
    ]


def _listed(blocks: Sequence[int]) -> str:
    shown = ", ".join(map(str, blocks[:MOST_BLOCKS]))
    more = f" and {len(blocks) - MOST_BLOCKS} more" if len(blocks) > MOST_BLOCKS else ""
    return f"{'block' if len(blocks) == 1 else 'blocks'} {shown}{more}"


def group_words(group: Group, shape: Shape) -> str:
    """What a group keeps, in a few words.

    >>> group_words(Group("sliding", 2, window=4), Shape((), 1, 1, 1, 1, 1))
    'sliding window of 4 tokens, 2 tokens a block'
    """
    values = [(field.name, getattr(group, field.name)) for field in fields(group)]
    said = {name: plural(value, "token") if isinstance(value, int) else value for name, value in values}
    what = KINDS[group.kind].words.format(**said)
    drafts = ", read by the draft model" if group.eagle else ""
    return f"{what}, {plural(group.block_size * shape.parallel, 'token')} a block{drafts}"


def answer_words(operation: Operation | None, outcome: Outcome) -> str:
    """What an operation was answered.

    >>> from blockproof.model.ops import Allocate, Lookup
    >>> answer_words(Lookup("a"), Done((2, ((1,),)))), answer_words(Allocate("a", 3), Done(((2, 4),)))
    ('a hit of 2 tokens: block 1', 'new: blocks 2, 4')
    """
    if not isinstance(outcome, Done) or outcome.value is None:
        return outcome_text(outcome)
    said = _value_words(operation, outcome)
    return f"{ODD}{outcome_text(outcome)}" if said is None else said


def _value_words(operation: Operation | None, outcome: Done) -> str | None:
    """The value in words; None for one that is none of the operation's."""
    value = outcome.value
    match operation:
        case ops.Submit() | ops.Advance() if type(value) is int:
            return plural(value, "full hash block")
        case ops.Lookup() if (found := hit_of(outcome)) and _are_rows(value[1]):  # type: ignore[index]
            return (
                f"a hit of {plural(found[0], 'token')}: {rows_text(found[1])}"
                if any((found[0], *found[1]))
                else "no hit"
            )
        case ops.Allocate() if _are_rows(value):
            return f"new: {rows_text(value)}" if any(value) else "nothing new"  # type: ignore[arg-type]
        case ops.ReadTable() if _are_rows(value):
            return rows_text(value)  # type: ignore[arg-type]
        case ops.Take() | ops.TakeNewBlockIds() if isinstance(value, tuple) and _are_rows((value,)):
            return rows_text([value])
        case ops.CommonPrefix() if isinstance(value, tuple) and _are_rows((value,)):
            where = [f" in group {group}" if len(value) > 1 else "" for group in range(len(value))]
            return ", ".join(f"{plural(n, 'block')}{at}" for n, at in zip(value, where, strict=True))  # type: ignore[arg-type]
        case ops.Reset() if type(value) is bool:
            return "all is forgotten" if value else "nothing is forgotten: blocks are in use"
        case ops.TakeEvents() if isinstance(value, tuple):
            return events_words(value)
        case ops.TakeStats() if isinstance(value, tuple):
            return listed(value)
    return None if isinstance(value, tuple | bool | str) else str(value)


def _are_rows(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(row, tuple) and all(type(block) is int for block in row) for row in value
    )


def rows_text(rows: Sequence[Sequence[object]]) -> str:
    """Block ids per group, 0 as null.

    >>> rows_text([[1, 2], [0]])
    'blocks 1, 2 in group 0, null in group 1'
    """
    said = []
    for group, row in enumerate(rows):
        ids = ", ".join("null" if block == NULL else str(block) for block in row[:MOST])
        more = f" and {len(row) - MOST} more" if len(row) > MOST else ""
        where = f" in group {group}" if len(rows) > 1 else ""
        noun = "" if not any(row) else "block " if len(row) == 1 else "blocks "
        said += [f"{noun}{ids}{more}{where}"] if row else []
    return ", ".join(said) or "no blocks"


def listed(value: object) -> str:
    """Anything in words: the parts of tuples and lists with commas, those within in square brackets.

    >>> listed((True, 3, (1, 2), ()))
    'yes, 3, [1, 2], []'
    """
    if isinstance(value, tuple | list):
        return ", ".join(f"[{listed(one)}]" if isinstance(one, tuple | list) else listed(one) for one in value)
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def events_words(events: Sequence[object]) -> str:
    """Events, oldest first.

    >>> events_words((("stored", (1, 2), None, (7, 8), 1, None, None, 0), ("removed", (1,), 0), ("cleared",)))
    'stored contents 1, 2 in group 0; removed content 1 from group 0; all cleared'
    """
    return "; ".join(map(_event_words, events)) or "no events"


def _event_words(event: object) -> str:
    match event:
        case ("stored", tuple(names), parent, _, _, _, _, group, *_):
            behind = "" if parent is None else f" behind content {parent}"
            return f"stored {_contents(names)}{behind} in group {group}"
        case ("removed", tuple(names), group, *_):
            return f"removed {_contents(names)} from group {group}"
        case ("cleared", *_):
            return "all cleared"
    return listed((event,))


def _contents(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:MOST])) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
    return f"content {shown}" if len(names) == 1 else f"contents {shown}"


def field_words(name: str, value: object) -> str:
    """A field of a snapshot that is kept as text."""
    if name == "events" and isinstance(value, tuple):
        return events_words(value)
    if name == "new_block_ids" and isinstance(value, list):
        return rows_text(value)
    return listed(value)


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


def states_part(names: Sides, ours: Snapshot, theirs: Snapshot, requests: RequestNumbers) -> Parting:
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
    field: str,
    one_name: str,
    other_name: str,
    both: tuple[Sequence[Mapping[str, object]], ...],
    requests: RequestNumbers,
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
