"""Answers and what gathers, in words: what a page says in place of tuples.

An answer that has not the form that it must have is given as it is, after what is wrong with it: it may be anything.
"""

from collections.abc import Sequence

from ...model import ops
from ...model.ops import NULL, Done, Operation, Outcome
from ..findings.words import outcome_text, plural
from ..targets.answers import hit_of

MOST = 12
"""Blocks or contents that a sentence lists."""
ODD = "of another form than it must have: "


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
