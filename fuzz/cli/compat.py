"""`blockproof compat`: our core under the engine whose core it stands in for."""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..adapters import references
from .options import JsonOption, SeedOption, guarded, timed_teller
from .outputs import tagged
from .patches import patchable, patched_name

if TYPE_CHECKING:
    from ..opening.patches import Patch

RELEASE = references()[0]
VERSION = RELEASE.partition("==")[2]
app = typer.Typer(
    help="Put our core under the engine whose core it can replace: its own tests, its scheduler.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)


CompiledOption = Annotated[bool, typer.Option("--compiled", help="Our core in its compiled form.")]
VersionOption = Annotated[str, typer.Option(metavar="VERSION", help="The release.")]


def run_tests(
    release: VersionOption = VERSION,
    suite: Annotated[list[str] | None, typer.Option(help="Only this suite; can be repeated.")] = None,
    compiled: CompiledOption = False,
    as_json: JsonOption = False,
    over: "Patch | None" = None,
) -> None:
    """Run the release's own tests over its core and over ours; minutes, and a download the first time.

    Exits with 0 if each test that passes over the release's core passes over ours or is declared not to, 1 if one does
    neither or is declared and passes, 3 if the tests could not be fetched or nothing ran.
    """
    from ..compat.own_tests import run_own_tests, suites_of

    name = f"{RELEASE.partition('==')[0]}=={release}"
    name = patched_name(name, over) if over else name
    known = guarded(lambda: suites_of(name))
    if wrong := [one for one in suite or () if one not in known]:
        raise typer.BadParameter(f"no suite {wrong[0]!r}; there are {', '.join(known)}")
    reports = guarded(lambda: run_own_tests(name, suite or known, timed_teller(), compiled))
    if as_json:
        print(tagged("own-tests", {"release": name, "suites": [report.as_json() for report in reports]}))
    else:
        print("\n".join(line for report in reports for line in report.lines()))
    if not any(report.passing for report in reports):
        raise typer.Exit(3)
    raise typer.Exit(1 if any(report.undeclared or report.stale for report in reports) else 0)


def run_schedule(
    release: VersionOption = VERSION,
    mixes: Annotated[int, typer.Option(min=1, help="How many random mixes of requests.")] = 500,
    seed: SeedOption = None,
    first: Annotated[int, typer.Option(min=0, help="Number of the first mix.")] = 0,
    timed: Annotated[bool, typer.Option("--time", help="Measure scheduler steps per second, too.")] = False,
    compiled: CompiledOption = False,
    fault: Annotated[str, typer.Option(help="Make this mistake in our core, to see that it is noticed.")] = "",
    as_json: JsonOption = False,
    over: "Patch | None" = None,
) -> None:
    """Run the release's scheduler over its core and over ours with the same requests, and compare every step.

    Exits with 0 if all steps are identical but for known deviations of the release, 1 if a difference has no such
    explanation, 3 if the release is not installed.
    """
    from ..compat.schedule import compare_mixes, time_schedulers

    name = f"{RELEASE.partition('==')[0]}=={release}"
    name = patched_name(name, over) if over else name
    seed = secrets.randbelow(2**32) if seed is None else seed
    found = guarded(lambda: compare_mixes(name, seed, range(first, first + mixes), fault, compiled))
    times = guarded(lambda: time_schedulers(name, compiled=compiled)) if timed else []
    if as_json:
        print(tagged("schedule", {"release": name, **found.as_json(), "times": times}))
    else:
        print("\n".join([*found.lines(), *(_time_line(time) for time in times)]))
    raise typer.Exit(1 if found.findings else 0)


def _time_line(time: Mapping[str, Any]) -> str:
    """Steps per second of one workload."""
    spread = f"{time['ratio']:.2f} times ({time['least']:.2f} to {time['greatest']:.2f})"
    return f"{time['workload']}: {time['theirs_per_s']} steps/s, over ours {time['ours_per_s']}: {spread}"


app.command("test", epilog="Example: blockproof compat test --suite core --json")(patchable(run_tests, handed=True))
app.command("schedule", epilog="Example: blockproof compat schedule --mixes 500 --seed 1 --time")(
    patchable(run_schedule, handed=True)
)
