"""The workloads of the benchmark with sizes that take milliseconds."""

from blockproof.fuzz.bench.entries import BenchEntry, default_entries, smaller

LEAST = {"running": 3, "shortest": 40, "longest": 45, "grown": 40, "periods": 1, "pool": 300, "requests": 2}
LEAST |= {"tokens": 128, "together": 3, "steps": 4}


def tiny(entry: BenchEntry) -> BenchEntry:
    """The same workload on a few blocks."""
    sizes = {name: least for name, least in LEAST.items() if name in entry.params}
    if entry.params.get("shared"):
        sizes |= {"tokens": 128, "shared": 96}
    if entry.params.get("chunk"):
        sizes["chunk"] = 32
    if entry.params.get("watermark"):
        sizes["watermark"] = 10
    return smaller(entry, **sizes)


TINY = {entry.name: tiny(entry) for entry in default_entries()}
DIFFERENT = list({f"{entry.kind} {sorted(entry.params.items())}": entry for entry in reversed(TINY.values())}.values())
"""Those that differ in more than their size."""
TIMED = [entry for entry in TINY.values() if entry.kind != "memory"]
