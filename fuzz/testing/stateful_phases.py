"""When a rule applies: the phases in the life of a request, and what must hold of the machine."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis.stateful import precondition

from ...model import ops
from ..targets.base import hidden_fields
from ..workload.bounds import holds_nothing, may_go_ahead, sampled_late
from .stateful_run import Handle, MachineRun

Method = TypeVar("Method", bound=Callable[..., Any])
MOST_LIVE = 8
"""Requests at a time."""
MOST_OUTSIDE = 5
"""References of outside holders at a time, after which they take no more."""
WORK = (ops.Allocate, ops.Lookup, ops.Free, ops.Preempt, ops.Evict, ops.Reset, ops.Arrive)
"""What may leave events, new block ids or statistics to be drained."""


def live(handle: Handle) -> bool:
    """The request has not ended."""
    return handle.request is not None


def fresh(handle: Handle) -> bool:
    """It has computed nothing and holds nothing, so it may look up the cache."""
    request = handle.request
    if request is None or request.computed or request.scheduled or request.arriving:
        return False
    return holds_nothing(handle.scene, handle.name)


def endable(handle: Handle) -> bool:
    """It has begun, or waits with others: one that has just come is aborted only then."""
    return live(handle) and (not fresh(handle) or len(handle.scene.requests) > 3)


def with_blocks(handle: Handle) -> bool:
    """It holds blocks."""
    return handle.request is not None and not holds_nothing(handle.scene, handle.name)


def ready(handle: Handle) -> bool:
    """A step may be allocated for it."""
    request = handle.request
    if request is None or request.scheduled or request.arriving:
        return False
    return request.computed < handle.scene.shape.max_model_len


def batchable(handle: Handle) -> bool:
    """It runs, and its next step may be one of a batch."""
    return handle.request is not None and ready(handle) and handle.request.computed > 0


def scheduled(handle: Handle) -> bool:
    """A step is allocated and runs."""
    request = handle.request
    return request is not None and request.scheduled > 0 and not request.arriving


def ahead_of_news(handle: Handle) -> bool:
    """The step that runs has drafts, and what comes of them may become known later."""
    request = handle.request
    if request is None or not scheduled(handle) or not may_go_ahead(request, handle.scene.shape):
        return False
    return request.computed + request.scheduled > len(request.tokens)


def awaiting_news(handle: Handle) -> bool:
    """Tokens were sampled that are not known yet."""
    request = handle.request
    if request is None or request.scheduled or request.arriving or not request.computed:
        return False
    return sampled_late(request, handle.scene.shape.max_model_len) > 0


def undecided(handle: Handle) -> bool:
    """Drafts count as computed, and may still be rejected."""
    request = handle.request
    return request is not None and request.drafts > 0 and not request.scheduled


def arriving(handle: Handle) -> bool:
    """A connector loads tokens of it."""
    request = handle.request
    return request is not None and request.arriving > 0


def can(*needs: str, to: Callable[[Handle], bool] | None = None) -> Callable[[Method], Method]:
    """A precondition: the target has all of this (names of `declarations.LACKS`), and some request is in this phase."""

    def possible(machine: MachineRun) -> bool:
        if machine.is_over or not machine.has(*needs):
            return False
        return to is None or any(map(to, machine.live))

    return precondition(possible)


def has_room(machine: MachineRun) -> bool:
    """One more request may come."""
    return len(machine.live) < MOST_LIVE


def is_idle(machine: MachineRun) -> bool:
    """There is no request."""
    return not machine.live


def is_not_again(kind: type[ops.Operation]) -> Callable[[MachineRun], bool]:
    """The operation before was of another kind: what changes nothing the second time would only make runs shallow."""

    def differs(machine: MachineRun) -> bool:
        last = machine.scene.last
        return last is None or not isinstance(last[0], kind)

    return differs


def has_cached(machine: MachineRun) -> bool:
    """Some block holds cached content, or the target does not show whether one does."""
    return bool(machine.scene.state.identity) or "labels" in hidden_fields(machine.tested.target)


def has_worked(machine: MachineRun) -> bool:
    """Something was asked of the core that may have left something to be drained."""
    last = machine.scene.last
    return last is not None and isinstance(last[0], WORK)


def holds_outside(machine: MachineRun) -> bool:
    """Somebody outside holds blocks."""
    return bool(machine.scene.state.outside)


def may_hold_outside(machine: MachineRun) -> bool:
    """Somebody outside may hold one block more."""
    return machine.run.shape.num_blocks > 1 and len(machine.scene.state.outside) < MOST_OUTSIDE
