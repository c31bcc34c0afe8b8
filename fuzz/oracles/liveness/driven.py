"""What the liveness oracle needs of a run that it drives: it stands below the runs, so it names only what it uses."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ....model.ops import Operation, Outcome, Shape
from ....model.scene import Scene
from ...findings.finding import Finding, Trace
from ...targets.base import Target


class DrivenRun(Protocol):
    """One run of a target, as `runs.run.Run` is one."""

    target: Target
    seen: Counter[str]
    """What the oracles made of this run, besides a finding."""

    @property
    def built(self) -> bool:
        """True if there is a core to drive."""
        ...

    @property
    def dead(self) -> bool:
        """True once no rule says what follows: the run ends there."""
        ...

    @property
    def scene(self) -> Scene:
        """What is known of requests and blocks."""
        ...

    @property
    def trace(self) -> Trace:
        """This run so far."""
        ...

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcome of each operation so far."""
        ...

    def start(self, shape: Shape) -> Finding | None:
        """Build the core. A finding if that fails where it should not."""
        ...

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation and judge all that can be seen."""
        ...
