"""`blockproof mutants`: does the harness find mistakes that were planted on purpose?"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import mutant_names
from .options import JsonOption, jobs_option, known_or_usage, oracles_or_usage, usage
from .outputs import tagged, to_file

if TYPE_CHECKING:
    from ..engines.mutant_matrix import Result
    from ..engines.mutants import Hunt
    from ..faults import Fault

SECONDS, REAL_SECONDS = 20.0, 60.0
"""How long each fault is looked for, where nothing is said."""
OPERATIONS = 12_000
"""How many operations each random mutant is looked for in lockstep, where nothing is said."""


def mutants(
    list_only: Annotated[bool, typer.Option("--list", help="Only name the faults.")] = False,
    only: Annotated[str | None, typer.Option(help="Only this fault.", autocompletion=mutant_names)] = None,
    real: Annotated[bool, typer.Option("--real", help="The faults of the catalogue of real bugs instead.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="How long to look for each (default: 20, 60 with --real, or as long as --operations)."
        ),
    ] = None,
    operations: Annotated[int | None, typer.Option(min=1, help="How many operations to try for each.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the runs.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Look for each with so many seeds; medians are told.")] = 1,
    matrix: Annotated[bool, typer.Option("--matrix", help="Ask every detector about each fault.")] = False,
    oracle: Annotated[str, typer.Option(help="Judged by these instead of those that each is meant for.")] = "auto",
    target: Annotated[str, typer.Option(help="Our core: impl, or impl-compiled.")] = "impl",
    of: Annotated[str | None, typer.Option(help="Random mutants of this release's own modules instead.")] = None,
    random: Annotated[int, typer.Option(min=1, help="With --of: how many.")] = 160,
    cases: Annotated[int, typer.Option(min=0, help="With --of: how many configurations to try for each.")] = 600,
    jobs: Annotated[int, jobs_option("With --of: processes")] = 1,
    keep: Annotated[Path | None, to_file("With --of: keep the result here, and go on from it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plant one fault after the other into our core, and find and shrink each.

    With --of it draws random mutants of the modules of a release, or of our core (extra mutation), and hunts each by
    lockstep, by configurations and without a model; nothing of it is written to the installed release.

    Exits with 0 if every fault was found, with several seeds by most of them; with 1 if one was not, 130 if Ctrl-C
    ended it before all were tried. Of random mutants it exits with 1 if one was neither found nor is written up with a
    reason.
    """
    if of is not None:
        if only or list_only or real or matrix or seeds > 1 or seconds is not None or oracle != "auto":
            raise typer.BadParameter("--of: takes no --list, --only, --real, --matrix, --seeds, --seconds or --oracle")
        random_mutants(of, (random, seed, operations or OPERATIONS, cases), jobs, keep, as_json)
    from ..adapters.impl import CORES
    from ..engines.mutant_matrix import Result, results
    from ..engines.mutants import Search, can_be_tried, known_faults, missed
    from ..faults import LIST
    from ..findings.words import plural
    from ..reports.progress import steps

    known = known_faults(real)
    known_or_usage("--only: no fault", [only] if only else [], known, LIST + (" --real" if real else ""))
    known_or_usage("--target: no core of ours", [target], CORES, "write impl or impl-compiled")
    chosen = [fault for name, fault in known.items() if only in (None, name)]
    if list_only:
        return _print_list(chosen, as_json)
    judges = None if oracle == "auto" else oracles_or_usage(oracle, "impl")
    if seconds is None and operations is None:
        seconds = REAL_SECONDS if real else SECONDS
    search = Search(seconds, operations, seed, judges, target)
    done: list[Result] = []
    tried, interrupted = [fault for fault in chosen if can_be_tried(fault)], False
    with steps(len(tried), "fault") as show:
        try:
            for result in results(tried, search, seeds, matrix, show):
                done.append(result)
                if not as_json:
                    _print_result(result)
        except KeyboardInterrupt:
            interrupted = True
    if untried := [fault.name for fault in chosen if not can_be_tried(fault)]:
        print(f"not tried without torch: {', '.join(untried)}", file=sys.stderr)
    lost = missed(result.median for result in done)
    _print_all(done, lost, matrix, as_json)
    if interrupted:
        print(f"interrupted: {plural(len(tried) - len(done), 'fault')} not tried", file=sys.stderr)
    raise typer.Exit(1 if lost else 130 if interrupted else 0)


def _print_all(done: "Sequence[Result]", lost: Sequence[str], matrix: bool, as_json: bool) -> None:
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


def _print_result(result: "Result") -> None:
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


def _print_matrix(done: "Sequence[Result]") -> None:
    """A line for each fault, with the operations after which each detector has seen it."""
    from ..engines.mutant_matrix import DETECTORS, NOT_RUN, middle

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


if TYPE_CHECKING:
    from ..mutation.hunting import Hunted
    from ..mutation.report import MutantsDone


MOST_KEPT = 1 << 28
"""Bytes of a file that mutants are kept in."""


def random_mutants(of: str, drawn: tuple[int, int, int, int], jobs: int, keep: Path | None, as_json: bool) -> None:
    """Draw, hunt and report; ends the program with its exit code. `drawn`: how many, of which seed, and for each how
    many operations and configurations."""
    from ..findings.words import plural
    from ..mutation.drawing import draw_mutants
    from ..mutation.hunting import hunt_all
    from ..mutation.report import Asked, MutantsDone, kept_text
    from ..mutation.subject import subject_of
    from ..reports.progress import steps
    from ..targets.base import TargetLostError

    asked = Asked(of, *drawn)
    with usage("--of"):
        subject = subject_of(asked.of)
    try:
        mutants = draw_mutants(subject.sources(), asked.random, asked.seed)
    except ImportError:
        raise typer.BadParameter("--of needs the extra mutation: pip install '/path/to/blockproof[mutation]'") from None
    told = MutantsDone(asked, subject, mutants)
    _go_on(told, keep)
    interrupted = ""
    left = [mutant for mutant in mutants if mutant.place not in {one.mutant.place for one in told.hunted}]
    with steps(len(mutants), "mutant") as show:
        show(len(told.hunted), "")
        try:
            for one in hunt_all(subject, left, asked.seed, asked.budget, jobs):
                told.hunted.append(one)
                show(len(told.hunted), one.mutant.function)
                if not as_json:
                    print(_line(one), flush=True)
                _write(keep, kept_text(told))
        except KeyboardInterrupt:
            interrupted = f"interrupted: {plural(len(mutants) - len(told.hunted), 'mutant')} not tried"
        except TargetLostError as lost:
            print(f"blockproof: {asked.of}: {' '.join(str(lost).split())}", file=sys.stderr)
            raise typer.Exit(3) from None
    document: dict[str, Any] = told.as_json()
    print(tagged("mutants", document) if as_json else "\n".join(told.lines()))
    if interrupted:
        print(interrupted, file=sys.stderr)
    raise typer.Exit(told.exit_code or (130 if interrupted else 0))


def _go_on(told: "MutantsDone", keep: Path | None) -> None:
    """Take over what the file has already. BadParameter if it is of another run."""
    from ..findings.reading import read_bytes
    from ..mutation.report import from_kept

    if keep is None or not keep.exists():
        return
    with usage(f"--keep: {keep}"):
        text = read_bytes(keep, "kept mutants", MOST_KEPT).decode()
        told.hunted += from_kept(text, told.asked, told.mutants)


def _write(keep: Path | None, text: str) -> None:
    from ..findings.writing import write_file

    if keep is not None:
        write_file(keep, text)


def _line(one: "Hunted") -> str:
    from ..mutation.report import place

    what = {"survived": "survived", "import": "killed when imported"}.get(one.status, f"killed by {one.by}")
    cost = f"{one.operations:7,} operations  {one.cases:4,} configurations  {one.seconds:6.2f} s"
    return f"{what:40} {cost}  {place(one.mutant)}"
