"""Known deviations and their smallest traces: found, reduced, checked and written down by machine.

A deviation's trace must show a difference when the deviation counts as undeclared, and none when it is declared.
"""

from collections.abc import Mapping

from .deviations import DEVIATIONS, Deviation, MisuseUnchecked
from .engines import Plan, run_random
from .lockstep import ORACLES, SHADOW, Finding, Trace, replay
from .report import Summary
from .shrink import shrink
from .targets.base import Target
from .trace import FoundWhat, TraceFile
from .words import operation_text, shape_text


def find_smallest(
    deviation: type[Deviation], target: Target, seconds: float, oracles: tuple[str, ...] = ORACLES
) -> TraceFile | None:
    """The smallest trace that differs because of this deviation; None if none came up in so many seconds.

    With the shadow memory alone: the smallest one in which a request reads wrong content.
    """
    summary = Summary(target.name, "random", 0)
    plan = Plan(0, seconds=seconds, chaos=deviation is MisuseUnchecked, without=(deviation.id,), oracles=oracles)
    run_random(target, plan, summary)
    if summary.finding is None or summary.trace is None:
        return None
    shrunk = shrink(summary.trace, summary.finding.kind, target, without=plan.without, oracles=oracles)
    if shrunk.interrupted:
        raise KeyboardInterrupt
    return TraceFile(shrunk.trace, target.name, FoundWhat.of(shrunk.finding))


def undeclared(
    deviation: type[Deviation], trace: Trace, target: Target, oracles: tuple[str, ...] = ORACLES
) -> Finding | str:
    """The difference that a deviation's trace shows when undeclared, or a line that says why the trace is no good."""
    finding, _ = replay(trace, target, without=(deviation.id,), oracles=oracles)
    if finding is None:
        return f"{deviation.id}: stale, the trace shows no difference although nothing excuses one"
    excused, _ = replay(trace, target, oracles=oracles)
    if excused is not None:
        return f"{deviation.id}: differs in `{excused.kind[0]}` at {excused.kind[1]} although it is declared"
    return finding


def trace_names(deviation: type[Deviation]) -> Mapping[str, tuple[str, ...]]:
    """The traces that a deviation must have, without `.json`, each with the oracles that it is made for."""
    names: dict[str, tuple[str, ...]] = {deviation.id: ORACLES}
    if deviation.corrupts:
        names[f"{deviation.id}.corruption"] = (SHADOW,)
    return names


def page(target_name: str, shown: Mapping[str, tuple[TraceFile, Finding]]) -> str:
    """The deviations of a target as Markdown; `shown` has trace and finding by the names of `trace_names`."""
    lines = [
        f"# What {target_name} does differently",
        "",
        "Lockstep holds the release against the model, with the deviations below declared: all else agrees exactly.",
        "Each has the smallest trace that shows it and, where requests come to read wrong content, the smallest in",
        "which the shadow memory sees one do so. This page is written by",
        f"`blockproof deviations --target {target_name} --write docs/findings --page docs/findings.md` and checked by",
        f"`blockproof deviations --target {target_name} --check docs/findings`.",
    ]
    for deviation in DEVIATIONS[target_name]:
        lines += ["", f"## {deviation.id}", "", f"{deviation.reason[:1].upper()}{deviation.reason[1:]}.", ""]
        source = " ".join((deviation.__doc__ or "").split())
        lines += [f"* shows when: {deviation.condition}", f"* source: {source}"]
        for name in trace_names(deviation):
            lines += ["", *_trace_lines(name, shown)]
    return "\n".join([*lines, ""])


def _trace_lines(name: str, shown: Mapping[str, tuple[TraceFile, Finding]]) -> list[str]:
    if name not in shown:
        return [f"{name}: no trace found"]
    file, finding = shown[name]
    steps = [f"{number:3}  {operation_text(operation)}" for number, operation in enumerate(file.trace.operations)]
    told = [shape_text(file.trace.shape), *steps, "", *str(finding).splitlines()]
    return [f"[findings/{name}.json](findings/{name}.json)", "", "```", *told, "```"]
