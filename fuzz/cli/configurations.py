"""`blockproof fuzz-config`: draw model configurations and hold a target's arithmetic against the model's."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import forms
from .completion import calculator_names
from .options import (
    FloorsOption,
    IsolateOption,
    JsonOption,
    OutOption,
    SecondsOption,
    calculator_or_usage,
    closed_after,
    document_alone,
    seconds_or_default,
    seed_or_drawn,
    teller,
)
from .outputs import folder_or_usage, tagged

if TYPE_CHECKING:
    from ..configuration.fuzzing import ConfigurationOutcome


class Oracle(StrEnum):
    """What judges the target."""

    LOCKSTEP = "lockstep"
    INVARIANTS = "invariants"
    ALL = "all"


def fuzz_config(
    target: Annotated[
        str | None,
        typer.Option(
            help=f"impl, {forms()}, package.module:factory or fault:NAME; impl by default.",
            autocompletion=calculator_names,
        ),
    ] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="Stop after so many configurations.")] = None,
    seconds: SecondsOption = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same configurations; drawn by default.")] = None,
    oracle: Annotated[Oracle, typer.Option(help="What judges the target.")] = Oracle.ALL,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a finding, and keep one of each kind.")
    ] = False,
    out: OutOption = Path("findings"),
    floors: FloorsOption = None,
    isolate: IsolateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask target and model the same questions about drawn configurations; shrink and keep what differs.

    Exits with 0 if nothing was found, 1 on a finding, 130 if Ctrl-C ended it before; what was done is reported.
    """
    from ..configuration.check import CheckLimits
    from ..configuration.fuzzing import ConfigurationTask, fuzz_configurations
    from ..configuration.reach import TABLES, TOTALS
    from ..reports.floors import read_floors

    wanted = read_floors(floors, TABLES, TOTALS) if floors else {}
    folder_or_usage(out)
    limits = CheckLimits(cases, seconds_or_default(seconds, cases), None if keep_going else 1)
    task = ConfigurationTask(target or "impl", seed_or_drawn(seed), limits, oracle.value, isolate)
    with closed_after(calculator_or_usage(task.spec, isolate)) as calculator, document_alone(as_json):
        outcome = fuzz_configurations(task, calculator, out, wanted, teller(as_json))
    _print_report(outcome, as_json)
    raise typer.Exit(outcome.exit_code)


def _print_report(outcome: "ConfigurationOutcome", as_json: bool) -> None:
    from ..reports.formats import show_tables

    if as_json:
        print(tagged("configurations", outcome.as_json()))
        return
    bad = bool(outcome.reach.findings)
    show_tables(outcome.headline(), outcome.reach.tables(), outcome.verdict(), bad=bad)
    print("\n".join(outcome.lines()))
