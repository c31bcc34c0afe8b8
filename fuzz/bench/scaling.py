"""How cost grows: an operation's time against the size of the pool, requests, prompts and groups."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..reports.scaling import ScalingDocument, ScalingRow
from .entries import ALLOCATE, CYCLE, FREE, LOOKUP, BenchEntry
from .measure import Bench, BenchResult
from .report import HOW, amount, circumstances, wrapped

K = 1024
AXES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "pool": ("blocks of the pool", (K, 8 * K, 64 * K, 512 * K, K * K)),
    "running": ("running requests", (1, 4, 16, 64, 256, 1024, 4096)),
    "length": ("tokens of a prompt", (K, 8 * K, 64 * K, 256 * K, K * K)),
    "groups": ("groups", (1, 2, 4, 8)),
}
"""What grows, in words, and its sizes."""
ROUNDS = 5


class Point(NamedTuple):
    """One operation at one size."""

    axis: str
    size: int
    operation: str
    results: tuple[BenchResult, ...]

    def ns(self, core: str) -> float | None:
        """What this core takes, in nanoseconds; None if it lacks it."""
        for result in self.results:
            if result.ratios and core in (result.target, result.against):
                return result.target_ns if core == result.target else result.against_ns
        return None


@dataclass(frozen=True)
class ScalingCurve:
    """One operation along an axis."""

    axis: str
    operation: str
    points: tuple[Point, ...]

    def values(self, core: str) -> list[tuple[int, float]]:
        """Size and nanoseconds, where the core has the operation."""
        found = [(point.size, point.ns(core)) for point in self.points]
        return [(size, ns) for size, ns in found if ns is not None]


def entries(sizes: Mapping[str, Sequence[int]] | None = None) -> Iterator[tuple[str, int, BenchEntry]]:
    """Axis, size and workload of all points; of these sizes where they are given."""
    chosen = {axis: (sizes or {}).get(axis, every) for axis, (_, every) in AXES.items()}
    for size in chosen["pool"]:
        yield "pool", size, _prompts("lookup, allocation and release of 512 tokens", 512, 8, CYCLE, size)
        yield "pool", size, _decode("decode step, 16 requests", 16, pool=size)
        made = {"pool": size, "requests": 1}
        yield "pool", size, BenchEntry("construction", "construction", "construction", made, "core")
    for size in chosen["running"]:
        yield "running", size, _decode("decode step", size, periods=max(1, 128 // size))
    for size in chosen["length"]:
        yield from (("length", size, entry) for entry in _lengths(size))
    for size in chosen["groups"]:
        groups = ("full", *(f"sliding-{128 * number}" for number in range(1, size)))
        yield "groups", size, _decode("decode step, 64 requests", 64, shortest=1100, groups=groups)
        pool = 1024 * (size + 1) * 2
        yield "groups", size, _prompts("cold prefill of 8k tokens", 8 * K, 2, (LOOKUP, ALLOCATE), pool, groups=groups)
        hit = _prompts("cycle of 8k tokens, 90 % hit", 8 * K, 2, CYCLE, pool, shared=7376, groups=groups)
        yield "groups", size, hit


def _prompts(title: str, tokens: int, requests: int, timed: Sequence[str], pool: int, **more: object) -> BenchEntry:
    params = {"tokens": tokens, "requests": requests, "timed": timed, "pool": pool, **more}
    return BenchEntry(title, title, "prompts", params, "block")


def _decode(title: str, running: int, shortest: int = 400, **more: object) -> BenchEntry:
    params = {"running": running, "shortest": shortest, "longest": shortest + 60, "grown": 480, **more}
    return BenchEntry(title, title, "decode", params)


def _lengths(size: int) -> Iterator[BenchEntry]:
    pool, requests = 4 * size // 16 + 64, max(1, 64 * K // size)
    requests = min(requests, 16)
    pool = max(pool, 2 * requests * size // 16)
    yield _prompts("cold prefill", size, requests, (LOOKUP, ALLOCATE), pool)
    yield _prompts("release", size, requests, (FREE,), pool)
    yield _prompts("lookup of a hit", size + 16, requests, (LOOKUP,), pool, shared=size)
    yield _prompts("cycle with a hit", size + 16, requests, CYCLE, pool, shared=size)
    yield BenchEntry(
        "decode step, 1 request",
        "decode step, 1 request",
        "decode",
        {"running": 1, "shortest": size, "longest": size, "grown": 2000, "periods": 8},
    )


def measure_scaling(
    bench: Bench, sizes: Mapping[str, Sequence[int]] | None, rounds: int, say: Callable[[str], None]
) -> list[ScalingCurve]:
    """All curves."""
    curves: dict[tuple[str, str], list[Point]] = {}
    for axis, size, entry in entries(sizes):
        point = Point(axis, size, entry.title, bench.measure(entry, rounds).results)
        curves.setdefault((axis, entry.title), []).append(point)
        say(f"{entry.title}, {size:,} {AXES[axis][0]}")
    return [ScalingCurve(axis, operation, tuple(points)) for (axis, operation), points in curves.items()]


def markdown(cores: Sequence[str], curves: Sequence[ScalingCurve]) -> str:
    """The page: a table for each axis."""
    parts = ["# How cost grows", "\n".join(circumstances()), wrapped(HOW)]
    for axis, (words, _) in AXES.items():
        rows = [_row(curve, core) for curve in curves if curve.axis == axis for core in cores if curve.values(core)]
        sizes = sorted({point.size for curve in curves if curve.axis == axis for point in curve.points})
        if rows:
            head = f"| time of | core | {' | '.join(f'{size:,}' for size in sizes)} | last ÷ first |"
            lines = [head, f"| --- | --- |{' ---: |' * (len(sizes) + 1)}", *rows]
            parts += [f"## Against {words}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _row(curve: ScalingCurve, core: str) -> str:
    cells = [amount(ns, "") if (ns := point.ns(core)) is not None else "-" for point in curve.points]
    values = [ns for _, ns in curve.values(core)]
    per = curve.points[0].results[0].entry.per
    return f"| {curve.operation}, of a {per} | {core} | {' | '.join(cells)} | {values[-1] / values[0]:.2f} |"


def document(cores: Sequence[str], curves: Sequence[ScalingCurve]) -> ScalingDocument:
    """The same for machines, and for its page."""
    rows = [
        ScalingRow(
            curve.axis,
            curve.operation,
            {core: [(size, round(ns, 2)) for size, ns in curve.values(core)] for core in cores},
            AXES[curve.axis][0],
            curve.points[0].results[0].entry.per,
        )
        for curve in curves
    ]
    return ScalingDocument(list(cores), rows)
