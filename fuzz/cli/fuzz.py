"""`blockproof fuzz`: run an engine, and leave of a finding what is needed to fix it."""

import json
import secrets
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..adapters import forms

if TYPE_CHECKING:
    from ...model.ops import Shape
    from ..engines.plan import Plan
    from ..oracles.shadow import Memory
    from ..reports.summary import Summary
    from ..targets.base import Target
    from ..traces.reproduction import Reproduction
    from ..traces.shrink import Shrunk

DEFAULT_SECONDS = 30.0
SHRINK_SECONDS = 60.0


class Engine(StrEnum):
    """How operations are drawn."""

    RANDOM = "random"
    HYPOTHESIS = "hypothesis"


TargetOption = Annotated[
    str, typer.Option(help=f"impl, {forms()}, package.module:factory or fault:NAME.", show_default=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for machines.")]
OracleOption = Annotated[
    str,
    typer.Option(
        help="What judges: lockstep, shadow, contract, liveness, several of them, or all; auto is what suits the "
        "target. With strict besides, known losses are findings."
    ),
]
TensorsOption = Annotated[
    str | None, typer.Option(help="Shadow memory in tensors on cpu, cuda or auto; fault:NAME plants a fault there.")
]
OutOption = Annotated[Path, typer.Option(help="Folder for what is found; made when something is.")]


def fuzz(
    target: TargetOption = "impl",
    seconds: Annotated[float | None, typer.Option(min=0.0, help="How long to run; 30 if no limit is given.")] = None,
    operations: Annotated[int | None, typer.Option(min=1, help="Stop after the run that reaches so many.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same runs; drawn and printed by default.")] = None,
    engine: Annotated[Engine, typer.Option(help="How operations are drawn.")] = Engine.RANDOM,
    oracle: OracleOption = "auto",
    tensors: TensorsOption = None,
    attention: Annotated[str, typer.Option(help="Attention types, as in full,sliding,full+mamba.")] = "all",
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Processes, each with a seed of its own.")] = 1,
    out: OutOption = Path("findings"),
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML to this file.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the report as Markdown to this file.")] = None,
    floors: Annotated[Path | None, typer.Option(help="TOML file of what must have been reached.")] = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="Break preconditions on purpose.")] = False,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run the target in a process of its own.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fuzz a target under the oracles that suit it; shrink and keep the first finding.

    Exits with 0 if nothing was found, 1 on a finding. Ctrl-C ends the run early and reports what was done.
    """
    from ..engines.plan import Plan
    from ..reports.floors import check_floors, read_floors
    from ..reports.summary import Summary
    from ..targets.base import close_target

    names = attention_names(attention)
    wanted = read_floors(floors) if floors else {}
    if seconds is None and operations is None:
        seconds = DEFAULT_SECONDS
    drawn = secrets.randbelow(2**32) if seed is None else seed
    judges = oracles_or_usage(oracle, target)
    if engine is Engine.HYPOTHESIS and judges == ("liveness",):
        raise typer.BadParameter("--oracle: liveness draws whole scripts, which engine hypothesis does not; use random")
    plan = Plan(drawn, seconds, operations, names, chaos, oracles=judges, tensors=tensors)
    memory_or_usage(tensors)
    core = open_or_usage(target, isolate)
    done = Summary(recorded_name(target, core), engine.value, plan.seed, oracles=judges, core_name=core.name)
    say: Callable[[str], None] = (lambda text: print(text, file=sys.stderr)) if as_json else print
    say(f"fuzzing {done.target} under {', '.join(judges)}, engine {done.engine}, seed {plan.seed}")
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():  # the target may print, into the document
            _run(target, core, done, plan, jobs, isolate)
            kept = _keep_finding(done, core, plan, out, say) if done.finding else None
    finally:
        close_target(core)
    unmet = check_floors(done, wanted)
    again = repeat_command(done, plan, target, jobs, isolate)
    _write_reports(done, unmet, junit, summary)
    _print_report(done, kept, unmet, again, as_json)
    raise typer.Exit(1 if done.finding or unmet else 0)


def attention_names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, all of them for `all`. BadParameter for an unknown one."""
    from ..workload.shapes import ATTENTION

    names = tuple(ATTENTION) if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or (unknown := [name for name in names if name not in ATTENTION]):
        what = repr(unknown[0]) if names else "an empty list"
        raise typer.BadParameter(f"--attention: {what} is unknown; choose from {', '.join(ATTENTION)}, or all")
    return names


def oracles_or_usage(text: str, spec: str) -> tuple[str, ...]:
    """The names in a comma-separated list, the strictest first; `all`; or with `auto` what suits the target.

    BadParameter for an unknown one.
    """
    from ..findings.oracle_names import EVERY, STRICT
    from ..opening.oracles import suited_to

    if text == "auto":
        return suited_to(spec)
    names = EVERY if text == "all" else tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in (*EVERY, STRICT)]:
        raise typer.BadParameter(f"--oracle: {unknown[0]!r} is unknown; choose from {', '.join(EVERY)}, all or auto")
    if set(names) <= {STRICT}:
        raise typer.BadParameter(f"--oracle: {STRICT} alone judges nothing; add one of {', '.join(EVERY)}")
    return tuple(name for name in (*EVERY, STRICT) if name in names)


def open_or_usage(spec: str, isolate: bool = False) -> "Target":
    """The target of this name. BadParameter for a wrong name, TargetUnavailableError if it is not there."""
    from ..opening.targets import open_target

    try:
        return open_target(spec, isolate=isolate)
    except ValueError as error:
        raise typer.BadParameter(f"--target: {error}") from None


def memory_or_usage(tensors: str | None) -> "Callable[[Shape], Memory]":
    """What makes the shadow memory. BadParameter for a wrong name, TargetUnavailableError without torch or device."""
    from ..opening.memories import memory_named

    try:
        return memory_named(tensors)
    except ValueError as error:
        raise typer.BadParameter(f"--tensors: {error}") from None


def recorded_name(spec: str, core: "Target") -> str:
    """What a trace calls the target: as the user wrote it, with the release where that was left open."""
    from ..adapters import families

    return core.name if spec in families() else spec


def _run(spec: str, core: "Target", done: "Summary", plan: "Plan", jobs: int, isolate: bool) -> None:
    """Fill in the summary. Ctrl-C ends the run, not the program."""
    from ..engines.choice import run_engine
    from ..engines.jobs import run_jobs
    from ..reports.progress import progress

    with progress(plan.seconds, plan.operations) as show:
        try:
            if jobs > 1:
                run_jobs(spec, done, plan, jobs, isolate=isolate, on_progress=show)
            else:
                run_engine(core, plan, done, lambda so_far: show(so_far.runs, so_far.operations, so_far.seconds))
        except KeyboardInterrupt:
            done.interrupted = True


def _keep_finding(
    done: "Summary", core: "Target", plan: "Plan", out: Path, say: Callable[[str], None]
) -> "tuple[Shrunk | None, Reproduction]":
    """Save the finding as it is, shrink it, save it again. Nothing is lost if shrinking is cut short."""
    from ..traces.reproduction import write_reproduction
    from ..traces.shrink import NotReproducedError, shrink
    from ..traces.trace_file import FoundBy, FoundWhat, TraceFile

    assert done.finding is not None
    assert done.trace is not None
    found_by = FoundBy(done.engine, done.finding_seed, version("blockproof"))
    whole = TraceFile(done.trace, done.target, FoundWhat.of(done.finding), found_by)
    first = write_reproduction(whole, out, plan.tensors, plan.oracles)
    say(f"found after {done.operations:,} operations, saved in {first.trace}; shrinking ...")
    try:
        shrunk = shrink(done.trace, done.finding.kind, core, plan.judging(), max_seconds=SHRINK_SECONDS)
    except NotReproducedError as error:
        say(f"not shrunk: {error}; the target may not be deterministic")
        return None, first
    small = TraceFile(shrunk.trace, done.target, FoundWhat.of(shrunk.finding), found_by)
    kept = write_reproduction(small, out, plan.tensors, plan.oracles)
    if shrunk.complete and kept != first:
        first.trace.unlink()
        first.test.unlink()
    return shrunk, kept


def repeat_command(done: "Summary", plan: "Plan", spec: str, jobs: int, isolate: bool) -> str:
    """The shell command that makes the same runs again."""
    from ..workload.shapes import ATTENTION

    words = ["blockproof", "fuzz", "--target", spec, "--engine", done.engine, "--seed", str(plan.seed)]
    # Operations, unlike seconds, lead to the same end on any machine; several processes share them as they come.
    limit = str(done.operations) if jobs == 1 and done.operations else None
    words += ["--operations", limit] if limit else ["--seconds", f"{plan.seconds or DEFAULT_SECONDS:g}"]
    words += ["--jobs", str(jobs)] if jobs > 1 else []
    words += ["--attention", ",".join(plan.attention)] if tuple(plan.attention) != tuple(ATTENTION) else []
    words += ["--oracle", ",".join(plan.oracles)] if plan.oracles != oracles_or_usage("auto", spec) else []
    words += ["--tensors", plan.tensors] if plan.tensors else []
    words += ["--chaos"] if plan.chaos else []
    words += ["--isolate"] if isolate else []
    return shlex.join(words)


def _write_reports(done: "Summary", unmet: list[str], junit: Path | None, markdown: Path | None) -> None:
    from ..reports import formats as report

    for path, text in ((junit, report.junit(done, unmet)), (markdown, report.markdown(done))):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _print_report(
    done: "Summary",
    kept: "tuple[Shrunk | None, Reproduction] | None",
    unmet: list[str],
    again: str,
    as_json: bool,
) -> None:
    from ..reports import formats as report

    if as_json:
        document: dict[str, Any] = {**report.as_json(done), "floors_unmet": unmet, "repeat": again}
        if kept is not None:
            shrunk, files = kept
            document["reproduction"] = {
                "trace": str(files.trace),
                "test": str(files.test),
                "command": files.command,
                "operations": len(shrunk.trace.operations) if shrunk else None,
                "complete": bool(shrunk and shrunk.complete),
            }
        print(json.dumps(document, indent=2))
        return
    report.show(done)
    if kept is not None:
        if kept[0] is None:
            print(f"\n{done.finding}")
        print_finding(kept[0], kept[1])
    for line in unmet:
        print(line)
    print(f"repeat this run: {again}")


def print_finding(shrunk: "Shrunk | None", files: "Reproduction") -> None:
    """Print the reduced trace, what differs and where the files are."""
    from ..findings.words import trace_lines

    if shrunk is not None:
        ended = "" if shrunk.complete else "; gave up early, it may get shorter"
        count = len(shrunk.trace.operations)
        print(f"\nshrunk to {count} operations in {shrunk.candidates:,} tries, {shrunk.seconds:.1f} s{ended}")
        print("\n".join([*trace_lines(shrunk.trace.shape, shrunk.trace.operations), "", str(shrunk.finding)]))
    print(f"\ntrace:  {files.trace}\npytest: {files.test}\nrepeat the finding: {files.command}")
