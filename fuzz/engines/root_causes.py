"""Which known flaw a finding comes from, settled by experiment: the release against models that have the flaw or not.

A known deviation (`targets.deviations`) is a flaw as an executable rule: the model that has it does what a core with
this flaw does, and is right in all else. A finding is put down to a deviation only if all of this holds for its trace:

* the model with the deviation shows the same finding, at the same operation;
* the release answers every operation of the trace as this model does, up to and with the one that shows the finding;
* without the deviation the model shows no such finding.

So nothing but the deviation is needed to explain what the release does. Neither messages nor the name of the violated
property decide anything. Whatever is not explained in this way is new: rather one too many than one hidden.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import cast

from ...model.legal import allows
from ...model.ops import (
    Advance,
    Done,
    Failed,
    Lookup,
    Operation,
    Outcome,
    Shape,
    Submit,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
)
from ...model.snapshot import Snapshot
from ..findings.finding import Finding, Trace
from ..findings.known import attention_of
from ..findings.oracle_names import BLOCKPROOF, LOCKSTEP, TARGET
from ..opening.known_deviations import family_known, known_of
from ..planning.shipped import shipped
from ..reports.summary import NEW, Found
from ..runs.judging import Judging
from ..runs.pair import coarse, shape_of
from ..targets.base import Target, adapted, adapted_shape, hidden_fields, lacking, likeness, losing, offering
from ..targets.declarations import in_shape
from ..targets.deviations import DeviatingModel, trace_names
from ..targets.family import Known
from ..targets.rule import Rule
from ..traces.files import TraceError
from ..traces.replay import replay
from ..traces.shrink import NotReproducedError, Shrunk
from ..traces.trace_file import read_trace
from .plan import Plan
from .smallest import ALWAYS, judging_of, needed_oracles, smallest

CANDIDATES = 800
"""Replays at most for shrinking a trace before it is asked again."""
Ids = frozenset[str]


class RootCauses:
    """Names the root causes of findings on one target."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._target, self._plan = target, plan
        self._times: Counter[tuple[object, ...]] = Counter()
        self._last: dict[tuple[object, ...], str] = {}

    def of(self, found: Found) -> str:
        """The name of the root cause, `new`, or nothing if the plan does not ask.

        Of many findings of one kind in one attention type the first four are settled, then the 8th, 16th, 32nd, ...;
        those between are taken to be like the last one (`Found.settled` says how many were not).
        """
        if self._plan.roots is None:
            return ""
        key = (found.finding.key, attention_of(found.trace))
        self._times[key] += 1
        times = self._times[key]
        found.settled = int(times <= ALWAYS or times & (times - 1) == 0)
        if found.settled:
            self._last[key] = self._settled(found)
        return self._last[key]

    def _settled(self, found: Found) -> str:
        finding, names = found.finding, tuple(sorted((self._plan.roots or {}).items(), key=itemgetter(1)))
        # Lockstep has taken the known deviations into account; a lost target answers nothing, nor does a bug of ours.
        is_settled = finding.oracle in (LOCKSTEP, TARGET, BLOCKPROOF)
        explain = None if is_settled else _explain(cast(Hashable, self._target), names)
        if explain is None:
            return NEW
        judging = judging_of(found, self._plan)
        judging = replace(judging, oracles=[name for name in judging.oracles if name != LOCKSTEP])
        experiment = explain.experiment(finding, found.trace, judging)
        if experiment is None:
            return NEW
        if (roots := experiment.certain()) is not None:
            return roots
        try:
            small = smallest(found, self._target, self._plan, max_candidates=CANDIDATES)
        except NotReproducedError:
            return NEW
        again = explain.experiment(small.finding, small.trace, judging)
        causes = again.smallest() if again is not None else None
        if causes is not None and not experiment.still(causes):  # the smallest trace has slipped to another cause
            causes = experiment.smallest()
        return NEW if causes is None else explain.name(causes)


@lru_cache(maxsize=2)
def _explain(target: Hashable, names: tuple[tuple[Ids, str], ...]) -> "_Explain | None":
    """None for a target of whose family no deviations are known. What is kept of the last ones saves seconds."""
    asked = cast(Target, target)
    known = family_known(likeness(asked))
    return None if known is None else _Explain(asked, known, dict(names))


class _Explain:
    """What is known of a release's family, and which of the deviations the release itself seems to have."""

    def __init__(self, target: Target, known: Known, names: Mapping[Ids, str]) -> None:
        self.target, self.names = target, names
        self._known = known
        self._lacks, self._loses, self._offers = lacking(target), losing(target), offering(target)
        self._declared = known.deviations
        if not (exact := known_of(likeness(target)) is not None):
            self._declared += known.elsewhere
        self.every: Ids = frozenset(one.id for one in self._declared if not one.chaos_only)
        """Those that are tried."""
        self.here = self.every if exact else frozenset(self._seen_here())
        """Those that the target itself has, as far as their traces tell."""

    def name(self, causes: Collection[str]) -> str:
        """What the root cause is called in reports: by the finding that is written up, else by the deviation."""
        whole = frozenset(causes)
        parts = sorted(name for ids, name in self.names.items() if ids <= whole)
        return self.names.get(whole) or " and ".join(parts or [f"deviation {cause}" for cause in sorted(causes)])

    def rule(self, ids: Collection[str], hides: frozenset[str] | None = None) -> Rule:
        """The model with these deviations. It has what the target has, and hides this, or what its last core hides."""
        declared = [one for one in self._declared if one.id in ids]
        rule = Rule(lambda shape: DeviatingModel(shape, declared, self._known.policy_of))
        rule.lacks, rule.loses, rule.offers = self._lacks, self._loses, self._offers
        rule.hides = hidden_fields(self.target) if hides is None else hides
        return rule

    def experiment(self, finding: Finding, trace: Trace, judging: Judging) -> "_Experiment | None":
        """The trace as the target really ran it; None if it does not show the finding again."""
        recorder = _Recorder(self.target)
        shown, _ = replay(trace, recorder, judging)
        if shown is None or shown.key != finding.key:
            return None
        hides = hidden_fields(self.target)  # which depends on the core that it has built: later ones hide other things
        return _Experiment(self, shown, trace, judging, recorder.shape, tuple(recorder.operations), hides)

    def _seen_here(self) -> Iterator[str]:
        """All deviations but those that the target is seen to do right in their own traces."""
        for one in self._declared:
            if one.id in self.every and not any(self._does_right(name) for name in trace_names(one)):
                yield one.id

    def _does_right(self, name: str) -> bool:
        """Whether in the kept trace of this name the target does what is right and the reference is seen not to."""
        try:
            trace = read_trace(shipped(Path(self._known.traces) / f"{name}.json")).trace
        except TraceError:
            return False
        shape = adapted_shape(trace.shape, self._lacks)
        lacks = in_shape(self._lacks, shape)
        if shape != trace.shape or any(adapted(one, lacks) != one for one in trace.operations):
            return False
        right = self.rule(())
        seen = not agree(right, self.rule(self.every), shape, trace.operations)
        return seen and agree(right, self.target, shape, trace.operations)


@dataclass(frozen=True)
class _Experiment:
    """One trace that shows a finding on the target, to be tried on models."""

    explain: _Explain
    finding: Finding
    trace: Trace
    judging: Judging
    shape: Shape
    operations: tuple[Operation, ...]
    """What was applied; of a script for the liveness scheduler, what that has made of it."""
    hides: frozenset[str]
    """What the target did not show of this core."""

    def certain(self) -> str | None:
        """The root cause, if the release does exactly what the model with all its deviations does, and one deviation
        decides alone. None otherwise."""
        ids = self.explain.here
        if not self._explained_by(ids):
            return None
        causes = [cause for cause in self._occurring(ids) if not self.shows(ids - {cause})]
        return self.explain.name(causes) if len(causes) == 1 and self.shows(frozenset(causes)) else None

    def smallest(self) -> Ids | None:
        """The fewest deviations that explain the finding, each of which is needed; None if none do, or if there are
        several such explanations."""
        every = sorted(self.explain.every)
        occurring = {one for one in every if self._occurring(frozenset([one]))}
        for size in 1, 2:  # one of them must make a difference by itself for the other to come into play
            tried = [frozenset(names) for names in combinations(every, size) if not occurring.isdisjoint(names)]
            found = [ids for ids in tried if self._is_cause(ids)]
            if found:
                return found[0] if len(found) == 1 else None
        ids = self.explain.here
        if not self._explained_by(ids):
            return None
        return frozenset(cause for cause in self._occurring(ids) if not self.shows(ids - {cause})) or None

    def still(self, causes: Ids) -> bool:
        """Whether these deviations, alone or with the others, lead to the same finding here, and nothing without."""
        return any(
            self.shows(ids) and not self.shows(ids - causes)
            for ids in dict.fromkeys((self.explain.here | causes, causes, self.explain.every))
        )

    def _is_cause(self, ids: Ids) -> bool:
        return self._explained_by(ids) and not any(self.shows(ids - {one}) for one in ids)

    def _explained_by(self, ids: Ids) -> bool:
        return self.shows(ids) and agree(self._rule(ids), self.explain.target, self.shape, self.operations)

    def _rule(self, ids: Ids) -> Rule:
        return self.explain.rule(ids, self.hides)

    def _occurring(self, ids: Ids) -> list[str]:
        """Those of the deviations that occur in the model on the way to the finding."""
        rule = self._rule(ids)
        outcome, _ = rule.start(self.shape)
        for operation in self.operations if isinstance(outcome, Done) else ():  # with some there is no such core
            rule.step(operation)
        model = rule.model
        return (
            sorted(name for name, count in model.deviated.items() if count) if isinstance(model, DeviatingModel) else []
        )

    def shows(self, ids: Ids) -> bool:
        """Whether the model with these deviations shows the finding, at the same operation and with the same answer."""
        rule = self._rule(ids)
        shown, applied = replay(self.trace, rule, self.judging)
        mine = self.finding
        if shown is None:  # behind a state that is undefined nothing can be judged; that is where the release failed
            return rule.undefined and len(applied.operations) - 1 == mine.step
        same = (shown.kind, shown.oracle, shown.said, shown.step) == (mine.kind, mine.oracle, mine.said, mine.step)
        return same and _told(mine.operation, shown.actual) == _told(mine.operation, mine.actual)


class _Recorder:
    """A target that remembers what it was asked."""

    def __init__(self, target: Target) -> None:
        self.name, self._target = target.name, target
        self.operations: list[Operation] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """See `Target.start`."""
        self.shape = shape
        self.operations.clear()
        return self._target.start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """See `Target.step`."""
        self.operations.append(operation)
        return self._target.step(operation)

    def close(self) -> None:
        """The target stays open."""


def agree(rule: Rule, target: Target, shape: Shape, operations: Collection[Operation]) -> bool:
    """Whether model and target answer all operations alike: outcomes, which entries of tables are null, free blocks.

    Which block stands where is left open: releases differ in the order of eviction, and none of the findings is about
    that. Where a deviation leaves the model's state undefined the comparison ends, and must be over.
    """
    outcome, first = rule.start(shape)
    other, second = target.start(shape)
    if type(outcome) is not type(other) or first is None or second is None:
        return False
    shows_free = "num_free" not in hidden_fields(target)
    for number, operation in enumerate(operations, 1):
        if not allows(rule.model, operation):
            return False
        outcome, first = rule.step(operation)
        other, second = target.step(operation)
        if rule.undefined:
            return number == len(operations)
        drains = isinstance(operation, TakeNewBlockIds | TakeEvents | TakeStats)  # is followed by nothing
        if (not drains or number == len(operations)) and _told(operation, outcome) != _told(operation, other):
            return False
        if isinstance(outcome, Failed) and not isinstance(operation, Lookup):  # half of its work may be done
            return number == len(operations)
        if _tables(first) != _tables(second):
            return False
        if shows_free and first.num_free != second.num_free:
            return False
    return True


def _told(operation: Operation | None, outcome: Outcome | None) -> object:
    """What is compared of an answer. How many hashes a request has is how a core works, not what it does."""
    if outcome is None or (isinstance(operation, Submit | Advance) and isinstance(outcome, Done)):
        return None
    return coarse(operation, outcome)


def _tables(snapshot: Snapshot) -> object:
    return shape_of(snapshot).tables


def small_of(found: Found, target: Target, plan: Plan, max_seconds: float) -> tuple[Shrunk, tuple[str, ...]] | None:
    """The finding of a run, shrunk, with the oracles that show it.

    None if it does not show again, or if its smallest trace has slipped to another root cause.
    """
    try:
        small = smallest(found, target, plan, max_seconds=max_seconds)
    except NotReproducedError:
        return None
    oracles = needed_oracles(small, found, target, plan)
    again = Found(small.finding, small.trace, passed=found.passed)
    return None if RootCauses(target, plan).of(again) != found.root else (small, oracles)
