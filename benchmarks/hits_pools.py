"""Hit ratio against pool size: what `hits.py --pools` replays, draws and writes."""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from blockproof.fuzz.bench.plots import HitCurve, plot_hits
from hits_replay import TRACE_BLOCK, Counts, layouts, read_trace

BLOCK = 512
"""Tokens of a block."""
POOLS = tuple(1 << power for power in range(19, 27))
"""Tokens in the blocks of the pool; the smallest one holds any request of a trace."""
LAYOUTS = ("full", "full + sliding", "full + chunked", "full + Mamba, eagle")
UNBOUNDED = "a pool without end"
HEAD = """
**Hit**: tokens of the prompts, of all that were asked for, that need not be computed; what a core counts as
hit and is not there is left out. **{unbounded}** is what full attention would find if no block were
ever reused and every request had run before the next one came: no core can find more. Columns are tokens in
the blocks of the pool.
"""


class Drawn(NamedTuple):
    """A trace's curves."""

    trace: Path
    asked: int
    """Tokens of its prompts."""
    ideal: float
    """Hit ratio of an unbounded pool."""
    curves: tuple[HitCurve, ...]
    """By layout."""


def ideal(trace: Path, most: int) -> tuple[int, int]:
    """Tokens of the prompts, and those of them that stand at the beginning of an earlier prompt as well, in whole
    blocks; the last token of a prompt is always computed."""
    seen: set[bytes] = set()
    asked = hit = 0
    for request in read_trace(str(trace), most, BLOCK):
        names = request.block_hashes
        found = next((at for at, name in enumerate(names) if name not in seen), len(names))
        asked += request.num_prompt_tokens
        hit += min(found, (request.num_prompt_tokens - 1) // BLOCK) * BLOCK
        seen.update(names)
    return asked, hit


def drawn(trace: Path, most: int, counted: Mapping[tuple[str, str, int], Counts], names: Mapping[str, str]) -> Drawn:
    """The curves of a trace; `counted` by core, layout and pool, `names` says what a core is called. Ends the program
    if a core has found more than there is."""
    asked, hit = ideal(trace, most)
    share = 100 * hit / max(asked, 1)
    curves = []
    for layout in LAYOUTS:
        lines = {UNBOUNDED: [(float(pool), share) for pool in POOLS]}
        for core, name in names.items():
            found = [(pool, counted[core, layout, pool]) for pool in POOLS]
            whole = [(pool, one) for pool, one in found if one.asked and not one.raises]
            if any(one.hit > hit or one.asked > asked for _, one in whole):
                sys.exit(f"{name}: hits more of {trace.name} with {layout} than there is to hit")
            lines[name] = [(float(pool), 100 * one.hit / one.asked) for pool, one in whole]
        curves.append(HitCurve(layout, lines))
    return Drawn(trace, asked, share / 100, tuple(curves))


def page(head: str, traces: Sequence[Drawn], plots: Path | None, beside: Path | None) -> str:
    """The page: a table for each trace and layout, and its plot where one is written; links go from `beside`."""
    lines = [head.rstrip(), HEAD.format(unbounded=UNBOUNDED.capitalize())]
    for one in traces:
        lines += [f"## {one.trace.stem}", "", f"{one.asked:,} tokens asked for; {UNBOUNDED} hits {one.ideal:.2%}.", ""]
        if plots is not None:
            path = plot_hits(plots / f"hits-{one.trace.stem}.svg", one.curves)
            lines += [f"![hits of {one.trace.stem}]({_link(path, beside)})", ""]
        lines += [f"| groups | core | {' | '.join(map(_size, POOLS))} |", f"| --- | --- |{' ---: |' * len(POOLS)}"]
        for curve in one.curves:
            for name, points in curve.lines.items():
                by_pool = dict(points)
                cells = [f"{by_pool[pool]:.2f}%" if pool in by_pool else "-" for pool in POOLS]
                lines += [f"| {curve.name} | {name} | {' | '.join(cells)} |"] if name != UNBOUNDED else []
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _size(tokens: int) -> str:
    """In binary thousands and millions.

    >>> _size(1 << 19), _size(1 << 20)
    ('512 Ki', '1 Mi')
    """
    return f"{tokens >> 20} Mi" if tokens >= 1 << 20 else f"{tokens >> 10} Ki"


def _link(path: Path, beside: Path | None) -> str:
    """The file as the page names it."""
    return str(path.resolve().relative_to(beside.resolve().parent) if beside else path)


def made_traffic(folder: Path, requests: int = 2_000) -> Path:
    """A trace of made-up conversations, the same each time: few beginnings that many share, and turns that repeat what
    was said before. For where no recorded one is at hand."""
    draw, fresh = random.Random(1), iter(range(10**9))
    openings = [[next(fresh) for _ in range(draw.randint(2, 12))] for _ in range(8)]
    talks: list[list[int]] = []
    lines = []
    for _ in range(requests):
        if not talks or draw.random() < 0.3:
            talks.append(list(draw.choice(openings)))
        talk = talks[-1 - min(len(talks) - 1, int(draw.expovariate(1 / 40)))]
        talk += [next(fresh) for _ in range(draw.randint(1, 8))]
        del talk[200:]
        tokens = len(talk) * TRACE_BLOCK - draw.randrange(TRACE_BLOCK)
        lines.append(json.dumps({"input_length": tokens, "output_length": draw.randint(1, 400), "hash_ids": talk}))
    path = folder / "made_up_conversations.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


assert set(LAYOUTS) <= set(layouts(BLOCK))
