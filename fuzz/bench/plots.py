"""Plots as SVG files. They need matplotlib, which the extra `bench` installs."""

import io
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..findings.writing import write_file
from .measure import Measured
from .report import of_pair
from .scaling import AXES, ScalingCurve


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


def plot_scaling(folder: Path, cores: Sequence[str], curves: Sequence[ScalingCurve]) -> list[Path]:
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
