"""`blockproof diff`: what changes for those who move from one target to another?"""

import json
import secrets
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .fuzz import DEFAULT_SECONDS, JsonOption, attention_names, open_or_usage

if TYPE_CHECKING:
    from ..releases.diff import Comparison
    from ..reports.tables import Section
    from ..runs.pair import Pair


def diff(
    target: Annotated[list[str], typer.Option(help="Two targets, the one that is in use first.")],
    seconds: Annotated[float | None, typer.Option(min=0.0, help="How long to run; 30 if no limit is given.")] = None,
    operations: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same runs; drawn and printed by default.")] = None,
    attention: Annotated[str, typer.Option(help="Attention types, as in full,sliding,full+mamba.")] = "all",
    out: Annotated[Path, typer.Option(help="Folder for the smallest trace of each situation.")] = Path("differences"),
    as_json: JsonOption = False,
) -> None:
    """Run two targets against each other, without the model, and tell in which situations they behave differently.

    Half of the time each block id counts; in the other half blocks are told apart from null only, so that another order
    of eviction does not hide the rest. Exits with 0 if they behave alike, 1 if not.
    """
    from ..engines.plan import Plan
    from ..releases.diff import compare
    from ..runs.pair import Pair, Strictness

    if len(target) != 2:
        raise typer.BadParameter(f"--target: name two targets to compare, not {len(target)}")
    names = attention_names(attention)
    if seconds is None and operations is None:
        seconds = DEFAULT_SECONDS
    drawn = secrets.randbelow(2**32) if seed is None else seed
    half = Plan(drawn, seconds and seconds / 2, operations and -(-operations // 2), names)
    pair = Pair(open_or_usage(target[0]), open_or_usage(target[1]))
    print(f"{pair.name}: seed {drawn}", file=sys.stderr)
    try:
        comparisons = [compare(pair, strictness, half) for strictness in Strictness]
    finally:
        pair.close()
    _keep(comparisons, pair, out, drawn)
    if as_json:
        print(json.dumps(_as_json(comparisons, pair), indent=2))
    else:
        _print(comparisons, pair)
    raise typer.Exit(1 if any(comparison.situations for comparison in comparisons) else 0)


def _keep(comparisons: "list[Comparison]", pair: "Pair", out: Path, seed: int) -> None:
    """Write the smallest trace of each situation."""
    from ..traces.reproduction import base_name
    from ..traces.trace_file import FoundBy, FoundWhat, TraceFile, write_trace

    for situation in [situation for comparison in comparisons for situation in comparison.situations]:
        found_by = FoundBy("random", seed, version("blockproof"))
        file = TraceFile(situation.trace, pair.second.name, FoundWhat.of(situation.finding), found_by)
        out.mkdir(parents=True, exist_ok=True)
        write_trace(file, out / f"{base_name(file)}.json")


def _as_json(comparisons: "list[Comparison]", pair: "Pair") -> dict[str, Any]:
    return {
        "first": pair.first.name,
        "second": pair.second.name,
        "not_compared": sorted(pair.hides | pair.lacks),
        "comparisons": [
            {
                "compared": comparison.strictness.value,
                "runs": comparison.summary.runs,
                "operations": comparison.summary.operations,
                "seconds": round(comparison.summary.seconds, 1),
                "situations": [
                    {
                        "situation": one.finding.kind[0],
                        "operation": one.finding.kind[1],
                        "runs": one.times,
                        "operations": len(one.trace.operations),
                        "text": str(one.finding),
                    }
                    for one in comparison.situations
                ],
            }
            for comparison in comparisons
        ],
    }


def _print(comparisons: "list[Comparison]", pair: "Pair") -> None:
    from ..findings.words import trace_lines
    from ..reports.tables import show_sections

    operations = sum(comparison.summary.operations for comparison in comparisons)
    seconds = sum(comparison.summary.seconds for comparison in comparisons)
    found = sum(len(comparison.situations) for comparison in comparisons)
    head = f"{pair.name}: {operations:,} operations on both, {seconds:.1f} s"
    foot = f"they differ in {found} situations" if found else "they behave alike"
    show_sections(head, map(_table, comparisons), foot, bad=found > 0)
    for one in [situation for comparison in comparisons for situation in comparison.situations]:
        print("\n" + "\n".join([*trace_lines(one.trace.shape, one.trace.operations), "", str(one.finding)]))


def _table(comparison: "Comparison") -> "Section":
    from ..reports.tables import Section

    rows = tuple((*one.finding.kind, f"{one.times:,}", str(len(one.trace.operations))) for one in comparison.situations)
    title = f"Compared by {comparison.strictness.value}: {comparison.summary.runs:,} runs, each to its first difference"
    return Section(title, ("second against first", "operation", "runs", "shrunk to"), rows or (("alike", "", "", ""),))
