"""Between which two of a line of releases, or of commits, a trace begins to fail or no longer does."""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from ...model.ops import Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..findings.finding import BUG, CORRUPTION, LOST, Finding, Trace
from ..findings.oracle_names import ADDITIONS, CONTRACT, LIVENESS, LOCKSTEP, ORACLES, SHADOW
from ..findings.starved import Starved
from ..findings.words import operation_text, outcome_text
from ..oracles.liveness import is_script
from ..runs.judging import Judging
from ..targets.adapting import adapted
from ..targets.base import Target, TargetUnavailableError, close_target, lacking_in
from ..traces.replay import replay
from ..traces.trace_file import TraceFile, write_trace

_NUMBERS = re.compile(r"[\d, ]+")
Look = Callable[[Sequence[int]], Mapping[int, bool | None]]
"""Tries these places of the line and says of each whether the trace fails there; None where that cannot be seen."""


class BisectError(Exception):
    """Why there is no answer: one line with a remedy, and the exit code of the command line that goes with it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class State(StrEnum):
    """What a trace does on one target."""

    FAILS = "fails"
    PASSES = "does not fail"
    OTHER = "another finding"
    """It ends early with a finding of another kind: whether the one in question would follow is not known."""
    UNSEEN = "not observed"
    """The target could not be started or built, or not all of the trace could be applied to it."""

    @property
    def fails(self) -> bool | None:
        """None where that cannot be seen: what is not observed has not passed."""
        return {State.FAILS: True, State.PASSES: False}.get(self)


@dataclass(frozen=True)
class BisectQuestion:
    """A trace, and what counts as failing."""

    trace: Trace
    kind: tuple[str, str] | None
    """Observable and operation of the finding in question (`Finding.kind`); None if any finding counts."""
    oracles: tuple[str, ...]
    """With what the trace adds to them, such as properties that are not judged."""
    manner: tuple[str, ...] = ()
    """In what way it fails (`Finding.manner`); empty if any way counts, as for traces of old."""
    unit = "operations"

    def count(self, answer: "BisectAnswer") -> str:
        """How many of them were applied."""
        return f"{answer.operations} of {len(self.trace.operations)}"

    def write(self, path: Path) -> None:
        """For a process that asks the same."""
        write_trace(TraceFile(self.trace), path)

    def is_answered_by(self, finding: Finding) -> bool:
        """True if this, or what else is objected to at the operation, is the finding in question."""
        return any(
            self.kind in (None, one.kind) and (self.kind is None or self.manner in ((), one.manner))
            for one in finding.every
        )


def question_about(
    file: TraceFile, any_finding: bool, oracles: tuple[str, ...] | None, default: tuple[str, ...]
) -> BisectQuestion:
    """What is asked of a trace: whether it fails as it did when it was written, or with `any_finding` at all.

    `oracles` are those that the user names; if None, those that can make the finding in question, and `default` where
    that says nothing, each with what the trace adds (`oracle_names.ADDITIONS`), as `replay` has them.
    """
    said = None if any_finding else file.finding
    kind = None if said is None else (said.observable, said.operation)
    if oracles is None:
        oracles = judges_of(kind[0], default) if kind else default
        oracles = tuple(dict.fromkeys((*oracles, *(name for name in file.oracles or () if name in ADDITIONS))))
    return BisectQuestion(file.trace, kind, oracles, () if said is None else said.manner)


@dataclass(frozen=True)
class BisectAnswer:
    """What came of the trace on one target."""

    state: State
    why: str = ""
    """One line: the finding, or why there is no answer. Empty if the trace passes."""
    operations: int = 0
    """How many operations of the trace were applied."""
    seconds: float = 0.0

    def shows(self, finding: Finding, operations: int) -> bool:
        """True if it is this finding that it shows, at the end of so many operations and in the same words but for
        numbers: not another mistake of its kind."""
        mine = one_line(f"{' at '.join(finding.kind)}: {finding.detail}")
        alike = _NUMBERS.sub("", mine) == _NUMBERS.sub("", self.why)
        return self.state is State.FAILS and self.operations == operations and alike

    def as_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        seconds = round(self.seconds, 2)
        return {"state": self.state.value, "why": self.why, "operations": self.operations, "seconds": seconds}


def judges_of(observable: str, default: tuple[str, ...], by_model: tuple[str, ...] = ORACLES) -> tuple[str, ...]:
    """The oracles that can make a finding with this observable; any others might object earlier and hide it.

    `default` for a target that was lost, which needs no oracle; `by_model` for a difference from the model.
    """
    if observable in LOST or observable == BUG:
        return default
    if observable == CORRUPTION:
        return (SHADOW,)
    if re.fullmatch(r"[SL]\d+", observable):
        return (CONTRACT,) if observable.startswith("S") else (LIVENESS,)
    return by_model


def observe(question: BisectQuestion, open_target: Callable[[], Target]) -> BisectAnswer:
    """Replay the trace on a target that is opened for it and closed again. Never raises for what the target does."""
    begin = time.monotonic()
    try:
        target = _Watched(open_target())
    except TargetUnavailableError as error:
        return BisectAnswer(State.UNSEEN, one_line(str(error)), 0, time.monotonic() - begin)
    try:
        finding, applied = replay(question.trace, target, Judging(question.oracles))
        count = len(applied.operations) if finding or target.steps or is_script(applied) else 0
        state, why = _judge(question, finding, target, applied)
    except TargetUnavailableError as error:
        count, state, why = 0, State.UNSEEN, one_line(str(error))
    finally:
        close_target(target)
    return BisectAnswer(state, why, count, time.monotonic() - begin)


def _judge(question: BisectQuestion, finding: Finding | None, target: "_Watched", applied: Trace) -> tuple[State, str]:
    if finding is not None:
        state = State.FAILS if question.is_answered_by(finding) else State.OTHER
        return state, one_line(": ".join(part for part in (" at ".join(finding.kind), finding.detail) if part))
    if LOCKSTEP not in question.oracles and target.refusal is not None:  # in lockstep the model has refused as well
        return State.UNSEEN, f"refuses to be built: {target.refusal.error}"
    missing = _not_applied(question.trace, applied, lacking_in(target, applied.shape), target.last)
    return (State.UNSEEN, missing) if missing else (State.PASSES, "")


_READING = frozenset({"ReadTable", "CommonPrefix", "TakeEvents", "TakeNewBlockIds", "TakeStats"})
"""Operations that ask and change nothing of the core, so that the others mean the same without them."""


def _not_applied(trace: Trace, applied: Trace, lacks: Collection[str], last_outcome: Outcome | None) -> str:
    """What of a trace that ended without a finding was left out or changed; empty if nothing that can matter was.

    Only questions that the core has no equivalent of may be left out, unless the trace ends with one: then it is the
    one that showed the finding.
    """
    if applied.shape != trace.shape:
        names = (name for name in sorted(lacks) if name.startswith(("Shape.", "Group.")))
        return f"cannot be built with the shape of the trace: it has no equivalent of {', '.join(names)}"
    *others, last = trace.operations or (None,)
    asked = [one for one in others if not {type(one).__name__} & _READING & set(lacks)]
    wanted = [one for one in (*asked, last) if one is not None]
    count = len(trace.operations)
    for operation, instead in zip_longest(wanted, applied.operations):
        if operation != instead and operation is not None:
            part = f"{len(applied.operations)} of {count} operations were applied"
            before = "" if last_outcome is None else f" (before it: {outcome_text(last_outcome)})"
            return f"{part}: operation {trace.operations.index(operation)}, {_why_not(operation, lacks)}{before}"
    return ""


def _why_not(operation: Operation, lacks: Collection[str]) -> str:
    """What was not applied of a trace, and why: it is not there, or does not fit what came before."""
    kind, text = type(operation).__name__, operation_text(operation)
    if isinstance(operation, Starved):
        return f"{text}: it has no calls that can be refused"
    if kind in lacks:
        return f"{text}: it has no equivalent of {kind}"
    if adapted(operation, lacks) != operation:
        fields = (name for name in sorted(lacks) if name.startswith(f"{kind}."))
        return f"{text}: it has no equivalent of some of {', '.join(fields)}"
    return f"{text}, makes no sense after what was answered"


class _Watched:
    """Passes everything on to a target, and remembers what a replay does not say about it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.name = target.name
        self.refusal: Failed | None = None
        """Why the core was not built the last time it was asked to be."""
        self.steps = 0
        self.last: Outcome | None = None
        """The outcome of the last operation."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        outcome, shown = self._target.start(shape)
        self.refusal = outcome if isinstance(outcome, Failed) else None
        return outcome, shown

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        self.steps += 1
        self.last, shown = self._target.step(operation)
        return self.last, shown

    def close(self) -> None:
        self._target.close()


def search(count: int, look: Look, jobs: int = 1) -> dict[int, bool | None]:
    """Find two of `count` places that differ with nothing to be seen between them; look at as few as that takes.

    Returns what was seen. First both ends; an end that shows nothing gives way to its neighbour. If they differ, `jobs`
    places between them at a time, evenly spaced, so 1 is binary search. Where the line changes more than once, one
    of the changes is found.
    """
    known: dict[int, bool | None] = {}
    ends = _ends(count, look, known)
    if ends is None or known[ends[0]] == known[ends[1]]:
        return known
    low, high = ends
    while inner := [place for place in range(low + 1, high) if place not in known]:
        several = min(jobs, len(inner))
        known |= look([inner[len(inner) * (index + 1) // (several + 1)] for index in range(several)])
        seen = [place for place in range(low, high + 1) if known.get(place) is not None]
        low, high = next((before, after) for before, after in pairwise(seen) if known[before] != known[after])
    return known


def _ends(count: int, look: Look, known: dict[int, bool | None]) -> tuple[int, int] | None:
    """The outermost two places that show something; None if there are no two."""
    low, high = 0, count - 1
    while low < high:
        if wanted := [place for place in (low, high) if place not in known]:
            known |= look(wanted)
        blind = known[low] is None, known[high] is None
        if not any(blind):
            return low, high
        low, high = low + blind[0], high - blind[1]
    return None


@dataclass(frozen=True)
class TurningPoint:
    """Two places of a line between which the trace begins to fail, or no longer does."""

    before: int
    after: int
    begins: bool
    """True if it fails at `after`."""
    untried: tuple[int, ...]
    """Places in between that were not tried: the change may be at any of them."""
    blind: tuple[int, ...]
    """Places in between that show nothing: the change may be at any of them."""


def changes(known: Mapping[int, bool | None]) -> Iterator[TurningPoint]:
    """All changes that these places show, from the beginning of the line."""
    seen = sorted(place for place in known if known[place] is not None)
    for before, after in pairwise(seen):
        if known[before] != known[after]:
            between = range(before + 1, after)
            untried = tuple(place for place in between if place not in known)
            yield TurningPoint(before, after, bool(known[after]), untried, tuple(p for p in between if p in known))


def one_line(text: str) -> str:
    """The text without line breaks, cut where it gets long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 240 else f"{flat[:237]}..."


def answer_lines(
    head: str, rows: Sequence[tuple[str, BisectAnswer]], unit: str, count: Callable[[BisectAnswer], str]
) -> list[str]:
    """A table of what came of a trace or story by name, under a headline; `count` says how much of it was applied."""
    cells = [(head, "trace" if unit == "operations" else "story", unit, "seconds", "")]
    cells += [(name, one.state.value, count(one), f"{one.seconds:.1f}", one.why) for name, one in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    padded = ([cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)] + [row[4]] for row in cells)
    return ["  ".join(row).rstrip() for row in padded]
