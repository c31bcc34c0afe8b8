"""`blockproof compat`: our core under the engine whose core it stands in for."""

import json
from typing import Annotated

import typer

from ..adapters import references
from .options import JsonOption, timed_teller
from .targets import guarded

RELEASE = references()[0]
app = typer.Typer(
    help="Put our core under the engine whose core it can replace: its own tests, its scheduler.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)


@app.command("test", epilog="Example: blockproof compat test --suite core --json")
def run_tests(
    release: Annotated[str, typer.Option(metavar="VERSION", help="The release.")] = RELEASE.partition("==")[2],
    suite: Annotated[list[str] | None, typer.Option(help="Only this suite; can be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the release's own tests over its core and over ours; minutes, and a download the first time.

    Exits with 0 if each test that passes over the release's core passes over ours or is declared not to, 1 if one does
    neither or is declared and passes, 3 if the tests could not be fetched or nothing ran.
    """
    from ..compat.own_tests import run_own_tests, suites_of

    name = f"{RELEASE.partition('==')[0]}=={release}"
    known = guarded(lambda: suites_of(name))
    if wrong := [one for one in suite or () if one not in known]:
        raise typer.BadParameter(f"no suite {wrong[0]!r}; there are {', '.join(known)}")
    reports = guarded(lambda: run_own_tests(name, suite or known, timed_teller()))
    if as_json:
        print(json.dumps({"release": name, "suites": [report.as_json() for report in reports]}, indent=2))
    else:
        print("\n".join(line for report in reports for line in report.lines()))
    if not any(report.passing for report in reports):
        raise typer.Exit(3)
    raise typer.Exit(1 if any(report.undeclared or report.stale for report in reports) else 0)
