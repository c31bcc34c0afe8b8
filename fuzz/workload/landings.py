"""What a scheduler waits for, where its core does not: that steps and loads have landed (S13).

Before a request gives its blocks back, all that is under way for it has ended. What windows give up while a step reads
it may be handed out to somebody who writes beside the device's queue (a connector that loads, an outside holder). So a
core that takes it is told in each allocation what is in flight, and is asked to cut only when nothing is. With any
other core all steps have ended before somebody may write so; who may load waits before the lookup, since between that
and its allocation nothing else happens.
"""

from collections import deque
from dataclasses import replace

from ...model import ops
from ...model.attention import rules_for
from ...model.kinds.rswa import unread
from ...model.ops import Operation, Shape
from ..findings.starved import Starved
from .bounds import most_flights
from .scene import Scene

_CONCERNED = frozenset(
    {ops.Free, ops.Preempt, ops.RemoveSkipped, ops.Lookup, ops.Allocate, Starved, ops.Take, ops.Reject}
)
"""Operations that may have to wait, or change what is under way."""


class Landings:
    """Puts `Landed` before the operations of one run that have to wait."""

    def __init__(self, shape: Shape, *, loads: bool, tells: bool) -> None:
        """`loads`: whether tokens may come from outside; `tells`: whether the core is told what is in flight."""
        self._loads, self._tells = loads, tells
        self._gives_up = any(unread(rule, 1, shape.max_model_len) for rule in rules_for(shape))
        self._begun: dict[str, list[int]] = {}
        """Per request, where the steps and loads begin that were not said to have landed, in tokens."""
        self._held: deque[Operation] = deque()
        """What is asked for next."""

    @property
    def is_waiting(self) -> bool:
        """True while something is held up."""
        return bool(self._held)

    def next(self) -> Operation | None:
        """What has been held up, and what it waits for."""
        return self._held.popleft() if self._held else None

    def before(self, scene: Scene, operation: Operation) -> Operation:
        """What is asked for now: the operation, or the first landing that it waits for (the others follow, `next`)."""
        if type(operation) not in _CONCERNED:
            return operation
        waits = [name for name in self._awaited(scene, operation) for _ in self._running(scene, name)]
        for name in waits:
            self._begun[name] = []
        operation = self._told(scene, operation)
        if not waits:
            return operation
        self._held += (*(ops.Landed(name) for name in waits), operation)
        return self._held.popleft()

    def _awaited(self, scene: Scene, operation: Operation) -> list[str]:
        """Requests whose steps and loads it waits for."""
        match operation:
            case ops.Free(name) | ops.Preempt(name):
                return [name]
            case ops.RemoveSkipped(name):
                return [name] if self._tells and self._gives_up else []
            case ops.Lookup():
                beside = self._loads
            case ops.Allocate():
                beside = operation.external > 0
            case _:
                beside = isinstance(operation, ops.Take)
        return list(scene.requests) if beside and self._gives_up and not self._tells else []

    def _running(self, scene: Scene, name: str) -> list[int]:
        """Where the steps and loads of a request begin that may be under way."""
        begun, most = self._begun.get(name, []), most_flights(scene.requests.get(name))
        return begun[len(begun) - most :] if most < len(begun) else begun

    def _told(self, scene: Scene, operation: Operation) -> Operation:
        """The operation, with what is in flight if the core is told; and note what it begins."""
        match operation:
            case ops.Allocate(name) if name in scene.requests:
                request, running = scene.requests[name], self._running(scene, name)
                self._begun[name] = [*running, _start(scene, operation)]
                flying = max((request.computed - start for start in running), default=0)
                if self._tells and self._gives_up and flying > operation.in_flight:
                    return replace(operation, in_flight=flying)
            case ops.Reject(name, count):
                self._begun[name] = [max(0, start - count) for start in self._begun.get(name, ())]
            case ops.Free(name):
                self._begun.pop(name, None)
        return operation


def _start(scene: Scene, operation: ops.Allocate) -> int:
    """The first token that the step computes, or the load brings."""
    request = scene.requests[operation.request]
    hit = scene.shape.taken(operation, request.hit[0]) if request.hit else 0
    return request.computed + hit + (0 if operation.delay else operation.external)
