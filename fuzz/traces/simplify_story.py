"""The same story with fewer operations: what the reducer tries on whole operations (`shrink`).

Removing operations is the reducer's own first step. Here several change together: two become one, a request plays
another one's part, or somebody outside does.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from ...model.ops import (
    Advance,
    Allocate,
    AllocateBatch,
    Evict,
    Free,
    Operation,
    Preempt,
    Release,
    Reset,
    Submit,
    Take,
    Touch,
)
from ..findings.finding import Trace
from .simplify import EXHAUSTIVE, TOKENS, numbers, put, request_of, smaller, with_changes


def without_request(trace: Trace) -> Iterator[Trace]:
    """One request less, with all that is done to it."""
    for name in dict.fromkeys(filter(None, map(request_of, trace.operations))):
        kept = (op for op in trace.operations if request_of(op) != name)
        yield Trace(trace.shape, tuple(_without(op, name) if isinstance(op, AllocateBatch) else op for op in kept))


def _without(batch: AllocateBatch, name: str) -> AllocateBatch:
    """The batch without a request."""
    return replace(batch, requests=tuple(one for one in batch.requests if one != name))


def one_by_one(trace: Trace) -> Iterator[Trace]:
    """Requests of a batch are asked one by one, or only one of them."""
    for at, op in enumerate(trace.operations):
        if isinstance(op, AllocateBatch):
            before, behind = trace.operations[:at], trace.operations[at + 1 :]
            single = op.allocations
            yield from (Trace(trace.shape, (*before, one, *behind)) for one in single)
            yield Trace(trace.shape, (*before, *single, *behind))


def without_two(trace: Trace) -> Iterator[Trace]:
    """Two operations less: some only make sense together, as a preemption and the allocation it gives room for."""
    for pair in combinations(range(len(trace.operations)), 2):
        yield with_changes(trace, {}, frozenset(pair))


def without_one_adjusted(trace: Trace) -> Iterator[Trace]:
    """One operation less, and one number changed: without it, another id is meant or fewer tokens will do."""
    every_block = range(trace.shape.num_blocks if trace.shape.num_blocks <= 2 * EXHAUSTIVE else 0)
    for path, value in numbers(trace):
        if not TOKENS.intersection(path):
            for other in every_block if "blocks" in path else smaller(value):
                changed = put(trace, path, other)
                for i in range(len(trace.operations)) if other != value else ():
                    yield with_changes(changed, {}, frozenset((i,)))


def known_from_the_start(trace: Trace) -> Iterator[Trace]:
    """Tokens that were sampled belong to the prompt."""
    submits = {op.request: (i, op) for i, op in enumerate(trace.operations) if isinstance(op, Submit)}
    for j, op in enumerate(trace.operations):
        if isinstance(op, Advance) and op.sampled and op.request in submits:
            i, submit = submits[op.request]
            longer = replace(submit, prompt=submit.prompt + op.sampled)
            yield with_changes(trace, {i: longer}, frozenset((j,)))
            yield with_changes(trace, {i: longer, j: replace(op, sampled=())})


def merged_steps(trace: Trace) -> Iterator[Trace]:
    """Two allocations of a request with one operation between them become one, as if its prompt had been longer."""
    for name in dict.fromkeys(filter(None, map(request_of, trace.operations))):
        steps = [(i, op) for i, op in enumerate(trace.operations) if request_of(op) == name]
        submits = [(i, op) for i, op in steps if isinstance(op, Submit)]
        for (i, first), (j, between), (k, second) in zip(steps, steps[1:], steps[2:], strict=False):
            if not (isinstance(first, Allocate) and isinstance(second, Allocate)):
                continue
            changes: dict[int, Operation] = {}
            if submits and isinstance(between, Advance):
                at, submit = submits[0]
                changes[at] = replace(submit, prompt=submit.prompt + between.sampled)
            here, there = first.new_tokens + first.external, second.new_tokens
            for both in (
                replace(first, new_tokens=here + there, external=0, delay=False),
                replace(first, new_tokens=first.new_tokens + there, delay=False),
                replace(second, new_tokens=here + there, hit=first.hit),
                replace(second, new_tokens=first.new_tokens + there, hit=first.hit, external=first.external),
                replace(second, hit=first.hit, external=here),
            ):
                yield with_changes(trace, {**changes, i: both}, frozenset((j, k)))
                yield with_changes(trace, {**changes, k: both}, frozenset((i, j)))


def computed_instead(trace: Trace) -> Iterator[Trace]:
    """Tokens that came from a hit, from outside or as room for drafts are computed: no lookup, no arrival."""
    for at, op in enumerate(trace.operations):
        if isinstance(op, Allocate) and op.external:
            own = replace(op, new_tokens=op.new_tokens + op.external, external=0, delay=False)
            yield with_changes(trace, {at: own})
        if isinstance(op, Allocate) and op.lookahead:
            yield with_changes(trace, {at: replace(op, new_tokens=op.new_tokens + op.lookahead, lookahead=0)})
        if isinstance(op, Allocate) and op.hit:
            for tokens in range(1, EXHAUSTIVE):
                yield with_changes(
                    trace, {at: replace(op, new_tokens=op.new_tokens + tokens, hit=False)}, frozenset((at - 1,))
                )


def merged_requests(trace: Trace) -> Iterator[Trace]:
    """One request plays the part of two: it is preempted where it would have ended to make room for the other one."""
    operations = trace.operations
    submits = {op.request: (i, op) for i, op in enumerate(operations) if isinstance(op, Submit)}
    for (i, first), (j, second) in combinations(submits.values(), 2):
        theirs = [k for k, op in enumerate(operations) if request_of(op) == second.request and k != j]
        changes = {k: put(operations[k], ("request",), first.request) for k in theirs}
        for k, op in enumerate(operations):
            if isinstance(op, AllocateBatch) and second.request in op.requests:
                names = (first.request if name == second.request else name for name in op.requests)
                changes[k] = replace(op, requests=tuple(dict.fromkeys(names)))
        for k in range(min(theirs, default=0)):
            if operations[k] == Free(first.request):
                changes[k] = Preempt(first.request)
        for submit in (first, second):
            yield with_changes(trace, {**changes, i: replace(submit, request=first.request)}, frozenset((j,)))


def split_requests(trace: Trace) -> Iterator[Trace]:
    """A request that generates, is preempted and starts again becomes two, the second with the longer prompt."""
    operations = trace.operations
    submits = {op.request: op for op in operations if isinstance(op, Submit)}
    for k, preempt in enumerate(operations):
        if isinstance(preempt, Preempt) and preempt.request in submits:
            name, fresh = preempt.request, f"{preempt.request}'"
            sampled = {i: op for i, op in enumerate(operations[:k]) if isinstance(op, Advance) and op.request == name}
            known = sum((op.sampled for op in sampled.values()), submits[name].prompt)
            later = (i for i in range(k + 1, len(operations)) if request_of(operations[i]) == name)
            changes: dict[int, Operation] = {i: put(operations[i], ("request",), fresh) for i in later}
            changes[k] = replace(submits[name], request=fresh, prompt=known)
            yield with_changes(trace, changes, frozenset(sampled))


def merged_holders(trace: Trace) -> Iterator[Trace]:
    """Two operations of somebody outside become one."""
    for (i, first), (j, second) in combinations(enumerate(trace.operations), 2):
        if isinstance(first, Take) and isinstance(second, Take):
            both: Operation = Take(first.count + second.count)
        elif isinstance(first, Touch | Evict | Release) and type(first) is type(second):
            both = replace(first, blocks=first.blocks + second.blocks)
        else:
            continue
        yield with_changes(trace, {i: both}, frozenset((j,)))
        yield with_changes(trace, {j: both}, frozenset((i,)))


def simpler_actors(trace: Trace) -> Iterator[Trace]:
    """A request gives way to somebody outside who takes as many blocks or shares one, or to a reset.

    What is done to the request later is left out, or done to another one.
    """
    operations = trace.operations
    most = min(trace.shape.num_blocks, EXHAUSTIVE)
    actors: list[Operation] = [Reset(), *map(Take, range(1, most)), *(Touch((block,)) for block in range(1, most))]
    names = list(dict.fromkeys(filter(None, map(request_of, operations))))
    for at, op in enumerate(operations):
        if isinstance(op, Allocate):
            others = [i for i, other in enumerate(operations) if request_of(other) == op.request and i != at]
            for actor in actors:
                yield with_changes(trace, {at: actor}, frozenset(others))
                for name in names if others and max(others) > at else ():
                    later = {i: put(operations[i], ("request",), name) for i in others if i > at}
                    yield with_changes(trace, {at: actor, **later}, frozenset(i for i in others if i < at))
