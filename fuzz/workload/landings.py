"""What a scheduler waits for, where its core does not: that steps and loads have landed (S13).

Before a request gives its blocks back, all that is under way for it has ended. Before somebody may write beside the
device's queue (a connector that loads, an outside holder), so have all steps, where entries are given up behind windows
while a step reads them. Who may load waits before the lookup: between that and its allocation nothing else happens.
"""

from collections import Counter, deque

from ...model import ops
from ...model.attention import rules_for
from ...model.ops import Operation, Shape
from .bounds import most_flights
from .scene import Scene


class Landings:
    """Puts `Landed` before the operations of one run that have to wait."""

    def __init__(self, shape: Shape, *, loads: bool) -> None:
        """`loads`: whether tokens may come from outside."""
        self._loads = loads
        self._gives_up = any(rule.skipped(shape.max_model_len) > 0 for rule in rules_for(shape))
        self._begun: Counter[str] = Counter()
        """Per request, what was begun and not said to have landed."""
        self._held: deque[Operation] = deque()
        """What is asked for next."""

    def next(self) -> Operation | None:
        """What has been held up, and what it waits for."""
        return self._held.popleft() if self._held else None

    def before(self, scene: Scene, operation: Operation) -> Operation:
        """What is asked for now: the operation, or the first landing that it waits for (the others follow, `next`)."""
        waits = [name for name in self._awaited(scene, operation) for _ in range(self._running(scene, name))]
        self._begun.subtract(waits)
        self._note(scene, operation)
        if not waits:
            return operation
        first, *others = [ops.Landed(name) for name in waits]
        self._held += (*others, operation)
        return first

    def _awaited(self, scene: Scene, operation: Operation) -> list[str]:
        """Requests whose steps and loads it waits for."""
        match operation:
            case ops.Free(name) | ops.Preempt(name):
                return [name]
            case ops.Lookup():
                beside = self._loads
            case ops.Allocate():
                beside = operation.external > 0
            case _:
                beside = isinstance(operation, ops.Take)
        return list(scene.requests) if beside and self._gives_up else []

    def _running(self, scene: Scene, name: str) -> int:
        return min(most_flights(scene.requests.get(name)), self._begun[name])

    def _note(self, scene: Scene, operation: Operation) -> None:
        match operation:
            case ops.Allocate(name):
                self._begun[name] = min(self._begun[name], most_flights(scene.requests.get(name))) + 1
            case ops.AllocateBatch(names):
                self._begun.update(names)
            case ops.Free(name):
                del self._begun[name]
