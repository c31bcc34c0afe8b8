"""`blockproof mutants`: does the harness find mistakes that were planted on purpose?"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import mutant_names
from .detection import TrialComparison, compare, faults_named, list_settings
from .options import JsonOption, as_called, jobs_option, known_or_usage, oracles_or_usage
from .outputs import to_file
from .random_mutants import random_mutants

if TYPE_CHECKING:
    from ..engines.mutants import FaultResult, Hunt
    from ..faults import Fault

SECONDS, REAL_SECONDS = 20.0, 60.0
"""How long each fault is looked for, where nothing is said."""
SEEDS = 10
"""With how many seeds ways of drawing are compared, where nothing is said."""
OPERATIONS = 12_000
"""How many operations each random mutant is looked for in lockstep, where nothing is said."""


OnlyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only these faults, as in eagle*.", autocompletion=mutant_names),
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        help="How long to look for each (default: 20, 60 with --real, or as long as --operations); with --against in "
        "processor time.",
    ),
]
OperationsOption = Annotated[
    int | None, typer.Option(min=1, help="How many operations to try for each; with --against 20,000 by default.")
]
SeedsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Look for each with so many seeds, with --against 10 by default; medians are told."),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="How soon each is found by this way of drawing, see --settings; or several."),
]
GitOption = Annotated[str | None, typer.Option(metavar="REF", help="... or than by the generator of this commit.")]
KeepOption = Annotated[Path | None, to_file("With --of and --against: keep the result here, and go on from it.")]


def mutants(
    context: typer.Context,
    list_only: Annotated[bool, typer.Option("--list", help="Only name the faults.")] = False,
    only: OnlyOption = None,
    real: Annotated[bool, typer.Option("--real", help="The faults of the catalogue of real bugs instead.")] = False,
    seconds: SecondsOption = None,
    operations: OperationsOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the runs, the first one of several.")] = 0,
    seeds: SeedsOption = None,
    setting: SettingOption = None,
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="... and whether sooner than by this one.")
    ] = None,
    against_git: GitOption = None,
    settings: Annotated[bool, typer.Option("--settings", help="Only name the ways of drawing.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Ask every detector about each fault.")] = False,
    oracle: Annotated[str, typer.Option(help="Judged by these instead of those that each is meant for.")] = "auto",
    target: Annotated[str, typer.Option(help="Our core: impl, or impl-compiled.")] = "impl",
    of: Annotated[str | None, typer.Option(help="Random mutants of this release's own modules instead.")] = None,
    random: Annotated[int, typer.Option(min=1, help="With --of: how many.")] = 160,
    cases: Annotated[int, typer.Option(min=0, help="With --of: how many configurations to try for each.")] = 600,
    jobs: Annotated[int, jobs_option("With --of and --against: processes")] = 1,
    keep: KeepOption = None,
    write: Annotated[Path | None, to_file("With --against: write the page as Markdown.", metavar="FILE")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plant one fault after the other into our core, and find and shrink each.

    With --of it draws random mutants of the modules of a release, or of our core (extra mutation), and hunts each by
    lockstep, by configurations and without a model; nothing of it is written to the installed release.

    With --setting, --against or --against-git all faults are hunted from many seeds, and it is told how soon each is
    found, and by which way of drawing sooner.

    Exits with 0 if every fault was found, with several seeds by most of them; with 1 if one was not, 130 if Ctrl-C
    ended it before all were tried. Of random mutants it exits with 1 if one was neither found nor is written up with a
    reason. Of ways of drawing it exits with 1 if one is worse than what it is held against (p < 0.01), with 3 if
    nothing could be tried.
    """
    if settings:
        return list_settings()
    compared = bool(setting or against or against_git)
    if of is not None:
        if only or list_only or real or matrix or seeds or seconds is not None or oracle != "auto" or compared:
            raise typer.BadParameter(
                "--of: takes no --list, --only, --real, --matrix, --seeds, --seconds, --oracle or --against"
            )
        random_mutants(of, (random, seed, operations or OPERATIONS, cases), jobs, keep, as_json)
    if compared:
        if list_only or real or matrix or oracle != "auto" or target != "impl":
            raise typer.BadParameter("--against: takes no --list, --real, --matrix, --oracle or --target")
        first, command = range(seed, seed + (seeds or SEEDS)), as_called(context)
        asked = TrialComparison(
            *(setting or [], against, against_git, first, operations, seconds, only or []),
            *(jobs, keep, write, as_json, command),
        )
        raise typer.Exit(compare(asked))
    if keep or write:
        raise typer.BadParameter(f"--{'keep' if keep else 'write'}: only with --of or --against")
    if seconds is None and operations is None:
        seconds = REAL_SECONDS if real else SECONDS
    how = _How(seconds, operations, seed, seeds or 1, None if oracle == "auto" else oracle, target, matrix)
    raise typer.Exit(_planted(only or [], real, list_only, how, as_json))


@dataclass(frozen=True)
class _How:
    """How planted faults are hunted."""

    seconds: float | None
    operations: int | None
    seed: int
    seeds: int
    oracle: str | None
    """None for those that each fault is meant for."""
    target: str
    matrix: bool


def _planted(only: Sequence[str], real: bool, list_only: bool, how: _How, as_json: bool) -> int:
    """Hunt planted faults, or only name them. The exit code."""
    from ..adapters.impl import CORES
    from ..engines.mutants import FaultResult, FaultSearch, can_be_tried, known_faults, missed, results
    from ..faults import LIST
    from ..findings.words import plural
    from ..reports.progress import steps

    chosen = faults_named(only, known_faults(real), LIST + (" --real" if real else ""))
    known_or_usage("--target: no core of ours", [how.target], CORES, "write impl or impl-compiled")
    if list_only:
        _print_list(chosen, as_json)
        return 0
    judges = None if how.oracle is None else oracles_or_usage(how.oracle, "impl")
    search = FaultSearch(how.seconds, how.operations, how.seed, judges, how.target)
    done: list[FaultResult] = []
    tried, interrupted = [fault for fault in chosen if can_be_tried(fault)], False
    with steps(len(tried), "fault") as show:
        try:
            for result in results(tried, search, how.seeds, how.matrix, show):
                done.append(result)
                if not as_json:
                    _print_result(result)
        except KeyboardInterrupt:
            interrupted = True
    if untried := [fault.name for fault in chosen if not can_be_tried(fault)]:
        print(f"not tried without torch: {', '.join(untried)}", file=sys.stderr)
    lost = missed(result.median for result in done)
    _print_all(done, lost, how.matrix, as_json)
    if interrupted:
        print(f"interrupted: {plural(len(tried) - len(done), 'fault')} not tried", file=sys.stderr)
    return 1 if lost else 130 if interrupted else 0


def _print_all(done: "Sequence[FaultResult]", lost: Sequence[str], matrix: bool, as_json: bool) -> None:
    """What came of all faults together."""
    if as_json:
        from ..reports.faults import FaultsDocument

        print(FaultsDocument([result.row(matrix) for result in done]).text())
        return
    if matrix:
        _print_matrix(done)
    print(f"{len(done) - len(lost)} of {len(done)} found" + (f"; missed: {', '.join(lost)}" if lost else ""))


def _print_list(faults: "Sequence[Fault]", as_json: bool) -> None:
    if as_json:
        fields = ("name", "observables", "describe")
        print(json.dumps([{name: getattr(fault, name) for name in fields} for fault in faults], indent=2))
        return
    width = max((len(fault.name) for fault in faults), default=0)
    for fault in faults:
        print(f"{fault.name.ljust(width)}  {'|'.join(fault.observables):18} {fault.describe}")


def _print_result(result: "FaultResult") -> None:
    if result.bug:
        print(f"{result.bug:5} {result.link}")
    _print_hunt(result.median)
    if len(result.caught) > 1:
        each = [f"{one.hunt.operations:,}{'' if one.hunt.found else ' (not found)'}" for one in result.caught]
        print(f"{'':32} median of {len(each)} seeds: {', '.join(each)} operations")
    sys.stdout.flush()


def _print_hunt(hunt: "Hunt") -> None:
    if hunt.found:
        where = f"`{hunt.observable}` at {hunt.operation}"
        after = f"{hunt.operations:7,} operations  {hunt.seconds:6.2f} s"
        size = "a question" if hunt.shrunk_to is None else str(hunt.shrunk_to)
        print(f"{hunt.fault:32} {where:28} {after}  shrunk to {size} in {hunt.shrink_seconds} s")
    elif hunt.broken:
        print(f"{hunt.fault:32} BROKEN: the code that plants it fails, {hunt.broken}")
    else:
        print(f"{hunt.fault:32} NOT FOUND in {hunt.operations:,} operations, {hunt.seconds:.1f} s")


def _print_matrix(done: "Sequence[FaultResult]") -> None:
    """A line for each fault, with the operations after which each detector has seen it."""
    from ..engines.mutants import DETECTORS, NOT_RUN, middle

    names = (*DETECTORS, *NOT_RUN)
    print()
    print(f"{'':38} " + " ".join(f"{name:>11}" for name in names))
    for result in done:
        cells = []
        for name in names:
            hunts = result.detectors.get(name)
            found = middle(hunts) if hunts else None
            cells.append("not run" if found is None else f"{found.operations:,}" if found.found else "missed")
        print(f"{result.median.fault:38} " + " ".join(f"{cell:>11}" for cell in cells))
    print("\n".join(f"not run: {name}, as {why}" for name, why in NOT_RUN.items()))
