"""What a scheduler may do in a state, as the operations that are explored from it.

**One request at a time.** After a submission only the lookup of that request is explored, after a lookup the
allocations that use its hit, after an allocation what becomes of the step it made room for. Only then, or when it was
refused, everything is enabled again: the state *rests*. No state at rest is lost by that. A submission, a lookup and
the end of a step read the pool at most and change nothing but their own request; other requests' operations do not read
that request; so each of them can be moved next to the operation of the same request that follows it, without any
operation in between noticing. (That they change nothing else is not taken on trust: it is the property `quiet`, checked
on each of these transitions.) A preemption in the middle of a step comes to the same as one after the step, save that
the sampled token is missing, and is explored there only where one would be sampled. An abort comes to the same as a
preemption followed by the abort of a request that waits, and only those are explored. Of requests that wait for the
same tokens one is as good as another, and of free names as well.

`everything` is the same without this reduction. `reductions` holds the two against each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...model.attention import Mamba, Rule, rules_for
from ...model.ops import (
    Advance,
    Allocate,
    Arrive,
    Evict,
    Free,
    Lookup,
    OnRequest,
    Operation,
    Preempt,
    Reset,
    StepStart,
    Submit,
)
from .contents import Contents
from .packing import ALLOCATED, ARRIVING, LOOKED_UP, RESTING, SUBMITTED, Focus, Look
from .scope import NAMES, Scope


class ExploredMove(NamedTuple):
    """An operation that is explored."""

    operation: Operation
    own: bool
    """True if the scheduler makes it by itself; it may then lead towards the end of all requests (L1)."""
    slot: int
    """Of its request; -1 if it has none."""
    code: int
    """A number of the operation, the name of its request left out: no other one of the scope has it."""
    phase: int
    """What it leaves its request in the middle of, if it succeeds."""
    alone: bool
    """True if no core is called: a submission and the end of a step change their own request only."""


_PHASES: Mapping[type[Operation], int] = {Submit: SUBMITTED, Lookup: LOOKED_UP, Allocate: ALLOCATED}


class Moves:
    """The moves of one scope, remembered by what they depend on."""

    def __init__(self, scope: Scope, contents: Contents) -> None:
        self.scope, self.contents, self._rules = scope, contents, rules_for(scope.shape)
        self._known: dict[object, list[ExploredMove]] = {}
        self._codes: dict[Operation, int] = {}

    def move(self, operation: Operation, own: bool) -> ExploredMove:
        """An operation, with what follows from it."""
        slot, anonymous = -1, operation
        if isinstance(operation, OnRequest):
            slot, anonymous = NAMES.index(operation.request), replace(operation, request="")
        phase = _PHASES.get(type(operation), RESTING)
        if isinstance(operation, Allocate) and operation.delay:
            phase = RESTING  # others may act until the tokens arrive
        code = self._codes.setdefault(anonymous, len(self._codes))
        return ExploredMove(operation, own, slot, code, phase, isinstance(operation, Submit | Advance))

    def of(self, look: Look, focus: Focus) -> list[ExploredMove]:
        """The moves in a state, in an order that depends on the packed state alone."""
        registered = tuple(block for block, code in enumerate(look.codes) if code) if self.scope.evict else ()
        key = (*look.requests, focus.phase, focus.slot, focus.hit_tokens, registered, not look.this_step)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(look, focus, registered)
        return found

    def _find(self, look: Look, focus: Focus, registered: Sequence[int]) -> list[ExploredMove]:
        if focus.phase == SUBMITTED:
            return [self.move(Lookup(NAMES[focus.slot]), True)]
        if focus.phase == LOOKED_UP:
            return self.first_allocations(look, focus.slot, focus.hit_tokens)
        if focus.phase == ALLOCATED:
            return self.ends_of_step(look, focus.slot)
        moves: list[ExploredMove] = []
        for slot, request in enumerate(look.requests):
            alike_waits = not request[1] and request in look.requests[:slot]
            if request[0] and not alike_waits:
                moves += self.between(look, slot)
        return moves + self.others(look, registered)

    def everything(self, look: Look, focus: Focus) -> list[ExploredMove]:
        """All moves of all requests, whatever the last operation was in the middle of."""
        moves: list[ExploredMove] = []
        for slot, (number, _, scheduled) in enumerate(look.requests):
            if not number:
                continue
            if scheduled and scheduled != ARRIVING:
                moves += [*self.ends_of_step(look, slot), self.move(Preempt(NAMES[slot]), True)]
                moves += [self.move(Free(NAMES[slot]), False)] if self.scope.abort else []
                continue
            moves += self.between(look, slot)
            moves += [self.move(Free(NAMES[slot]), False)] if self.scope.abort else []
            if focus.phase == LOOKED_UP and focus.slot == slot:
                moves += self.first_allocations(look, slot, focus.hit_tokens)
        registered = [block for block, code in enumerate(look.codes) if code] if self.scope.evict else []
        return moves + self.others(look, registered)

    def first_allocations(self, look: Look, slot: int, hit_tokens: int) -> list[ExploredMove]:
        """Room for the first step of a request behind its hit, and for what it gets from outside."""
        scope = self.scope
        left = len(self.contents.sequence(look.requests[slot][0])[0]) - hit_tokens
        first = Allocate(NAMES[slot], 0, hit=True, gate=scope.gate)
        found: list[Allocate] = []
        for external in (0, *(tokens for tokens in scope.external if tokens <= left)):
            sizes = {min(chunk, left - external) for chunk in scope.chunks} - {0}
            found += [
                replace(first, new_tokens=size, external=external, lookahead=scope.lookahead) for size in sorted(sizes)
            ]
            if external and scope.delay:
                found.append(replace(first, external=external, delay=True))
        return [self.move(replace(op, reserved=reserved), True) for op in found for reserved in scope.reserved]

    def allocations(self, look: Look, slot: int) -> list[ExploredMove]:
        """Room for the next step of a running request, of each size that the scope has."""
        scope = self.scope
        number, computed, _ = look.requests[slot]
        tokens, prompt = self.contents.sequence(number)
        left = len(tokens) - computed
        sizes = {min(chunk, left) for chunk in scope.chunks}
        if left == 1 and len(tokens) > prompt:
            drafts = min(scope.drafts, prompt + scope.outputs - len(tokens) - 1)
            sizes |= {1 + draft for draft in range(1, drafts + 1)}
        return [self.move(Allocate(NAMES[slot], size, lookahead=scope.lookahead), True) for size in sorted(sizes)]

    def ends_of_step(self, look: Look, slot: int) -> list[ExploredMove]:
        """What may come of the step that was allocated: tokens sampled, drafts rejected, the request preempted."""
        name = NAMES[slot]
        number, computed, scheduled = look.requests[slot]
        drafts = computed + scheduled - len(self.contents.sequence(number)[0])
        if drafts < 0:  # in the middle of the prompt
            return [self.move(Advance(name), True)]
        ends = [
            self.move(Advance(name, (value,) * (accepted + 1), drafts - accepted), True)
            for accepted in range(drafts + 1)
            for value in self.scope.sampled
        ]
        return [*ends, self.move(Preempt(name), True)]

    def between(self, look: Look, slot: int) -> list[ExploredMove]:
        """What may happen to a request that is in the middle of nothing."""
        name = NAMES[slot]
        number, computed, scheduled = look.requests[slot]
        tokens, prompt = self.contents.sequence(number)
        if scheduled == ARRIVING:
            return [
                self.move(Arrive(name), True),
                *self.failures(name, computed, len(tokens)),
                self.move(Preempt(name), True),
            ]
        if len(tokens) >= prompt + self.scope.outputs:
            return [self.move(Free(name), True)]
        if not computed:
            return [self.move(Lookup(name), True), *([self.move(Free(name), False)] if self.scope.abort else [])]
        return [*self.allocations(look, slot), self.move(Preempt(name), True)]

    def failures(self, name: str, loaded: int, known: int) -> list[ExploredMove]:
        """What may be missing of a load up to so many tokens: no more than the smallest has, so that the hit before it
        stays, and only what leaves the next query in blocks (`legal`)."""
        return [
            self.move(Arrive(name, missing), False)
            for missing in range(1, 1 + min(self.scope.external))
            if self.scope.fails and missing < loaded
            if all(_leaves(rule, loaded - missing, min(loaded, known - 1)) for rule in self._rules)
        ]

    def others(self, look: Look, registered: Sequence[int]) -> list[ExploredMove]:
        """What comes from outside, and the beginning of a step if it makes a difference."""
        absent = [slot for slot, request in enumerate(look.requests) if not request[0]][:1]  # one is like another
        moves = [self.move(Submit(NAMES[slot], prompt), False) for slot in absent for prompt in self.scope.prompts]
        moves += [self.move(Evict((block,)), False) for block in registered]
        moves += [self.move(Reset(), False)] if registered else []
        return moves + ([self.move(StepStart(), True)] if look.this_step else [])


def _leaves(rule: Rule, length: int, settled: int) -> bool:
    """True if what the query behind so many tokens reads was not cut away when so many were settled."""
    return not isinstance(rule, Mamba) and rule.first(length) >= rule.first(settled)
