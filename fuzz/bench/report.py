"""What was measured, as a table in Markdown, as lines for a terminal, and as JSON."""

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..findings.prose import broken
from .measure import BenchResult, Measured, mean_ratio
from .workload import Facts

SLOWER = "slower"
"""The mark of a ratio below 1."""
HOW = (
    "Processor time of a thread; medians of pieces that run in turns on one processor. A ratio is the time of the "
    "other core divided by that of the target, for each pair of pieces: above 1 the target is faster. In brackets the "
    "quartiles of the ratios."
)


def results_of(measured: Sequence[Measured]) -> list[BenchResult]:
    """All results, in order."""
    return [result for one in measured for result in one.results]


def of_pair(measured: Sequence[Measured], against: str) -> list[BenchResult]:
    """The results against one core, in order."""
    return [result for result in results_of(measured) if result.against == against]


def summary_lines(target: str, against: Sequence[str], measured: Sequence[Measured]) -> list[str]:
    """A line for each other core: the mean, and what is slower."""
    lines = []
    for other in against:
        results = of_pair(measured, other)
        told = [result for result in results if result.is_time]
        if not told:
            lines.append(f"{target} against {other}: no time could be measured on both")
            continue
        line = f"{target} against {other}: geometric mean {mean_ratio(told):.2f} over {len(told)} entries"
        running = [result for result in told if not result.entry.is_made]
        if running and len(running) < len(told):
            line += f" ({mean_ratio(running):.2f} over {len(running)} without the construction of pools)"
        slow = [f"{result.entry.name} {result.ratio:.2f}" for result in results if result.ratios and result.ratio < 1]
        lines.append(f"{line}; below 1.0: {', '.join(slow) if slow else 'none'}")
    return lines


def markdown(target: str, against: Sequence[str], measured: Sequence[Measured]) -> str:
    """The page: the summary, the table, what was left out, and what traffic showed."""
    head = ["| workload | of a | " + f"{target} | " + " | ".join(f"{other} | ratio" for other in against) + " |"]
    head.append("| --- | --- | ---: | " + " | ".join("---: | ---" for _ in against) + " |")
    rows = [_row(one) for one in measured if any(result.ratios for result in one.results)]
    rivals = [f"--against {other}" for other in against]
    parts = [
        "# Speed, side by side",
        wrapped(f"Written by `{' '.join(['blockproof bench --target', target, *rivals])}`."),
        "\n".join(circumstances()),
        wrapped(HOW),
        "\n".join(wrapped(line, "* ") for line in summary_lines(target, against, measured)),
        "\n".join([*head, *rows]),
    ]
    if traffic := _traffic(measured):
        parts.append(traffic)
    if left_out := [result for result in results_of(measured) if not result.ratios]:
        reasons: dict[str, list[str]] = {}
        for result in left_out:
            reasons.setdefault(result.lacks, []).append(f"`{result.entry.name}`")
        lines = [wrapped(f"{', '.join(dict.fromkeys(names))}: {why}", "* ") for why, names in reasons.items()]
        parts.append("Left out, since a core does not have it:\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def wrapped(text: str, bullet: str = "") -> str:
    """The text in lines that can be read, as an item of a list where there is a bullet."""
    return "\n".join(broken(text, bullet))


def circumstances() -> list[str]:
    """When and on what this is measured, as items of a list."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return [
        f"* {date.today().isoformat()}, {_processor()}, of which one processor is used",
        f"* Python {platform.python_version()} on {platform.system()}, blockproof {version('blockproof')}",
        f"* load of the machine at the end: {load} (compare ratios, not times)",
    ]


def _processor() -> str:
    """The name of the processor, as far as the system tells."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def _row(measured: Measured) -> str:
    first = next(result for result in measured.results if result.ratios)
    entry = first.entry
    cells = [f"{entry.title} (`{entry.name}`)", entry.per, amount(first.target_ns, entry.kind)]
    for result in measured.results:
        if not result.ratios:
            cells += ["-", "-"]
            continue
        low, high = result.quartiles
        mark = f" **{SLOWER}**" if result.ratio < 1 else ""
        spread = f" [{low:.2f}, {high:.2f}]" if len(result.ratios) > 1 else ""
        cells += [amount(result.against_ns, entry.kind), f"{result.ratio:.2f}{spread}{mark}"]
    return f"| {' | '.join(cells)} |"


def amount(value: float, kind: str) -> str:
    """A time in a unit that can be read, or bytes.

    >>> amount(1234567.0, "decode"), amount(125.2, "memory")
    ('1.23 ms', '125 bytes')
    """
    if kind == "memory":
        return f"{value:.3g} bytes"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ns"


def _traffic(measured: Sequence[Measured]) -> str:
    """Hits and evictions of each core on each trace; empty without traffic."""
    rows = []
    for one in measured:
        for core, facts in one.summaries.items():
            rows.append(f"| `{one.results[0].entry.name}` | {core} | {' | '.join(_traffic_cells(facts))} |")
    if not rows:
        return ""
    head = "| traffic | core | tokens of prompts | hit | ideal | evicted blocks | preemptions |"
    return "\n".join([head, "| --- | --- | ---: | ---: | ---: | ---: | ---: |", *rows])


def _traffic_cells(facts: Facts) -> list[str]:
    rates = [f"{facts[name] / facts['prompt']:.1%}" for name in ("hit", "ideal")]
    return [f"{facts['prompt']:,}", *rates, f"{facts['evicted']:,}", f"{facts['preempted']:,}"]


def as_json(target: str, against: Sequence[str], measured: Sequence[Measured]) -> dict[str, Any]:
    """JSON-ready data."""
    means: dict[str, float] = {}
    for other in against:
        told = [result for result in of_pair(measured, other) if result.is_time]
        if told:
            means[other] = round(mean_ratio(told), 4)
    summaries = {one.results[0].entry.name: _copied(one.summaries) for one in measured if one.summaries}
    return {
        "target": target,
        "against": list(against),
        "python": platform.python_version(),
        "geometric_mean": means,
        "entries": [_result_json(result) for result in results_of(measured)],
        "traffic": {name: facts for name, facts in summaries.items() if any(facts.values())},
    }


def _copied(summaries: Mapping[str, Facts]) -> dict[str, Facts]:
    return {core: dict(facts) for core, facts in summaries.items()}


def _result_json(result: BenchResult) -> dict[str, Any]:
    entry = result.entry
    named = {"name": entry.name, "title": entry.title, "operation": entry.per, "against": result.against}
    if not result.ratios:
        return {**named, "lacks": result.lacks}
    unit = "bytes" if entry.kind == "memory" else "ns"
    low, high = result.quartiles
    return {
        **named,
        f"target_{unit}": round(result.target_ns, 3),
        f"against_{unit}": round(result.against_ns, 3),
        "ratio": round(result.ratio, 4),
        "quartiles": [round(low, 4), round(high, 4)],
        "rounds": len(result.ratios),
        "slower": result.ratio < 1,
    }
