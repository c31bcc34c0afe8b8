"""`blockproof fuzz-config`: draw model configurations and hold a target's arithmetic against the model's."""

import json
import secrets
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..adapters import forms
from .fuzz import DEFAULT_SECONDS, SHRINK_SECONDS, JsonOption, OutOption
from .traces import recorded_target

if TYPE_CHECKING:
    from ..configuration.check import Limits
    from ..configuration.findings import ConfigurationFinding
    from ..configuration.reach import Reach
    from ..configuration.shrink import SmallerFinding
    from ..targets.base import Calculator


class Oracle(StrEnum):
    """What judges the target."""

    LOCKSTEP = "lockstep"
    INVARIANTS = "invariants"
    ALL = "all"


def fuzz_config(
    target: Annotated[
        str | None,
        typer.Option(
            help=f"impl, {forms()}, package.module:factory or fault:NAME; impl by default, with --replay the one in "
            "the file."
        ),
    ] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="Stop after so many configurations.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="How long to run; 30 if no limit is given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same configurations; drawn by default.")] = None,
    oracle: Annotated[Oracle, typer.Option(help="What judges the target.")] = Oracle.ALL,
    findings: Annotated[int, typer.Option(min=1, help="Stop after so many different findings.")] = 1,
    out: OutOption = Path("findings"),
    floors: Annotated[Path | None, typer.Option(help="TOML file of what must have been reached.")] = None,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run the target in a process of its own.")] = False,
    replay: Annotated[Path | None, typer.Option(help="Only ask again what this file of a finding holds.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Ask target and model the same questions about drawn configurations; shrink and keep what differs.

    Exits with 0 if nothing was found, 1 on a finding. Ctrl-C ends the run early and reports what was done.
    """
    from ..configuration.check import Limits
    from ..configuration.findings import read_finding
    from ..configuration.reach import TABLES, TOTALS, Reach
    from ..reports.floors import read_floors
    from ..targets.base import close_target

    wanted = read_floors(floors, TABLES, TOTALS) if floors else {}
    recorded = read_finding(replay) if replay else None
    spec = target or (recorded_target(replay, recorded.target) if replay and recorded else "impl")
    calculator = _open_or_usage(spec, isolate)
    limits = Limits(cases, DEFAULT_SECONDS if cases is None and seconds is None else seconds, findings)
    reach = Reach(calculator.name, secrets.randbelow(2**32) if seed is None else seed)
    say: Callable[[str], None] = (lambda text: print(text, file=sys.stderr)) if as_json else print
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():  # the target may print, into the document
            if replay and recorded:
                found = _ask_again(replay, recorded, calculator)
            else:
                say(f"fuzzing the configuration arithmetic of {calculator.name}, seed {reach.seed}")
                _run(calculator, reach, limits, oracle)
                kept = [_keep(finding, calculator, oracle, out, say) for finding in reach.findings]
    finally:
        close_target(calculator)
    if recorded is not None:
        _print_again(recorded, found, calculator.name, as_json)
        raise typer.Exit(1 if found else 0)
    unmet = reach.unmet(wanted)
    _print_report(reach, kept, unmet, _repeat_command(reach, spec, limits, oracle, isolate), as_json)
    raise typer.Exit(1 if reach.findings or unmet else 0)


def _open_or_usage(spec: str, isolate: bool) -> "Calculator":
    """BadParameter for a wrong name, TargetUnavailableError if it is not there."""
    from ..opening.targets import open_calculator

    try:
        return open_calculator(spec, isolate=isolate)
    except ValueError as error:
        raise typer.BadParameter(f"--target: {error}") from None


def _run(calculator: "Calculator", reach: "Reach", limits: "Limits", oracle: Oracle) -> None:
    """Fill in what is reached. Ctrl-C ends the run, not the program."""
    from ..configuration.check import run
    from ..reports.progress import progress

    with progress(limits.seconds, limits.configurations, ("questions", "configurations")) as show:
        try:
            run(
                calculator,
                reach,
                limits,
                oracle.value,
                lambda so_far: show(so_far.questions, so_far.configurations, so_far.seconds),
            )
        except KeyboardInterrupt:
            reach.interrupted = True


def _keep(
    finding: "ConfigurationFinding", calculator: "Calculator", oracle: Oracle, out: Path, say: Callable[[str], None]
) -> "tuple[SmallerFinding, Path]":
    """Save the finding as it is, shrink it, save it again."""
    from ..configuration.check import Judge
    from ..configuration.findings import write_finding
    from ..configuration.shrink import shrink_finding

    first = write_finding(finding, out)
    say(f"found by {finding.oracle} in {finding.op}, saved in {first}; shrinking ...")
    smaller = shrink_finding(finding, Judge(calculator, oracle=oracle.value), SHRINK_SECONDS)
    kept = write_finding(smaller.finding, out)
    if smaller.complete and kept != first:
        first.unlink()
    return smaller, kept


def _ask_again(path: Path, recorded: "ConfigurationFinding", calculator: "Calculator") -> "ConfigurationFinding | None":
    from ..configuration.check import Judge
    from ..configuration.shrink import NO_QUESTION, ask_again
    from ..traces.files import TraceError

    try:
        return ask_again(recorded, Judge(calculator))
    except NO_QUESTION as error:
        problem = f"no inputs of a question {recorded.op!r} ({type(error).__name__}: {error}); correct the file"
        raise TraceError(str(path), "inputs", problem) from None


def _print_again(
    recorded: "ConfigurationFinding", found: "ConfigurationFinding | None", name: str, as_json: bool
) -> None:
    from ..configuration.findings import as_document, finding_text

    if as_json:
        print(json.dumps({"target": name, "found": as_document(found) if found else None}, indent=1))
    elif found is None:
        print(f"{recorded.op}: {name} agrees")
    else:
        print(finding_text(found))


def _repeat_command(reach: "Reach", spec: str, limits: "Limits", oracle: Oracle, isolate: bool) -> str:
    """The shell command that checks the same configurations again."""
    words = ["blockproof", "fuzz-config", "--target", spec, "--cases", str(max(1, reach.configurations))]
    words += ["--seed", str(reach.seed)]
    words += ["--oracle", oracle.value] if oracle != Oracle.ALL else []
    words += ["--findings", str(limits.findings)] if limits.findings > 1 else []
    words += ["--isolate"] if isolate else []
    return shlex.join(words)


def _print_report(
    reach: "Reach", kept: "list[tuple[SmallerFinding, Path]]", unmet: list[str], again: str, as_json: bool
) -> None:
    from ..configuration.findings import as_document, finding_text
    from ..reports.tables import show_sections

    if as_json:
        document: dict[str, Any] = {**reach.as_json(), "floors_unmet": unmet, "repeat": again}
        document["found"] = [
            {**as_document(smaller.finding), "file": str(path), "complete": smaller.complete} for smaller, path in kept
        ]
        print(json.dumps(document, indent=1))
        return
    rate = reach.configurations / reach.seconds if reach.seconds else 0.0
    ended = ", ended by Ctrl-C" if reach.interrupted else ""
    head = (
        f"{reach.target}, seed {reach.seed}: {reach.configurations:,} configurations, {reach.questions:,} questions "
        f"in {reach.seconds:.1f} s ({rate:,.0f} configurations/s){ended}"
    )
    verdict = f"FOUND: {len(reach.findings)}" if reach.findings else f"no difference in {reach.questions:,} answers"
    show_sections(head, reach.sections(), verdict, bad=bool(reach.findings))
    for smaller, path in kept:
        gave_up = "" if smaller.complete else "; gave up early, it may get smaller"
        cost = f"{smaller.candidates:,} tries, {smaller.seconds:.1f} s"
        print(f"\nshrunk in {cost}{gave_up}; from {smaller.finding.seed}")
        print(finding_text(smaller.finding))
        print(f"repeat the finding: {shlex.join(['blockproof', 'fuzz-config', '--replay', str(path)])}")
    for line in unmet:
        print(line)
    print(f"repeat this run: {again}")
