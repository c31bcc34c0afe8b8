"""Checks that the answer of a target has the right types. A target may be any code that a user wrote.

In lockstep an answer is checked only if it differs from the model's: one that is equal has the right types.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import eq, not_
from typing import Any, TypeAlias

from ...model.ops import Allocate, AllocateBatch, Done, Failed, Outcome, Refused
from ...model.snapshot import Snapshot
from ..findings.cause import cause_of
from .base import TargetLostError

Check: TypeAlias = Callable[[object], bool]


def _is(*kinds: type) -> Check:
    return lambda value: type(value) in kinds


def _are(kinds: frozenset[type], values: Iterable[object]) -> bool:
    """True if each value is of one of these types: asked of all at once, which counts for large pools."""
    try:
        return kinds.issuperset(map(type, values))
    except TypeError:  # a type that cannot be hashed
        return False


def _list_of(*kinds: type) -> Check:
    known = frozenset(kinds)
    return lambda value: isinstance(value, list) and _are(known, value)


def _dicts_of(check: Check) -> Check:
    """Of a list of dictionaries from requests, one for each group, with values that pass all at once."""

    def checks(value: object) -> bool:
        if not isinstance(value, list):
            return False
        of_groups = [group for group in value if isinstance(group, dict)]
        names = chain.from_iterable(of_groups)
        values = [one for group in of_groups for one in group.values()]
        return len(of_groups) == len(value) and _are(_STRINGS, names) and check(values)

    return checks


def _tables(rows: object) -> bool:
    """True for a list of lists of block ids."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return False
    return _INTS(list(chain.from_iterable(rows)))


def _is_event(event: object) -> bool:
    """True for a tuple with as much in it as the oracles read of an event of its kind."""
    match event:
        case ("stored", tuple(), _, _, int(), _, _, int(), *_) | ("removed", tuple(), int(), *_) | ("cleared", *_):
            try:
                hash(event)
            except TypeError:
                return False
            return True
    return False


_OUTCOMES = (Done, Refused, Failed)
_STRINGS = frozenset({str})
_INT = _is(int)
_INTS = _list_of(int)
_INTS_OR_NONE = _list_of(int, type(None))
_FIELDS: Mapping[str, tuple[str, Check]] = {
    "free": ("a list of block ids", _INTS),
    "num_free": ("a number of blocks", _INT),
    "usage": ("a float", _is(float, int)),
    "ref_cnt": ("a list of counts", _INTS),
    "tables": ("a list of dictionaries from requests to lists of block ids", _dicts_of(_tables)),
    "registered": ("a list of dictionaries from requests to counts", _dicts_of(_INTS)),
    "labels": ("a list of labels or None", _INTS_OR_NONE),
    "earliest": ("a list of block ids or None", _INTS_OR_NONE),
    "num_identities": ("a number", _INT),
    "events": (
        "a tuple of events, such as ('cleared',)",
        lambda value: isinstance(value, tuple) and all(map(_is_event, value)),
    ),
    "new_block_ids": ("a list of lists of block ids", _tables),
    "stats": ("a tuple of numbers or None", lambda value: value is None or isinstance(value, tuple)),
}
_CHECKS = [(name, *_FIELDS[name]) for name in Snapshot._fields]
"""In the order of a snapshot."""
_NOTHING = (False,) * len(_FIELDS)
_COPIES: Sequence[Callable[[Any], Any]] = [
    {
        "tables": lambda groups: [{name: table.copy() for name, table in tables.items()} for tables in groups],
        "registered": lambda groups: [group.copy() for group in groups],
        "new_block_ids": lambda groups: [group.copy() for group in groups],
    }.get(name, list.copy if expected.startswith("a list of") else lambda value: value)
    for name, (expected, _) in _FIELDS.items()
]
"""Of a value of each field."""
_PER_GROUP = ("tables", "registered", "new_block_ids")
_PER_BLOCK = ("ref_cnt", "labels", "earliest")


def outcome_and_snapshot(answer: object) -> tuple[Outcome, Snapshot | None]:
    """The two parts of an answer of a target, whose types are not checked. TargetLostError if it has no two parts."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return answer
    got = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"a {type(answer).__name__} alone"
    raise TargetLostError("protocol", f"the target returned {got}; return a tuple of an outcome and a Snapshot")


def raised_by_target(error: BaseException) -> TargetLostError:
    """The loss of a target that let an exception out; to be called where it was called. Not only an `Exception`: the
    panic of a core in Rust is none, nor is what cancels a coroutine."""
    cause = cause_of(error, 1)
    if isinstance(error, SystemExit):
        return TargetLostError("crash", f"the target ended the process (SystemExit: {error})", cause)
    what = f"the target raised {cause.type}: {cause.message}; an exception of the core is an outcome"
    return TargetLostError("protocol", f"{what}: return failed(error)", cause)


def unchanged(snapshot: object, known: Snapshot | None) -> Sequence[bool]:
    """Per field, whether the snapshot shows what a `known` one shows, the types of whose values are right."""
    if known is None or type(snapshot) is not Snapshot:
        return _NOTHING
    try:
        if [*map(type, snapshot)] == [*map(type, known)]:  # nearly always
            return [*map(eq, snapshot, known)]
        return [type(now) is type(before) and now == before for now, before in zip(snapshot, known, strict=True)]
    except Exception:  # some of it cannot be compared
        return _NOTHING


def _others(same: Sequence[bool]) -> Iterator[int]:
    """Places of the fields that are not the same."""
    return compress(range(len(same)), map(not_, same))


def kept(snapshot: Snapshot, known: Snapshot | None, same: Sequence[bool]) -> Snapshot:
    """The snapshot, the types of whose values are right, for as long as one likes: a target may show lists that it goes
    on to change. What is the `same` (`unchanged`) are the objects of the `known` one, all else is copied."""
    if known is not None and all(same):
        return known
    values: list[Any] = list(known or snapshot)
    for place in _others(same):
        values[place] = _COPIES[place](snapshot[place])
    return Snapshot._make(values)


def problem_with_answer(
    outcome: object,
    snapshot: object,
    num_groups: int | None,
    num_blocks: int | None = None,
    hidden: Collection[str] = (),
    same: Sequence[bool] = (),
) -> str | None:
    """What is wrong with the types of an answer, in a sentence; None if nothing. The core has `num_groups` groups and
    `num_blocks` blocks, if that is to be checked; the latter of what is not `hidden`. What is the `same` as in a
    snapshot that was checked (`unchanged`) is not asked about again.
    """
    if not isinstance(outcome, _OUTCOMES):
        return f"the outcome is a {type(outcome).__name__}; return Done, Refused or Failed"
    if not isinstance(snapshot, Snapshot):
        return f"the state is a {type(snapshot).__name__}; return a Snapshot"
    for place in _others(same or _NOTHING):
        name, expected, check = _CHECKS[place]
        value: Any = snapshot[place]
        if not check(value):
            return f"Snapshot.{name} is {str(value)[:80]}, a {type(value).__name__}; expected {expected}"
        if name in _PER_GROUP and num_groups not in (None, len(value)):
            return f"Snapshot.{name} has {len(value)} entries; expected one for each of the {num_groups} groups"
        if name in _PER_BLOCK and name not in hidden and num_blocks not in (None, len(value)):
            return f"Snapshot.{name} has {len(value)} entries; expected one for each of the {num_blocks} blocks"
    return None


def hit_of(outcome: Done) -> tuple[int, list[list[int]]] | None:
    """The hit that a lookup returned: tokens, and block ids per group. None if the value is not of that form."""
    match outcome.value:
        case (int(tokens), tuple(rows)) if all(isinstance(row, tuple) for row in rows):
            return tokens, [
                [block for block in row if isinstance(block, int)] for row in rows if isinstance(row, tuple)
            ]
    return None


def answers_of(batch: AllocateBatch, outcome: Outcome) -> list[tuple[Allocate, Done | Refused]]:
    """The allocations of a batch, each with its own outcome; none where the call came to no answers, one for each."""
    answers = outcome.value if isinstance(outcome, Done) and isinstance(outcome.value, tuple) else ()
    if len(answers) != len(batch.requests):
        return []
    outcomes: list[Done | Refused] = [Refused() if answer is None else Done(answer) for answer in answers]
    return list(zip(batch.allocations, outcomes, strict=True))
