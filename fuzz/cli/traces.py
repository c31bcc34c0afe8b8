"""`blockproof replay` and `blockproof shrink`: what can be done with a trace file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .fuzz import (
    JsonOption,
    OracleOption,
    TensorsOption,
    memory_or_usage,
    open_or_usage,
    oracles_or_usage,
    print_finding,
    recorded_name,
)

if TYPE_CHECKING:
    from ..findings.finding import Finding, Trace

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file.")]
TargetOption = Annotated[str | None, typer.Option(help="Which target; the one in the trace by default.")]
IsolateOption = Annotated[bool, typer.Option("--isolate", help="Run the target in a process of its own.")]


def replay(
    trace: TraceArgument,
    target: TargetOption = None,
    show: Annotated[bool, typer.Option("--show", help="Print every step and what it changes.")] = False,
    until: Annotated[int | None, typer.Option(min=0, help="Only the first so many operations.")] = None,
    oracle: OracleOption = "auto",
    tensors: TensorsOption = None,
    isolate: IsolateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a trace again. Operations that make no sense where they stand are left out.

    Exits with 0 if model and target agree to the end, 1 if they differ.
    """
    from ..findings.finding import Trace
    from ..runs.judging import Judging
    from ..targets.base import close_target
    from ..traces.replay import replay as run
    from ..traces.trace_file import read_trace

    file = read_trace(trace)
    wanted = Trace(file.trace.shape, file.trace.operations[:until])
    spec = target or recorded_target(trace, file.target)
    judges = oracles_or_usage(oracle, spec)
    judging = Judging(judges, new_memory=memory_or_usage(tensors))
    core = open_or_usage(spec, isolate)
    try:
        finding, applied = run(wanted, core, judging)
    finally:
        close_target(core)
    left_out = len(wanted.operations) - len(applied.operations) if finding is None else 0
    if as_json:
        print(json.dumps(_replay_json(applied, core.name, finding, left_out, show), indent=2))
    else:
        _print_replay(applied, core.name, finding, left_out, show)
    raise typer.Exit(1 if finding else 0)


def recorded_target(trace: Path, spec: str) -> str:
    """The target that a trace names. BadParameter if that is somebody's code: a trace alone must run nothing."""
    if ":" in spec and not spec.startswith("fault:"):
        raise typer.BadParameter(f"{trace} was made with {spec!r}; if you trust that code, add --target {spec}")
    return spec


def _print_replay(applied: "Trace", name: str, finding: "Finding | None", left_out: int, show: bool) -> None:
    from ..findings.words import shape_text
    from ..traces.steps import step_lines, steps

    if show:
        print(shape_text(applied.shape))
        for step in steps(applied, name):
            print("\n".join(step_lines(step)))
        print()
    if left_out:
        print(f"operations left out, since they make no sense where they stand: {left_out}")
    print(finding or f"no difference in {len(applied.operations)} operations on {name}")


def _replay_json(applied: "Trace", name: str, finding: "Finding | None", left_out: int, show: bool) -> dict[str, Any]:
    from ...model.ops import to_json
    from ..traces.steps import steps

    document: dict[str, Any] = {"target": name, "operations": len(applied.operations), "left_out": left_out}
    document["finding"] = None
    if finding is not None:
        what, where = finding.kind
        document["finding"] = {"observable": what, "operation": where, "step": finding.step, "text": str(finding)}
    if show:
        document["steps"] = [
            {"operation": to_json(step.operation), "outcome": to_json(step.outcome), "changes": step.changes}
            for step in steps(applied, name)
        ]
    return document


def shrink(
    trace: TraceArgument,
    target: TargetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; that of the trace by default.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Give up after so long; never by default.")] = None,
    oracle: OracleOption = "auto",
    tensors: TensorsOption = None,
    isolate: IsolateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shorten a trace as long as it shows the same kind of finding.

    Exits with 1 and writes trace and pytest file; with 0 if the trace shows nothing on this target.
    """
    from ..runs.judging import Judging
    from ..targets.base import close_target
    from ..traces.replay import replay as run
    from ..traces.reproduction import write_reproduction
    from ..traces.shrink import shrink as reduce
    from ..traces.trace_file import FoundWhat, TraceFile, read_trace

    file = read_trace(trace)
    spec = target or recorded_target(trace, file.target)
    judges = oracles_or_usage(oracle, spec)
    judging = Judging(judges, new_memory=memory_or_usage(tensors))
    core = open_or_usage(spec, isolate)
    try:
        finding, applied = run(file.trace, core, judging)
        if finding is None:
            print(json.dumps({"finding": None}) if as_json else f"no difference on {core.name}: nothing to shrink")
            raise typer.Exit(0)
        stored = file.finding and (file.finding.observable, file.finding.operation)
        if stored and stored != finding.kind:
            print(f"note: the trace was written for {stored}, it now shows {finding.kind}", file=sys.stderr)
        shrunk = reduce(applied, finding.kind, core, judging, max_seconds=seconds)
    finally:
        close_target(core)
    name = recorded_name(spec, core)
    small = TraceFile(shrunk.trace, name, FoundWhat.of(shrunk.finding), file.found_by)
    files = write_reproduction(small, out or trace.parent, tensors, judges)
    if as_json:
        counts = {"operations_before": len(file.trace.operations), "operations": len(shrunk.trace.operations)}
        paths = {"trace": str(files.trace), "test": str(files.test), "command": files.command}
        print(json.dumps({"finding": str(shrunk.finding), "complete": shrunk.complete, **counts, **paths}, indent=2))
    else:
        print_finding(shrunk, files)
    raise typer.Exit(1)
