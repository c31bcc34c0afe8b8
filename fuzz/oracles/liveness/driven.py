"""The interface of a run as far as the liveness oracle uses it; `runs.run.Run` has it.

The folder of runs imports the oracles, so the oracles cannot import it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ....model.ops import Operation, Outcome, Shape
from ...findings.finding import Finding, Trace
from ...targets.base import Target
from ...workload.scene import Scene


class DrivenRun(Protocol):
    """One run of a target; see `runs.run.Run`."""

    target: Target
    seen: Counter[str]
    """How often each situation was observed."""

    designs: frozenset[str]
    """What the core that was started last does otherwise than most."""

    @property
    def losses(self) -> frozenset[str]:
        """What the target is known to do wrong, unless all is to be reported."""
        ...

    @property
    def built(self) -> bool:
        """True if the core has been built."""
        ...

    @property
    def dead(self) -> bool:
        """True once the state is undefined; the run ends there."""
        ...

    @property
    def scene(self) -> Scene:
        """What is known of requests and blocks."""
        ...

    @property
    def trace(self) -> Trace:
        """The shape and the operations so far."""
        ...

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcomes of the operations so far."""
        ...

    def start(self, shape: Shape) -> Finding | None:
        """Build the core. Returns a finding if that fails although it should not."""
        ...

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation and judge the result. Returns a finding if something is wrong."""
        ...
