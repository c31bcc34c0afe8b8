"""`blockproof targets`: Python environments with releases of vLLM to hold against the model."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from ...model.ops import Allocate, Free, Group, Lookup, Outcome, Refused, Shape, Submit
from . import environments
from .base import Target, TargetLostError, TargetUnavailableError
from .child import ChildTarget
from .registry import open_target

app = typer.Typer(
    help="Make, list, check and remove environments with releases of vLLM.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
T = TypeVar("T")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for machines.")]
Release = Annotated[str, typer.Argument(metavar="vllm==VERSION", help="The release.")]


@app.command("list", epilog="Example: blockproof targets list --json")
def list_targets(as_json: AsJson = False) -> None:
    """Name the releases that are installed."""
    found = environments.installed()
    if as_json:
        print(json.dumps([_described(environment) for environment in found]))
        return
    for environment in found:
        versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items() if name != "vllm")
        print(f"{environment.name}  ({versions})  {environment.path}")
    if not found:
        print("no releases are installed; for example: blockproof targets install vllm==0.23.0")


@app.command(epilog="Example: blockproof targets install vllm==0.23.0")
def install(release: Release, as_json: AsJson = False) -> None:
    """Make an environment with this release, without a GPU. It takes a minute or two."""
    begin = time.monotonic()

    def say(step: str) -> None:
        print(f"[{time.monotonic() - begin:5.1f} s] {step}", file=sys.stderr, flush=True)

    environment = _guarded(lambda: environments.install(release, say, _version_run_by))
    if as_json:
        print(json.dumps(_described(environment)))
    else:
        print(f"{environment.name} is ready; try: blockproof fuzz --target {environment.name} --seconds 60")


@app.command(epilog="Example: blockproof targets check vllm==0.23.0")
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


@app.command(epilog="Example: blockproof targets remove vllm==0.23.0")
def remove(release: Release, as_json: AsJson = False) -> None:
    """Delete the environment of this release."""
    removed = _guarded(lambda: environments.remove(release))
    if as_json:
        print(json.dumps({"target": release, "removed": removed}))
    else:
        print(f"{release} is removed" if removed else f"{release} was not installed")


def exercise(target: Target) -> str:
    """Drive a tiny core through a request's life. Returns the target's version, if it tells.

    TargetUnavailableError if it cannot be started or does not do the least that is asked of it.
    """
    group = Group("full", 4)
    shape = Shape((group,), 8, 64, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=64)
    operations = (Submit("a", (1, 2, 3, 4, 5)), Lookup("a"), Allocate("a", 5, hit=True), Free("a"))
    try:
        outcomes: list[Outcome] = [target.start(shape)[0]]
        outcomes += [target.step(operation)[0] for operation in operations]
        version = str(getattr(target, "version", ""))
    except TargetLostError as lost:
        raise TargetUnavailableError(f"{target.name}: lost in a first try: {lost}") from None
    finally:
        target.close()
    for operation, outcome in zip(("start", *operations), outcomes, strict=True):
        if not hasattr(outcome, "value"):
            said = "is refused" if isinstance(outcome, Refused) else f"ends in {outcome}"
            raise TargetUnavailableError(f"{target.name}: in a first try {operation} {said}")
    return version


def _version_run_by(python: Path) -> str:
    return exercise(ChildTarget("vllm", "vllm", python))


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
