"""`blockproof targets`: Python environments with releases of engines to hold against the model."""

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated, NoReturn, TypeVar

import typer

from ..adapters import example, families, forms
from ..opening import environments
from ..opening.exercise import exercise, version_run_by
from ..opening.targets import open_target
from ..targets.base import TargetUnavailableError

EXAMPLE = example()
app = typer.Typer(
    help="Make, list, check and remove environments with releases of engines.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
T = TypeVar("T")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for machines.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON document a line for each release.")]
Releases = Annotated[list[str], typer.Argument(metavar="NAME==VERSION...", help="The releases.")]


@app.command("list", epilog="Example: blockproof targets list --json")
def list_targets(as_json: AsJson = False) -> None:
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
        list[str] | None, typer.Argument(metavar="[NAME==VERSION]...", help="The releases; with --all also a NAME.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All known releases, of each NAME or of every engine.")] = False,
    as_json: AsJsonLines = False,
) -> None:
    """Make environments with these releases, without a GPU: minutes for the first of an engine, seconds for more."""
    begin = time.monotonic()

    def say(step: str) -> None:
        print(f"[{time.monotonic() - begin:5.1f} s] {step}", file=sys.stderr, flush=True)

    specs = _guarded(lambda: _chosen(releases or [], every))
    failed = False
    for spec in specs:
        try:
            environment = _guarded(lambda spec=spec: environments.install(spec, say, version_run_by))  # type: ignore[misc]
        except typer.Exit as problem:
            if problem.exit_code != 3:
                raise
            failed = True
            continue
        if as_json:
            print(json.dumps(_described(environment)))
        else:
            print(f"{environment.name} is ready; try: blockproof fuzz --target {environment.name} --seconds 60")
    if failed:
        raise typer.Exit(3)


@app.command(epilog=f"Example: blockproof targets check {EXAMPLE}")
def check(
    target: Annotated[str, typer.Argument(help="A release, or any other target.")], as_json: AsJson = False
) -> None:
    """Start the target with a tiny shape and run a few operations on it."""
    begin = time.monotonic()
    version = _guarded(lambda: exercise(open_target(target, isolate=True)))
    seconds = round(time.monotonic() - begin, 1)
    if as_json:
        print(json.dumps({"target": target, "version": version, "seconds": seconds}))
    else:
        print(f"{target} works: version {version or 'unknown'}, started and driven in {seconds} s")


@app.command(epilog=f"Example: blockproof targets remove {EXAMPLE}")
def remove(releases: Releases, as_json: AsJsonLines = False) -> None:
    """Delete the environments of these releases."""
    for release in releases:
        _guarded(lambda release=release: environments.release_in(release))  # type: ignore[misc]
    for release in releases:
        removed = _guarded(lambda release=release: environments.remove(release))  # type: ignore[misc]
        if as_json:
            print(json.dumps({"target": release, "removed": removed}))
        else:
            print(f"{release} is removed" if removed else f"{release} was not installed")


def _chosen(releases: list[str], every: bool) -> list[str]:
    """The releases to install. ValueError for what names none."""
    known = families()
    specs = releases
    if every:
        whole = [name for name in releases or known if name in known]
        specs = [release for release in releases if release not in known]
        specs += [known[name].spec(version) for name in whole for version in known[name].releases]
    for spec in specs:
        environments.release_in(spec)
    if not specs:
        raise ValueError(f"no release is named; write NAME==VERSION, for example {EXAMPLE}, or --all ({forms()})")
    return list(dict.fromkeys(specs))


def _versions(environment: environments.Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in environment.versions.items() if name not in families())


def _described(environment: environments.Environment) -> dict[str, object]:
    return {"target": environment.name, "path": str(environment.path), "versions": dict(environment.versions)}


def _guarded(work: Callable[[], T]) -> T:
    """The result, or the end of the program with one line and the exit code of DESIGN.md."""
    try:
        return work()
    except ValueError as error:
        _give_up(str(error), 2)
    except TargetUnavailableError as error:
        _give_up(str(error), 3)
    except KeyboardInterrupt:
        _give_up("interrupted", 130)


def _give_up(message: str, code: int) -> NoReturn:
    print(f"blockproof: {message}", file=sys.stderr)
    raise typer.Exit(code)
