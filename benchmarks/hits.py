"""Replay recorded traffic through our core and through a release, and write down what each finds in its cache.

python benchmarks/hits.py [--traces ../shared/traces] [--requests N] [--target vllm==0.23.0]
    [--write docs/evidence/hits.md]
python benchmarks/hits.py --pools [--plots docs/evidence/hits] [--write docs/evidence/hits-pool.md]

A trace has a request a line, in the order of arrival, as the Mooncake project publishes them: `input_length`,
`output_length`, and `hash_ids`, a number for each 512 tokens of the prompt; equal numbers are equal content.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import NamedTuple

import hits_pools
from blockproof.fuzz.opening.child import Place, environment_of
from blockproof.fuzz.opening.targets import interpreter_of
from blockproof.fuzz.targets.base import TargetUnavailableError
from hits_replay import BUDGET, CHUNK, DRAFTS, RUNNING, TRACE_BLOCK, WINDOW, Counts, layouts
from written import command, processor, put

REQUESTS = {512: 1_000_000, 16: 1_000}
"""By block size, how many requests of a trace are replayed at most: blocks of 16 take 32 times as long."""
DRAWN = ("full", "full + sliding", "full + Mamba", "full + Mamba, drafts")
"""Layouts that serve made-up conversations in small blocks."""
DRAWN_BLOCK = 16
"""Tokens of such a block, and of what a trace calls 512 of them."""
ASKED = {512: tuple(layouts(512))[:-1], 16: tuple(layouts(16))[:5]}
"""By block size, the layouts that are replayed."""
POOLS, DRAWN_POOLS = (1 << 20, 1 << 22), (1 << 18, 1 << 19, 1 << 20)
"""Tokens in the blocks of the pool; all groups of a model share them. Made-up conversations have them in proportion."""
HEAD = """\
# {title}

Written by `{command}`;
[what is measured and how](../../benchmarks/README.md#hits-on-recorded-traffic).

* {day}, {machine}, Python {python} on {system}, blockproof {blockproof}; the counts are the same on every machine
* window {window:,}, chunk {chunk:,}, {drafts} drafts; at most {running} requests at once, {budget:,} tokens a step
"""
MEANING = """
**Hit**: tokens of the prompts, of all that were asked for, that need not be computed. **Not there**: tokens
that the core counts as hit although a block that the next query reads is missing from the table, or has
other content; they are in no other column, and a request that gets them goes on with wrong content.
**Ratio**: tokens hit by ours for each one of {target}. **Refused**: how often the first request in the
line found no room, by the release and by ours; **steps**: those that ours needed to serve all, for each one
of the release. Both are the price of an admission gate that counts all that a request will hold, or its gain.
"""


class Case(NamedTuple):
    """One replay of each core."""

    trace: Path
    block: int
    layout: str
    pool: int
    unit: int = TRACE_BLOCK
    """Tokens of an entry of the trace."""


class Core(NamedTuple):
    """A core, and the environment in which it is imported; None for this one."""

    name: str
    place: Place | None


Counted = Mapping[tuple[str, Case], Counts]
"""By the name of the core and the case."""


def replayed(core: Core, cases: Sequence[Case], most: int) -> list[Counts]:
    """What the replays came to, one after the other in a process of the core's environment."""
    script = Path(__file__).with_name("hits_replay.py")
    questions = [
        [str(case.trace), min(REQUESTS[case.block], most), case.layout, case.block, case.pool, case.unit]
        for case in cases
    ]
    with tempfile.TemporaryDirectory(prefix="blockproof-hits-") as modules:
        python = sys.executable if core.place is None else str(core.place.python)
        done = subprocess.run(
            [python, "-P", str(script), core.name],
            env=environment_of(core.place, Path(modules)),
            input="".join(f"{json.dumps(question)}\n" for question in questions),
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        sys.exit(f"{core.name}: a replay has failed")
    return [Counts(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def cores(target: str) -> list[Core]:
    """Ours, and the release where it is installed."""
    try:
        return [Core("impl", None), Core("vllm", interpreter_of(target)[1])]
    except TargetUnavailableError:
        print(f"{target} is not installed and is left out: blockproof targets install {target}", file=sys.stderr)
        return [Core("impl", None)]


def table(cases: Sequence[Case], counted: Counted, target: str) -> Iterator[str]:
    """The rows of one trace and block size."""
    yield f"| groups | pool, tokens | {target}: hit | not there | ours: hit | not there | ratio | refused | steps |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for case in cases:
        ours, theirs = counted["impl", case], counted.get(("vllm", case))
        ratio = f"{ours.hit / theirs.hit:.3f}" if theirs is not None and theirs.hit else "-"
        both = theirs is not None and not theirs.raises
        refused = f"{theirs.refused:,} → {ours.refused:,}" if theirs is not None and both else "-"
        steps = f"{ours.steps / theirs.steps:.3f}" if theirs is not None and both else "-"
        yield f"| {case.layout} | {case.pool:,} | {shares(theirs)} | {shares(ours)} | {ratio} | {refused} | {steps} |"


def shares(counts: Counts | None) -> str:
    """Two cells: tokens hit, and tokens that count as hit and are not there."""
    if counts is None:
        return "- | -"
    if counts.raises:
        return f"{counts.raises} after {counts.requests:,} requests | -"
    return f"{counts.hit / counts.asked:.2%} | {counts.unsafe / counts.asked:.2%}"


def head(title: str) -> str:
    """What stands above the figures: how they were made, and on what."""
    return HEAD.format(
        title=title,
        command=command(),
        day=date.today(),
        machine=processor(),
        python=platform.python_version(),
        system=platform.system(),
        blockproof=version("blockproof"),
        window=WINDOW,
        chunk=CHUNK,
        drafts=DRAFTS,
        running=RUNNING,
        budget=BUDGET,
    )


def page(cases: Sequence[Case], counted: Counted, target: str) -> str:
    """All that was counted, a table for each trace and block size."""
    lines = [head("Hits on recorded traffic") + MEANING.format(target=target)]
    for trace, block, unit in dict.fromkeys((case.trace, case.block, case.unit) for case in cases):
        here = [case for case in cases if (case.trace, case.block, case.unit) == (trace, block, unit)]
        first = counted["impl", here[0]]
        lines += [f"## {trace.stem}, blocks of {block} tokens", ""]
        lines += [f"{first.requests:,} requests, {first.asked:,} tokens asked for.", ""]
        lines += [*table(here, counted, target), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of .jsonl files")
    parser.add_argument("--requests", type=int, metavar="N", help="of each trace at most; all for blocks of 512")
    parser.add_argument("--target", default="vllm==0.23.0", help="the release")
    parser.add_argument("--pools", action="store_true", help="against pools of many sizes")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="with --pools: draw there, with matplotlib")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there instead of printing it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="blockproof-traffic-") as folder:
        traces = sorted(arguments.traces.glob("*.jsonl"))
        made = hits_pools.made_traffic(Path(folder))
        if not traces:
            print(f"no .jsonl file in {arguments.traces}: only made-up conversations are replayed", file=sys.stderr)
        if arguments.pools:
            put(against_pools(traces or [made], arguments), arguments.write)
        else:
            put(as_recorded(traces, made, arguments), arguments.write)


def as_recorded(traces: Sequence[Path], made: Path, arguments: argparse.Namespace) -> str:
    """The page on all layouts and block sizes, and on made-up conversations in small blocks."""
    cases = [
        Case(trace, block, *rest) for trace, block in product(traces, REQUESTS) for rest in product(ASKED[block], POOLS)
    ]
    small = [pool * DRAWN_BLOCK // TRACE_BLOCK for pool in DRAWN_POOLS]
    cases += [Case(made, DRAWN_BLOCK, *rest, DRAWN_BLOCK) for rest in product(DRAWN, small)]
    return page(cases, all_counted(cases, arguments.target, arguments.requests), arguments.target)


def against_pools(traces: Sequence[Path], arguments: argparse.Namespace) -> str:
    """The page on pools of many sizes."""
    block = hits_pools.BLOCK
    most = arguments.requests or REQUESTS[block]
    cases = [Case(trace, block, *rest) for trace in traces for rest in product(hits_pools.LAYOUTS, hits_pools.POOLS)]
    counted = all_counted(cases, arguments.target, arguments.requests)
    names = {core: name for core, name in (("vllm", arguments.target), ("impl", "ours")) if (core, cases[0]) in counted}
    drawn = []
    for trace in traces:
        mine = {case: (case.layout, case.pool) for case in cases if case.trace == trace}
        here = {(core, *mine[case]): counts for (core, case), counts in counted.items() if case in mine}
        drawn.append(hits_pools.drawn(trace, most, here, names))
    return hits_pools.page(head("Hits against the size of the pool"), drawn, arguments.plots, arguments.write)


def all_counted(cases: Sequence[Case], target: str, requests: int | None) -> Counted:
    """Every case on every core."""
    most, traces = requests or max(REQUESTS.values()), dict.fromkeys(case.trace for case in cases)
    jobs = [(core, [case for case in cases if case.trace == trace]) for core in cores(target) for trace in traces]
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = list(pool.map(lambda job: replayed(job[0], job[1], most), jobs))
    return {
        (core.name, case): counts
        for (core, replays), row in zip(jobs, results, strict=True)
        for case, counts in zip(replays, row, strict=True)
    }


if __name__ == "__main__":
    main()
