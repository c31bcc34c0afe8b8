"""Plots as SVG files. They need matplotlib, which the extra `bench` installs."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

from ..findings.writing import write_file
from .measure import Measured
from .report import of_pair
from .scaling import AXES, Curve

STYLES = ((":", ""), ("-", "o"), ("--", "s"))
"""Dashes and marks of the lines of `plot_hits`."""


@dataclass(frozen=True)
class HitCurve:
    """How much cores hit with pools of several sizes."""

    name: str
    """What is replayed."""
    lines: Mapping[str, Sequence[tuple[float, float]]]
    """By core: tokens of the pool, and the hit ratio in per cent."""


class PlotsError(ValueError):
    """There is nothing to plot with; the message says what to install."""


def require_matplotlib() -> None:
    """PlotsError where it is not installed."""
    if find_spec("matplotlib") is None:
        raise PlotsError("plots need matplotlib, which is not installed; run: pip install '/path/to/blockproof[bench]'")


def plot_ratios(folder: Path, target: str, against: Sequence[str], measured: Sequence[Measured]) -> list[Path]:
    """A file with bars for each other core: the ratio of each workload, with its quartiles; to the left where the
    target is slower. What is made once has a scale of its own and is left out."""
    pyplot, paths = _pyplot(), []
    for other in against:
        results = [result for result in of_pair(measured, other) if result.ratios and not result.entry.is_made]
        if not results:
            continue
        figure, axes = pyplot.subplots(figsize=(8, 1 + 0.24 * len(results)))
        names = [result.entry.name for result in results]
        ratios = [result.ratio for result in results]
        spread = [
            [max(0.0, result.ratio - result.quartiles[0]) for result in results],
            [max(0.0, result.quartiles[1] - result.ratio) for result in results],
        ]
        colors = ["#4477aa" if ratio >= 1 else "#cc6677" for ratio in ratios]
        widths = [ratio - 1 for ratio in ratios]
        axes.barh(names, widths, left=1, xerr=spread, color=colors, height=0.7, error_kw={"elinewidth": 0.8})
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.set_xlabel(f"time of {other} ÷ time of {target}")
        paths.append(_saved(figure, folder / f"bench-{_file_name(other)}.svg"))
        pyplot.close(figure)
    return paths


def plot_scaling(folder: Path, cores: Sequence[str], curves: Sequence[Curve]) -> list[Path]:
    """A file for each axis, with a part for each operation and a line for each core."""
    pyplot, paths = _pyplot(), []
    for axis, (words, _) in AXES.items():
        chosen = [curve for curve in curves if curve.axis == axis]
        if not chosen:
            continue
        figure, grid = pyplot.subplots(1, len(chosen), figsize=(3.6 * len(chosen), 3.2), squeeze=False)
        for axes, curve in zip(grid[0], chosen, strict=True):
            for core in cores:
                if values := curve.values(core):
                    axes.plot(*zip(*values, strict=True), marker="o", markersize=3, label=core)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(curve.operation, fontsize=8)
            axes.set_xlabel(words, fontsize=8)
            axes.set_ylabel(f"ns of a {curve.points[0].results[0].entry.per}", fontsize=8)
            axes.tick_params(labelsize=7)
        grid[0][0].legend(fontsize=7)
        figure.tight_layout()
        paths.append(_saved(figure, folder / f"scaling-{axis}.svg"))
        pyplot.close(figure)
    return paths


def plot_hits(path: Path, curves: Sequence[HitCurve]) -> Path:
    """One file with a part for each curve and a line for each core; lines differ in dashes and marks as well, since one
    often covers another."""
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(1, len(curves), figsize=(3.4 * len(curves), 3.2), squeeze=False, sharey=True)
    for axes, curve in zip(grid[0], curves, strict=True):
        for (name, points), (dash, mark) in zip(curve.lines.items(), cycle(STYLES)):
            if points:
                axes.plot(*zip(*points, strict=True), linestyle=dash, marker=mark, markersize=4, label=name)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_title(curve.name, fontsize=8)
        axes.set_xlabel("pool, tokens", fontsize=8)
        axes.tick_params(labelsize=7)
    grid[0][0].set_ylabel("prompt tokens hit, %", fontsize=8)
    grid[0][0].legend(fontsize=7)
    figure.tight_layout()
    saved = _saved(figure, path)
    pyplot.close(figure)
    return saved


def _pyplot() -> Any:
    """Plots without a display, as text that two runs write alike. PlotsError without matplotlib."""
    require_matplotlib()
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "blockproof", "svg.fonttype": "none"})
    return import_module("matplotlib.pyplot")


def _saved(figure: Any, path: Path) -> Path:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight")
    write_file(path, text.getvalue())
    return path


def _file_name(core: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", core).strip("-")
