"""What the reference release does where a precondition is broken: exactly, so that a reaction that changes is seen.

It asks for hardly any of them (core.md §5). So what it does to the pool follows from how it counts and links blocks,
and an allocation with negative numbers is what the same steps make of them. A step of no tokens it refuses.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from .....model import arith, ops
from .....model.ops import NULL, Done, Failed, Operation, Outcome
from .....model.snapshot import Snapshot
from .....model.state import Request
from .....model.tables import Core, Plan
from ....targets.deviations import DeviatingModel, Reaction, UndefinedStateError

HEAD, TAIL = -1, -2
"""The ends of the free queue, for `linked`."""


def reaction_to(model: DeviatingModel, operation: Operation, before: Snapshot) -> Reaction | None:
    """What the release answers to this misuse, and what it shows then. None where that is not declared (`UNDECLARED`).

    `model` has answered the operation; `before` is what was shown before it.
    """
    match operation:
        case ops.Take(count):
            return Done(()), _with_free(before, before.free, before.num_free - count)
        case ops.Evict(blocks) if min(blocks) < 0:
            last = tuple(block % model.shape.num_blocks for block in blocks)
            return model.carry_out(ops.Evict(last)), model.snapshot()
        case ops.Release():
            return Done(), _released(before, operation)
        case ops.Allocate(new_tokens=0, external=0):
            return Failed("ValueError"), before
        case ops.Allocate():
            return _allocated(model, operation)
    return None


def reaction_0260(model: DeviatingModel, operation: Operation, before: Snapshot) -> Reaction | None:
    """The same from vLLM 0.26 on: it looks at a count as soon as it has gone down."""
    if isinstance(operation, ops.Release):
        return Done(), _released_one_by_one(before, operation.blocks)
    return reaction_to(model, operation, before)


def reaction_0330(model: DeviatingModel, operation: Operation, before: Snapshot) -> Reaction | None:
    """The same from vLLM 0.31 on: besides, a step of no tokens adopts what a lookup has found, if it has found
    something."""
    match operation:
        case ops.Allocate(new_tokens=0, external=0) if operation.hit:
            request = model.requests.get(operation.request)
            found = request is not None and request.hit is not None and request.hit[0] > 0
            return _allocated(model, operation) if found else (Failed("ValueError"), before)
    return reaction_0260(model, operation, before)


UNDECLARED = (
    "an allocation with negative numbers where states are kept in mode align: they stand where arithmetic puts them",
    "one whose lookahead below zero leaves a full block without an entry in the table",
    "one in several groups after which the free count is undefined (hit-not-cut)",
    "one that keeps back fewer than no blocks, and so takes more than are free",
)
"""Reactions that are not declared, each with what is undefined about it: no rule speaks of such lengths."""


def _with_free(before: Snapshot, free: list[int], num_free: int) -> Snapshot:
    """The same with this free queue and this count of it, which need not agree."""
    return before._replace(free=free, num_free=num_free, usage=arith.usage(num_free, len(before.ref_cnt)))


def _released(before: Snapshot, op: ops.Release) -> Snapshot:
    """All references are counted down first, also below zero. Then each listed block that has come to zero is linked
    into the queue, as often as it is listed."""
    counts = before.ref_cnt.copy()
    for block in op.blocks:
        counts[block] -= block != NULL
    freed = [block for block in op.blocks if block != NULL and counts[block] == 0]
    free = linked(before.free, freed, front=op.prepend)
    return _with_free(before, free, before.num_free + len(freed))._replace(ref_cnt=counts)


def _released_one_by_one(before: Snapshot, blocks: Sequence[int]) -> Snapshot:
    """A block is freed where its count comes to zero; those without a name are reused first."""
    counts, freed = before.ref_cnt.copy(), list[int]()
    for block in blocks:
        if block != NULL:
            counts[block] -= 1
            freed += [block] if counts[block] == 0 else []
    first = [block for block in freed if before.labels[block] is None]
    last = [block for block in freed if before.labels[block] is not None]
    free = linked(linked(before.free, first, front=True), last, front=False)
    return _with_free(before, free, before.num_free + len(freed))._replace(ref_cnt=counts)


def linked(queue: Sequence[int], blocks: Sequence[int], *, front: bool) -> list[int]:
    """The queue as it reads from its front once these blocks were linked to one of its ends, each behind the one
    before: where a block is listed twice, what stands between is lost."""
    order = [HEAD, *queue, TAIL]
    behind = dict(pairwise(order))
    at = HEAD if front else order[-2]
    end = behind[at]
    for block in blocks:
        behind[at] = at = block
    behind[at] = end
    read: list[int] = []
    block = behind[HEAD]
    while block != TAIL and len(read) <= len(queue) + len(blocks):
        read.append(block)
        block = behind[block]
    return read


def _allocated(model: DeviatingModel, op: ops.Allocate) -> Reaction | None:
    """The steps of an allocation, with numbers that no scheduler gives. An unknown request has one token."""
    if any(group.mamba_mode == "align" for group in model.shape.groups):
        return None
    known = op.request in model.requests
    if not known:
        submit = ops.Submit(op.request, (0,))
        model.requests[op.request] = Request(submit, [0])
        model.name_content(model.requests[op.request])
    try:
        outcome: Outcome = _carried_out(model, op)
    except (UndefinedStateError, IndexError):
        return None  # full blocks that have no entry in the table, since it was shortened
    finally:
        if not known:
            del model.requests[op.request]
    return (outcome, model.snapshot())


def _carried_out(model: DeviatingModel, op: ops.Allocate) -> Outcome:
    """It asks for its blocks and those for others at once: where fewer than none are left to others, it may go on
    without the room that it needs, until it finds none."""
    if op.reserved >= 0:
        return model.carry_out(op)
    policy = model.policy

    def less(core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
        return policy.predicted(core, group, plan, counts, capped) + op.reserved * (group == 0 and not capped)

    model.policy = replace(policy, predicted=less)
    outcome = model.carry_out(replace(op, reserved=0))
    model.policy = policy
    return outcome
