"""`blockproof fuzz`: run an engine on a target and leave of a finding what is needed to fix it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import target_names
from .options import (
    AllowVacuousOption,
    AttentionOption,
    FloorsOption,
    IsolateOption,
    JsonOption,
    LiveOption,
    OracleOption,
    OutOption,
    SecondsOption,
    SeedOption,
    ShrinkOption,
    TargetOption,
    TensorsOption,
    VerboseOption,
    attention_names,
    closed_after,
    document_alone,
    jobs_option,
    memory_or_usage,
    open_or_usage,
    oracles_or_usage,
    page_of,
    seconds_or_default,
    seed_or_drawn,
    teller,
    usage,
)
from .outputs import JunitOption, MarkdownOption, folder_or_usage, to_file, written

if TYPE_CHECKING:
    from ..engines.fuzzing import FuzzOutcome

KnownOfOption = Annotated[
    str | None,
    typer.Option(
        metavar="RELEASE",
        help="Findings that this target shows, too, are only counted; without a model, by default, the release under a "
        "patch.",
        autocompletion=target_names,
    ),
]


def fuzz(
    target: TargetOption = "impl",
    seconds: SecondsOption = None,
    operations: Annotated[int | None, typer.Option(min=1, help="Stop after the run that reaches so many.")] = None,
    seed: SeedOption = None,
    oracle: OracleOption = None,
    tensors: TensorsOption = None,
    attention: AttentionOption = "all",
    jobs: Annotated[int, jobs_option("Processes, each with a seed of its own")] = 1,
    shrink_seconds: ShrinkOption = 60.0,
    out: OutOption = Path("findings"),
    junit: JunitOption = None,
    write: MarkdownOption = None,
    floors: FloorsOption = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="Break preconditions on purpose.")] = False,
    isolate: IsolateOption = None,
    allow_vacuous: AllowVacuousOption = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a finding, and keep one of each cause.")
    ] = False,
    known: Annotated[
        Path | None, typer.Option(help="TOML file of known findings: these are counted, and the run goes on.")
    ] = None,
    known_of: KnownOfOption = None,
    write_known: Annotated[
        Path | None,
        to_file("Add entries for what was found to this file of known findings."),
    ] = None,
    live: LiveOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fuzz a target under the oracles that suit it; shrink and keep the first finding that is not known.

    Exits with 0 if nothing was found, 1 on a finding, 3 if the run tested nothing. Ctrl-C ends the run early and
    reports what was done; the exit code is 130 then, if nothing was found.
    """
    from ..engines.fuzzing import FuzzTask, known_of_target
    from ..engines.fuzzing import fuzz as run
    from ..engines.plan import Plan
    from ..reports.floors import read_floors
    from ..traces.known_file import read_known

    names = attention_names(attention, few=True)
    wanted = read_floors(floors) if floors else {}
    folder_or_usage(out)
    if write_known is not None and os.path.lexists(write_known):
        read_known(write_known)  # entries are added to it when the run is over
    limit, tell = seconds_or_default(seconds, operations), teller(as_json)
    plan = Plan(seed_or_drawn(seed), limit, operations, names, chaos, tensors=tensors, allow_vacuous=allow_vacuous)
    plan = replace(plan, keep_going=keep_going, known=read_known(known) if known else (), shrink_seconds=shrink_seconds)
    memory_or_usage(tensors)
    opened = open_or_usage(target, isolate)
    with closed_after(opened) as core, page_of(live, tell) as page, document_alone(as_json):
        with usage("--attention"):
            plan = replace(plan, oracles=oracles_or_usage(oracle, target, core)).possible_on(core)
        with usage("--known-of"):
            plan = replace(plan, known_of=known_of_target(known_of, target, plan.oracles))
        if attention != "all" and (lacking := [name for name in names if name not in plan.attention]):
            tell(f"left out, since {core.name} lacks what they are made of: {', '.join(lacking)}")
        task = FuzzTask(target, "random", plan, jobs, isolate, str(known) if known else "")
        outcome = run(task, core, out, wanted, tell, page)
    raise typer.Exit(_told(outcome, as_json, verbose, (junit, write, write_known), tell))


def _told(
    outcome: "FuzzOutcome",
    as_json: bool,
    verbose: bool,
    files: tuple[Path | None, Path | None, Path | None],
    tell: Callable[[str], None],
) -> int:
    """Tell what came of it, the finding first, then write the files that are named: JUnit, Markdown, known findings.
    Returns the exit code."""
    from ..engines.reproductions import write_known as add_entries
    from ..reports import formats

    junit, write, write_known = files
    document = outcome.document(verbose)

    def report() -> None:
        if as_json:
            print(document.text())
        else:
            formats.show(document)
            print("\n".join(outcome.lines()))

    def entries() -> None:
        for line in add_entries(write_known, outcome.every) if write_known else ():
            tell(line)

    return written(outcome.exit_code, (report, *formats.reports(document, junit, write), entries))
