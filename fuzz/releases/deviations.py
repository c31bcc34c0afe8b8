"""Known deviations and their smallest traces: found, reduced, checked and written down by machine.

A deviation's trace must show a difference when the deviation counts as undeclared, and none when it is declared.

With another release there is no lockstep: nothing is declared for it. Each trace is replayed on the model, on the
reference and on the other release, and what all of them can show is compared.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...model.ops import Advance, Done, Operation, Outcome, Shape, Submit
from ...model.snapshot import Snapshot
from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import SHADOW, STRICT
from ..findings.words import operation_text, shape_text
from ..opening.known_deviations import declared_for, model_for
from ..planning.shipped import shipped
from ..reports.summary import Summary
from ..runs.judging import Judging
from ..runs.pair import Pair, Strictness
from ..targets.base import Target, TargetLostError, adapted, adapted_shape, hidden_fields, lacking
from ..targets.declarations import in_shape
from ..targets.deviations import Deviation, trace_names
from ..targets.rule import Rule
from ..traces.replay import replay
from ..traces.shrink import shrink
from ..traces.trace_file import FoundWhat, TraceFile, read_trace, write_trace
from ..workload.shapes import EVERY_ATTENTION
from .markdown import prose

KEPT = "docs/evidence/deviations"
"""Where the traces are kept in the repository; the page lies next to the folder and has its name."""


def find_smallest(name: str, deviation: Deviation, target: Target, seconds: float) -> TraceFile | None:
    """The smallest trace of this name (`trace_names`) of a deviation; None if none came up in so many seconds."""
    summary = Summary(target.name, "random", 0)
    every = tuple(EVERY_ATTENTION)
    plan = Plan(0, seconds, attention=every, chaos=deviation.chaos_only, without=(name,)).possible_on(target)
    run_random(target, plan, summary)
    if summary.finding is None or summary.trace is None:
        return None
    shrunk = shrink(summary.trace, summary.finding.kind, target, plan.judging())
    if shrunk.interrupted:
        raise KeyboardInterrupt
    return TraceFile(shrunk.trace, target.name, FoundWhat.of(shrunk.finding.without_cause()))


def undeclared(name: str, trace: Trace, target: Target) -> Finding | str:
    """What the trace of this name (`trace_names`) shows if nothing excuses it, or a line saying what is wrong."""
    finding, _ = replay(trace, target, Judging(without=(name,)))
    if finding is None:
        return f"{name}: stale, the trace shows no difference although nothing excuses one"
    excused, _ = replay(trace, target)
    if excused is not None:
        return f"{name}: differs in `{excused.kind[0]}` at {excused.kind[1]} although it is declared"
    return finding.without_cause()


def page(
    target_name: str, shown: Mapping[str, tuple[TraceFile, Finding]], elsewhere: Sequence[str] = (), kept: str = KEPT
) -> str:
    """The deviations of a target as Markdown; `shown` has trace and finding by the names of `trace_names`.

    `elsewhere`: names of pages beside it on what other releases do in these traces. `kept`: the folder with the traces,
    which is called like the page.
    """
    others = ", ".join(f"[{name}]({name})" for name in elsewhere)
    lines = [
        f"# What {target_name} does differently",
        "",
        "Lockstep holds the release against the model, with the deviations below declared: all else agrees exactly.",
        "Each has the smallest trace that shows it and, where requests come to read wrong content, the smallest in",
        "which the shadow memory sees one do so. This page is written by",
        f"`blockproof deviations --target {target_name} --keep {kept} --write {kept}.md`",
        f"and checked by `blockproof deviations --target {target_name} --check {kept}`.",
        *([f"What other releases make of these traces: {others}."] if others else []),
    ]
    for deviation in declared_for(target_name):
        lines += ["", f"## {deviation.id}", "", *prose(f"{deviation.reason[:1].upper()}{deviation.reason[1:]}."), ""]
        lines += prose(f"shows when: {deviation.condition}", bullet="* ")
        lines += prose(f"source: {deviation.source}", bullet="* ")
        for name in trace_names(deviation):
            lines += ["", *_trace_lines(name, shown, Path(kept).name)]
    return "\n".join([*lines, ""])


def pages_elsewhere(page: Path) -> list[str]:
    """Names of the pages that `--also` has written beside this one: its name, a hyphen and a release."""
    return sorted(path.name for path in page.parent.glob(f"{page.stem}-*.md"))


def _trace_lines(name: str, shown: Mapping[str, tuple[TraceFile, Finding]], folder: str) -> list[str]:
    if name not in shown:
        return [f"{name}: no trace found"]
    file, finding = shown[name]
    steps = [f"{number:3}  {operation_text(operation)}" for number, operation in enumerate(file.trace.operations)]
    told = [shape_text(file.trace.shape), *steps, "", *str(finding).splitlines()]
    return [f"[{folder}/{name}.json]({folder}/{name}.json)", "", "```", *told, "```"]


Say = Callable[[str], None]


@dataclass
class Shown:
    """What the traces of deviations show."""

    traces: dict[str, tuple[TraceFile, Finding]] = field(default_factory=dict)
    """By the name of the trace; those that show what they should."""
    problems: list[str] = field(default_factory=list)
    """A line for each trace that is missing or shows something else."""

    def add(self, name: str, file: TraceFile, target: Target, say: Say) -> None:
        """Replay a trace and tell what it shows."""
        result = undeclared(name, file.trace, target)
        if isinstance(result, str):
            self.problems.append(result)
            return
        self.traces[name] = (file, result)
        say(f"{name:34} {len(file.trace.operations):3} operations, `{result.kind[0]}` at {result.kind[1]}")


def check_traces(declared: Sequence[Deviation], folder: Path, target: Target, say: Say) -> Shown:
    """Replay the trace of each deviation from this folder on the release. TraceError if a file cannot be read."""
    shown = Shown()
    for name, _ in _names(declared):
        shown.add(name, read_trace(shipped(folder / f"{name}.json")), target, say)
    return shown


def find_traces(declared: Sequence[Deviation], folder: Path, target: Target, seconds: float, say: Say) -> Shown:
    """Find the smallest trace of each deviation, each within so many seconds, and write it to this folder."""
    shown = Shown()
    for name, deviation in _names(declared):
        file = find_smallest(name, deviation, target, seconds)
        if file is None:
            shown.problems.append(f"{name}: did not occur in {seconds:g} s")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_trace(file, folder / f"{name}.json")
        shown.add(name, file, target, say)
    return shown


def _names(declared: Sequence[Deviation]) -> Iterator[tuple[str, Deviation]]:
    return ((name, deviation) for deviation in declared for name in trace_names(deviation))


SAME = "same as the rule"
ALIKE = "deviates as the reference"
OTHERS = "not this one, but another of the reference"
OTHERWISE = "deviates otherwise"
NOT_TAKEN = "does not take it"


class ComparedTarget:
    """A target of which it is not compared how many hashes a request has: that is how a core works, not what it does.

    (With drafts, a hash of later releases covers a token more, so that there is one hash less now and then.)
    """

    def __init__(self, target: Target, lacks: Collection[str] = (), hides: Collection[str] = ()) -> None:
        self.name, self.target = target.name, target
        self.lacks = lacking(target) | frozenset(lacks)
        self._hides = frozenset(hides)

    @property
    def hides(self) -> frozenset[str]:
        """What it does not show, and what it was told to hide."""
        return hidden_fields(self.target) | self._hides

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """See `Target.start`."""
        return self.target.start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """See `Target.step`."""
        outcome, snapshot = self.target.step(operation)
        counts_hashes = isinstance(operation, Submit | Advance) and isinstance(outcome, Done)
        return (Done(0) if counts_hashes else outcome), snapshot

    def close(self) -> None:
        """The target stays open."""


@dataclass(frozen=True)
class Elsewhere:
    """What the other release does in the trace of a deviation."""

    id: str
    verdict: str
    """One of the constants above."""
    note: str = ""
    """How it differs, or why it cannot be told."""
    corrupts: bool | None = None
    """Does a request read wrong content in the trace that shows it on the reference? None if there is no such trace."""

    def text(self) -> str:
        """What it does, in one line."""
        wrong = {True: "; wrong content is read", False: "; nothing wrong is read", None: ""}[self.corrupts]
        return f"{self.verdict}{self.note and f': {self.note}'}{wrong}"


def look_elsewhere(declared: Sequence[Deviation], folder: Path, reference: Target, other: Target) -> list[Elsewhere]:
    """One record for each deviation of the reference. TraceError if a trace cannot be read."""
    found = []
    for deviation in declared:
        traces = [read_trace(shipped(folder / f"{name}.json")).trace for name in trace_names(deviation)]
        verdict, note = _judged(deviation.id, traces[0], reference, other)
        corrupts = _corrupts(traces[1], other) if len(traces) > 1 and verdict != NOT_TAKEN else None
        found.append(Elsewhere(deviation.id, verdict, note, corrupts))
    return found


def _judged(name: str, trace: Trace, reference: Target, other: Target) -> tuple[str, str]:
    """Verdict and note of the trace of the deviation with this id."""
    lacks = lacking(other)
    other.start(adapted_shape(trace.shape, lacks))  # what it hides is known once it has built such a core
    hides = hidden_fields(other)
    for strictness in Strictness.SHAPE, Strictness.EXACT:
        if (
            _difference(trace, Pair(ComparedTarget(Rule(), lacks, hides), ComparedTarget(reference), strictness))
            is not None
        ):
            break
    else:
        return NOT_TAKEN, _why_not_seen(trace, lacks, hides)
    from_rule = _difference(trace, Pair(ComparedTarget(Rule()), ComparedTarget(other), strictness))
    if from_rule is None:
        return SAME, ""
    if _difference(trace, Pair(ComparedTarget(reference), ComparedTarget(other), strictness)) is None:
        return ALIKE, ""
    without = Rule(lambda shape: model_for(reference.name, shape, without=(name,)))
    if _difference(trace, Pair(ComparedTarget(without), ComparedTarget(other), strictness)) is None:
        return OTHERS, ""
    what, where = from_rule.kind
    return OTHERWISE, f"{what}, at {where} (operation {from_rule.step})"


def _difference(trace: Trace, pair: Pair) -> Finding | None:
    return replay(trace, pair)[0]


def _corrupts(trace: Trace, target: Target) -> bool:
    """Does the shadow memory see a request read wrong content? A target that is lost reads nothing."""
    try:
        return replay(trace, target, Judging((SHADOW, STRICT)))[0] is not None
    except TargetLostError:
        return False


def _why_not_seen(trace: Trace, lacks: Collection[str], hides: Collection[str]) -> str:
    """Why the trace shows no deviation any more: what is left out for the release, or else what it does not show."""
    here = in_shape(lacks, trace.shape)
    left_out = [type(one).__name__ for one in trace.operations if adapted(one, here) != one]
    if adapted_shape(trace.shape, lacks) != trace.shape:
        left_out.insert(0, "a core of this shape")
    if left_out:
        return f"there is no equivalent of {', '.join(dict.fromkeys(left_out))}"
    return f"nothing shows it but {', '.join(sorted(hides))}, which the release keeps otherwise"


def page_elsewhere(found: Sequence[Elsewhere], reference: str, other: str, command: str) -> str:
    """What was found as Markdown."""
    has_rules = f"{other} goes by another rule, and has deviations of its own."
    why = has_rules if declared_for(other) else f"{other} has no lockstep: nothing is declared for it."
    lines = [
        f"# What {other} makes of the deviations of {reference}",
        "",
        "This page is written by",
        f"`{command}`",
        "",
        *prose(
            f"{why} So each [trace of a deviation](deviations.md) is "
            f"replayed on the model, on {reference} and on {other}. Compared are outcomes, tables (null or not), "
            "counts of free blocks and of contents that can be hit, and statistics; where these show no deviation of "
            "the reference either, all that is shown, block ids included. Where there is a trace of corruption, the "
            "shadow memory says whether a request reads wrong content in that one, which is a trace of its own. "
            f"What {other} does wrong and {reference} does not is not looked for here: "
            "[findings](findings.md) have that."
        ),
        "",
        f"* **{SAME}**: in this trace; a larger one may show it still.",
        f"* **{ALIKE}**: both do the same.",
        f"* **{OTHERS}**: as the model with all declared deviations but this one.",
        f"* **{OTHERWISE}**: with the first difference to the rule.",
        f"* **{NOT_TAKEN}**: left out for it, or not to be seen of it.",
        "",
        f"| deviation of {reference} | trace | {other} |",
        "| --- | --- | --- |",
        *(
            f"| [{one.id}](deviations.md#{one.id}) | [trace](deviations/{one.id}.json) | {one.text()} |"
            for one in found
        ),
    ]
    return "\n".join([*lines, ""])
