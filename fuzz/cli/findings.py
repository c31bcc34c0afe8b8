"""`blockproof findings`: observe written-up findings again, release by release."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from ..planning.shipped import FINDINGS, shipped
from .options import JsonOption, open_or_usage, usage
from .outputs import tagged, to_file

if TYPE_CHECKING:
    from ..engines.plan import Plan
    from ..releases.findings import FindingEntry, Observations
    from ..releases.observing import OnSeen


def findings(
    folder: Annotated[Path, typer.Argument(help="Folder with findings.toml, traces and releases.json.")] = FINDINGS,
    target: Annotated[list[str] | None, typer.Option(help="Observe it on this release; repeatable.")] = None,
    releases: Annotated[str | None, typer.Option(help="On all known releases of this engine, or NAME==A..B.")] = None,
    only: Annotated[str | None, typer.Option(help="Only this finding.")] = None,
    scripts: Annotated[
        bool, typer.Option("--scripts", help="Run the standalone scripts instead of the traces.")
    ] = False,
    script: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print the standalone script of this finding as one file.")
    ] = None,
    fixes: Annotated[
        bool, typer.Option("--fixes", help="Try the proposed fixes: is the script silent, and no oracle louder?")
    ] = False,
    operations: Annotated[
        int, typer.Option(min=1, help="With --fixes: so many for each oracle, without and with the fix.")
    ] = 6_000,
    seed: Annotated[int, typer.Option(help="With --fixes.")] = 1,
    times: Annotated[int, typer.Option(min=1, help="Replay each so often, every time in a new process.")] = 1,
    record: Annotated[
        bool, typer.Option("--record", help="Write down what is observed, instead of checking it.")
    ] = False,
    write: Annotated[Path | None, to_file("Write them up as a Markdown page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the traces of written-up findings, on the releases that are named or else all that are installed; or run
    the findings' own scripts there, which use nothing but the engine; or try their fixes there. With --script print one
    of the scripts, to be run by whoever has the engine and not blockproof.

    Exits with 1 if a release shows something else than was recorded, or not the same each time, or a fix does not hold;
    with 3 if there was nothing to try. Example: blockproof findings --fixes --only overlapping-items
    """
    from ..engines.plan import Plan
    from ..findings.words import plural
    from ..findings.writing import write_file
    from ..releases.findings import BY_SCRIPTS, OBSERVED, folder_page, read_observations, record_observations
    from ..releases.observing import differences

    place = folder if record else shipped(folder)  # the package is no place to write to
    if script is not None:
        return _print_script(place, script)
    chosen, file = _chosen(place, only, "--only"), BY_SCRIPTS if scripts else OBSERVED
    specs = _specs(target or [], releases)

    def print_seen(spec: str, key: str, seen: Sequence[str]) -> None:
        if record:  # at once, so that nothing that was said is lost with the rest
            record_observations(folder, {key: {spec: seen[0]}}, file)
        if not as_json:
            print(f"{spec:20} {key:42} {', '.join(seen)}", flush=True)

    if fixes:
        raise typer.Exit(_try_fixes(place, chosen, specs, Plan(seed, operations=operations), record, as_json))
    observe = _by_scripts if scripts else _by_traces
    observed, problems, more = observe(place, chosen, specs, times, print_seen)
    if not record:
        problems += differences(read_observations(place, file), observed)
    if write is not None:
        write_file(write, folder_page(place, f"blockproof findings {quote(str(folder))} --write {quote(str(write))}"))
    if as_json:
        print(tagged("observations", {"observed": observed, "problems": problems, **more}))
    else:
        count = sum(len(row) for row in observed.values())
        seen = f"{plural(count, 'observation')} of {plural(len(chosen), 'finding')}"
        print("\n".join([*problems, f"{seen}, {plural(len(problems), 'problem')}"]))
    raise typer.Exit(1 if problems else 0)


def _chosen(place: Path, name: str | None, option: str) -> "dict[str, FindingEntry]":
    """The finding of this name, or all. BadParameter if there is none."""
    from ..releases.findings import read_entries

    entries = read_entries(place)
    if name is not None and name not in entries:
        raise typer.BadParameter(f"{option}: no finding is called {name!r}; there are {', '.join(entries)}")
    return {key: entry for key, entry in entries.items() if name in (None, key)}


def _print_script(place: Path, name: str) -> None:
    """Print the script of this finding, as one file. BadParameter if it has none."""
    from ..releases.finding_scripts import read_scripts, standalone

    with usage("--script"):
        scripts = read_scripts(place, [*_chosen(place, name, "--script")])
        if not scripts:
            raise ValueError(f"{name} has no script")
        print(standalone(scripts[name]), end="")


def _by_traces(
    place: Path, entries: "Mapping[str, FindingEntry]", specs: Sequence[str], times: int, on_seen: "OnSeen"
) -> "tuple[Observations, list[str], dict[str, object]]":
    """What the traces show, and the cases of the engine's scheduler; with a line for each problem."""
    from ..adapters import family_of
    from ..releases.findings import read_traces
    from ..releases.observing import observe_releases

    traces = read_traces(place, list(entries))
    opened = partial(open_or_usage, isolate=True)
    specs = [spec for spec in specs if (family := family_of(spec)) is None or family.open_target is not None]
    return *observe_releases(entries, traces, specs, times, opened, on_seen), {}


def _by_scripts(
    place: Path, entries: "Mapping[str, FindingEntry]", specs: Sequence[str], times: int, on_seen: "OnSeen"
) -> "tuple[Observations, list[str], dict[str, object]]":
    """What the scripts show, with a line for each problem, and what they printed."""
    from ..releases.finding_scripts import observe_scripts, read_scripts

    with usage():
        observed, problems, printed = observe_scripts(
            entries, read_scripts(place, list(entries)), specs, times, on_seen
        )
    return observed, problems, {"printed": printed}


def _try_fixes(
    place: Path, entries: "Mapping[str, FindingEntry]", specs: Sequence[str], plan: "Plan", record: bool, as_json: bool
) -> int:
    """Try the fixes on those of the releases on which the script of a finding is known to show it. Returns the exit
    status: 1 if a fix does not hold, 3 if there was none to try."""
    from msgspec import to_builtins

    from ..releases.findings import BY_SCRIPTS, Held, read_observations, record_fix
    from ..releases.fixes import try_fixes, with_fix
    from ..releases.scheduler_cases import SHOWS

    shown = read_observations(place, BY_SCRIPTS)
    tried: dict[str, dict[str, Held]] = {}
    for spec in specs:
        names = [name for name in with_fix(place, list(entries)) if shown.get(name, {}).get(spec) == SHOWS]

        def tell(name: str, held: Held, spec: str = spec) -> None:
            if record:  # at once, so that nothing that was tried is lost with the rest
                record_fix(place, name, spec, held)
            if not as_json:
                print(f"{spec:20} {name:24} {held.told()}", flush=True)

        if names:
            with usage():
                tried[spec] = try_fixes(place, {name: entries[name] for name in names}, spec, plan, tell)
    if as_json:
        print(json.dumps(to_builtins(tried), indent=2))
    elif not tried:
        print("no fix to try: a finding needs one, and a script that is recorded to show it there (--scripts --record)")
    return 1 if any(held.problem() for row in tried.values() for held in row.values()) else 0 if tried else 3


def _specs(targets: list[str], releases: str | None) -> list[str]:
    """Names of the releases: those that are named, else all that are installed. TargetUnavailableError if there are
    none."""
    from ..opening.environments import installed
    from ..releases.versions import named_targets
    from ..targets.base import TargetUnavailableError

    with usage():
        specs = named_targets(targets, releases) or [environment.name for environment in installed()]
    if not specs:
        raise TargetUnavailableError("no release is installed to try it on; see blockproof targets install -h")
    return specs
