"""What the harness asks of anything it drives.

A target starts from a shape, applies operations one at a time and shows its state after each. It may live in this
process or in another one. It never interprets what it sees: comparing is the oracles' business.
"""

import sys
from collections.abc import Mapping
from typing import Protocol

from ...model.ops import Operation, Outcome, Shape
from ...model.snapshot import Snapshot


class Target(Protocol):
    """A core that can be driven in lockstep with the model."""

    name: str
    """What the user called it: `impl`, `vllm==0.23.0`, `package.module:factory`."""

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a fresh core, throwing the last one away. Failed without a snapshot if it cannot be built."""
        ...

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at the state afterwards. An exception of the core is an outcome, not raised."""
        ...

    def close(self) -> None:
        """End the target and all it started. Safe to call twice."""
        ...


class Calculator(Protocol):
    """Answers questions of configuration arithmetic (specs-and-config.md) with the functions of one core."""

    name: str
    """As `Target.name`."""

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """`{"output": value}` or `{"raises": name of the exception's class}`; an exception is an answer, not raised."""
        ...

    def close(self) -> None:
        """End what was started. Safe to call twice."""
        ...


def close_target(target: Target | Calculator) -> None:
    """End a target. What has been found stays found if the target fails at its end: that is only said."""
    try:
        target.close()
    except (Exception, SystemExit) as error:
        print(f"blockproof: {target.name}: close failed: {type(error).__name__}: {error}", file=sys.stderr)


class TargetLostError(Exception):
    """The target is gone or unusable in the middle of a run; this is a finding about it.

    `kind` is one of `crash`, `hang`, `memory`, `protocol`; `detail` is what it left behind (exit status, stderr).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class TargetUnavailableError(Exception):
    """The target could not be started at all (exit code 3); the message says what to do about it."""
