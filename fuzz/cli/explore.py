"""`blockproof explore`: every reachable state of small scopes, the model and our core side by side."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, OutOption, jobs_option, known_or_usage
from .outputs import folder_or_usage, tagged, to_folder
from .sizes import parse_memory

if TYPE_CHECKING:
    from ..engines.walked import TodayScope, TodaySearch
    from ..exploration.scope import Scope
    from ..exploration.search import Exploration, Search
    from ..reports.exploration import ScopeRow

LEAST_MIB = 64
LIST = "see blockproof explore --list"


def explore(
    scopes: Annotated[
        list[str] | None, typer.Argument(metavar="[SCOPE]...", help="Names of scopes (--list); all by default.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Explore a scope made to measure: full, full+sliding, ...")
    ] = None,
    blocks: Annotated[int, typer.Option(min=2, help="With --attention: blocks, the null block counted.")] = 4,
    requests: Annotated[int, typer.Option(min=1, max=4, help="With --attention: requests at the same time.")] = 2,
    block_size: Annotated[int, typer.Option(min=1, max=8, help="With --attention: tokens per block.")] = 2,
    list_only: Annotated[bool, typer.Option("--list", help="Only say what the scopes and planted faults are.")] = False,
    fault: Annotated[str | None, typer.Option(help="Plant this fault, in the scope it was written for.")] = None,
    jobs: Annotated[int, jobs_option("Processes that expand states")] = 1,
    max_states: Annotated[int | None, typer.Option(min=1, help="Give up a scope at so many states.")] = None,
    memory: Annotated[str | None, typer.Option(help="Give up a scope at so much memory, as in 2GiB.")] = None,
    save: Annotated[Path | None, to_folder("Folder of checkpoints: made, and gone on from if there.")] = None,
    out: OutOption = Path("findings"),
    as_json: JsonOption = False,
) -> None:
    """Visit every state of small scopes breadth first and check every property in each (docs/evidence/exploration.md).

    Exits with 0 if all states of all scopes were visited, every property holds and every scope reached what it is there
    for; with 1 on a finding, or if a scope was not exhausted; with 3 if a process was lost, as for want of memory; with
    130 if Ctrl-C ended it, which takes less than a second. Both save (--save).
    """
    from ..engines import walked_scopes
    from ..exploration import session
    from ..exploration.checkpoint import CheckpointError
    from ..exploration.faults import FAULTS
    from ..exploration.scope import ScopeError
    from ..exploration.scopes import made_to_measure
    from ..exploration.search import INTERRUPTED, LOST, Limits
    from ..exploration.workers import Jobs
    from ..findings.writing import write_file
    from ..opening.workers import worker_context

    if list_only:
        _print_list(as_json)
        return
    known_or_usage("--fault: no fault", [fault] if fault else [], FAULTS, LIST)
    known_or_usage("no scope", scopes or [], walked_scopes.EVERY_SCOPE, LIST)
    folder_or_usage(out)
    try:
        chosen = walked_scopes.named(scopes or [], fault)
        if attention is not None:
            chosen = [made_to_measure(attention, blocks, requests, block_size)]
        done, processes = [], Jobs(jobs, worker_context())
        for scope in chosen:
            with _progress(scope.name) as show:
                limits = Limits(max_states, _mebibytes(memory))
                done.append(walked_scopes.explored(scope, fault, limits, processes, save, show, write_file))
            if not as_json:
                _print(done[-1], scope, out)
            if done[-1].ended in (INTERRUPTED, LOST):
                break
    except (ScopeError, CheckpointError) as error:
        raise typer.BadParameter(str(error)) from None
    traces = {
        each.scope: str(_trace(each, scope, out)) for each, scope in zip(done, chosen, strict=False) if each.finding
    }
    if as_json:
        from ..reports.exploration import ExplorationDocument

        print(ExplorationDocument([_row(each, traces) for each in done]).text())
    else:
        _print_sum(done, len(chosen))
    if done[-1].ended in (INTERRUPTED, LOST) and not any(each.finding for each in done):
        print(f"{done[-1].ended}: what was not visited may be wrong", file=sys.stderr)
        raise typer.Exit(130 if done[-1].ended == INTERRUPTED else 3)
    raise typer.Exit(0 if session.success(done, chosen) else 1)


def _mebibytes(memory: str | None) -> int | None:
    """The limit of a search. BadParameter for what is no size, or so small that it says nothing of a scope."""
    if memory is None:
        return None
    if memory.strip().isdigit():
        raise typer.BadParameter(f"--memory: a size has a unit: {memory}MiB, or as in 2GiB")
    size = parse_memory(memory) >> 20
    if size < LEAST_MIB:
        raise typer.BadParameter(f"--memory: {memory} is too little for any scope; {LEAST_MIB}MiB at least")
    return size


@contextmanager
def _progress(name: str) -> "Iterator[Callable[[Search | TodaySearch], None]]":
    from ..reports.progress import progress

    with progress(None, None, ("level", "state"), name) as show:
        yield lambda search: show(search.depth, len(search.states), search.seconds)


def _trace(done: "Exploration", scope: "Scope | TodayScope", out: Path) -> Path:
    """Write the path to a finding as a trace. Returns the file."""
    from ..engines import walked_scopes
    from ..findings.finding import Trace
    from ..findings.writing import told_if_lost
    from ..traces.reproduction import base_name
    from ..traces.trace_file import FoundBy, FoundWhat, TraceFile, write_trace

    assert done.finding is not None
    operations = done.finding.operations
    last = type(operations[-1]).__name__ if operations else "start"
    found = FoundWhat(done.finding.names[0], last, "; ".join(text for _, text in done.finding.broken))
    by = FoundBy(f"explore {scope.name}", 0, version("blockproof"))
    file = TraceFile(Trace(scope.shape, operations), walked_scopes.core_of(scope), found, by)
    path = out / f"{base_name(file)}.json"
    with told_if_lost():
        write_trace(file, path)
    return path


def _row(done: "Exploration", traces: dict[str, str]) -> "ScopeRow":
    from ..findings.ops_json import to_json
    from ..reports.exploration import ExploreFound, ScopeRow

    facts, finding = asdict(replace(done, finding=None)), done.finding
    row = ScopeRow(**facts, passed=done.passed)
    if finding is not None:
        operations = [to_json(operation) for operation in finding.operations]
        row.finding = ExploreFound(
            [*finding.names], [text for _, text in finding.broken], operations, traces[done.scope]
        )
    return row


def _print(done: "Exploration", scope: "Scope | TodayScope", out: Path) -> None:
    from ..exploration.search import EXHAUSTED
    from ..findings.words import operation_text, plural, shape_text

    rate = done.states / done.cpu_seconds if done.cpu_seconds else 0.0
    print(
        f"{done.scope}: {plural(done.states, 'state')} ({done.resting:,} at rest), "
        f"{plural(done.transitions, 'transition')}, "
        f"depth {done.depth}, {done.seconds:.1f} s, {rate:,.0f} states per CPU second"
    )
    if done.finding is not None:
        path = _trace(done, scope, out)  # before anything is said of it
        print(f"  BROKEN: {', '.join(done.finding.names)}")
        print(f"  {shape_text(scope.shape)}")
        for number, operation in enumerate(done.finding.operations):
            print(f"  {number:4}  {operation_text(operation)}")
        for name, text in done.finding.broken:
            print(f"  {name}: {text}")
        print(f"  trace: {path}\n  on our core as it is: blockproof replay {path}")
    elif done.ended != EXHAUSTED:
        print(f"  NOT EXHAUSTED ({done.ended}): what was not visited may be wrong")
    for name in done.missing:
        print(f"  NEVER REACHED: {name}; the scope is too small to say what it is there for")
    sys.stdout.flush()


def _print_sum(done: "Sequence[Exploration]", wanted: int) -> None:
    from ..findings.words import plural

    states, cpu = sum(each.states for each in done), sum(each.cpu_seconds for each in done)
    passed = sum(each.passed for each in done)
    counts = (
        f"{plural(states, 'state')}, {plural(sum(each.transitions for each in done), 'transition')}, "
        f"{sum(each.seconds for each in done):.1f} s, {states / cpu if cpu else 0:,.0f} states per CPU second"
    )
    if passed == wanted:
        print(f"all properties hold in every reachable state of {plural(wanted, 'scope')}: {counts}")
    else:
        print(f"{passed} of {plural(wanted, 'scope')} exhausted with nothing found: {counts}")


def _print_list(as_json: bool) -> None:
    from ..engines.walked_scopes import EVERY_SCOPE
    from ..exploration.faults import FAULTS
    from ..findings.words import plural, shape_text

    if as_json:
        document = {
            "scopes": {name: shape_text(scope.shape) for name, scope in EVERY_SCOPE.items()},
            "faults": {name: {"found_by": fault.found_by, "is": fault.describe} for name, fault in FAULTS.items()},
        }
        print(tagged("scopes", document))
        return
    for name, scope in EVERY_SCOPE.items():
        print(f"{name}: {shape_text(scope.shape).removeprefix('shape: ')}; {plural(scope.requests, 'request')}")
    print("\nplanted faults, for --fault:")
    for fault in FAULTS.values():
        print(f"{fault.name} ({fault.found_by}): {fault.describe}")
