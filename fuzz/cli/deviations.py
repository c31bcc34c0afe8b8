"""`blockproof deviations`: what a release is known to do differently, with the traces that show it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import references
from ..planning.shipped import shipped
from .fuzz import JsonOption

if TYPE_CHECKING:
    from ..findings.finding import Finding
    from ..targets.deviations import Deviation
    from ..traces.trace_file import TraceFile


def deviations(
    target: Annotated[str, typer.Option(help="The release.")] = references()[0],
    write: Annotated[Path | None, typer.Option(help="Find the smallest trace of each and write it there.")] = None,
    check: Annotated[Path | None, typer.Option(help="Replay the traces that lie there.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write them up as a Markdown page.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look for each.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """List the known deviations of a release, find their smallest traces, or check the traces there are.

    Those of the configuration arithmetic (S-.., C-..) have no traces: `blockproof fuzz-config` counts them.

    Exits with 1 if one of them has no trace, or its trace shows something else.
    """
    from ..opening.known_deviations import known_of

    known = known_of(target)
    if known is None:
        raise typer.BadParameter(
            f"--target: no deviations of {target!r} are declared; there are {', '.join(references())}"
        )
    if page is not None and write is None and check is None:
        raise typer.BadParameter("--page needs the traces: add --check DIR or --write DIR")
    declared = known.deviations
    if write is None and check is None:
        _print_list([*declared, *known.configuration_deviations], as_json)
        return
    problems, shown = _work(target, declared, write, check, seconds, quiet=as_json)
    if page is not None:
        from ..releases.known_deviations import page as page_of

        page.write_text(page_of(target, shown), encoding="utf-8")
    if as_json:
        print(json.dumps({"shown": sorted(shown), "problems": problems}, indent=2))
    else:
        print("\n".join([*problems, f"{len(shown)} traces show the {len(declared)} deviations"]))
    raise typer.Exit(1 if problems else 0)


def _work(
    name: str,
    declared: "tuple[Deviation, ...]",
    write: Path | None,
    check: Path | None,
    seconds: float,
    quiet: bool,
) -> "tuple[list[str], dict[str, tuple[TraceFile, Finding]]]":
    """Find or read the trace of each deviation and replay it. Returns what is wrong, and what was shown."""
    from ..opening.targets import open_target
    from ..releases.known_deviations import find_smallest, trace_names, undeclared
    from ..traces.trace_file import read_trace, write_trace

    problems: list[str] = []
    shown: dict[str, tuple[TraceFile, Finding]] = {}
    core = open_target(name)
    try:
        for deviation, trace in [(d, trace) for d in declared for trace in trace_names(d)]:
            if write is not None:
                file = find_smallest(trace, deviation, core, seconds)
                if file is None:
                    problems.append(f"{trace}: did not occur in {seconds:g} s")
                    continue
                write.mkdir(parents=True, exist_ok=True)
                write_trace(file, write / f"{trace}.json")
            else:
                file = read_trace(shipped((check or Path()) / f"{trace}.json"))
            result = undeclared(trace, file.trace, core)
            if isinstance(result, str):
                problems.append(result)
                continue
            shown[trace] = (file, result)
            if not quiet:
                where = f"`{result.kind[0]}` at {result.kind[1]}"
                print(f"{trace:34} {len(file.trace.operations):3} operations, {where}")
                sys.stdout.flush()
    finally:
        core.close()
    return problems, shown


def _print_list(declared: "list[Deviation]", as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"id": d.id, "condition": d.condition, "reason": d.reason} for d in declared], indent=2))
        return
    for deviation in declared:
        print(f"{deviation.id}\n  when: {deviation.condition}\n  what: {deviation.reason}")
