"""The lockstep run: model and target must agree exactly after every operation (properties.md §1).

The outcome is compared, and the whole snapshot or, between two full looks, what the operation can have changed. A
finding shows the operation, both outcomes, and what the operation changed on either side. The shadow memory (§3) and
the contract (§2) can judge the target as well.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...model.core import Model
from ...model.legal import CHECKED, misuse
from ...model.ops import (
    NULL,
    Done,
    Failed,
    Landed,
    Operation,
    Outcome,
    Refused,
    Release,
    Shape,
    StepStart,
    Take,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
    Touch,
)
from ...model.snapshot import Snapshot
from ..findings.difference import difference, first_difference, kind_of
from ..findings.finding import Finding
from ..findings.oracle_names import CONTRACT, SHADOW
from ..findings.severity import worst_of
from ..findings.starved import Starved
from ..opening.known_deviations import model_for
from ..targets.answers import problem_with_answer
from ..targets.base import TargetLostError, copies_of, handed_of, hidden_from_model, is_told, likeness
from ..targets.block_ids import stray_id
from ..targets.declarations import SEVERAL_NAMES
from ..targets.deviations import MISUSE_UNCHECKED, DeviatingModel, corrupting
from ..targets.glance import Answering, Glancing
from ..targets.rule import model_answer
from .model_looks import ModelLooks
from .run import Run, ask
from .situations import Situations

_DRAINED: Mapping[type[Operation], str] = {TakeEvents: "events", TakeNewBlockIds: "new_block_ids", TakeStats: "stats"}
"""By operation that drains something: the field of a snapshot with what was not drained yet."""


@dataclass(frozen=True)
class _Holders:
    """What the contract asks of a scene: who holds blocks besides the requests."""

    outside: Sequence[int]

    @property
    def state(self) -> "_Holders":
        """The holders."""
        return self


class LockstepRun(Run):
    """Runs one target in lockstep with the model."""

    model_shows: Snapshot
    """What the model showed last: while the target is asked, that is after the operation it is asked for."""
    full_look_every: int
    """As in `Judging`; whoever watches the run may set it to another number."""
    _outside_before: Sequence[int] = ()
    """Blocks that outside holders held before the operation, if the contract judges."""

    @property
    def scene(self) -> Model:
        """The model."""
        return self.model

    @property
    def dead(self) -> bool:
        """True once a known deviation has left the state undefined; the run ends there."""
        return self._dead or (self._deviating is not None and self._deviating.dead)

    @property
    def situations(self) -> Counter[str]:
        """How often the model met each interesting situation."""
        return self._situations.reached

    def _start(self, shape: Shape) -> Finding | None:
        self.model = model_for(likeness(self.target), shape, self.judging.without)
        self._deviating = self.model if isinstance(self.model, DeviatingModel) else None
        self._dead = False
        self._situations = Situations(self.model)
        self._ours: Snapshot | None = None  # the model's last snapshot
        self._theirs: Snapshot | None = None  # the target's
        self._looks = ModelLooks(self.model)
        self._glances, self._looked = False, True
        self._glance = cast(Glancing, self.target).glance if hasattr(self.target, "glance") else self.target.step
        self._blind = self._may_be_blind()
        self.full_look_every = self.judging.full_look_every
        expected, ours = self.model.construction, self._looks.look()
        try:
            actual, theirs = self._ask_start(shape)
            self._tells_handed = self.model.policy.copies is not None and hasattr(self.target, "handed")
            self._masked = tuple(name for name in Snapshot._fields if name in self.hidden)
            self._glances = self._may_glance()
            theirs = self._visible(ours, theirs)
            if theirs is None and isinstance(actual, Done):
                raise TargetLostError("protocol", "the target says that it has built a core, but shows no state of it")
            self.built = theirs is not None and expected == actual
            if theirs is not None:
                if problem := problem_with_answer(actual, theirs, len(shape.groups), shape.num_blocks, self.hidden):
                    raise TargetLostError("protocol", problem)
                self._start_contract(theirs)
            return self._compare(None, expected, actual, ours, ours if theirs is None else theirs)
        except TargetLostError as lost:
            return self._lost(lost, None, expected)

    def _step(self, operation: Operation) -> Finding | None:
        if type(operation) is Starved:
            return self._step_starved(operation)
        model, last = self.model, self._ours
        misused = self.misused = type(operation) in CHECKED and misuse(model, operation)
        if self.contract is not None:
            self._outside_before = tuple(model.state.outside)
        expected = model.apply(operation)
        self.outcomes.append(expected)
        told = type(operation) is not Landed or is_told(self.target, operation)
        if self._blind and told and not misused and len(self.operations) % self.full_look_every:
            return self._step_blindly(operation, expected)
        glances = self._glances and last is not None and not misused and type(expected) is not Failed
        self._looked = looks = not glances or (told and len(self.operations) % self.full_look_every == 0)
        ours = self._looks.look() if looks or last is None else self._looks.glance(operation, last)
        self.model_shows = ours
        if last is not None:
            self._situations.see(operation, expected, last, ours)
        try:
            actual: Outcome = expected
            theirs: Snapshot | None = self._theirs
            if not told:
                pass
            elif looks:
                actual, theirs = ask(self.target.step, operation)
            else:  # what was compared is the same on both sides
                actual, theirs = ask(self._glance, operation, last, ours)
            if self.hidden:
                theirs, actual = self._visible(ours, theirs), self._told(operation, expected, actual)
            if self._deviating is not None and self._deviating.undefined:
                return None
            before = self._theirs
            if expected is actual and ours is theirs:
                self._ours, self._theirs, finding = ours, theirs, None
            else:
                finding = self._compare(operation, expected, actual, ours, theirs)
            if finding is None and told and self._tells_handed:
                finding = self._compare_handed(operation)
            if finding is not None and misused:
                finding = self._excuse_misuse(operation, finding, theirs)
        except TargetLostError as lost:
            return self._lost(lost, operation, expected)
        if finding is not None:
            self.found = finding if misused else self._with_others(finding, operation, actual, before, theirs)
            return self.found
        return None if misused else self._judged(operation, actual, before, theirs)

    def _judged(
        self, operation: Operation, actual: Outcome, before: Snapshot | None, theirs: Snapshot | None
    ) -> Finding | None:
        """What the other oracles make of an operation at which both sides agree. Of misuse they judge nothing: engines
        do not do that."""
        if (self.shadow is None and self.contract is None) or self.dead or theirs is None:
            return None
        found = self._objections(operation, actual, before, theirs, self.model)
        return self._unexplained(found) if found else None

    def _step_starved(self, operation: Starved) -> Finding | None:
        """What the world refuses is no operation of the model. The target may refuse, and then nothing has changed, or
        what a refusal for want of room changes; else it must answer like the model."""
        self._outside_before = tuple(self.model.state.outside) if self.contract is not None else ()
        before, ours = self._theirs, self._looks.look()
        try:
            actual, theirs = ask(self.target.step, operation)
            if isinstance(actual, Refused):
                expected: Outcome = actual
                if self._visible(ours, theirs) != ours:  # entries behind a window, which a refusal may give back
                    self.model.apply(replace(operation.allocation, reserved=self.shape.num_blocks))
                    ours = self._looks.look()
                model_answer(self.model, operation)
            else:
                expected = self.model.apply(operation.allocation)
                self._situations.see(operation.allocation, expected, ours, ours := self._looks.look())
            self.outcomes.append(expected)
            self.model_shows, self._looked = ours, True
            if self._deviating is not None and self._deviating.undefined:
                return None
            finding = self._compare(operation, expected, actual, ours, theirs := self._visible(ours, theirs))
        except TargetLostError as lost:
            self.outcomes += [Failed(lost.kind)] * (len(self.operations) - len(self.outcomes))
            return self._lost(lost, operation, None)
        if finding is None:
            return self._judged(operation, actual, before, theirs)
        self.found = self._with_others(finding, operation, actual, before, theirs)
        return self.found

    def _step_blindly(self, operation: Operation, expected: Outcome) -> Finding | None:
        """Compare nothing but the outcome."""
        last, self._looked = cast(Snapshot, self._ours), False
        self._situations.see(operation, expected, last, last)
        try:
            actual = cast(Answering, self.target).answer(operation)
            if self._deviating is not None and self._deviating.undefined:
                return None
            return self._compare(operation, expected, self._told(operation, expected, actual), last, last)
        except TargetLostError as lost:
            return self._lost(lost, operation, expected)

    def _may_be_blind(self) -> bool:
        """True if the state need not be looked at between two full looks."""
        alone = not {CONTRACT, SHADOW}.intersection(self.oracles)
        return alone and not self.judging.looks_between and hasattr(self.target, "answer")

    def _finish(self) -> Finding | None:
        """Compare everything if the last operation was only glanced at."""
        if self._looked or self.found is not None or self.dead:
            return None
        if not hasattr(self.target, "look"):  # in a child: it is looked at after an operation only
            self._blind = False
            return self.step(StepStart())
        self._looked, last = True, self.operations[-1]
        try:
            return self._compare(last, Done(), Done(), self._looks.look(), cast(Glancing, self.target).look())
        except TargetLostError as lost:
            return self._lost(lost, last, self.outcomes[-1])

    def _hidden(self) -> frozenset[str]:
        """Less than to others: the model knows all names of a block."""
        return hidden_from_model(self.target) - {SEVERAL_NAMES}

    def _may_glance(self) -> bool:
        """True if both sides can look at less than everything, and no oracle needs everything. What an operation can
        change is known of the older rule."""
        exact = self._deviating is None and not self.hidden and CONTRACT not in self.oracles
        exact = exact and self.model.policy.copies is None
        return exact and self.judging.full_look_every > 1 and hasattr(self.target, "glance")

    def _sees_tables(self) -> bool:
        """Always: the model's take the place of those that are hidden."""
        return True

    def _shadow_losses(self) -> frozenset[str]:
        """None: here the deviations of the target say after what a request may read wrong content."""
        return frozenset()

    def _unexplained(self, objections: Sequence[Finding]) -> Finding | None:
        """The worst of what the other oracles object to. If a known deviation explains it, it is counted, and the run
        ends."""
        finding = worst_of(objections)
        if finding is None:
            return None
        for deviation in corrupting(self.model):
            if f"{deviation.id}.corruption" not in self.judging.without:
                self.seen[f"{finding.oracle}: {finding.observable} after {deviation.id}"] += 1
                self._dead = True
                return None
        self.found = finding
        return finding

    def _with_others(
        self, finding: Finding, operation: Operation, actual: Outcome, before: Snapshot | None, theirs: Snapshot | None
    ) -> Finding:
        """A difference from the model, or what other oracles object to at the same operation, if that is worse.

        They are asked about what the target shows. What a known deviation explains they are not asked.
        """
        if theirs is None or before is None or self.dead or any(corrupting(self.model)):
            return finding
        if self.shadow is None and self.contract is None:
            return finding
        if stray := stray_id(operation, actual, theirs, self.shape.num_blocks, self.hidden):
            return worst_of([finding, self._stray(stray, operation, actual)]) or finding
        holders: Any = _Holders(self._outside(operation, actual))
        try:
            others = self._objections(operation, actual, before, theirs, holders)
        except Exception:  # the difference is found whatever becomes of an oracle in a state that no rule describes
            others = []
        return worst_of([finding, *others]) or finding

    def _outside(self, operation: Operation, actual: Outcome) -> list[int]:
        """Who holds blocks besides requests after the target's own answer; the model knows of its own."""
        outside = [*self._outside_before]
        if not isinstance(actual, Done):
            return outside
        match operation:
            case Take() if isinstance(actual.value, tuple):
                outside += [block for block in actual.value if isinstance(block, int) and block != NULL]
            case Touch(blocks):
                outside += blocks
            case Release(blocks):
                for block in blocks:
                    if block in outside:
                        outside.remove(block)
        return outside

    def _excuse_misuse(self, operation: Operation, finding: Finding, theirs: Snapshot | None) -> Finding | None:
        """The finding at a misuse. If the target is known not to check misuse, and does what is declared of it, that is
        counted and the run ends."""
        if self._deviating is None or MISUSE_UNCHECKED not in self._deviating.declared or self._theirs is None:
            return finding
        declared = self._deviating.reaction_to(self._deviating, operation, self._theirs)
        if declared is not None and declared != (finding.actual, theirs):
            return finding
        results = [getattr(side, "error", type(side).__name__) for side in (finding.actual, finding.expected)]
        what = f"{type(operation).__name__}: {finding.observable} differs, {results[0]} instead of {results[1]}"
        self._deviating.note(MISUSE_UNCHECKED.id, True)
        self.misuse[what] += 1
        self._dead, self.found = True, None
        return None

    def _visible(self, ours: Snapshot, theirs: Snapshot | None) -> Snapshot | None:
        """The target's snapshot, with what it hides taken from the model's: that is not compared."""
        if not self.hidden or not isinstance(theirs, Snapshot):
            return theirs
        if "free_order" in self.hidden and _sorted(theirs.free) == sorted(ours.free):
            theirs = theirs._replace(free=ours.free)
        return theirs._replace(**{name: getattr(ours, name) for name in self._masked})

    def _told(self, operation: Operation, expected: Outcome, actual: Outcome) -> Outcome:
        """The target's outcome; the model's where a call only drains what the target hides."""
        drained = _DRAINED.get(type(operation))
        return expected if drained in self.hidden and isinstance(actual, Done) else actual

    def _compare(
        self, operation: Operation | None, expected: Outcome, actual: Outcome, ours: Snapshot, theirs: Snapshot | None
    ) -> Finding | None:
        """A finding if the two sides differ. TargetLostError if the target's answer has the wrong form."""
        try:
            if (expected is actual or expected == actual) and (ours is theirs or ours == theirs):
                self._ours, self._theirs = ours, theirs
                return None
        except Exception as error:
            detail = f"the answer cannot be compared: {type(error).__name__}: {error}"
            problem = problem_with_answer(actual, theirs, len(self.shape.groups))
            raise TargetLostError("protocol", problem or detail) from error
        problem = problem_with_answer(actual, theirs, len(self.shape.groups))
        if theirs is None or problem:
            raise TargetLostError("protocol", problem or "")
        observable = "outcome" if expected != actual else first_difference(ours, theirs) or ""
        self.found = Finding(
            observable,
            operation,
            len(self.operations) - 1,
            expected,
            actual,
            tuple(difference(self._ours or ours, ours)),
            tuple(difference(self._theirs or ours, theirs)),
            said=_said(observable, expected, actual, ours, theirs),
            misuse=self.misused,
        )
        return self.found

    def _compare_handed(self, operation: Operation) -> Finding | None:
        """A finding if the two sides ask for other copies, or offer other states."""
        sides = (
            ("copies", self.model.copied, copies_of(self.target)),
            ("handed", self.model.offered, handed_of(self.target)),
        )
        for observable, ours, theirs in sides:
            if ours != theirs:
                self.found = Finding(observable, operation, len(self.operations) - 1, Done(ours), Done(theirs))
                return self.found
        return None


def _said(observable: str, expected: Outcome, actual: Outcome, ours: Snapshot, theirs: Snapshot) -> str:
    """How the two differ; nothing where one of them returned no value."""
    if observable != "outcome":
        return kind_of(observable, getattr(ours, observable), getattr(theirs, observable)) if observable else ""
    if isinstance(expected, Done) and isinstance(actual, Done):
        return kind_of(observable, expected.value, actual.value)
    return ""


def _sorted(blocks: object) -> object:
    """The blocks in order; as they are if they have none."""
    try:
        return sorted(blocks) if isinstance(blocks, list) else blocks
    except TypeError:
        return blocks
