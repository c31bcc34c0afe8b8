"""What is timed by default: a list of workloads with their sizes. A size is changed here and nowhere else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .traffic import read_trace
from .workload import Params

FULL, SLIDING, MAMBA = ("full",), ("full", "sliding-1024"), ("full", "mamba")
POOL = 32_768
K = 1024
LOOKUP, ALLOCATE, FREE = "lookup", "allocate", "free"
CYCLE = (LOOKUP, ALLOCATE, FREE)
PREFILL = (LOOKUP, ALLOCATE)
STEP = "request"
TRAFFIC_POOL, TRAFFIC_RUNNING, TRAFFIC_BUDGET = POOL, 32, 8192
ROWS = 300
"""Rows of a trace that are played by default."""
PIECES = 12
"""Pieces that a trace is played in; so a run of at least so many rounds plays all rows."""


@dataclass(frozen=True)
class BenchEntry:
    """A workload with its sizes."""

    name: str
    title: str
    """What is done, in words."""
    kind: str
    params: Params
    per: str = "request"
    """The operation that the times are of."""
    rounds: float = 1.0
    """Share of the rounds; long ones need fewer."""
    is_made: bool = False
    """True for what a server does once, when it starts; reported beside the rest, as a mean would hide it."""


def default_entries() -> tuple[BenchEntry, ...]:
    """All workloads but traffic, which needs files."""
    return (*_decodes(), *_prefills(), *_cycles(), *_patterns(), *_of_today(), *_others(), *_made())


def traffic_entries(traces: Iterable[Path], rows: int = ROWS) -> tuple[BenchEntry, ...]:
    """A workload for each trace. ValueError or OSError for what is no trace."""
    entries = []
    for path in traces:
        read = read_trace(path, rows)
        params = {
            "rows": [[row.prompt, row.output, row.ids] for row in read],
            "pool": TRAFFIC_POOL,
            "running": TRAFFIC_RUNNING,
            "budget": TRAFFIC_BUDGET,
            "end": -(-len(read) // PIECES),
        }
        entries.append(BenchEntry(f"traffic-{path.stem}", f"{len(read)} rows of {path.name}", "traffic", params))
    return tuple(entries)


def _decodes() -> Iterable[BenchEntry]:
    kinds: Sequence[tuple[str, str, tuple[str, ...], int]] = (
        ("", "", FULL, 500),
        ("-sliding", ", full + sliding 1024", SLIDING, 1100),
        ("-mamba", ", full + Mamba align", MAMBA, 1100),
    )
    for suffix, words, groups, shortest in kinds:
        for running, periods in ((64, 8), (256, 2), (2048, 1)):
            sizes = {"running": running, "shortest": shortest, "longest": shortest + 60, "grown": 480}
            params = {**sizes, "periods": periods, "groups": groups}
            title, rounds = f"decode step, {running:,} requests{words}", 0.5 if running > 1000 else 1.0
            yield BenchEntry(f"decode{suffix}-{running}", title, "decode", params, rounds=rounds)
            if groups is FULL:
                batch = f"{title}, in one call where the core has one"
                yield BenchEntry(f"decode-batch-{running}", batch, "decode", {**params, "batch": True}, rounds=rounds)


def _prompts(
    name: str, title: str, tokens: int, requests: int, timed: Sequence[str], *, per: str = "block", **more: object
) -> BenchEntry:
    params = {"tokens": tokens, "requests": requests, "pool": POOL, "timed": timed, "per": per, **more}
    return BenchEntry(name, title, "prompts", params, per)


def _prefills() -> Iterable[BenchEntry]:
    yield _prompts("prefill-8k", "cold prefill of 8k tokens in one step", 8 * K, 32, PREFILL)
    yield _prompts("prefill-128k", "cold prefill of 128k tokens in one step", 128 * K, 2, PREFILL)
    yield _prompts(
        "prefill-fresh-8k", "cold prefill of 8k tokens, blocks never used before", 8 * K, 16, PREFILL, fresh=True
    )
    chunks = "prefill of 16k tokens in chunks of 2,048"
    yield _prompts("chunked-16k", chunks, 16 * K, 12, PREFILL, chunk=2048)
    yield _prompts("chunked-16k-sliding", f"{chunks}, full + sliding", 16 * K, 6, PREFILL, chunk=2048, groups=SLIDING)
    yield _prompts("evict-8k", "prefill of 8k tokens in a pool full of cached blocks", 8 * K, 16, PREFILL, full=True)
    events = (*PREFILL, "take_events")
    yield _prompts("events-8k", "prefill of 8k tokens with events, which are taken", 8 * K, 16, events)
    reading = "taking the events of 16 prefills of 8k tokens at once"
    yield _prompts("take-events", reading, 8 * K, 16, ["take_events"], per="request")


def _cycles() -> Iterable[BenchEntry]:
    mostly, all_of_it = 7376, 128 * K
    hit = "lookup, allocation and release of 8k tokens, 90 % hit"
    yield _prompts("hit-8k", hit, 8 * K, 32, CYCLE, shared=mostly)
    yield _prompts("hit-8k-sliding", f"{hit}, full + sliding", 8 * K, 16, CYCLE, shared=mostly, groups=SLIDING)
    whole = "128k tokens, all but 16 hit"
    yield _prompts("hit-128k", f"lookup, allocation and release of {whole}", all_of_it + 16, 2, CYCLE, shared=all_of_it)
    yield _prompts("lookup-128k", f"lookup of {whole}", all_of_it + 16, 6, [LOOKUP], shared=all_of_it)
    yield _prompts("free-8k", "release of 8k tokens", 8 * K, 32, [FREE])
    yield _prompts("free-128k", "release of 128k tokens", 128 * K, 3, [FREE])


def _patterns() -> Iterable[BenchEntry]:
    """What fast ways do not fit (`patterns`): the prompts' tokens, the requests of a piece, the blocks of the pool."""
    patterns: Sequence[tuple[str, str, int, int, int, str]] = (
        ("held", "8k tokens, all but 256 hit and held by a request that runs", 8 * K, 16, POOL, "block"),
        (
            "system",
            "48 decode steps behind one prompt of 2k, with admission, release",
            2 * K,
            64,
            POOL,
            STEP,
        ),
        ("twins", "8k tokens, computed by two requests at once", 8 * K, 4, POOL, "block"),
        ("turns", "16 prompts of 2k in turns by chunks of 256, then hit", 2 * K, 16, POOL, "block"),
        ("drafts", "decode with three drafts, half rejected, with admission and release", K, 64, POOL, STEP),
        ("midway", "8k tokens, released in the middle of the prefill, coming again", 8 * K, 8, POOL, "block"),
        ("tree", "hits of every length on one prompt of 8k", 8 * K, 16, POOL, "block"),
        ("scattered", "prompts of 1k, half coming again, in a pool of 2,048 blocks", K, 32, 2 * K, "block"),
        ("shuffled", "64 prompts of 1k that end in another order, evicted", K, 64, 8 * K, "block"),
        ("refused", "lookup and refusal of a prompt of 1k, in a full pool", K, 256, 2 * K, STEP),
        ("resets", "prompts of 1k, all that is cached forgotten after each", K, 8, 16 * K, STEP),
        ("brief", "prompts of 1 to 40 tokens: lookup, allocation, release", 40, 256, 8 * K, STEP),
        ("odd", "16 prompts of 2k in turns by chunks of 100", 2 * K, 16, POOL, "block"),
        ("server", "decode steps of 64 requests; in each, one comes and one ends", K, 64, POOL, STEP),
    )
    for which, title, tokens, requests, pool, per in patterns:
        for suffix, words, groups in (("", "", FULL), ("-sliding", ", full + sliding 1024", SLIDING)):
            params = {
                "which": which,
                "tokens": tokens,
                "requests": requests,
                "pool": pool * len(groups),
                "groups": groups,
            }
            yield BenchEntry(f"{which}{suffix}", f"{title}{words}", "patterns", params, per, 0.5)
    told = {"which": "held", "tokens": 8 * K, "requests": 16, "pool": POOL, "events": True}
    yield BenchEntry("held-events", "as `held`, with events, which are taken", "patterns", told, "block", 0.5)


def _of_today() -> Iterable[BenchEntry]:
    """What only cores of today have; the others leave it out."""
    wide, steps = ("full-64", "mamba-64"), ("full", "checkpoint-16")
    entries: Sequence[tuple[str, str, str, dict[str, object]]] = (
        ("inside", "2k tokens that end inside a block of 64, then hit and copied", "inside", {"groups": wide}),
        ("junctions", "three prompts with 2k tokens in common, kept where they part", "junctions", {"retention": 0}),
        ("checkpoints", "2k tokens in chunks of 256, states left inside a step", "turns", {"groups": steps}),
        ("watermark", "as `held`, of 2k, a part of the pool kept free", "held", {"watermark": 300, "groups": FULL}),
        ("reports", "as `held`, of 2k, with full reports of hits", "held", {"events": True, "reports": True}),
    )
    for name, title, which, more in entries:
        groups = ("full", "mamba") if name == "junctions" else FULL
        sizes = {"which": which, "tokens": 2 * K, "requests": 8, "pool": 16 * K, "groups": groups}
        yield BenchEntry(f"today-{name}", title, "patterns", {**sizes, **more}, "block", 0.5)


def _others() -> Iterable[BenchEntry]:
    short = {"tokens": 64, "steps": 16, "together": 128, "pool": POOL}
    yield BenchEntry("short-64", "request of 64 tokens: lookup, allocation, 16 decode steps, release", "short", short)
    tables = {"running": 256, "shortest": 500, "longest": 560, "grown": 480}
    yield BenchEntry("block-ids", "get_block_ids, 256 requests of 530 tokens", "tables", tables)
    for name, words in (("sha256", "sha256 over pickle"), ("sha256_cbor", "sha256 over CBOR"), ("xxhash", "xxhash")):
        made = {"tokens": 8 * K, "requests": 4, "hash": name}
        yield BenchEntry(f"request-{name}", f"request of 8k tokens made, {words}", "creation", made, "block")


def _made() -> Iterable[BenchEntry]:
    for label, blocks, requests, rounds in (("1k", K, 16, 1.0), ("32k", 32 * K, 2, 1.0), ("512k", 512 * K, 1, 0.4)):
        params = {"pool": blocks, "requests": requests}
        title = f"construction with {label} blocks"
        yield BenchEntry(f"pool-{label}", title, "construction", params, "core", rounds, is_made=True)
    states = (
        ("built", "after construction"),
        ("used", "when each has been used once and is cached"),
        ("empty", "when each has been used once and none is cached"),
    )
    for which, words in states:
        title = f"resident bytes of 512k blocks, {words}"
        yield BenchEntry(f"bytes-{which}", title, "memory", {"pool": 512 * K, "which": which}, "block", is_made=True)


def smaller(entry: BenchEntry, **params: object) -> BenchEntry:
    """The same with other sizes."""
    return replace(entry, params={**entry.params, **params})
