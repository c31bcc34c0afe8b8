"""What is wrong with the form of an engine's answer, in the words of its author. An engine may return anything."""

import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from ..findings.interruption import interrupts
from ..findings.story_finding import StoryFinding, place_of, stack_of
from .judges import FATE
from .protocol import (
    Delivered,
    Ended,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
)
from .tiers import TIER_DEEDS, TierEvent

ENDS = get_args(Ended)


class EngineRaisedError(Exception):
    """An engine has raised something, its cause, in this method."""

    def __init__(self, method: str) -> None:
        super().__init__(method)
        self.method = method

    def finding(self, step: int, others: int) -> StoryFinding:
        """What is said of it; so many `others` are lost with it."""
        error = self.__cause__
        assert error is not None
        rule = f"{type(error).__name__} in {place_of(error.__traceback__)}"
        line = f"{self.method} raises {type(error).__name__}: {str(error)[:300]}; {others} requests are lost with it"
        more = () if isinstance(error, Exception) else stack_of(error.__traceback__)  # no engine means to raise that
        return StoryFinding(FATE, rule, line, step, more=more)


class StoryOverError(BaseException):
    """A story is ended from outside. No Exception: an engine may catch all of those and go on."""


def is_from_outside(error: BaseException) -> bool:
    """True for what no engine has raised: somebody ends the story, or the program."""
    return isinstance(error, StoryOverError) or (isinstance(error, KeyboardInterrupt) and interrupts(signal.SIGINT))


class AnswerFormError(Exception):
    """An engine has answered something of another form."""


def problem_with(method: str, answer: object, shape: EngineShape) -> str:
    """What is wrong with what this method returned; empty if its form is right."""
    problems = _PROBLEMS.get(method)
    return "" if problems is None else next((f"{method}() {problem}" for problem in problems(answer, shape)), "")


def _batch(batch: object, shape: EngineShape) -> Iterator[str]:
    if batch is None:
        return
    if not isinstance(batch, ScheduledBatch):
        yield f"returned {_kind(batch)}; return a ScheduledBatch, or None if there is nothing to do now"
        return
    for name, kind in (("parts", Scheduled), ("copies", SlotCopy), ("transfers", SlotTransfer)):
        yield from _all(f"a batch whose {name} are", getattr(batch, name), kind)
    for group in (*(one.group for one in batch.copies), *(one.group for one in batch.transfers)):
        if not (_is_count(group) and group < len(shape.groups)):
            yield f"returned a batch with group={group!r}; there are {len(shape.groups)} groups, from 0 on"
    for told in batch.transfers:
        yield from (f"returned transfer {told.id!r} with {problem}" for problem in _transfer(told))
    for part in batch.parts:
        yield from (f"returned a part of {part.request!r} with {problem}" for problem in _part(part, shape))
    yield from (f"returned a batch with {problem}" for problem in _delivered(batch.delivered))


def _transfer(told: SlotTransfer) -> Iterator[str]:
    if told.kind not in ("load", "store"):
        yield f"kind={told.kind!r}; it is 'load' or 'store'"
    name = "positions" if told.request else "other"
    there = getattr(told, name)
    if len(there) != len(told.device):
        yield f"{len(told.device)} slots on the device and {len(there)} {name}; there must be one for each"


def _part(part: Scheduled, shape: EngineShape) -> Iterator[str]:
    if not isinstance(part.request, str):
        yield f"{_kind(part.request)} as request; it is the id of a request, a text"
    if part.first is not None and not _is_count(part.first):
        yield f"first={part.first!r}; it is the position of the first token that is computed, from 0 on"
    if not _is_count(part.count):
        yield f"count={part.count!r}; it is the number of tokens that are computed, drafts among them"
    if not isinstance(part.drafts, tuple | list):
        yield f"drafts={part.drafts!r}; they are a tuple of tokens"
    if part.slots is None:
        return
    if not isinstance(part.slots, tuple | list) or not all(isinstance(slots, Slots) for slots in part.slots):
        yield f"slots={str(part.slots)[:60]}; they are a tuple with one Slots for each group of layers"
    elif len(part.slots) != len(shape.groups):
        yield f"{len(part.slots)} Slots; there are {len(shape.groups)} groups of layers, each needs one"
    else:
        for slots in part.slots:
            if not all(block is None or type(block) is int for block in slots.table):
                yield f"the table {str(slots.table)[:60]}; it lists block ids, None for one that is not there"
            for name, places in (("at", slots.at), ("written", slots.written)):
                if places is not None and not isinstance(places, Mapping):
                    yield f"{name}={str(places)[:60]}; it says the slot of each position, as in {{0: 17, 1: 18}}"


def _told(told: object, shape: EngineShape) -> Iterator[str]:
    if told is None or isinstance(told, str | bytes) or not hasattr(told, "__iter__"):
        yield f"returned {_kind(told)}; return a list of Delivered, empty if nobody gets anything"
        return
    yield from (f"returned {problem}" for problem in _delivered(told))


def _told_or_none(told: object, shape: EngineShape) -> Iterator[str]:
    return iter(()) if told is None else _told(told, shape)


def _delivered(told: Any) -> Iterator[str]:
    for one in told:
        if not isinstance(one, Delivered):
            yield f"{_kind(one)} among what is delivered; it must be a Delivered"
        elif not isinstance(one.tokens, tuple | list) or not all(type(token) is int for token in one.tokens):
            yield f"tokens={str(one.tokens)[:60]} for {one.request!r}; they are a tuple of numbers"
        elif one.ended not in ENDS:
            yield f"ended={one.ended!r} for {one.request!r}; it is one of {', '.join(map(repr, ENDS))}"


def _idle(answer: object, shape: EngineShape) -> Iterator[str]:
    if type(answer) is not bool:
        yield f"returned {_kind(answer)}; return True if no request waits or runs, else False"


def _view(answer: object, shape: EngineShape) -> Iterator[str]:
    if not isinstance(answer, EngineView):
        yield f"returned {_kind(answer)}; return an EngineView"
    elif answer.free is not None and not _is_count(answer.free):
        yield f"returned free={answer.free!r}; it is the number of blocks that a new request could get"
    else:
        for name, many in answer.tiers.items():
            if not _is_count(many):
                yield f"returned tiers={{{name!r}: {many!r}}}; it is the number of blocks that this tier holds"


def _events(answer: object, shape: EngineShape) -> Iterator[str]:
    if not isinstance(answer, tuple | list):
        yield f"returned {_kind(answer)}; return a list of TierEvent, empty if nothing was done"
        return
    for one in answer:
        if not isinstance(one, TierEvent):
            yield f"returned {_kind(one)} among what was done; it must be a TierEvent"
        elif one.what not in TIER_DEEDS:
            yield f"returned what={one.what!r}; it is one of {', '.join(map(repr, TIER_DEEDS))}"
        elif not all(type(place) is int for place in one.places):
            yield f"returned places={str(one.places)[:60]}; they are numbers of places in the tier"


_PROBLEMS: Mapping[str, Callable[[Any, EngineShape], Iterator[str]]] = {
    "schedule": _batch,
    "update": _told,
    "add": _told_or_none,
    "cancel": _told_or_none,
    "fork": _told_or_none,
    "truncate": _told_or_none,
    "idle": _idle,
    "look": _view,
    "tier_events": _events,
}
"""What other methods return does not matter."""


def _all(what: str, values: object, kind: type) -> Iterator[str]:
    if not isinstance(values, tuple | list):
        yield f"returned {what} {_kind(values)}; they are a tuple of {kind.__name__}"
    elif other := [value for value in values if not isinstance(value, kind)]:
        yield f"returned {what} not all {kind.__name__}: {_kind(other[0])} is among them"


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
