"""`blockproof replay`, `shrink` and `schema`: what can be done with a trace file, and what form it has."""

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..traces.files import STORY, other_form
from .options import (
    PATIENCE_S,
    IsolateOption,
    JsonOption,
    OracleOption,
    PatienceOption,
    RecordedTargetOption,
    TensorsOption,
    TraceArgument,
    VerboseOption,
    calculator_or_usage,
    closed_after,
    document_alone,
    guarded,
    is_auto,
    known_or_usage,
    memory_or_usage,
    open_or_usage,
    oracles_or_usage,
    recorded_target,
    teller,
    timed_teller,
)
from .outputs import tagged, to_folder


def replay(
    trace: TraceArgument,
    target: RecordedTargetOption = None,
    show: Annotated[bool, typer.Option("--show", help="Print every step and what it changes.")] = False,
    until: Annotated[int | None, typer.Option(min=0, help="Only the first so many operations.")] = None,
    oracle: OracleOption = None,
    tensors: TensorsOption = None,
    seconds: PatienceOption = PATIENCE_S,
    isolate: IsolateOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a trace again, under the oracles that it names. Operations that make no sense where they stand are left out.

    What `fuzz-config` and `simulate` write of a finding is asked, or run, again as well.
    Exits with 0 if nothing is found, 1 on a finding, 3 if the target builds no core of this shape.
    """
    from ..traces.judges import judges_for
    from ..traces.replayed import replayed
    from ..traces.trace_file import read_trace

    if (other := other_form(trace)) is not None:
        if until is not None or oracle or tensors or (show and other != STORY):
            raise typer.BadParameter(f"{trace} is no trace: --show, --until, --oracle and --tensors do not go with it")
        if other == STORY:
            run_story_again(trace, target, as_json, shows=show)
        replay_question(trace, target, isolate, as_json)
    file = read_trace(trace)
    spec = target or recorded_target(trace, file.target)
    memory_or_usage(tensors or file.tensors)
    given = () if is_auto(oracle) else oracles_or_usage(oracle, spec)
    with closed_after(open_or_usage(spec, file.lost_its_target or isolate)) as core:
        judges = judges_for(file, lambda: oracles_or_usage(None, spec, core), given, tensors)
        result = replayed(file, core, judges, until, keep=show, seconds=seconds)
    print(tagged("replay", result.as_json(show)) if as_json else "\n".join(result.lines(show, verbose)))
    raise typer.Exit(result.finding.exit_code if result.finding else 0 if result.built else 3)


def shrink(
    trace: TraceArgument,
    target: RecordedTargetOption = None,
    out: Annotated[Path | None, to_folder("Folder for the result; that of the trace by default.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Give up after so long; never by default.")] = None,
    oracle: OracleOption = None,
    tensors: TensorsOption = None,
    isolate: IsolateOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shorten a trace as long as it shows the same finding: the same sentence about the same call, and of an exception
    the same place.

    Exits with 1 and writes trace and pytest file; with 0 if the trace shows nothing on this target.
    """
    from ..engines.plan import Plan
    from ..engines.reproductions import keep_smaller
    from ..traces.judges import judges_for
    from ..traces.trace_file import read_trace

    if other_form(trace) == STORY:
        run_story_again(trace, target, as_json, out or trace.parent, 1e9 if seconds is None else seconds)
    file = read_trace(trace)
    spec = target or recorded_target(trace, file.target)
    memory_or_usage(tensors or file.tensors)
    given = () if is_auto(oracle) else oracles_or_usage(oracle, spec)
    with closed_after(open_or_usage(spec, file.lost_its_target or isolate)) as core:
        judges = judges_for(file, lambda: oracles_or_usage(None, spec, core), given, tensors)
        plan = Plan(0, seconds, oracles=judges.oracles, tensors=judges.tensors)
        kept = keep_smaller(file, spec, core, plan, out or trace.parent, teller(as_json=True))
    if kept is None:
        print(tagged("shrunk", {"finding": None}) if as_json else f"no difference on {core.name}: nothing to shrink")
    elif as_json:
        print(tagged("shrunk", kept.as_shrunk_json(file)))
    else:
        print("\n".join(kept.lines(verbose)))
    raise typer.Exit(0 if kept is None else 1)


def schema(
    document: Annotated[
        str, typer.Argument(help="`trace`, `page`, or what the field `document` of a command's JSON says.")
    ] = "trace",
) -> None:
    """Print the form of a document as JSON Schema, for editors and for programs that read or write it.

    That of trace files is made from what `replay` reads them with; what a schema cannot say is listed in its
    `$comment`. The others are made from what the commands write with --json, and `page` from what `report --json` does.
    """
    import msgspec

    from ..page.files import RESULTS
    from ..reports.document import Document
    from ..traces.schema import trace_schema

    kinds = {"page": Document, **RESULTS}
    known = ("trace", *kinds)
    known_or_usage("no document with a schema", [document], known, f"write one of {', '.join(known)}")
    form = trace_schema() if document == "trace" else msgspec.json.schema(kinds[document])
    print(json.dumps(form, indent=2))


def replay_question(path: Path, target: str | None, isolate: bool | None, as_json: bool) -> NoReturn:
    """Ask again what a file of a finding holds, and exit."""
    from ..configuration.findings import as_document, finding_text, read_finding
    from ..configuration.fuzzing import ask_recorded

    recorded = read_finding(path)
    spec = target or recorded_target(path, recorded.target)
    with closed_after(calculator_or_usage(spec, isolate)) as calculator, document_alone(as_json):
        found = ask_recorded(path, recorded, calculator)
    if as_json:
        print(tagged("replay", {"target": calculator.name, "found": as_document(found) if found else None}))
    else:
        print(finding_text(found) if found else f"{recorded.op}: {calculator.name} agrees")
    raise typer.Exit(1 if found else 0)


def run_story_again(
    path: Path,
    target: str | None,
    as_json: bool,
    out: Path | None = None,
    shrink_seconds: float = 0.0,
    shows: bool = False,
) -> NoReturn:
    """Run the engine of a file of a finding again, on its target or on another one, and exit. What it shows is made
    smaller for so many seconds and written to `out`, if that is named; `shows`: it is printed call by call."""
    from ..engines.story_fuzzing import play, read_story

    stored = read_story(path)
    spec, seconds = target or recorded_target(path, stored.target), shrink_seconds
    outcome = guarded(lambda: play(stored, spec, timed_teller(), out, shrink_seconds=seconds, shows=shows))
    print(outcome.document().text() if as_json else "\n".join(outcome.lines()))
    raise typer.Exit(outcome.exit_code)
