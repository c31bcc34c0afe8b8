"""What the harness asks of anything it drives.

A target starts from a shape, applies operations one at a time and shows its state after each. It may live in this
process or in another one. It never interprets what it sees: comparing is the oracles' business.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import lcm
from typing import Protocol

from ...model.ops import Operation, Outcome, Shape
from ...model.snapshot import Snapshot


class Target(Protocol):
    """A core that can be driven in lockstep with the model."""

    name: str
    """What the user called it: `impl`, `NAME==VERSION`, `package.module:factory`."""

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


LOST = frozenset({"crash", "hang", "memory", "protocol"})
"""The ways in which a target can be lost."""


class TargetLostError(Exception):
    """The target is gone or unusable in the middle of a run; this is a finding about it.

    `kind` is one of `LOST`; `detail` is what it left behind (exit status, stderr).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class TargetUnavailableError(Exception):
    """The target could not be started at all (exit code 3); the message says what to do about it."""


def hidden_fields(target: Target) -> frozenset[str]:
    """Names of `Snapshot` fields that the target cannot show and fills with empty values, and of what it does
    otherwise than most: `free_order` if its free blocks have no order, `append_only` if it may exchange a block for a
    copy of the same content.

    None by default: a target says so with an attribute `hides`.
    """
    return frozenset(getattr(target, "hides", ()))


def lacking(target: Target) -> frozenset[str]:
    """Kinds of operations that the target has no equivalent of, `Reset`, or fields of them, `Allocate.reserved`.

    None by default: a target says so with an attribute `lacks`.
    """
    return frozenset(getattr(target, "lacks", ()))


def copies_of(target: Target) -> tuple[tuple[int, int], ...]:
    """Blocks whose content the last operation had copied before its step runs: pairs of source and destination.

    None by default: a target whose core copies blocks says so with an attribute `copies`.
    """
    return tuple(getattr(target, "copies", ()))


def adapted_shape(shape: Shape, lacks: Collection[str]) -> Shape:
    """The shape without what a target has no equivalent of (`lacking`), as far as a plainer core can stand for it.

    Kinds of groups that are missing stay: such a core cannot be built.
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
    """The operation without the fields that a target has no equivalent of (`lacking`); None if it has none at all."""
    kind = type(operation).__name__
    if not lacks:
        return operation
    if kind in lacks:
        return None
    fields = [name for name in type(operation).__dataclass_fields__ if f"{kind}.{name}" in lacks]
    if not fields:
        return operation
    return replace(operation, **{name: type(operation).__dataclass_fields__[name].default for name in fields})
