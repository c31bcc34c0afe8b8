"""`blockproof findings`: observe written-up findings again, release by release."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..planning.shipped import FINDINGS, shipped
from .fuzz import JsonOption, open_or_usage

if TYPE_CHECKING:
    from ..releases.findings import Entry, Observations
    from ..traces.trace_file import TraceFile


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
    from ..releases.findings import page as page_of
    from ..releases.findings import read_entries, read_observations, read_traces, write_observations

    place = folder if record else shipped(folder)  # the package is no place to write to
    entries, recorded = read_entries(place), read_observations(place)
    if only is not None and only not in entries:
        raise typer.BadParameter(f"--only: no finding is called {only!r}; there are {', '.join(entries)}")
    chosen = {name: entry for name, entry in entries.items() if only in (None, name)}
    traces = read_traces(place, list(entries))
    observed, problems = _observe(chosen, traces, _specs(target or [], releases), times, quiet=as_json)
    if record:
        for key, row in observed.items():
            recorded.setdefault(key, {}).update(row)
        write_observations(folder, recorded)
    else:
        problems += _differences(recorded, observed)
    if page is not None:
        foot = place / "looked-for.md"
        command = f"blockproof findings {folder} --page {page}"
        end = foot.read_text(encoding="utf-8") if foot.exists() else ""
        page.write_text(page_of(entries, traces, recorded, command, end), encoding="utf-8")
    if as_json:
        print(json.dumps({"observed": observed, "problems": problems}, indent=2))
    else:
        count = sum(len(row) for row in observed.values())
        print("\n".join([*problems, f"{count} observations of {len(chosen)} findings, {len(problems)} problems"]))
    raise typer.Exit(1 if problems else 0)


def _specs(targets: list[str], releases: str | None) -> list[str]:
    """Names of the releases: those that are named, else all that are installed. BadParameter for a wrong one."""
    from ..opening.environments import installed
    from ..releases.versions import releases_between

    try:
        named = [*targets, *(releases_between(releases) if releases else ())]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    specs = named or [environment.name for environment in installed()]
    if not specs:
        raise typer.BadParameter("no release is installed; see blockproof targets install -h")
    return list(dict.fromkeys(specs))


def _observe(
    entries: "dict[str, Entry]", traces: "dict[str, TraceFile]", specs: list[str], times: int, quiet: bool
) -> "tuple[Observations, list[str]]":
    """Replay everything. Returns what was observed, and where it was not the same each time."""
    observed: Observations = {}
    problems = []
    for spec in specs:
        rounds = [_observe_once(entries, traces, spec) for _ in range(times)]
        for key, what in rounds[0].items():
            seen = [one[key] for one in rounds]
            if len(set(seen)) > 1:
                problems.append(f"{key} on {spec}: {', '.join(seen)}")
            observed.setdefault(key, {})[spec] = what
            if not quiet:
                print(f"{spec:20} {key:42} {', '.join(seen)}", flush=True)
    return observed, problems


def _observe_once(entries: "dict[str, Entry]", traces: "dict[str, TraceFile]", spec: str) -> dict[str, str]:
    """What each trace, and each case of the scheduler, shows on a release, in processes of their own."""
    from ..adapters import family_of
    from ..releases.findings import by_scheduler, observe
    from ..releases.scheduler_cases import run_cases
    from ..targets.base import TargetLostError

    seen = {}
    family = family_of(spec)
    with closing(open_or_usage(spec, isolate=True)) as core:
        for name in [name for name in entries if name in traces and family is family_of(traces[name].target)]:
            try:
                seen[name] = observe(entries[name], traces[name], core)
            except TargetLostError as lost:
                seen[name] = lost.kind
    cases = {entry.case: name for name, entry in entries.items() if entry.case}
    if cases and family is not None and family.scheduler:
        seen |= {by_scheduler(cases[case]): what for case, what in run_cases(spec, list(cases)).items()}
    return seen


def _differences(recorded: "Observations", observed: "Observations") -> list[str]:
    """Where a release shows something else than was written down."""
    return [
        f"{name} on {spec}: {what}, recorded was {recorded.get(name, {}).get(spec, 'nothing at all')}"
        for name, row in observed.items()
        for spec, what in row.items()
        if recorded.get(name, {}).get(spec) != what
    ]
