"""`Run`, the base class of all runs. A run drives a target; oracles judge every operation; the first finding ends it.

In a lockstep run (`lockstep.LockstepRun`) model and target must agree exactly, and the next operation is chosen from
the model's state. In a model-free run (`model_free.ModelFreeRun`) it is chosen from the answers of the target so far. A
pair run (`pair.PairRun`) is a model-free run that compares two targets. What they share is here: calling the target,
and the oracles that need no model.
"""

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from sys import getrecursionlimit
from typing import Any

from ...model.kinds.pool_kinds import fits
from ...model.ops import Allocate, Done, Failed, Landed, Lookup, Operation, Outcome, Refused, Shape
from ...model.snapshot import Snapshot
from ..findings.difference import difference
from ..findings.finding import BUG, CORRUPTION, Finding, Trace, our_bug
from ..findings.interruption import is_from_outside
from ..findings.oracle_names import CONTRACT, LANDED, LOCKSTEP, PASSABLE, SHADOW, STRICT, TARGET, left_out
from ..findings.severity import worst_of
from ..findings.starved import Starved
from ..oracles.contract import Contract, Violation, unobserved
from ..oracles.shadow import Corruption, PooledShadow, Shadow
from ..targets.answers import outcome_and_snapshot, raised_by_target
from ..targets.base import (
    Target,
    TargetLostError,
    TargetUnavailableError,
    block_sizes_of,
    copies_of,
    designs_of,
    handed_of,
    hidden_fields,
    left_out_for,
    losing,
)
from ..targets.block_ids import STRAY_ID, stray_copy
from ..targets.declarations import STARVED, in_shape
from ..targets.unharmed import allow_recursion, unharmed
from ..workload.scene import Scene
from .judging import USUAL, Judging, TooLongError

MAX_LENGTH = 120
"""Longest cause in characters."""


def why_not_done(operation: Operation, outcome: Outcome, scene: Scene) -> str:
    """Of what failed the exception, with # for its numbers; of what was refused what it asked for, drafts first.

    `scene` is the state after the outcome, which is the one before: neither changes what was asked for.
    """
    if isinstance(outcome, Failed):
        return why_failed(outcome)
    return f"asked for {_wish(operation, scene)}" if isinstance(operation, Allocate) else "refused"


def why_failed(outcome: Failed) -> str:
    """The exception in one line, with # for its numbers; its kind if the target does not say more."""
    cause = outcome.cause
    if cause is None:
        return f"{outcome.error}, no message"
    text = re.sub(r"\d+", "#", " ".join(f"{cause.type}: {cause.message}".split()))
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 4]} ..."


def _wish(operation: Allocate, scene: Scene) -> str:
    """The most unusual thing that the allocation asks for."""
    request = scene.requests.get(operation.request)
    if request is not None:
        hit_tokens = request.hit[0] if operation.hit and request.hit else 0
        end = request.computed + hit_tokens + operation.external + operation.new_tokens
        if end > len(request.tokens):
            return "drafts"
    wishes = {
        "external tokens": operation.external,
        "encoder tokens": operation.encoder_tokens,
        "reserved blocks": operation.reserved,
        "room for the whole prompt (gate)": operation.gate,
        "lookahead": operation.lookahead,
    }
    return next((wish for wish, asked in wishes.items() if asked), "room for its next tokens only")


STARVED_REFUSED, SERVED_AGAIN = "refusal of the world", "refusal of the world: asked again, and served"
"""Situations of targets that offer `Starved`."""
MAY_STARVE = "run in which the world may refuse"
OUTSIDE = "outside of the pool"
"""The kind of the sentence about an id that is no block of the pool."""
_NOT_OURS = (TargetLostError, TargetUnavailableError, TooLongError)
"""Exceptions that a run passes on: they are about the target, or its time is over."""
_ONE_BY_ONE = frozenset({"AllocateBatch"})
"""The contract judges the state before and after each allocation, so it needs one call for each."""


class Run(ABC):
    """Drives one target: `start` builds the core, each `step` applies one operation. Can be started again."""

    def __init__(self, target: Target, judging: Judging = USUAL) -> None:
        self.target = target
        left_out = _ONE_BY_ONE if CONTRACT in judging.oracles else frozenset()
        self.lacks = left_out_for(target) | left_out
        """What is not asked of the target, and what is not with one kind of groups only (`declarations.in_shape`)."""
        self.lacks_here = self.lacks
        """What is not asked of the core that was started last."""
        self.block_sizes = block_sizes_of(target)
        self.judging = judging
        self.oracles = judging.oracles
        self.operations: list[Operation] = []
        """The operations applied so far."""
        self.outcomes: list[Outcome] = []
        """The outcome of each operation: the model's in lockstep, else the target's."""
        self.misuse: Counter[str] = Counter()
        """How often, and how, a target reacted to misuse that is not judged."""
        self.seen: Counter[str] = Counter()
        """Situations and known losses that were counted in this run."""
        self.found: Finding | None = None
        """The finding of this run; no operation is applied after it."""
        self.corruption: Corruption | None = None
        """What the shadow memory objected to, if that is the finding."""
        self.noted: list[Finding] = []
        """The first violation of each property that did not end the run (`Judging.notes`)."""
        self.launch_s: float | None = None
        """How long the first start took, in seconds: it may have launched a process that imports an engine."""
        self.in_step = False
        """True while the two sides may be out of step; stays True if Ctrl-C interrupts a step."""
        self.misused = False
        """True if the last operation was misuse (`model.legal`)."""
        self.built = False
        """True once the core has been built."""
        self.not_built = ""
        """Why it could not be built; empty if it was."""
        self.hidden: frozenset[str] = frozenset()
        """What the target hides; it may depend on the core, so it is asked after each start."""
        self.causes: Counter[tuple[str, str, str]] = Counter()
        """Operations that did not return: kind, `Refused` or `Failed`, and why (`why_not_done`)."""
        self.impossible: Counter[str] = Counter()
        """Kinds of operations that were drawn although they are not possible on this target."""
        self._waiting: Allocate | None = None
        """What was refused since the world gave out, until something else than a lookup for it is asked."""

    @property
    @abstractmethod
    def scene(self) -> Scene:
        """The state from which the next operation is chosen."""

    @property
    @abstractmethod
    def dead(self) -> bool:
        """True once the state is undefined; the run ends there."""

    @property
    @abstractmethod
    def situations(self) -> Counter[str]:
        """How often the model or the scheduler's view met each interesting situation."""

    @property
    def trace(self) -> Trace:
        """The shape and the operations so far."""
        return Trace(self.shape, tuple(self.operations))

    def start(self, shape: Shape) -> Finding | None:
        """Build the core. Returns a finding if that fails although it should not."""
        self.shape = shape
        self.lacks_here = in_shape(self.lacks, shape)
        self._ends_at = None if self.judging.seconds is None else time.process_time() + self.judging.seconds
        self.operations, self.outcomes = [], []
        self.misuse, self.seen = Counter(), Counter()
        self.causes, self.impossible = Counter(), Counter()
        self.found, self.in_step, self.built, self.not_built = None, False, False, ""
        self.corruption, self.noted, self._waiting = None, [], None
        self._may_starve = STARVED not in self.lacks_here
        if self._may_starve:
            self.seen[MAY_STARVE] = 1
        self.shadow: Shadow | None = None
        self.designs: frozenset[str] = frozenset()
        self.contract: Contract | None = None
        begin = time.monotonic()
        try:
            return self._start(shape)
        except _NOT_OURS:
            raise
        except Exception as error:
            return self._bug(error, None)
        finally:
            if self.launch_s is None:
                self.launch_s = time.monotonic() - begin

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation and judge the result. Returns a finding if something is wrong.

        TooLongError if it has taken its time (`Judging.seconds`).
        """
        if self._ends_at is not None and time.process_time() > self._ends_at:
            raise TooLongError
        self.in_step, self.misused = True, False
        self.operations.append(operation)
        try:
            finding = self._step(operation)
        except _NOT_OURS:
            raise
        except Exception as error:
            finding = self._bug(error, operation)
        self.in_step = False
        if finding is not None and finding.is_our_bug:
            return finding
        if self._may_starve:
            self._see_starved(operation, self.outcomes[-1])
        if type(outcome := self.outcomes[-1]) is not Done:
            why = why_not_done(operation, outcome, self.scene)
            self.causes[type(operation).__name__, type(outcome).__name__, why] += 1
        return finding

    def _see_starved(self, operation: Operation, outcome: Outcome) -> None:
        """Count what the world refused, and whether the same was served when it was asked for again at once."""
        if isinstance(operation, Starved):
            self._waiting = operation.allocation if type(outcome) is Refused else None
            self.seen[STARVED_REFUSED] += self._waiting is not None
        elif self._waiting is not None and operation != Lookup(self._waiting.request) and type(operation) is not Landed:
            self.seen[SERVED_AGAIN] += operation == self._waiting and type(outcome) is Done
            self._waiting = None

    def finish(self) -> Finding | None:
        """The run is over: judge what was not looked at since the last full look. Returns a finding if there is one."""
        try:
            return self._finish()
        except _NOT_OURS:
            raise
        except Exception as error:
            return self._bug(error, self.operations[-1] if self.operations else None)

    def _finish(self) -> Finding | None:
        return None

    @property
    def rebuilt_tables(self) -> list[dict[str, list[int]]] | None:
        """Tables that are hidden, as far as they follow from answers; None if they are shown, or do not follow."""
        return None

    def unobserved(self) -> dict[str, str]:
        """Properties of the contract that cannot be judged on this target, with the reasons."""
        return {} if self.contract is None else unobserved(self.hidden, self.designs)

    def reached(self) -> Counter[str]:
        """All situations and known losses that were counted, by the run and by its oracles."""
        counts = self.situations + self.seen
        for oracle in (self.shadow, self.contract):
            counts.update({} if oracle is None else oracle.reached)
        return counts

    @abstractmethod
    def _start(self, shape: Shape) -> Finding | None: ...

    @abstractmethod
    def _step(self, operation: Operation) -> Finding | None: ...

    def _ask_start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Let the target build a core. Only then it is certain what it hides."""
        with unharmed():
            outcome, snapshot = ask(self.target.start, shape)
        self.hidden = self._hidden()
        self.designs = in_shape(designs_of(self.target), shape)
        if SHADOW in self.oracles and self._sees_tables():
            named: dict[str, Any] = {"losses": self._shadow_losses(), "designs": self.designs}
            memory = self.judging.new_memory
            pooled = shape.host_blocks > 0 and fits(shape)  # others are refused
            self.shadow = PooledShadow(shape, **named) if pooled else Shadow(shape, memory, **named)
        if isinstance(outcome, Failed):
            self.not_built = why_failed(outcome)
        return outcome, snapshot

    def _hidden(self) -> frozenset[str]:
        """What of the target's snapshots cannot be compared or judged."""
        return hidden_fields(self.target)

    def _sees_tables(self) -> bool:
        """True if there are tables through which the shadow memory can read and write."""
        return "tables" not in self.hidden

    @property
    def losses(self) -> frozenset[str]:
        """What is counted instead of reported: what the target declares, unless all is to be reported."""
        return frozenset() if STRICT in self.oracles else losing(self.target)

    def _shadow_losses(self) -> frozenset[str]:
        """The same for the shadow memory."""
        return self.losses

    def _start_contract(self, snapshot: Snapshot) -> None:
        """Start the contract oracle. Not before the core is built: only then the target says what it hides."""
        if CONTRACT in self.oracles and not self.shape.host_blocks:
            self.contract = self._contract_for(hidden_fields(self.target))
            self.contract.start(snapshot)

    def _contract_for(self, hidden: frozenset[str]) -> Contract:
        """A contract for a target that hides this."""
        passing = PASSABLE if self._notes else left_out(self.oracles)
        landed = LANDED in self.oracles
        return Contract(self.shape, hidden, self.losses, passing, landed=landed, designs=self.designs)

    def _bug(self, error: Exception, operation: Operation | None) -> Finding:
        """An oracle, the model or the run itself has failed. The run ends as with a finding, and nothing is lost."""
        self.outcomes += [Failed(BUG)] * (len(self.operations) - len(self.outcomes))
        self.found = our_bug(error, operation, len(self.operations) - 1)
        return self.found

    def _lost(self, lost: TargetLostError, operation: Operation | None, expected: Outcome | None) -> Finding:
        step, why, cause = len(self.operations) - 1, lost.detail, lost.cause
        self.found = Finding(
            lost.kind, operation, step, expected, None, detail=why, oracle=TARGET, raised=cause, misuse=self.misused
        )
        return self.found

    def _stray(self, stray: str, operation: Operation | None, actual: Outcome) -> Finding:
        """The finding of an id that is no block of the pool: S4, whichever oracles judge."""
        step = len(self.operations) - 1
        self.found = Finding(
            STRAY_ID, operation, step, actual, actual, detail=stray, oracle=CONTRACT, said=OUTSIDE, misuse=self.misused
        )
        return self.found

    def _judge(self, operation: Operation, actual: Outcome, before: Snapshot | None, after: Snapshot) -> Finding | None:
        """The worst finding of the shadow memory and the contract. All block ids in the answer are valid."""
        found = self._objections(operation, actual, before, after, self.scene)
        return worst_of(found) if found else None

    def _objections(
        self, operation: Operation, actual: Outcome, before: Snapshot | None, after: Snapshot, scene: Scene
    ) -> list[Finding]:
        """What the shadow memory and the contract object to. `scene` is the state after the operation."""
        if type(operation) is Starved and type(actual) is Done:
            operation = operation.allocation  # served, it is like any other
        found: list[Finding] = []
        shadow, contract = self.shadow, self.contract
        own = type(operation) is not Landed  # which may be no call on it
        copies = copies_of(self.target) if own else ()
        try:
            if copies and (stray := stray_copy(copies, self.shape.num_blocks)):
                return [self._stray(stray, operation, actual)]
            if isinstance(shadow, PooledShadow):
                shadow.step(operation, actual, after, copies, handed_of(self.target) if own else ())
            elif shadow is not None:
                shadow.step(operation, actual, after, copies)
        except Corruption as corruption:
            self.corruption = corruption
            said = Violation(CORRUPTION, str(corruption), corruption.kind)
            found.append(self._object(SHADOW, said, operation, actual, before or after, after))
        if contract is None or before is None:
            return found
        told = handed_of(self.target) if own else ()
        violation = contract.step(operation, actual, before, after, scene, (copies, told))
        if passed := contract.passed():
            self._note(passed, operation, actual, before, after)
        if violation is not None:
            found += [self._object(CONTRACT, one, operation, actual, before, after) for one in contract.violated]
        return found

    @property
    def _notes(self) -> bool:
        """True if violations that need not end the run are noted."""
        return self.judging.notes and LOCKSTEP not in self.oracles

    def _note(
        self, passed: Sequence[Violation], operation: Operation, actual: Outcome, before: Snapshot, after: Snapshot
    ) -> None:
        """Keep the first violation of each property that does not end the run."""
        known = left_out(self.oracles) | {finding.observable for finding in self.noted}
        for violation in passed if self._notes else ():
            if violation.id not in known:
                known |= {violation.id}
                self.noted.append(self._object(CONTRACT, violation, operation, actual, before, after))

    def _object(
        self, oracle: str, said: Violation, operation: Operation, actual: Outcome, before: Snapshot, after: Snapshot
    ) -> Finding:
        """The finding of an oracle that needs no model, at the last operation."""
        changes = tuple(difference(before, after))
        step = len(self.operations) - 1
        return Finding(said.id, operation, step, actual, actual, (), changes, said.what, oracle, said=said.kind)


_RECURSION = getrecursionlimit()


def ask(call: Callable[..., tuple[Outcome, Snapshot | None]], *about: Any) -> tuple[Outcome, Snapshot | None]:
    """Call the target. TargetLostError if it raises or returns something else: a target may be a user's own code."""
    try:
        answer: object = call(*about)
    except _NOT_OURS:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and is_from_outside():
            raise
        allow_recursion()
        raise raised_by_target(error) from error
    if getrecursionlimit() != _RECURSION:
        allow_recursion()
    return answer if type(answer) is tuple and len(answer) == 2 else outcome_and_snapshot(answer)
