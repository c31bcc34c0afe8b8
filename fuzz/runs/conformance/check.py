"""The whole check: the scenarios, the kinds of groups that are built, and what the target says of itself."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

from ....model import ops
from ....model.attention import RULES
from ....model.snapshot import Snapshot
from ...findings.finding import our_bug
from ...findings.oracle_names import LIVENESS
from ...findings.words import plural
from ...kinds import HYBRIDS, KINDS, OF_FEW, OF_MOST
from ...opening.targets import open_target
from ...oracles.liveness import judge
from ...targets.base import (
    Target,
    TargetLostError,
    TargetUnavailableError,
    block_sizes_of,
    close_target,
    hidden_fields,
    lacking,
    offering,
)
from ...workload.draw import SeededDraw
from ..judging import Judging
from ..open_run import drawn_script, open_run
from ..run import ask
from .driving import ORACLES, End, ScenarioDriver, came, in_words
from .lines import BUILDS_NOTHING, WHICH, Conformance, Line, Scenario
from .scripts import SCRIPTS, prompt, shape_of

FINISHING = 20
"""Scripts of requests that are run under liveness."""
SIZES = (4, 16, 1, 2, 8, 32, 64, 128, 256)
"""Block sizes to try, in tokens, for a target that does not say which it builds."""


def check_target(target: Target, oracles: Sequence[str] = ORACLES) -> Conformance:
    """Ask the target everything once. TargetUnavailableError if it cannot be started.

    `oracles` judge each answer besides (`findings.oracle_names`); with liveness some scripts of requests are run, too.

    A wrong answer ends its scenario; the others are asked all the same, but the same mistake is told only once.
    """
    report = Conformance()
    size = _size_built(target, report)
    if size is None:
        return report
    seen = _Seen(target)
    for script in SCRIPTS.values():
        driver = ScenarioDriver(target, report, oracles)
        try:
            script(driver, size)
        except End:
            pass
        except TargetUnavailableError:
            raise
        except Exception as error:  # of our own: the other scenarios are asked all the same
            driver.failed(our_bug(error, None, -1))
        seen.look(driver)
    report.scenarios = [scenario for scenario in report.scenarios if scenario.lines]
    if not report.mistakes and not report.of("bug"):
        if LIVENESS in oracles:
            _everything_finishes(target, report, oracles)
        _other_kinds(target, report, size, oracles)
        _what_is_lacking(target, report, size)
        seen.tell(report)
    return report


def _size_built(target: Target, report: Conformance) -> int | None:
    """A block size of which the target builds a core of full attention; None, and a line that says so, if none."""
    answers = []
    sizes = block_sizes_of(target) or SIZES
    for size in sizes:
        try:
            outcome, _ = ask(target.start, shape_of(size))
        except TargetLostError:
            return size  # the first scenario says how it is lost
        if not isinstance(outcome, ops.Failed):
            return size
        answers.append(outcome)
    tried = ", ".join(map(str, sizes))
    advice = "look at what `start` refuses; the check needs a core of one group of full attention"
    line = Line("wrong", "start", came(answers[0]), f"a core with blocks of {tried} tokens", advice, BUILDS_NOTHING)
    report.scenarios.append(Scenario("A first core", [line]))
    return None


# Other kinds of groups.


def _shape_of_kind(kind: ops.Kind, size: int) -> ops.Shape:
    return shape_of(size, 12, groups=(KINDS[kind].usual(size, 2 * size),), caching=RULES[kind].cacheable)


def _everything_finishes(target: Target, report: Conformance, oracles: Sequence[str]) -> None:
    """Some scripts of requests, which the scheduler of the liveness oracle runs to their ends."""
    told = Scenario("Everything that can finish finishes")
    run = open_run(target, Judging(oracles))
    for number in range(FINISHING):
        found = judge(run, drawn_script(run, SeededDraw(f"check/{number}"), "full"))
        report.asked += len(run.operations)
        if found is not None:
            finding, _ = found
            asked = "the start" if finding.operation is None else in_words(finding.operation)
            said = f"{finding.observable} holds: {(finding.detail or str(finding)).splitlines()[0]}"
            advice = f"read what {finding.observable} says in docs/reference/liveness.md, then docs/guide/triage.md"
            told.lines.append(Line("wrong", asked, f"script {number}", said, advice, finding.observable))
            break
    else:
        told.lines.append(Line("ok", f"{FINISHING} scripts of requests", "", "all of them finish"))
    report.scenarios.append(told)


def _other_kinds(target: Target, report: Conformance, size: int, oracles: Sequence[str]) -> None:
    """Which kinds of groups are built, each driven a little and judged by the oracles alone."""
    unoffered = [kind for kind in OF_FEW if f"Group.kind={kind}" not in offering(target)]
    name, groups = "+".join(HYBRIDS[0]), tuple(KINDS[kind].usual(size, 2 * size) for kind in HYBRIDS[0])
    shapes = [("hybrids", name, shape_of(size, 12, groups=groups))]
    others = (kind for kind in (*OF_MOST, *OF_FEW) if kind not in ("full", *unoffered))
    shapes += [(f"Group.kind={kind}", kind, _shape_of_kind(kind, size)) for kind in others]
    told, missing = Scenario("Other kinds of groups"), []
    for name, kind, shape in shapes:
        driver = ScenarioDriver(target, report, oracles)
        try:
            built = driver.start(kind, shape)
            lines = report.scenarios.pop().lines
            told.lines.append(Line("ok", kind, "built" if built else "not built", "" if built else lines[-1].came))
            if built and name in lacking(target):
                told.lines[-1] = _needless(name, kind, "built")
            elif built:
                driver.scenario = told
                by_encoder = any(RULES[group.kind].by_encoder for group in shape.groups)
                _drive(driver, size, size if by_encoder and driver.has("Allocate.encoder_tokens") else 0)
            elif name not in lacking(target):
                missing.append(name)
        except End:
            told.lines += [line for line in driver.scenario.lines if driver.scenario is not told and line.advice]
        except TargetUnavailableError:
            raise
        except Exception as error:
            driver.failed(our_bug(error, None, -1))
    if missing:
        names = ", ".join(f'"{name}"' for name in missing)
        advice = f"add {{{names}}} to `lacks`: then no time is spent on such shapes"
        told.lines.append(Line("hint", "kinds that are not built", "", "they are named in `lacks`", advice, "hint"))
    report.scenarios.append(told)


def _drive(driver: ScenarioDriver, size: int, encoder: int) -> None:
    """A request comes, grows, starts again and ends; `encoder`: tokens of its encoder."""
    length = 3 * size
    before = len(driver.scenario.lines)
    driver.ask(ops.Submit("a", prompt(length)), "a prompt of 3 blocks")
    driver.ask(ops.Lookup("a"), "nothing is cached yet")
    driver.ask(ops.Allocate("a", length, encoder_tokens=encoder), "room for the prompt")
    driver.ask(ops.Advance("a", (7,)), "computed")
    for _ in range(2):
        driver.ask(ops.Allocate("a", 1), "room for one token")
        driver.ask(ops.Advance("a", (7,)), "computed")
    driver.ask(ops.RemoveSkipped("a"), "what no query reads any more is given up")
    driver.ask(ops.Preempt("a"), "it starts again")
    driver.ask(ops.Lookup("a"), "what is still cached of it")
    del driver.scenario.lines[before:]


# What the target says of itself.


def _needless(name: str, asked: str, answered: str) -> Line:
    said = f"no answer: the target says that it lacks {name}"
    return Line("hint", asked, answered, said, f"take {name!r} out of `lacks` if your core really does it", "hint")


def _examples(block: int) -> dict[str, ops.Operation]:
    """One operation of each kind that a target may lack, for a request `a` that holds this block."""
    every = (
        ops.Lookup("b"), ops.Advance("a", (7,)), ops.Reject("a", 1), ops.Arrive("a"), ops.Preempt("a"),
        ops.RemoveSkipped("a"), ops.CommonPrefix("a"), ops.ReadTable("a"), ops.Evict((block,)), ops.Reset(),
        ops.StepStart(), ops.TakeEvents(), ops.TakeNewBlockIds(), ops.TakeStats(), ops.Take(1), ops.Touch((block,)),
        ops.Release((block,)),
    )  # fmt: skip
    return {type(operation).__name__: operation for operation in every}


def _what_is_lacking(target: Target, report: Conformance, size: int) -> None:
    """Operations that the target says it lacks must not work; else they should be asked."""
    told = Scenario("What the target says that it lacks")
    for kind in sorted(lacking(target) & _examples(1).keys()):
        try:
            ask(target.start, shape_of(size))
            ask(target.step, ops.Submit("b", prompt(size)))
            ask(target.step, ops.Submit("a", prompt(size)))
            outcome, shown = ask(target.step, ops.Allocate("a", size))
            block = shown.tables[0]["a"][0] if shown and shown.tables[0].get("a") else 1
            operation = _examples(block)[kind]
            outcome, _ = ask(target.step, operation)
        except TargetLostError as lost:
            told.lines.append(Line("ok", kind, lost.kind, "lacking"))
            continue
        wrong = isinstance(outcome, ops.Done)
        line = _needless(kind, in_words(operation), came(outcome))
        told.lines.append(line if wrong else Line("ok", in_words(operation), came(outcome), "lacking"))
    if told.lines:
        report.scenarios.append(told)


class _Seen:
    """What the snapshots of all scenarios showed of the fields that are hidden."""

    def __init__(self, target: Target) -> None:
        self._hidden = sorted(hidden_fields(target) & set(Snapshot._fields))
        self._shown: dict[str, str] = {}

    def look(self, driver: ScenarioDriver) -> None:
        """Look at the last snapshot of a scenario, and at every one before it."""
        for shown in driver.target.snapshots:
            for name in self._hidden:
                value = getattr(shown, name, None)
                if _is_full(value):
                    self._shown[name] = repr(value)[:80]

    def tell(self, report: Conformance) -> None:
        """A hint for each hidden field that was shown after all."""
        told = Scenario("What the target says that it hides")
        for name in self._hidden:
            if name in self._shown:
                advice = f"take {name!r} out of `hides` if these values are right: more can be judged then"
                said = "an empty value: the target says that it hides this"
                told.lines.append(Line("hint", f"Snapshot.{name}", self._shown[name], said, advice, "hint"))
            else:
                told.lines.append(Line("ok", f"Snapshot.{name}", "", "empty, and hidden"))
        if told.lines:
            report.scenarios.append(told)


def _is_full(value: object) -> bool:
    """True if a field has something in it, at any depth."""
    if isinstance(value, dict):
        return any(map(_is_full, value.values())) or any(value)
    if isinstance(value, list | tuple):
        return any(map(_is_full, value))
    return value is not None and value != 0


@dataclass(frozen=True)
class CheckedTarget:
    """How a target answered, and how long that took."""

    target: str
    version: str
    seconds: float
    report: Conformance

    @property
    def code(self) -> int:
        """Exit code: as `Conformance.code`."""
        return self.report.code

    def lines(self) -> list[str]:
        """The report as text, the verdict last."""
        wrong, asked = len(self.report.of("wrong")), plural(self.report.asked, "operation")
        head = f"{self.target} (version {self.version or 'unknown'})"
        took = f"{asked} asked in {self.seconds} s"
        name = shlex.quote(self.target)
        if wrong:
            either = any(line.engine for line in self.report.of("wrong"))
            again = f"begin with the first, then: blockproof targets check {name}"
            end = [f"{head}: {plural(wrong, 'answer')} wrong, {took}", *([WHICH] if either else []), again]
        elif bugs := self.report.of("bug"):
            end = [
                f"{head}: {plural(len(bugs), 'bug')} of blockproof, so not all was asked; please report what is above"
            ]
        else:
            hints = len(self.report.of("hint"))
            more = f", {plural(hints, 'hint')} above" if hints else ""
            end = [
                f"{head}: all answers are right, {took}{more}",
                f"next: blockproof fuzz --target {name} --seconds 60",
            ]
        return [*self.report.lines(), "", *end]

    def as_json(self) -> dict[str, object]:
        """The report as a JSON document."""
        said = {"target": self.target, "version": self.version, "seconds": self.seconds, "exit": self.code}
        return said | self.report.as_json()


def check_named(
    spec: str, isolate: bool | None = None, chosen: Callable[[Target], Sequence[str]] = lambda _: ORACLES
) -> CheckedTarget:
    """Check the target of this name. What it prints goes to the standard error.

    With `isolate` in a process of its own; a release always is, if this interpreter cannot import it. `chosen` says
    which oracles judge the target, opened. ValueError and TargetUnavailableError as from opening a target.
    """
    begin = time.monotonic()
    with redirect_stdout(sys.stderr):
        target = open_target(spec, isolate=isolate)
        try:
            report = check_target(target, chosen(target))
            version = str(getattr(target, "version", ""))
        finally:
            close_target(target)
    return CheckedTarget(spec, version, round(time.monotonic() - begin, 1), report)
