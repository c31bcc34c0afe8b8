"""Copies between SGLang's device and its memory on the host, in place of the streams that would make them.

They are noted for our device. One to the host is over when the device says so, or at once where the engine waits for
it. One from the host is over before the step that waits for it computes, as its layers are on the streams; the engine
hears of that when the step has ended. One that no step waits for is over when the device says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal

from ...simulation.protocol import SlotTransfer

TIER = "host"


@dataclass(eq=False)
class Copy:
    """Slots that are copied; for the engine, the event of its end."""

    id: str
    kind: Literal["load", "store"]
    device: tuple[int, ...]
    host: tuple[int, ...]
    all_of_them: "Copies"
    producer: int = -1
    """The number under which a step waits for a load."""
    is_told: bool = False
    """The device knows of it."""
    is_over: bool = False
    now: bool = False

    def query(self) -> bool:
        """As of an event."""
        return self.is_over

    def synchronize(self) -> None:
        """As of an event: who waits finds it over."""
        self.all_of_them.wait_for(self)
        self.is_over = True


@dataclass
class _LayerEvents:
    """In place of the events of the layers of one load."""

    finish_event: Any = field(default_factory=lambda: SimpleNamespace(query=lambda: True))

    @property
    def start_event(self) -> Any:
        """What the controller hands on to whoever copies: it leads back to this."""
        return SimpleNamespace(record=lambda: None, layers=self)

    def complete(self, layer: int) -> None:
        """A layer is there."""


class Copies:
    """All of one controller."""

    def __init__(self, controller: Any) -> None:
        """From now on this controller's copies are noted here."""
        self._controller = controller
        self._new: list[Copy] = []
        self._told: dict[str, Copy] = {}
        self._awaited: list[str] = []
        self._steps: dict[int, list[Copy]] = {}
        """By the number of a step in flight, the loads that it has waited for."""
        self._numbers = count(1)
        stream = SimpleNamespace(wait_stream=lambda other: None)
        controller.l2_transfer_engine = SimpleNamespace(
            device_to_host_stream=stream,
            host_to_device_stream=stream,
            submit_device_to_host=self._store,
            submit_host_to_device=self._load,
        )
        counter = controller.layer_done_counter
        counter.events = [_LayerEvents() for _ in counter.events]

    # What the controller calls.

    def _store(self, transfers: Sequence[Any]) -> Any:
        return self._begin("store", transfers)

    def _load(self, transfers: Sequence[Any], *, start_event: Any, **named: object) -> Any:
        completion = self._begin("load", transfers)
        load = start_event.layers.finish_event = completion.finish_event
        load.producer = self._controller.layer_done_counter.producer_index
        return completion

    def _begin(self, kind: Literal["load", "store"], transfers: Sequence[Any]) -> Any:
        (one,) = transfers
        slots = tuple(one.device_indices.tolist()), tuple(one.host_indices.tolist())
        made = Copy(f"{kind} {next(self._numbers)}", kind, *slots, self)
        self._new.append(made)
        return SimpleNamespace(start_event=None, finish_event=made, timing_enabled=False)

    def wait_for(self, copy: Copy) -> None:
        """The device makes it at once; where it is under way, before anything else."""
        if not copy.is_told:
            copy.now = True
        elif not copy.is_over:
            self._awaited.append(copy.id)

    # What the simulation calls.

    def waited_for(self, number: int, producer: int) -> None:
        """The step of this number is launched, and waits for the loads under that one (none: negative)."""
        begun = (*self._new, *self._told.values())
        loads = [one for one in begun if one.kind == "load" and 0 <= one.producer == producer]
        for load in loads:
            self.wait_for(load)
            load.producer = -1
        self._steps[number] = loads

    def landed(self, number: int) -> None:
        """That step has ended."""
        for load in self._steps.pop(number, ()):
            load.is_over = True

    def ended(self, ids: Sequence[str]) -> None:
        """The device says so."""
        for id in ids:
            if (copy := self._told.pop(id, None)) is not None:
                copy.is_over = True

    def taken(self) -> tuple[tuple[SlotTransfer, ...], tuple[str, ...]]:
        """What the device is to copy that it does not know of, and what of the rest must be over before that."""
        made = [SlotTransfer(one.id, one.kind, 0, one.device, TIER, one.host, now=one.now) for one in self._new]
        for one in self._new:
            one.is_told = True
            if not one.now:
                self._told[one.id] = one
        awaited = tuple(self._awaited)
        self._new, self._awaited = [], []
        return tuple(made), awaited
