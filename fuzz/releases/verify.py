"""Verifies a change: both sides on the same operations, the oracles on each, and how fast they are.

A difference between the sides is a situation that changed. What the change did there, and to a finding of the oracles,
says `verify_effects`: both sides are held against the same model and judged by the same oracles.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..engines.smallest import judging_of, smallest
from ..findings.finding import Finding, Trace, our_bug
from ..findings.known import KnownFinding
from ..reports.summary import Found, Summary
from ..reports.vacuity import vacuity
from ..runs.judging import TooLongError
from ..runs.pair import Pair, Strictness
from ..targets.base import TargetUnavailableError
from ..targets.deviations import trace_names
from ..traces.shrink import Keeps, NotReproducedError, Shrunk, shrink_keeping
from .alike import alike_runs
from .diff import SHRINK_SECONDS, Comparison, Differences, compare_targets, share_of
from .timing import ROUNDS, Timing, compare_speed
from .verify_clock import ALONE, COMPARED, JUDGED, RUN, RUNS, UNTIL, Clock
from .verify_effects import BothSides, Lent, Placement, Where, is_loss, situation_of
from .verify_proofs import Proofs
from .verify_sides import Lasting, Punctual, VerifiedSide, warm_up
from .verify_smallest import smallest_introduced


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
    placed: Placement | None = None
    """Which side is wrong; None if that was not asked."""

    @property
    def wrong(self) -> Finding:
        """What is wrong in its trace; if nothing is, how the sides differ."""
        return self.placed.objection if self.placed is not None and self.placed.objection is not None else self.finding

    @property
    def is_mixed(self) -> bool:
        """True if both sides are wrong in its trace."""
        return self.placed is not None and self.placed.where is Where.WRONG


@dataclass(frozen=True)
class JudgedSide:
    """What the oracles have found."""

    finding: Finding
    trace: Trace
    """The smallest."""
    times: int
    where: Where
    why: str = ""
    """What the other side does with the trace, if it is not simply that it shows nothing."""
    situation: str = ""
    """How the sides differ in it, in the words of a comparison."""
    corrects: tuple[str, ...] = ()
    """Ids of the known deviations that the new side does right."""


@dataclass
class Verification:
    """What came of verifying a change."""

    old: VerifiedSide
    new: VerifiedSide
    seed: int
    compared: Differences | None = None
    summaries: dict[str, Summary] = field(default_factory=dict)
    """What the oracles did, by `old` and `new`."""
    judged: list[JudgedSide] = field(default_factory=list)
    placed: dict[tuple[str, ...], Placement] = field(default_factory=dict)
    """What the change did in the situations that changed, by the kind of finding."""
    parted: dict[tuple[str, ...], Shrunk] = field(default_factory=dict)
    """By the kind of finding, the smallest trace in which the new side alone is wrong, where it is not the smallest."""
    timing: Timing | str = "not timed"
    proofs: Proofs | str = "not asked for"
    known: tuple[KnownFinding, ...] = ()
    """What is intended."""
    hidden: tuple[str, ...] = ()
    """What of the state a side hides, so that it is not compared."""
    vacuous: str = ""
    """Why the comparison shows nothing; empty if it does."""
    clock: Clock = field(default_factory=Clock)
    interrupted: bool = False
    failed: list[Finding] = field(default_factory=list)
    """Bugs of blockproof that ended a stage."""
    unfinished: list[str] = field(default_factory=list)
    """Stages that ended early, and why: a side could not be started again, or was too slow."""

    @property
    def bugs(self) -> list[Finding]:
        """All bugs of blockproof that came up: they say nothing of the sides, but not all was tested."""
        compared = [situation.finding for comparison in self._comparisons for situation in comparison.situations]
        judged = [one.finding for summary in self.summaries.values() for one in summary.ranked()]
        return [*self.failed, *(one for one in (*compared, *judged) if one.is_our_bug)]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the work. If it fails, what the others have found is told all the same."""
        try:
            with self.clock.stage(name):
                yield
        except TargetUnavailableError as error:
            if self.compared is None:
                raise
            self.unfinished.append(f"{name}: {error}")
        except TooLongError:
            self.unfinished.append(f"{name}: the time was over; give more --seconds")
        except Exception as error:
            self.failed.append(our_bug(error, None, -1))

    @property
    def changed(self) -> list[Changed]:
        """The situations that changed and are not intended; one that came up under both rules of comparison once."""
        found: dict[tuple[str, ...], Changed] = {}
        for comparison in self.compared.comparisons if self.compared else ():
            for one in (one for one in comparison.situations if not one.finding.is_our_bug):
                before = found.get(one.finding.kind)
                times = one.times + (before.times if before else 0)
                rule = f"{before.compared}, {comparison.strictness}" if before else str(comparison.strictness)
                shown = self.parted.get(one.finding.kind, one)
                placed = self.placed.get(one.finding.kind)
                found[one.finding.kind] = Changed(shown.finding, shown.trace, times, rule, placed)
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
    def broken(self) -> list[JudgedSide]:
        """What the change has introduced, or has made wrong in another way; and what nobody had the time to try."""
        return [one for one in self.judged if one.where in (Where.NEW, Where.WRONG, Where.UNJUDGED)]

    @property
    def sides(self) -> BothSides:
        """Both, and what judges them."""
        return BothSides(self.old, self.new, self.new.oracles)

    def pair(self, strictness: Strictness = Strictness.EXACT) -> Pair:
        """Both, to be compared."""
        return Pair(Lasting(self.old.target), Lasting(self.new.target), strictness)

    @property
    def operations(self) -> int:
        """How many were applied to both sides and compared."""
        return sum(comparison.summary.operations for comparison in self._comparisons)

    @property
    def code(self) -> int:
        """The exit code: 1 for a change that is not intended, or a finding that the old side does not have; 3 if
        nothing was tested, or not all of it; 70 if blockproof has failed; 130 for Ctrl-C before anything was found;
        else 0.
        """
        refuted = isinstance(self.proofs, Proofs) and bool(self.proofs.broken)
        if self.vacuous:
            return 3
        if self.changed or self.broken or refuted:
            return 1
        if self.interrupted:
            return 130
        return 70 if self.bugs else 3 if self.unfinished else 0

    @property
    def _comparisons(self) -> Sequence[Comparison]:
        return self.compared.comparisons if self.compared else ()


def verify(
    old: VerifiedSide,
    new: VerifiedSide,
    plan: Plan,
    say: Callable[[str], None],
    prove: "Callable[[float | None], Proofs | str] | None" = None,
    clock: Clock | None = None,
) -> Verification:
    """Compare the sides, let the oracles judge both, and time them.

    `plan.known` is what is intended, `plan.oracles` are left to the sides. `plan.seconds` is what all of it takes
    since the `clock` began; only a call of a side that is under way, such as one that hangs, is waited for: once the
    time of a stage is over, and of the next one, which it may take from, no side is asked any more. `prove`
    does what can be proved in so many seconds. `say` is told each step in a line. Ctrl-C ends it with what there is so
    far; a bug of blockproof ends the stage that it comes up in. TargetUnavailableError if a side cannot be started.
    """
    clock = clock or Clock()
    for side in (old, new):
        warm_up(side.target)
    clock.limit, clock.started = plan.seconds, clock.seconds
    old, new = (replace(side, target=Punctual(side.target, clock.is_over)) for side in (old, new))
    done = Verification(old, new, plan.seed, known=plan.known, clock=clock)
    try:
        with done.stage("comparing"):
            _compare(done, plan, say)
        if not done.vacuous:
            _look_closer(done, plan, say, prove)
    except KeyboardInterrupt:
        done.interrupted = True
    return done


def _look_closer(
    done: Verification,
    plan: Plan,
    say: Callable[[str], None],
    prove: "Callable[[float | None], Proofs | str] | None",
) -> None:
    """All but the comparison."""
    for side in (done.new, done.old):
        with done.stage(f"judging {_which(done, side)}"):
            _judge(done, side, plan, say)
    with done.stage("placing"):
        _place_changed(done)
    with done.stage("timing"):
        _time(done, plan, say)
    if prove is not None:
        with done.stage("proving"):
            say("proving what the change touches")
            done.proofs = prove(done.clock.until(UNTIL["proving"]))


def _place_changed(done: Verification) -> None:
    """Say of what changed what the change did, and look for a trace of its own for what it has introduced."""
    changed = sorted(done.changed, key=lambda one: not is_loss(one.finding))  # which take no time
    for one in changed:
        if is_loss(one.finding) and done.sides.introduces(one.trace, (), one.finding):
            done.placed[one.finding.kind] = Placement(Where.NEW, one.finding)
            continue
        if done.clock.until(UNTIL["placing"]) == 0.0:
            return
        placed = done.sides.place(one.trace)
        # They differ, so that it is no mistake which both make alike.
        done.placed[one.finding.kind] = replace(placed, where=_DIFFERS.get(placed.where, placed.where))
    told = {one.finding.key for one in done.judged if one.where is Where.NEW}
    mixed = [one for one in done.changed if one.is_mixed and one.wrong.key not in told]
    for number, one in enumerate(mixed):
        left = done.clock.until(UNTIL["placing"])
        _part(done, one, SHRINK_SECONDS if left is None else min(SHRINK_SECONDS, left / (len(mixed) - number)))


def _part(done: Verification, one: Changed, seconds: float) -> None:
    """Look for a trace of a change in which the old side has nothing wrong."""
    for comparison in done.compared.comparisons if done.compared else ():
        pair = done.pair(comparison.strictness)
        found = [each for each in comparison.summary.ranked() if each.finding.kind == one.finding.kind]
        traces = [each.trace for start in found for each in (start, *start.samples)]

        def shrinks(trace: Trace, keeps: Keeps, most: float | None, pair: Pair = pair) -> Shrunk:
            return shrink_keeping(trace, one.finding.kind, pair, keeps, max_seconds=most)

        small = smallest_introduced(done.sides, traces, done.new.oracles, shrinks, seconds / len(Strictness))
        if small is not None:
            done.parted[one.finding.kind] = small
            done.placed[one.finding.kind] = done.sides.place(small.trace)
            return


_DIFFERS = {Where.BOTH: Where.WRONG}


def _which(done: Verification, side: VerifiedSide) -> str:
    return "new" if side is done.new else "old"


def _compare(done: Verification, plan: Plan, say: Callable[[str], None]) -> None:
    say(f"comparing {done.old.name} and {done.new.name}, seed {plan.seed}")
    runs, whole = done.clock.until(RUNS), done.clock.until(UNTIL["comparing"])
    shrinking = None if runs is None or whole is None else whole - runs
    share = replace(share_of(plan, COMPARED), seconds=runs)
    done.compared = compare_targets(done.pair(), share, shrinking)
    done.hidden = tuple(sorted(done.compared.pair.hides))
    summaries = [comparison.summary for comparison in done.compared.comparisons]
    if any(summary.interrupted for summary in summaries):
        raise KeyboardInterrupt
    # Operations are counted by the old side's answers. That it differs from the new one does not make up for a side
    # that answers nothing, such as an adapter that does not fit an old commit.
    problems = [vacuity(replace(summary, finding=None)).problem for summary in summaries]
    done.vacuous = "" if None in problems or done.bugs else str(problems[0])


def _judge(done: Verification, side: VerifiedSide, plan: Plan, say: Callable[[str], None]) -> None:
    """Let the oracles judge a side, and see whether what they find shows on the other one."""
    which = _which(done, side)
    corrected = _corrected(done) if side is done.new else ()
    time_for_it = done.clock.until(UNTIL[f"judging {which}"])
    limits = replace(share_of(plan, JUDGED), seconds=None if time_for_it is None else time_for_it * RUN)
    plan = replace(limits, oracles=side.oracles, keep_going=True, without=(*plan.without, *corrected))
    say(f"{', '.join(side.oracles)} judge {side.name}")
    summary = Summary(side.name, "random", plan.seed, oracles=side.oracles, core_name=side.like or side.target.name)
    done.summaries[which] = summary
    try:
        run_random(Lent(side), plan, summary)
    except KeyboardInterrupt:
        done.interrupted = True
    except TooLongError:
        if not summary.operations:
            raise
    ranked = [found for found in summary.ranked() if not found.finding.is_our_bug]
    done.clock.last_call()
    known = [_unshrunk(done, side, found, plan) for found in ranked]
    for number, found in enumerate(ranked):
        left = done.clock.until(UNTIL[f"judging {which}"])
        most = SHRINK_SECONDS if left is None else min(SHRINK_SECONDS, left / (len(ranked) - number))
        _place(done, side, found, plan, most, known[number])
    if done.interrupted:
        raise KeyboardInterrupt


def _corrected(done: Verification) -> tuple[str, ...]:
    """The known deviations that the new side does right; to make them is a mistake of its own from now on."""
    names: list[str] = []
    for deviation, trace, finding in done.sides.corrected():
        names += trace_names(deviation)
        situation = situation_of(done.sides, trace)
        done.judged.append(JudgedSide(finding, trace, 1, Where.OLD, deviation.reason, situation, (deviation.id,)))
    return tuple(names)


def _unshrunk(done: Verification, side: VerifiedSide, found: Found, plan: Plan) -> Placement:
    """What can be said of a finding at once: the other side is asked its trace as it was drawn. What is not known by
    that is left to its smallest trace."""
    nothing = Placement(Where.UNJUDGED if side is done.new else Where.OPEN, why="it was not tried there")
    oracles = tuple(judging_of(found, plan).oracles)
    with suppress(TooLongError):
        if side is done.new and not done.interrupted and done.sides.introduces(found.trace, oracles, found.finding):
            return Placement(Where.NEW, found.finding)
    return nothing


def _place(done: Verification, side: VerifiedSide, found: Found, plan: Plan, seconds: float, placed: Placement) -> None:
    """Shrink a finding of a side for so long at most, and say what the change did to it, by its smallest trace; if that
    does not show that the new side alone is wrong, look for one that does. `placed`: what is known before."""
    is_new, end = side is done.new, time.monotonic() + seconds
    finding, trace, situation = found.finding, found.trace, ""
    with _going_on(done):
        if not done.interrupted:
            small = smallest(found, Lent(side), plan, max_seconds=seconds * ALONE)
            finding, trace, done.interrupted = small.finding, small.trace, small.interrupted
    oracles = tuple(judging_of(found, plan).oracles)
    try:
        if not done.interrupted:
            now = done.sides.place(trace, oracles)
            situation = situation_of(done.sides, trace)
            elsewhere = now.where in (Where.RIGHT, Where.UNJUDGED)  # a deviation that the new side does right elsewhere
            placed = replace(now, where=Where.BOTH) if elsewhere else now
    except TooLongError:  # what is known is known of the trace as it was drawn
        finding, trace = found.finding, found.trace
    if is_new and not done.interrupted and placed.where is not Where.NEW:
        with _going_on(done):
            _place_introduced(done, found, plan, oracles, max(0.0, end - time.monotonic()))
    alike = [one.where for one in done.judged if one.finding.key == finding.key]
    if (is_new and placed.where is Where.WRONG and Where.NEW in alike) or (not is_new and Where.BOTH in alike):
        return
    why = "" if placed.where is Where.BOTH else placed.why
    done.judged.append(JudgedSide(finding, trace, found.times, placed.where, why, situation, placed.corrects))


def _place_introduced(done: Verification, found: Found, plan: Plan, oracles: tuple[str, ...], seconds: float) -> None:
    """Add what the new side alone has wrong among the findings of one key, if a trace shows that."""
    runs = {one.trace: one for one in (found, *found.samples)}

    def shrinks(trace: Trace, keeps: Keeps, most: float | None) -> Shrunk:
        judging = judging_of(runs[trace], plan)
        return shrink_keeping(trace, found.finding.kind, Lent(done.new), keeps, judging, max_seconds=most)

    small = smallest_introduced(done.sides, runs, oracles, shrinks, seconds)
    if small is not None:
        done.interrupted |= small.interrupted
        situation = situation_of(done.sides, small.trace)
        done.judged.append(JudgedSide(small.finding, small.trace, found.times, Where.NEW, "", situation))


@contextmanager
def _going_on(done: Verification) -> Iterator[None]:
    """What ends the search for a smaller trace is no reason not to tell of the one that there is."""
    try:
        yield
    except (NotReproducedError, TooLongError):
        pass
    except TargetUnavailableError:
        raise
    except Exception as error:
        done.failed.append(our_bug(error, None, -1))


def _time(done: Verification, plan: Plan, say: Callable[[str], None]) -> None:
    """Time both on the same operations, if there is time for it."""
    left = done.clock.until(UNTIL["timing"])
    done.timing = "not timed: the time was over; give more --seconds"
    if left is not None and left <= done.clock.started:  # both have to be started once more
        return
    say("timing both on the same operations, in turns")
    with suppress(TooLongError):
        runs = alike_runs(done.old, done.new, plan, None if left is None else left * 0.2)
        done.timing = compare_speed(done.old.home, done.new.home, runs, ROUNDS, done.clock.until(UNTIL["timing"]))
