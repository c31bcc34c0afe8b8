"""The interface of everything that can be tested (`Target`, `Calculator`), and what a target may say about itself.

A target builds a core from a shape, applies operations one at a time and returns a snapshot of the state after each.
It may run in this process or in another one. It does not judge anything: that is the task of the oracles.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Protocol

from ...model.ops import Landed, Operation, Outcome, Shape, Value
from ...model.snapshot import Snapshot
from ..findings.cause import Cause
from ..findings.cause import failed as failed
from ..findings.interruption import is_from_outside
from .adapting import adapted as adapted
from .adapting import adapted_shape as adapted_shape
from .declarations import (
    HOLDS_BACK,
    OFFERS,
    designs_with,
    hidden_without_model,
    in_shape,
    problem_with_names,
    problem_with_sizes,
    with_implied,
)


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
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and is_from_outside():
            raise
        print(f"blockproof: {target.name}: close failed: {type(error).__name__}: {error}", file=sys.stderr)


class TargetLostError(Exception):
    """The target is gone or unusable in the middle of a run. That is a finding.

    `kind` is one of `findings.finding.LOST`; `detail` says what is known (exit status, end of stderr); `cause` is the
    exception behind it, if there was one.
    """

    def __init__(self, kind: str, detail: str, cause: Cause | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.cause = cause


class TargetUnavailableError(Exception):
    """The target could not be started at all (exit code 3). The message says what to do."""


def hidden_fields(target: Target) -> frozenset[str]:
    """What of a snapshot cannot be relied upon: the attribute `hides` of the target, empty if it has none.

    The names and their effects are `declarations.HIDES`. TargetUnavailableError for anything else.
    """
    return hidden_without_model(hidden_from_model(target))


def hidden_from_model(target: Target) -> frozenset[str]:
    """The same for a model, which knows all names of a block: what the target says that it hides. Errors as there."""
    return frozenset(_declared(target, "hides"))


def is_told(target: Target, operation: Operation) -> bool:
    """True if the operation is a call on the target. A landing is one only where blocks are held back until then."""
    return type(operation) is not Landed or HOLDS_BACK in hidden_fields(target)


def lacking(target: Target) -> frozenset[str]:
    """What the target has no equivalent of: its attribute `lacks`, empty if it has none, and what is lacking with it.

    The names and their effects are `declarations.LACKS`; those that hold for one kind of groups only stand there as
    they were said (`declarations.in_shape`). TargetUnavailableError for anything else.
    """
    return with_implied(frozenset(_declared(target, "lacks")))


def lacking_in(target: Target, shape: Shape) -> frozenset[str]:
    """What the target has no equivalent of in a core of this shape. Errors as for `lacking`."""
    return in_shape(lacking(target), shape)


def designs_of(target: Target) -> frozenset[str]:
    """What the target does otherwise than most, and is no mistake: its attribute `designs`, empty if it has none.

    The names and their effects are `declarations.DESIGNS`; as for `lacking`, some hold for one kind of groups only.
    TargetUnavailableError for anything else.
    """
    return designs_with(frozenset(_declared(target, "designs")), hidden_fields(target))


def offering(target: Target) -> frozenset[str]:
    """What the target has that few have: its attribute `offers`, empty if it has none.

    The names and their effects are `declarations.OFFERS`. TargetUnavailableError for anything else.
    """
    return frozenset(_declared(target, "offers"))


def left_out_for(target: Target) -> frozenset[str]:
    """What is not asked of the target: what it lacks, and what it does not offer. Errors as of `lacking`."""
    return lacking(target) | (OFFERS.keys() - offering(target))


def losing(target: Target) -> frozenset[str]:
    """What the target is known to read wrong: its attribute `loses`, empty if it has none.

    The names and their effects are `declarations.LOSES`. TargetUnavailableError for anything else.
    """
    return frozenset(_declared(target, "loses"))


def block_sizes_of(target: Target) -> tuple[int, ...]:
    """The only block sizes, in tokens and in order, of which the target builds groups: its attribute `block_sizes`.

    Empty for a target that does not say. TargetUnavailableError for anything else than sizes.
    """
    sizes = getattr(target, "block_sizes", ())
    if problem := problem_with_sizes(sizes):
        raise TargetUnavailableError(f"{target.name}: {problem}")
    return tuple(sorted(sizes))


def _declared(target: Target, attribute: str) -> Iterable[str]:
    """The names in an attribute of the target. TargetUnavailableError, in one line, if it holds something else."""
    names: Iterable[str] = getattr(target, attribute, ())
    if problem := problem_with_names(attribute, names):
        raise TargetUnavailableError(f"{getattr(target, 'name', 'the target')}: {problem}")
    return names


def check_declarations(target: Target) -> None:
    """TargetUnavailableError, in one line, if the target's name, `hides`, `lacks`, `designs`, `offers`, `loses` or
    `block_sizes` cannot be used."""
    if not isinstance(target.name, str) or not target.name:
        raise TargetUnavailableError(
            f"the target's name is {target.name!r}, a {type(target.name).__name__}; give it a text"
        )
    for read in (hidden_fields, lacking, designs_of, losing, offering, block_sizes_of, likeness):
        read(target)


def likeness(target: Target) -> str:
    """The name of what the target is held against: its attribute `like`, a release such as `NAME==VERSION`, whose known
    deviations the model has then; its own name if it says nothing. TargetUnavailableError for anything else."""
    like = getattr(target, "like", "") or target.name
    if not isinstance(like, str):
        raise TargetUnavailableError(f"{target.name}: like is {like!r}; write a release, as in like = 'NAME==VERSION'")
    return like


def handed_of(target: Target) -> tuple[Value, ...]:
    """What the last operation told besides its outcome: the attribute `handed` of the target, empty if nothing. States
    offered to a connector, each with request, group, block and tokens; or, of a table that was read, the ids of what is
    computed by group, and how many tokens of the request are cached. Of a core with a pool of the host, after each
    operation: its free queue, references and labels, what workers read of each page, and what is being copied."""
    return tuple(getattr(target, "handed", ()))


def copies_of(target: Target) -> tuple[tuple[int, int], ...]:
    """Copies between blocks that the last operation asked for: the attribute `copies` of the target, empty if none.

    Pairs of (source, destination) block ids; the content is copied before the step runs. Nothing of that is certain
    before `block_ids.stray_copy` has looked at them.
    """
    copies = getattr(target, "copies", ())
    if type(copies) is tuple:
        return copies
    return tuple(copies) if isinstance(copies, list | tuple) else (copies,)
