"""`blockproof targets`: Python environments with releases of engines to hold against the model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..adapters import example, families
from ..opening import environments
from ..opening.new_target import version_run_by
from ..targets.base import Target
from .completion import installed_names, oracle_lists, release_names, target_names
from .options import IsolateOption, JsonOption, guarded, oracles_or_usage, timed_teller
from .outputs import tagged, to_folder

EXAMPLE = example()
app = typer.Typer(
    help="Begin and check targets of your own; make, list and remove environments with releases of engines.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON document a line for each release.")]
CheckOracles = Annotated[
    list[str] | None,
    typer.Option(
        "--oracle",
        help="What judges each answer besides, named as for fuzz; by default shadow,contract. With liveness some "
        "scripts of requests are run, too.",
        autocompletion=oracle_lists,
    ),
]
Releases = Annotated[
    list[str],
    typer.Argument(metavar="NAME==VERSION...", help="The releases.", autocompletion=installed_names),
]


@app.command("list", epilog="Example: blockproof targets list --json")
def list_targets(as_json: JsonOption = False) -> None:
    """Name the releases that are installed."""
    found = environments.installed()
    if as_json:
        print(json.dumps([_described(environment) for environment in found]))
        return
    for environment in found:
        print(f"{environment.name}  ({_versions(environment)})  {environment.path}")
    if not found:
        print(f"no releases are installed; for example: blockproof targets install {EXAMPLE}")


@app.command(epilog=f"Example: blockproof targets install {EXAMPLE}")
def install(
    releases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME==VERSION]...",
            help="The releases; with --all also a NAME.",
            autocompletion=release_names,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All known releases, of each NAME or of every engine.")] = False,
    as_json: AsJsonLines = False,
) -> None:
    """Make environments with these releases, without a GPU: minutes for the first of an engine, seconds for more."""
    from ..releases.versions import releases_to_install

    say = timed_teller()
    specs = guarded(lambda: releases_to_install(releases or [], every))
    failed = False
    for spec in specs:
        try:
            environment = guarded(lambda spec=spec: environments.install(spec, say, version_run_by))  # type: ignore[misc]
        except typer.Exit as problem:
            if problem.exit_code != 3:
                raise
            failed = True
            continue
        if as_json:
            print(json.dumps(_described(environment)))
        else:
            family, _ = environments.release_in(spec)
            command = "fuzz --seconds 60" if family.open_target is not None else "simulate --steps 10000"
            print(f"{environment.name} is ready; try: blockproof {command} --target {environment.name}")
    if failed:
        raise typer.Exit(3)


@app.command(epilog="Example: blockproof targets new my-engine --folder tests")
def new(
    name: Annotated[str, typer.Argument(help="Name of your engine.")],
    folder: Annotated[Path, to_folder("Where the files are written.")] = Path(),
    like: Annotated[
        str, typer.Option(metavar="RELEASE", help="Begin a patch of this release instead, NAME or NAME==VERSION.")
    ] = "",
    engine: Annotated[
        bool, typer.Option("--engine", help="Begin an engine to be simulated, scheduler and all (`simulate`).")
    ] = False,
    pair: Annotated[bool, typer.Option("--pair", help="Begin two such engines, prefill and decode, and a router.")] = (
        False
    ),
) -> None:
    """Write a target for an engine of your own, and its test; both run as they are, on a naive core. With --like a
    patch of a release, and its test; it changes nothing as it is. With --engine or --pair what `simulate` runs."""
    from ..opening.new_target import write_target

    print("\n".join(guarded(lambda: write_target(name, folder, like, engine, pair=pair)).lines()))


@app.command(epilog="Example: blockproof targets check my_target.py:make_target")
def check(
    target: Annotated[str, typer.Argument(help="A release, or any other target.", autocompletion=target_names)],
    oracle: CheckOracles = None,
    engine: Annotated[bool, typer.Option("--engine", help="It is an engine to be simulated (`simulate`).")] = False,
    isolate: IsolateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a target everything once and explain each answer: what is wrong, and what to do about it.

    Exits with 0 if all answers are right, 1 if one is wrong, 3 if the target cannot be started or builds no core.
    """
    if engine:
        check_of_engine(target, oracle is not None, as_json)
    from ..runs.conformance.check import check_named
    from ..runs.conformance.driving import ORACLES

    def chosen(core: Target) -> Sequence[str]:
        return oracles_or_usage(oracle, target, core) if oracle else ORACLES

    report = guarded(lambda: check_named(target, isolate, chosen))
    print(tagged("conformance", report.as_json()) if as_json else "\n".join(report.lines()))
    raise typer.Exit(report.code)


def check_of_engine(target: str, judged: bool, as_json: bool) -> NoReturn:
    """The check of an engine to be simulated; exits."""
    from ..engines.engine_check import check_engine

    if judged:
        raise typer.BadParameter("--oracle does not go with --engine: an engine is judged by what its clients get")
    report = guarded(lambda: check_engine(target))
    print(tagged("engine_check", report.as_json()) if as_json else "\n".join(report.lines()))
    raise typer.Exit(report.code)


@app.command(epilog=f"Example: blockproof targets remove {EXAMPLE}")
def remove(releases: Releases, as_json: AsJsonLines = False) -> None:
    """Delete the environments of these releases."""
    for release in releases:
        guarded(lambda release=release: environments.release_in(release))  # type: ignore[misc]
    for release in releases:
        removed = guarded(lambda release=release: environments.remove(release))  # type: ignore[misc]
        if as_json:
            print(json.dumps({"target": release, "removed": removed}))
        else:
            print(f"{release} is removed" if removed else f"{release} was not installed")


def _versions(environment: environments.Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in environment.versions.items() if name not in families())


def _described(environment: environments.Environment) -> dict[str, object]:
    return {"target": environment.name, "path": str(environment.path), "versions": dict(environment.versions)}
