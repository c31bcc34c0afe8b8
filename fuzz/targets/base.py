"""The interface of everything that can be tested (`Target`, `Calculator`), and what a target may say about itself.

A target builds a core from a shape, applies operations one at a time and returns a snapshot of the state after each.
It may run in this process or in another one. It does not judge anything: that is the task of the oracles.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import lcm
from typing import Protocol

from ...model.ops import Operation, Outcome, Shape
from ...model.snapshot import Snapshot


class Target(Protocol):
    """A core that can be tested, with the calls of a scheduler as operations."""

    name: str
    """The name that the user gave: `impl`, `NAME==VERSION`, `package.module:factory`."""

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new core in place of the last one. Failed, without a snapshot, if it cannot be built."""
        ...

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation. Returns its outcome and the state afterwards. An exception of the core is not raised but
        returned as `Failed`."""
        ...

    def close(self) -> None:
        """End the target and everything it has started. Safe to call twice."""
        ...


class Calculator(Protocol):
    """Answers questions of configuration arithmetic (specs-and-config.md) with the functions of one core."""

    name: str
    """As `Target.name`."""

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """`{"output": value}`, or `{"raises": name of the class}` for an exception, which is not raised."""
        ...

    def close(self) -> None:
        """End everything that was started. Safe to call twice."""
        ...


def close_target(target: Target | Calculator) -> None:
    """End a target. An error while it ends is only printed, so that no finding is lost by it."""
    try:
        target.close()
    except (Exception, SystemExit) as error:
        print(f"blockproof: {target.name}: close failed: {type(error).__name__}: {error}", file=sys.stderr)


LOST = frozenset({"crash", "hang", "memory", "protocol"})
"""The ways in which a target can be lost."""


class TargetLostError(Exception):
    """The target is gone or unusable in the middle of a run. That is a finding.

    `kind` is one of `LOST`; `detail` says what is known (exit status, end of stderr).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class TargetUnavailableError(Exception):
    """The target could not be started at all (exit code 3). The message says what to do."""


def hidden_fields(target: Target) -> frozenset[str]:
    """What of a snapshot cannot be relied upon: the attribute `hides` of the target, empty if it has none.

    Names of `Snapshot` fields that the target cannot show and fills with empty values; and of non-standard behaviours:
    `free_order` if its free blocks have no order, `append_only` if it may exchange a block for a copy with the same
    content.
    """
    return frozenset(getattr(target, "hides", ()))


def lacking(target: Target) -> frozenset[str]:
    """What the target has no equivalent of: its attribute `lacks`, empty if it has none.

    Kinds of operations, such as `Reset`, or fields of operations, shapes and groups, such as `Allocate.reserved`.
    """
    return frozenset(getattr(target, "lacks", ()))


def copies_of(target: Target) -> tuple[tuple[int, int], ...]:
    """Copies between blocks that the last operation asked for: the attribute `copies` of the target, empty if none.

    Pairs of (source, destination) block ids; the content is copied before the step runs.
    """
    return tuple(getattr(target, "copies", ()))


def adapted_shape(shape: Shape, lacks: Collection[str]) -> Shape:
    """The shape without the features that a target has no equivalent of (`lacking`).

    Groups of a kind that the target does not have stay: such a core cannot be built there.
    """
    if "Shape.retention_interval" in lacks:
        shape = replace(shape, retention_interval=None)
    if "Shape.prefill_parallel" in lacks and shape.prefill_parallel > 1:
        shape = replace(shape, hash_block_size=shape.hash_block_size // shape.prefill_parallel, prefill_parallel=1)
    if "Shape.scheduler_block_size" in lacks:
        sizes = (group.block_size for group in shape.groups)
        shape = replace(shape, scheduler_block_size=lcm(*sizes) * shape.parallel)
    groups = shape.groups
    if "Group.eagle" in lacks:
        groups = tuple(replace(group, eagle=False) for group in groups)
    if "Group.mamba_mode" in lacks and shape.caching:
        groups = tuple(replace(group, mamba_mode="align") if group.kind == "mamba" else group for group in groups)
    return replace(shape, groups=groups)


def adapted(operation: Operation, lacks: Collection[str]) -> Operation | None:
    """The operation without the fields that a target has no equivalent of (`lacking`); None if it lacks it entirely."""
    kind = type(operation).__name__
    if not lacks:
        return operation
    if kind in lacks:
        return None
    fields = [name for name in type(operation).__dataclass_fields__ if f"{kind}.{name}" in lacks]
    if not fields:
        return operation
    return replace(operation, **{name: type(operation).__dataclass_fields__[name].default for name in fields})
