"""Known deviations and their smallest traces: found, reduced, checked and written down by machine.

A deviation's trace must show a difference when the deviation counts as undeclared, and none when it is declared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..findings.words import operation_text, shape_text
from ..opening.known_deviations import declared_for
from ..reports.summary import Summary
from ..runs.judging import Judging
from ..targets.base import Target
from ..targets.deviations import Deviation, trace_names
from ..traces.replay import replay
from ..traces.shrink import shrink
from ..traces.trace_file import FoundWhat, TraceFile
from .markdown import prose

KEPT = "docs/evidence/deviations"
"""Where the traces are kept in the repository; the page lies next to the folder and has its name."""


def find_smallest(name: str, deviation: Deviation, target: Target, seconds: float) -> TraceFile | None:
    """The smallest trace of this name (`trace_names`) of a deviation; None if none came up in so many seconds."""
    summary = Summary(target.name, "random", 0)
    plan = Plan(0, seconds=seconds, chaos=deviation.chaos_only, without=(name,))
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


def page(target_name: str, shown: Mapping[str, tuple[TraceFile, Finding]], elsewhere: Sequence[str] = ()) -> str:
    """The deviations of a target as Markdown; `shown` has trace and finding by the names of `trace_names`.

    `elsewhere`: names of pages beside it on what other releases do in these traces.
    """
    others = ", ".join(f"[{name}]({name})" for name in elsewhere)
    lines = [
        f"# What {target_name} does differently",
        "",
        "Lockstep holds the release against the model, with the deviations below declared: all else agrees exactly.",
        "Each has the smallest trace that shows it and, where requests come to read wrong content, the smallest in",
        "which the shadow memory sees one do so. This page is written by",
        f"`blockproof deviations --target {target_name} --keep {KEPT} --write {KEPT}.md`",
        f"and checked by `blockproof deviations --target {target_name} --check {KEPT}`.",
        *([f"What other releases make of these traces: {others}."] if others else []),
    ]
    for deviation in declared_for(target_name):
        lines += ["", f"## {deviation.id}", "", *prose(f"{deviation.reason[:1].upper()}{deviation.reason[1:]}."), ""]
        lines += prose(f"shows when: {deviation.condition}", bullet="* ")
        lines += prose(f"source: {deviation.source}", bullet="* ")
        for name in trace_names(deviation):
            lines += ["", *_trace_lines(name, shown)]
    return "\n".join([*lines, ""])


def pages_elsewhere(page: Path) -> list[str]:
    """Names of the pages that `--also` has written beside this one: its name, a hyphen and a release."""
    return sorted(path.name for path in page.parent.glob(f"{page.stem}-*.md"))


def _trace_lines(name: str, shown: Mapping[str, tuple[TraceFile, Finding]]) -> list[str]:
    if name not in shown:
        return [f"{name}: no trace found"]
    file, finding = shown[name]
    steps = [f"{number:3}  {operation_text(operation)}" for number, operation in enumerate(file.trace.operations)]
    told = [shape_text(file.trace.shape), *steps, "", *str(finding).splitlines()]
    return [f"[deviations/{name}.json](deviations/{name}.json)", "", "```", *told, "```"]
