"""An engine to be simulated that is a program in any language: asked on its standard input, a line of JSON at a time.

The lines are documented in docs/reference/pipe-protocol.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from ..simulation.protocol import (
    DECLARED,
    OPTIONAL,
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
    StepResults,
)
from ..simulation.tiers import LowerTier, TierEvent
from ..targets.base import TargetLostError
from .names import Program
from .process import ChildLimits, Launch, Process
from .program import PROTOCOL, object_of
from .wire import frozen, line_of

T = TypeVar("T")


class EngineProgramError(Exception):
    """The program says that something went wrong in it."""


class ProgramEngine:
    """An `Engine` in a program. TargetUnavailableError if it does not come up; what it does wrong later is raised as
    TargetLostError or `EngineProgramError`."""

    def __init__(self, named: Program, limits: ChildLimits | None = None) -> None:
        self._named, self._limits = named, limits or ChildLimits()
        self._launch()

    def _launch(self) -> None:
        """Start the program, and hear what it says of itself."""
        self._process: Process | None = None
        process = Process(Launch(self._named.spec, [*self._named.command], python=False), self._limits)
        try:
            hello = process.first(hello_of_engine)
        except BaseException:
            process.end()
            raise
        self._process = process
        self.__dict__.update({name: _plain(hello[name]) for name in DECLARED if name in hello})
        self._number = 0
        for name in hello.get("methods", ()):
            setattr(self, name, lambda *given, _name=name: self._optional(_name, *given))

    def start(self, shape: EngineShape) -> None:
        """See `Engine`. A program that was lost is started again."""
        if self._process is None:
            self._launch()
        self._number = 0
        answer = self._ask("start", complete_fields(shape))
        if answer.get("refused"):
            raise NotImplementedError(str(answer["refused"]))

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `Engine`."""
        return _delivered(self._ask("add", complete_fields(request)))

    def cancel(self, id: str) -> Sequence[Delivered]:
        """See `Engine`."""
        return _delivered(self._ask("cancel", id))

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        answer = self._ask("schedule", None)
        if answer.get("batch") is None:
            return None
        self._number += 1
        return batch_of(answer["batch"], self._number)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """See `Engine`."""
        number = None if batch is None else batch.own
        return _delivered(self._ask("update", {"batch": number, "results": complete_fields(results)}))

    def idle(self) -> bool:
        """See `Engine`."""
        return bool(self._ask("idle", None).get("idle"))

    def close(self) -> None:
        """End the program and what it has started."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _optional(self, name: str, *given: object) -> Any:
        answer = self._ask(name, [complete_fields(one) for one in given])
        return answer_of(name, answer)

    def _ask(self, what: str, about: object) -> Mapping[str, Any]:
        question = {what: about}
        if self._process is None:
            raise TargetLostError("crash", "the program is not running; call start first")
        try:
            answer = self._process.exchange(line_of(question), question, self._limits.operation_s, object_of)
        except BaseException:  # it is lost, or a line may have been read or written in part
            self.close()
            raise
        if "error" in answer:
            raise EngineProgramError(f"{answer['error']}: {answer.get('message', '')}")
        return answer


def hello_of_engine(line: bytes) -> dict[str, Any]:
    """The first line of a program. ValueError says what is wrong."""
    raw = object_of(line)
    if raw.get("protocol") != PROTOCOL or raw.get("engine") is not True:
        raise ValueError(f'expected {{"protocol":{PROTOCOL},"engine":true,...}} of an engine to be simulated')
    known = ("protocol", "engine", "methods", *DECLARED)
    if unknown := [name for name in raw if name not in known]:
        raise ValueError(f"the first line has an unknown field {unknown[0]!r}; it may have {', '.join(known)}")
    methods = [name for name in OPTIONAL if name != "network"]  # the halves of a pair are written in Python
    if unknown := [name for name in raw.get("methods", ()) if name not in methods]:
        raise ValueError(f"`methods` has {unknown[0]!r}; it may have {', '.join(methods)}")
    return raw


def _plain(value: object) -> object:
    return frozen(value) if isinstance(value, list) else value


def complete_fields(data: object) -> Any:
    """A record as JSON, with all its fields."""
    if isinstance(data, tuple | list):
        return [complete_fields(element) for element in data]
    if isinstance(data, Mapping):
        return {key: complete_fields(value) for key, value in data.items()}
    if not is_dataclass(data):
        return data
    return {field.name: complete_fields(getattr(data, field.name)) for field in fields(data)}


def batch_of(raw: Any, number: int) -> ScheduledBatch:
    """The batch in an answer. EngineProgramError says what is wrong with it."""
    try:
        parts = [
            _made(Scheduled, one, slots=None if one.get("slots") is None else tuple(map(_slots, one["slots"])))
            for one in raw.get("parts", ())
        ]
        return ScheduledBatch(
            tuple(parts),
            tuple(_made(SlotCopy, one) for one in raw.get("copies", ())),
            tuple(_made(SlotTransfer, one) for one in raw.get("transfers", ())),
            tuple(_made(Delivered, one) for one in raw.get("delivered", ())),
            tuple(raw.get("preempted", ())),
            number,
            tuple(raw.get("cleared", ())),
            tuple(raw.get("awaited", ())),
        )
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        raise EngineProgramError(f"no batch can be read: {error}") from None


def answer_of(name: str, answer: Mapping[str, Any]) -> Any:
    """What an optional method has returned. EngineProgramError says what is wrong with it."""
    try:
        match name:
            case "look":
                return EngineView(answer.get("free"), answer.get("capacity"), dict(answer.get("tiers", {})))
            case "tiers":
                return {tier: _tier(one) for tier, one in answer.get("tiers", {}).items()}
            case "tier_events":
                return tuple(_made(TierEvent, one) for one in answer.get("events", ()))
    except (TypeError, AttributeError, ValueError) as error:
        raise EngineProgramError(f"no answer to {name} can be read: {error}") from None
    return _delivered(answer)


def _tier(raw: Mapping[str, Any]) -> LowerTier:
    return _made(LowerTier, raw, keeps=frozenset(raw.get("keeps", ())))


def _slots(raw: Mapping[str, Any]) -> Slots:
    at, written = (
        None if raw.get(name) is None else {int(position): slot for position, slot in raw[name].items()}
        for name in ("at", "written")
    )
    return Slots(tuple(raw.get("table", ())), at, written)


def _made(kind: type[T], raw: Mapping[str, Any], **others: object) -> T:
    values = {name: frozen(value) for name, value in raw.items() if name not in others}
    return kind(**values, **others)


def _delivered(answer: Mapping[str, Any]) -> tuple[Delivered, ...]:
    try:
        return tuple(_made(Delivered, one) for one in answer.get("delivered", ()))
    except (TypeError, AttributeError) as error:
        raise EngineProgramError(f"nothing that is delivered can be read: {error}") from None
