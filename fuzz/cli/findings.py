"""`blockproof findings`: observe written-up findings again, release by release."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..planning.shipped import FINDINGS, shipped
from .options import JsonOption, open_or_usage, usage


def findings(
    folder: Annotated[Path, typer.Argument(help="Folder with findings.toml, traces and releases.json.")] = FINDINGS,
    target: Annotated[list[str] | None, typer.Option(help="Observe it on this release; repeatable.")] = None,
    releases: Annotated[str | None, typer.Option(help="On all known releases of this engine, or NAME==A..B.")] = None,
    only: Annotated[str | None, typer.Option(help="Only this finding.")] = None,
    times: Annotated[int, typer.Option(min=1, help="Replay each so often, every time in a new process.")] = 1,
    record: Annotated[
        bool, typer.Option("--record", help="Write down what is observed, instead of checking it.")
    ] = False,
    page: Annotated[Path | None, typer.Option(help="Write them up as a Markdown page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the traces of written-up findings, on the releases that are named or else all that are installed.

    Exits with 1 if a release shows something else than was recorded, or not the same each time.
    """
    from ..findings.words import plural
    from ..findings.writing import write_file
    from ..releases.findings import folder_page, read_entries, read_observations, read_traces, record_observations
    from ..releases.observing import differences, observe_releases

    place = folder if record else shipped(folder)  # the package is no place to write to
    entries, recorded = read_entries(place), read_observations(place)
    if only is not None and only not in entries:
        raise typer.BadParameter(f"--only: no finding is called {only!r}; there are {', '.join(entries)}")
    chosen = {name: entry for name, entry in entries.items() if only in (None, name)}
    traces, specs = read_traces(place, list(entries)), _specs(target or [], releases)

    def print_seen(spec: str, key: str, seen: Sequence[str]) -> None:
        if record:  # at once, so that nothing that was said is lost with the rest
            record_observations(folder, {key: {spec: seen[0]}})
        if not as_json:
            print(f"{spec:20} {key:42} {', '.join(seen)}", flush=True)

    observed, problems = observe_releases(
        chosen, traces, specs, times, lambda spec: open_or_usage(spec, isolate=True), print_seen
    )
    if not record:
        problems += differences(recorded, observed)
    if page is not None:
        write_file(page, folder_page(place, f"blockproof findings {folder} --page {page}"))
    if as_json:
        print(json.dumps({"observed": observed, "problems": problems}, indent=2))
    else:
        count = sum(len(row) for row in observed.values())
        seen = f"{plural(count, 'observation')} of {plural(len(chosen), 'finding')}"
        print("\n".join([*problems, f"{seen}, {plural(len(problems), 'problem')}"]))
    raise typer.Exit(1 if problems else 0)


def _specs(targets: list[str], releases: str | None) -> list[str]:
    """Names of the releases: those that are named, else all that are installed. BadParameter if there are none."""
    from ..opening.environments import installed
    from ..releases.versions import named_targets

    with usage():
        specs = named_targets(targets, releases) or [environment.name for environment in installed()]
    if not specs:
        raise typer.BadParameter("no release is installed; see blockproof targets install -h")
    return specs
