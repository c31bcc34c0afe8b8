"""What a change did to what a trace shows: introduced, fixed, both sides wrong, or changed and both right.

Both sides are held against the same model, with the same known deviations, and judged by the same oracles. A known
deviation is a mistake of the old side that its model makes, too. So a new side that no longer makes it differs from
that model, and is right: the model without the deviation says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from ...model.legal import allows
from ...model.ops import Failed
from ..findings.finding import LOST, Finding, Trace
from ..findings.oracle_names import LOCKSTEP, MODEL_FREE
from ..findings.severity import Severity, severity
from ..opening.known_deviations import known_of, model_for
from ..planning.shipped import shipped
from ..runs.judging import Judging
from ..runs.pair import Pair, Strictness
from ..targets.base import hidden_fields
from ..targets.deviations import DeviatingModel, Deviation, trace_names
from ..targets.rule import model_answer
from ..traces.files import TraceError
from ..traces.replay import replay
from ..traces.trace_file import read_trace
from .bisect import BisectQuestion, State, observe
from .verify_sides import Borrowed, Lasting, VerifiedSide


class Where(StrEnum):
    """On which side something is wrong, the worst for the change first."""

    NEW = "introduced"
    """The new side is wrong where the old one was right; also if the old one cannot apply the trace: then nothing says
    that it was wrong before."""
    WRONG = "both wrong"
    """Both are, in different ways."""
    OPEN = "old side wrong; not to be told for the new one"
    """The new one applied a part of the trace only."""
    UNJUDGED = "changed, not judged"
    """There was no time for it, or the model does not say what follows a known deviation there."""
    RIGHT = "changed, both right"
    """They differ, and no oracle objects to either."""
    OLD = "fixed"
    """The old side was wrong where the new one is right."""
    BOTH = "the old side does it, too"
    """No difference: both do the same, and it is wrong, or a known deviation that both have."""


@dataclass(frozen=True)
class Placement:
    """What a trace comes to on both sides."""

    where: Where
    objection: Finding | None = None
    """To the side that is wrong; to the new one if both are. None if it was only said in a line."""
    corrects: tuple[str, ...] = ()
    """Ids of the known deviations that the new side does right."""
    why: str = ""
    """What the other side does, or what is not known."""


@dataclass(frozen=True)
class BothSides:
    """Both sides, and what judges them."""

    old: VerifiedSide
    new: VerifiedSide
    oracles: tuple[str, ...]

    @property
    def like(self) -> str:
        """What both are held against."""
        return self.old.like

    def place(self, trace: Trace, oracles: Sequence[str] = ()) -> Placement:
        """What the trace comes to, under these oracles, else all."""
        judging = Judging(tuple(oracles) or self.oracles)
        (new, applied), (old, _) = (replay(trace, Lent(side), judging) for side in (self.new, self.old))
        asked = new or old
        question = BisectQuestion(trace, asked.kind if asked else None, tuple(judging.oracles))
        seen = observe(question, lambda: Lent(self.old if new else self.new))
        if new is None and old is None:
            whole = LOCKSTEP not in judging.oracles or len(applied.operations) == len(trace.operations)
            return Placement(Where.BOTH if self.alike(trace) else Where.RIGHT if whole else Where.UNJUDGED)
        if new is not None and old is not None:
            in_words = new.oracle != LOCKSTEP and seen.shows(new, len(trace.operations))
            if in_words or self.alike(trace):
                return Placement(Where.BOTH, new, why=seen.why)
            # What is against the new side may only be that it does not make a mistake of the model.
            corrects = self._corrects(trace, judging) if new.oracle == LOCKSTEP else ()
            return Placement(Where.OLD if corrects else Where.WRONG, new, corrects, seen.why)
        if new is None:
            assert old is not None
            if self.alike(trace):
                return Placement(Where.BOTH, old)
            unseen = hidden_fields(self.new.target) - hidden_fields(self.old.target)
            if seen.state is State.PASSES and not unseen:
                return Placement(Where.OLD, old)
            return Placement(Where.OPEN, old, why=seen.why or f"it does not show {', '.join(sorted(unseen))}")
        if LOCKSTEP in judging.oracles:
            if corrects := self._corrects(trace, judging):
                return Placement(Where.OLD, new, corrects)
            if self._both_deviate(trace, judging, new):
                return Placement(Where.WRONG, new, why="the old side does what is a known deviation")
        return Placement(Where.NEW, new, why=seen.why)

    def introduces(self, trace: Trace, oracles: Sequence[str] = (), found: Finding | None = None) -> bool:
        """Whether the new side is wrong in the trace, and the old one is right in all of it.

        `found`: what is known to be wrong with the new one there, under these oracles; else it is asked. Of a side that
        was lost only the other one is asked: to lose it again may take a deadline.
        """
        judging = Judging(tuple(oracles) or self.oracles)
        new = found or replay(trace, Lent(self.new), judging)[0]
        if new is None:
            return False
        old, applied = replay(trace, Lent(self.old), judging)
        if old is not None or applied != trace:
            return False
        return (
            is_loss(new)
            or LOCKSTEP not in judging.oracles
            or not (self._corrects(trace, judging) or self._both_deviate(trace, judging, new))
        )

    def is_wrong(self, trace: Trace, oracles: Sequence[str] = ()) -> bool:
        """Whether the new side has something wrong in the trace."""
        return replay(trace, Lent(self.new), Judging(tuple(oracles) or self.oracles))[0] is not None

    def alike(self, trace: Trace) -> bool:
        """True if nothing that both show differs in the trace."""
        return situation_of(self, trace) == ""

    def _corrects(self, trace: Trace, judging: Judging) -> tuple[str, ...]:
        """The fewest deviations of the old side's model without which the new side agrees with it, and the old one does
        not; none if there are no such ones."""
        occurred = occurring(self.like, trace)
        for ids in (*((one,) for one in occurred), *([occurred] if len(occurred) > 1 else [])):
            without = replace(judging, without=ids)
            if replay(trace, Lent(self.new), without)[0] is None and replay(trace, Lent(self.old), without)[0]:
                return ids
        return ()

    def _both_deviate(self, trace: Trace, judging: Judging, new: Finding) -> bool:
        """Whether the old side deviates in the operation in which the new one does something else that is wrong."""
        without = replace(judging, without=occurring(self.like, trace))
        old = replay(trace, Lent(self.old), without)[0] if without.without else None
        return old is not None and old.step == new.step

    def corrected(self) -> Iterator[tuple[Deviation, Trace, Finding]]:
        """Each known deviation that the old side has and the new one does right, in its kept trace; and what is said of
        the old side there."""
        known = known_of(self.like) if LOCKSTEP in self.oracles else None
        if known is None:
            return
        for one in known.deviations:
            for name in trace_names(one) if not one.chaos_only else ():
                judging = Judging(tuple(name for name in self.oracles if name not in MODEL_FREE), without=(name,))
                try:
                    trace = read_trace(shipped(Path(known.traces) / f"{name}.json")).trace
                except TraceError:
                    continue
                shown, _ = replay(trace, Lent(self.old), judging)
                right, applied = replay(trace, Lent(self.new), judging)
                whole = applied.operations == trace.operations
                if shown is not None and right is None and whole and not self.alike(trace):
                    yield one, trace, shown
                    break


def is_loss(finding: Finding) -> bool:
    """True if a side has crashed, hung, or given no answer that could be read."""
    error = finding.actual.error if isinstance(finding.actual, Failed) else finding.observable
    return error in LOST


class Lent(Borrowed):
    """A side for one replay, held against what both are."""

    def __init__(self, side: VerifiedSide) -> None:
        super().__init__(side.target)
        if side.like:
            self.like = side.like


def occurring(like: str, trace: Trace) -> tuple[str, ...]:
    """Ids of the known deviations that occur in a trace, in the model that has them."""
    model = model_for(like, trace.shape)
    if not isinstance(model, DeviatingModel):
        return ()
    for operation in trace.operations:
        if model.dead or not allows(model, operation):
            break
        model_answer(model, operation)
    return tuple(sorted(model.deviated.keys() - {name for name, times in model.deviated.items() if not times}))


def situation_of(sides: BothSides, trace: Trace) -> str:
    """How the new side differs from the old one in the trace, in words; empty if it does not."""
    for strictness in (Strictness.SHAPE, Strictness.EXACT):
        pair = Pair(Lasting(sides.old.target), Lasting(sides.new.target), strictness)
        if (found := replay(trace, pair)[0]) is not None:
            return found.observable
    return ""


NOTICED = {
    "refused": "requests wait, or are preempted, that were served",
    "no longer refused": "requests are let in that had to wait",
    "raises": "a call that went well raises",
    "no longer raises": "a call that raised goes well",
    "longer hit": "more of a prompt is taken from the cache",
    "shorter hit": "more of a prompt is computed again",
    "hit of other blocks": "a hit is read from other blocks",
    "number of free blocks": "more or fewer blocks are free",
    "references": "blocks have other holders",
    "blocks held": "a request holds other blocks",
    "eviction order": "other entries of the cache go first",
    "blocks registered": "other blocks can be hit later",
    "entries counted as registered": "other blocks can be hit later",
    "contents that can be hit": "other contents can be hit later",
    "block that a hit yields": "a hit is read from other blocks",
    "events": "listeners to events are told something else",
    "statistics": "statistics say something else",
    "usage": "the usage that is reported is another one",
    "block ids reported as new": "other blocks are reported as new",
    "constructible for one only": "a core of such a shape can be built on one side only",
}
"""What a user notices of a difference, by its name in `runs.pair`."""
_SEVERE = {
    Severity.WRONG_CONTENT: "a request can read what was not written for it",
    Severity.LEAK: "blocks are lost, until nothing is left",
    Severity.CRASH: "a call fails, or a request is never served",
}


def noticed(placed: Placement, situation: str) -> str:
    """What a user of the engine would notice of it."""
    wrong = placed.objection
    severe = None if wrong is None else _SEVERE.get(severity(wrong))
    if severe is not None and wrong is not None and wrong.oracle != LOCKSTEP:
        return f"no longer: {severe}" if placed.where is Where.OLD else severe
    if wrong is not None and situation == "other answer":
        return f"{wrong.kind[1]} is answered otherwise"
    return NOTICED.get(situation, situation)
