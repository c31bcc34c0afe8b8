"""Verifies a change: both sides on the same operations, the oracles on each, and how fast they are.

A difference between the sides is a situation that changed. A finding of the oracles is put down to the change only if
its smallest trace shows it on one side and not on the other.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...model.ops import Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from ..engines.knowing import judging_of, smallest
from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..findings.known import KnownFinding
from ..reports.summary import Summary
from ..reports.vacuity import vacuity
from ..runs.pair import Pair, Strictness
from ..targets.base import Target
from ..traces.replay import replay
from ..traces.shrink import NotReproducedError
from .bisect import Answer, Question, State, observe, one_line
from .diff import SHRINK_SECONDS, Comparison, Differences, compare_targets, share_of
from .timing import Timing, compare_speed
from .verify_proofs import Proofs
from .verify_sides import Borrowed, Lasting, Side

COMPARED, JUDGED = 0.5, 0.25
"""Shares of the limits: of the comparison, and of the oracles on each side."""
TIMED_OPERATIONS = 2_000
_NUMBERS = re.compile(r"[\d, ]+")


class Where(StrEnum):
    """On which sides a finding of the oracles shows."""

    NEW = "new side only"
    BOTH = "both sides"
    OLD = "old side only"
    OPEN = "old side; not to be told for the new one"


@dataclass(frozen=True)
class Changed:
    """A situation in which the sides behave differently."""

    finding: Finding
    trace: Trace
    """The smallest."""
    times: int
    """Runs that ended with it."""
    compared: str
    """How strictly: under which of `Strictness` it came up, by blocks' ids (`exact`) or by shape."""


@dataclass(frozen=True)
class Judged:
    """What the oracles have found."""

    finding: Finding
    trace: Trace
    """The smallest."""
    times: int
    where: Where
    why: str = ""
    """What the other side does with the trace, if it is not simply that it shows nothing."""


@dataclass
class Verification:
    """What came of verifying a change."""

    old: Side
    new: Side
    seed: int
    compared: Differences | None = None
    summaries: dict[str, Summary] = field(default_factory=dict)
    """What the oracles did, by `old` and `new`."""
    judged: list[Judged] = field(default_factory=list)
    timing: Timing | str = "not timed"
    proofs: Proofs | str = "not asked for"
    known: tuple[KnownFinding, ...] = ()
    """What is intended."""
    hidden: tuple[str, ...] = ()
    """What of the state a side hides, so that it is not compared."""
    vacuous: str = ""
    """Why the comparison shows nothing; empty if it does."""
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def changed(self) -> list[Changed]:
        """The situations that changed and are not intended; one that came up under both rules of comparison once."""
        found: dict[tuple[str, ...], Changed] = {}
        for comparison in self.compared.comparisons if self.compared else ():
            for one in comparison.situations:
                before = found.get(one.finding.kind)
                times = one.times + (before.times if before else 0)
                rule = f"{before.compared}, {comparison.strictness}" if before else str(comparison.strictness)
                found[one.finding.kind] = Changed(one.finding, one.trace, times, rule)
        return sorted(found.values(), key=lambda one: -one.times)

    @property
    def intended(self) -> Counter[str]:
        """How often each intended change came up, by its id."""
        counts = sum((comparison.summary.known for comparison in self._comparisons), Counter[str]())
        return counts + sum((summary.known for summary in self.summaries.values()), Counter[str]())

    @property
    def stale(self) -> list[str]:
        """Ids of intended changes that did not come up."""
        return [entry.id for entry in self.known if entry.id not in self.intended]

    @property
    def broken(self) -> list[Judged]:
        """What the oracles find on the new side only."""
        return [one for one in self.judged if one.where is Where.NEW]

    @property
    def operations(self) -> int:
        """How many were applied to both sides and compared."""
        return sum(comparison.summary.operations for comparison in self._comparisons)

    @property
    def code(self) -> int:
        """The exit code: 1 for a change that is not intended, or a finding that the old side does not have; 3 if
        nothing was tested; 130 for Ctrl-C before anything was found; else 0.
        """
        refuted = isinstance(self.proofs, Proofs) and bool(self.proofs.broken)
        if self.vacuous:
            return 3
        if self.changed or self.broken or refuted:
            return 1
        return 130 if self.interrupted else 0

    @property
    def _comparisons(self) -> Sequence[Comparison]:
        return self.compared.comparisons if self.compared else ()


def verify(
    old: Side, new: Side, plan: Plan, say: Callable[[str], None], prove: Callable[[], "Proofs | str"] | None = None
) -> Verification:
    """Compare the sides, let the oracles judge both, and time them.

    `plan.known` is what is intended, `plan.oracles` are left to the sides. `prove` does what can be proved. `say` is
    told each step in a line. Ctrl-C ends it with what there is so far. TargetUnavailableError if a side cannot be
    started.
    """
    begin = time.monotonic()
    done = Verification(old, new, plan.seed, known=plan.known)
    try:
        _compare(done, plan, say)
        if not done.vacuous:
            _look_closer(done, plan, say, prove)
    except KeyboardInterrupt:
        done.interrupted = True
    done.seconds = time.monotonic() - begin
    return done


def _look_closer(
    done: Verification, plan: Plan, say: Callable[[str], None], prove: Callable[[], "Proofs | str"] | None
) -> None:
    """All but the comparison."""
    for side in (done.new, done.old):
        _judge(done, side, share_of(plan, JUDGED), say)
    say("timing both on the same operations, in turns")
    done.timing = compare_speed(done.old.home, done.new.home, alike_runs(done.old, done.new, plan))
    if prove is not None:
        say("proving what the change touches")
        done.proofs = prove()


def _compare(done: Verification, plan: Plan, say: Callable[[str], None]) -> None:
    say(f"comparing {done.old.name} and {done.new.name}, seed {plan.seed}")
    done.compared = compare_targets(Pair(Lasting(done.old.target), Lasting(done.new.target)), share_of(plan, COMPARED))
    done.hidden = tuple(sorted(done.compared.pair.hides))
    summaries = [comparison.summary for comparison in done.compared.comparisons]
    if any(summary.interrupted for summary in summaries):
        raise KeyboardInterrupt
    # Operations are counted by the old side's answers. That it differs from the new one does not make up for a side
    # that answers nothing, such as an adapter that does not fit an old commit.
    problems = [vacuity(replace(summary, finding=None)).problem for summary in summaries]
    done.vacuous = "" if None in problems else str(problems[0])


def _judge(done: Verification, side: Side, plan: Plan, say: Callable[[str], None]) -> None:
    """Let the oracles judge a side, and see whether what they find shows on the other one."""
    is_new = side is done.new
    plan = replace(plan, oracles=side.oracles, keep_going=True)
    say(f"{', '.join(side.oracles)} judge {side.name}")
    summary = Summary(side.name, "random", plan.seed, oracles=side.oracles, core_name=side.target.name)
    done.summaries["new" if is_new else "old"] = summary
    try:
        run_random(side.target, plan, summary)
    except KeyboardInterrupt:
        done.interrupted = True
    other = done.old if is_new else done.new
    for found in summary.ranked():
        finding, trace = found.finding, found.trace
        if not done.interrupted:
            with suppress(NotReproducedError):
                small = smallest(found, side.target, plan, max_seconds=SHRINK_SECONDS)
                finding, trace, done.interrupted = small.finding, small.trace, small.interrupted
        if done.interrupted:
            answer = Answer(State.UNSEEN, "it was not tried there")
        else:
            question = Question(trace, finding.kind, tuple(judging_of(found, plan).oracles), finding.manner)
            answer = observe(question, lambda: Borrowed(other.target))
            if answer.state is State.FAILS and not _is_same(answer, finding, trace):
                answer = replace(answer, state=State.OTHER)
        if is_new or not any(one.finding.key == finding.key and one.where is Where.BOTH for one in done.judged):
            where = _where(is_new, answer.state)
            done.judged.append(Judged(finding, trace, found.times, where, "" if where is Where.BOTH else answer.why))
    if done.interrupted:
        raise KeyboardInterrupt


def _is_same(answer: Answer, finding: Finding, trace: Trace) -> bool:
    """True if the other side shows the same at the same operation, but for numbers: not another mistake of its kind."""
    mine = one_line(f"{' at '.join(finding.kind)}: {finding.detail}")
    return answer.operations == len(trace.operations) and _NUMBERS.sub("", mine) == _NUMBERS.sub("", answer.why)


def _where(is_new: bool, other: State) -> Where:
    """On which sides a finding shows that was found on one; the other one does this with its smallest trace."""
    if other is State.FAILS:
        return Where.BOTH
    if is_new:
        return Where.NEW  # also if the old one could not be observed: nothing says that it is no new one
    return Where.OLD if other is State.PASSES else Where.OPEN


def alike_runs(old: Side, new: Side, plan: Plan) -> list[Trace]:
    """Runs on the old side, each as far as the new one does the same: at most some `TIMED_OPERATIONS` operations."""
    recording = _Recording(old.target)
    few = replace(plan, seconds=None, operations=TIMED_OPERATIONS, oracles=(), known=())
    run_random(recording, few, Summary(old.name, "random", plan.seed, oracles=()))
    pair = Pair(Lasting(old.target), Lasting(new.target), Strictness.SHAPE)
    alike = []
    for trace in recording.traces:
        finding, applied = replay(trace, pair)
        same = applied.operations if finding is None else applied.operations[: max(0, finding.step)]
        alike += [Trace(trace.shape, same)] if same else []
    return alike


class _Recording(Borrowed):
    """Keeps the operations of each run."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.traces: list[Trace] = []

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.traces.append(Trace(shape, ()))
        return super().start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        last = self.traces[-1]
        self.traces[-1] = Trace(last.shape, (*last.operations, operation))
        return super().step(operation)
