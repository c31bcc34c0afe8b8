"""Figures that are kept, and what has become worse since: ratios only, never times, which no two machines share."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..findings.reading import UnreadableError, json_of, read_bytes
from ..findings.writing import alone, write_file
from .entries import BenchEntry
from .measure import Bench, BenchResult

TOLERATED = 0.10
"""How much worse a ratio may be than the one that is kept."""
PREPARATIONS = 3
"""How often each workload is prepared anew, and measured, for a figure that is kept, and before a ratio counts as
worse."""
Figures = dict[str, dict[str, float | None]]
"""For each pair of cores, the ratio of each workload; None where one of the two lacks it."""


class FiguresError(ValueError):
    """The file cannot be used; a line says why, and what to do."""


@dataclass(frozen=True)
class Worse:
    """A workload whose ratio has become worse."""

    result: BenchResult
    kept: float

    def line(self) -> str:
        """Which one, and both ratios."""
        result = self.result
        return (
            f"{result.entry.name}: {result.against} takes {result.ratio:.2f} times as long as {result.target}, "
            f"kept is {self.kept:.2f}: {1 - result.ratio / self.kept:.0%} worse"
        )


def pair_of(target: str, against: str) -> str:
    """The name of a pair in the file."""
    return f"{target} | {against}"


def read_figures(path: Path) -> Figures:
    """What is kept in a file. FiguresError if it is none, or cannot be read."""
    try:
        document: Any = json_of(read_bytes(path, "figures"))
        figures = {
            str(pair): {str(name): None if ratio is None else float(ratio) for name, ratio in ratios.items()}
            for pair, ratios in document["ratios"].items()
        }
    except UnreadableError as error:
        raise FiguresError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FiguresError(f"{path} holds no figures ({type(error).__name__}); write it with --keep {path}") from None
    return figures


def require_kept(figures: Figures, path: Path, target: str, against: Sequence[str], names: Iterable[str]) -> None:
    """FiguresError unless the file has a figure for each of these pairs and workloads."""
    names = list(names)
    for other in against:
        pair = pair_of(target, other)
        if pair not in figures:
            known = ", ".join(figures) or "none"
            raise FiguresError(f"{path} holds no figures for {pair}, only for {known}; add them with --keep {path}")
        if missing := [name for name in names if name not in figures[pair]]:
            raise FiguresError(f"{path} holds no figure for {missing[0]} of {pair}; add it with --keep {path}")


def keep(path: Path, results: Sequence[BenchResult]) -> None:
    """Write the least median of each result into a file; what it holds of other pairs and workloads stays."""
    with alone(path):
        figures = read_figures(path) if path.exists() else {}
        for result in results:
            ratio = round(result.least, 3) if result.ratios else None
            figures.setdefault(pair_of(result.target, result.against), {})[result.entry.name] = ratio
        ordered = {pair: dict(sorted(ratios.items())) for pair, ratios in sorted(figures.items())}
        write_file(path, json.dumps({"ratios": ordered}, indent=2) + "\n")


def worse(results: Iterable[BenchResult], figures: Figures) -> list[Worse]:
    """Those whose ratio is worse than the one that is kept, by more than is tolerated."""
    found = []
    for result in results:
        kept = figures[pair_of(result.target, result.against)][result.entry.name]
        if kept is not None and result.ratios and result.ratio < kept * (1 - TOLERATED):
            found.append(Worse(result, kept))
    return found


def confirmed(
    bench: Bench,
    results: Sequence[BenchResult],
    figures: Figures,
    rounds: int,
    say: Callable[[str], None],
) -> list[Worse]:
    """Those that are still worse when they are measured again, and longer: chance does not come twice."""
    suspects: Mapping[str, BenchEntry] = {one.result.entry.name: one.result.entry for one in worse(results, figures)}
    found = []
    for name, entry in suspects.items():
        say(f"{name} is worse than the figures kept; measuring it {PREPARATIONS} times more")
        found += worse(bench.measure(entry, rounds, PREPARATIONS).results, figures)
    return found
