"""`blockproof mutants`: does the harness find mistakes that were planted on purpose?"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from .fuzz import JsonOption, oracles_or_usage

if TYPE_CHECKING:
    from ..faults.planted import Planted
    from ..faults.tensors import DataPlaneFault


@dataclass(frozen=True)
class Hunt:
    """What became of one planted fault."""

    fault: str
    expected: tuple[str, ...]
    """Observables in one of which it should show."""
    found: bool
    observable: str | None = None
    operation: str | None = None
    operations: int = 0
    """Operations until it was found."""
    seconds: float = 0.0
    """Until it was found, shrinking not counted."""
    shrunk_to: int | None = None
    """Operations of the reduced trace."""
    shrink_seconds: float = 0.0


def mutants(
    list_only: Annotated[bool, typer.Option("--list", help="Only name the faults.")] = False,
    only: Annotated[str | None, typer.Option(help="Only this fault.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look for each.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of the runs.")] = 0,
    oracle: Annotated[str, typer.Option(help="Judged by these instead of those that each is meant for.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Plant one fault after the other into our core, and find and shrink each.

    Exits with 0 if every fault was found, 1 if one was not.
    """
    from ..faults.planted import planted_faults
    from ..faults.tensors import DATA_PLANE_FAULTS

    every: dict[str, Planted | DataPlaneFault] = {**planted_faults(), **DATA_PLANE_FAULTS}
    if only is not None and only not in every:
        raise typer.BadParameter(f"--only: no fault is called {only!r}; see blockproof mutants --list")
    chosen = [fault for name, fault in every.items() if only in (None, name)]
    if list_only:
        _print_list(chosen, as_json)
        return
    hunts = []
    untried = [] if find_spec("torch") else [fault for fault in chosen if fault.name in DATA_PLANE_FAULTS]
    for fault in chosen:
        if fault in untried:
            continue
        hunts.append(hunt(fault, seconds, seed, _judges(fault, oracle)))
        if not as_json:
            _print_hunt(hunts[-1])
    if untried:
        print(f"not tried without torch: {', '.join(fault.name for fault in untried)}", file=sys.stderr)
    missed = [hunt.fault for hunt in hunts if not hunt.found]
    if as_json:
        print(json.dumps([asdict(hunt) for hunt in hunts], indent=2))
    else:
        print(
            f"{len(hunts) - len(missed)} of {len(hunts)} found" + (f"; missed: {', '.join(missed)}" if missed else "")
        )
    raise typer.Exit(1 if missed else 0)


def _judges(fault: "Planted | DataPlaneFault", oracle: str) -> tuple[str, ...]:
    """What is to find a fault: what it is meant for, unless oracles are named."""
    named = f"fault:{fault.name}"
    return (
        getattr(fault, "oracles", oracles_or_usage("auto", named))
        if oracle == "auto"
        else oracles_or_usage(oracle, named)
    )


def hunt(fault: "Planted | DataPlaneFault", seconds: float, seed: int, oracles: tuple[str, ...]) -> Hunt:
    """Fuzz our core with this fault for at most so many seconds, and shrink what comes up."""
    from ..engines.plan import Plan
    from ..engines.seeded import run_random
    from ..faults.planted import planted_faults
    from ..opening.targets import open_target
    from ..reports.summary import Summary
    from ..traces.shrink import shrink

    named = f"fault:{fault.name}"
    in_core = fault.name in planted_faults()
    target = open_target(named if in_core else "impl")
    plan = Plan(seed, seconds, oracles=oracles, tensors=None if in_core else named)
    done = Summary(target.name, "random", seed)
    try:
        run_random(target, plan, done)
        if done.finding is None or done.trace is None:
            return Hunt(fault.name, fault.observables, False, operations=done.operations, seconds=done.seconds)
        start = time.monotonic()
        shrunk = shrink(done.trace, done.finding.kind, target, plan.judging())
        if shrunk.interrupted:
            raise KeyboardInterrupt  # the reducer has kept its best; here the whole hunt is to end
    finally:
        target.close()
    return Hunt(
        fault.name,
        fault.observables,
        True,
        *done.finding.kind,
        done.operations,
        round(done.seconds, 2),
        len(shrunk.trace.operations),
        round(time.monotonic() - start, 2),
    )


def _print_list(faults: "list[Planted | DataPlaneFault]", as_json: bool) -> None:
    if as_json:
        fields = ("name", "observables", "describe")
        print(json.dumps([{name: getattr(fault, name) for name in fields} for fault in faults], indent=2))
        return
    width = max((len(fault.name) for fault in faults), default=0)
    for fault in faults:
        print(f"{fault.name.ljust(width)}  {'|'.join(fault.observables):18} {fault.describe}")


def _print_hunt(hunt: Hunt) -> None:
    if hunt.found:
        where = f"`{hunt.observable}` at {hunt.operation}"
        after = f"{hunt.operations:7,} operations  {hunt.seconds:6.2f} s"
        print(f"{hunt.fault:32} {where:28} {after}  shrunk to {hunt.shrunk_to} in {hunt.shrink_seconds} s")
    else:
        print(f"{hunt.fault:32} NOT FOUND in {hunt.operations:,} operations, {hunt.seconds:.1f} s")
    sys.stdout.flush()
