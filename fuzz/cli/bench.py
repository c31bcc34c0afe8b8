"""`blockproof bench`: how fast cores are, side by side."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import references
from .completion import target_names
from .options import JsonOption, TargetOption, known_or_usage, timed_teller, usage
from .outputs import tagged, to_file, to_folder

if TYPE_CHECKING:
    from ..bench.entries import BenchEntry
    from ..bench.measure import Bench


RELEASE = references()[0]


def bench(
    target: TargetOption = "impl",
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="A core to compare with; name several by repeating it. The reference release by default.",
            autocompletion=target_names,
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these workloads, as in decode*.")] = None,
    rounds: Annotated[int | None, typer.Option(min=3, help="Pairs of pieces of each workload; 15 by default.")] = None,
    traffic: Annotated[
        list[Path] | None, typer.Option(metavar="TRACE", help="Play recorded traffic, too: JSON lines.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each trace.")] = 300,
    scaling: Annotated[bool, typer.Option("--scaling", help="How cost grows with sizes instead.")] = False,
    as_json: JsonOption = False,
    write: Annotated[Path | None, to_file("Write the page as Markdown.", metavar="FILE")] = None,
    plots: Annotated[Path | None, to_folder("Write plots as SVG (extra bench).", metavar="DIR")] = None,
    check: Annotated[Path | None, typer.Option(metavar="FILE", help="Fail if a ratio is worse than kept.")] = None,
    keep: Annotated[Path | None, to_file("Keep the ratios in this file, measured 3 times.", metavar="FILE")] = None,
) -> None:
    """Time cores on the same workloads, in turns on one processor, and tell the ratio of each pair.

    Exits with 1 if --check finds a ratio more than 10 % worse than kept, measured twice; 2 if no such ratio is kept; 3
    if a core cannot be started or does other work than the target. Times are never compared with kept ones.
    """
    from ..bench.measure import opened
    from ..bench.plots import require_matplotlib
    from ..bench.side import BenchError
    from ..targets.base import TargetLostError

    others = _others(target, against)
    if plots is not None:
        with usage("--plots"):
            require_matplotlib()
    say = timed_teller()
    if scaling and (check or keep or only or traffic):
        raise typer.BadParameter("--scaling: takes no --check, --keep, --only or --traffic; run it by itself")
    chosen = [] if scaling else _entries(only or [], traffic or [], rows)
    try:
        if scaling:
            with opened(target, others) as ready:
                code = _scale(ready, rounds, (as_json, write, plots), say)
        else:
            figures = _figures(check, target, others, chosen)
            with opened(target, others) as ready:
                code = _time(ready, chosen, rounds, (as_json, write, plots), (figures, keep), say)
    except (BenchError, TargetLostError) as error:
        print(f"blockproof: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(3) from None
    raise typer.Exit(code)


Outputs = tuple[bool, Path | None, Path | None]
"""Whether JSON is printed, a file for Markdown, a folder for plots."""


def _time(
    bench: "Bench",
    chosen: "Sequence[BenchEntry]",
    rounds: int | None,
    outputs: Outputs,
    kept: tuple[dict[str, dict[str, float | None]] | None, Path | None],
    say: Callable[[str], None],
) -> int:
    """Time these workloads, and write what is asked for. The exit code."""
    from ..bench import report
    from ..bench.figures import PREPARATIONS, confirmed, keep
    from ..bench.measure import ROUNDS, measure_all
    from ..bench.plots import plot_ratios

    count = rounds or ROUNDS
    (figures, to_keep), (as_json, write, plots) = kept, outputs
    measured = measure_all(bench, chosen, count, 1 if to_keep is None else PREPARATIONS, say)
    results = report.results_of(measured)
    found = [] if figures is None else confirmed(bench, results, figures, count, say)
    page = report.markdown(bench.target, bench.against, measured)
    drawn = [] if plots is None else plot_ratios(plots, bench.target, bench.against, measured)
    _write(write, page, drawn)
    print(tagged("benchmark", report.as_json(bench.target, bench.against, measured)) if as_json else page)
    for one in found:
        print(one.line(), file=sys.stderr)
    if to_keep is not None:
        with usage("--keep"):
            keep(to_keep, results)
    if not any(result.ratios for result in results):
        print("blockproof: nothing could be measured on the target and another core", file=sys.stderr)
        return 3
    return 1 if found else 0


def _scale(bench: "Bench", rounds: int | None, outputs: Outputs, say: Callable[[str], None]) -> int:
    """Measure how cost grows, and write what is asked for. The exit code."""
    from ..bench import scaling
    from ..bench.plots import plot_scaling

    cores = (bench.target, *bench.against)
    curves = scaling.measure_scaling(bench, None, rounds or scaling.ROUNDS, say)
    as_json, write, plots = outputs
    page = scaling.markdown(cores, curves)
    drawn = [] if plots is None else plot_scaling(plots, cores, curves)
    _write(write, page, drawn)
    print(scaling.document(cores, curves).text() if as_json else page)
    return 0


def _others(target: str, against: list[str] | None) -> list[str]:
    """The cores to compare with. BadParameter for a wrong name, or for a core with itself."""
    from ..opening.targets import check_spec

    others = list(dict.fromkeys(against or references()))
    for option, spec in [("--target", target), *(("--against", spec) for spec in others)]:
        with usage(option):
            check_spec(spec)
    return others


def _entries(only: list[str], traffic: list[Path], rows: int) -> "list[BenchEntry]":
    """The workloads that are asked for. BadParameter for an unknown name, and for a file that is no trace."""
    from fnmatch import fnmatch

    from ..bench.entries import default_entries, traffic_entries

    with usage("--traffic"):
        every = [*default_entries(), *traffic_entries(traffic, rows)]
    names = [entry.name for entry in every]
    plain = [name for name in only if not any(fnmatch(known, name) for known in names)]
    known_or_usage("--only: no workload", plain, names, f"there are {', '.join(names)}")
    return [entry for entry in every if not only or any(fnmatch(entry.name, pattern) for pattern in only)]


def _figures(
    check: Path | None, target: str, others: Sequence[str], chosen: "Sequence[BenchEntry]"
) -> dict[str, dict[str, float | None]] | None:
    """The figures to check against. BadParameter unless the file holds all that are needed."""
    from ..bench.figures import read_figures, require_kept

    if check is None:
        return None
    with usage("--check"):
        figures = read_figures(check)
        require_kept(figures, check, target, others, [entry.name for entry in chosen])
    return figures


def _write(path: Path | None, text: str, drawn: Sequence[Path] = ()) -> None:
    """Write a page into this file, if there is one, with links to these plots."""
    if path is not None:
        from ..findings.writing import write_file

        links = [f"\n![{plot.stem}]({os.path.relpath(plot, path.parent)})\n" for plot in drawn]
        write_file(path, "".join([text, *links]))
