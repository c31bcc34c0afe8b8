"""Serves recorded traffic in full on our core and on a release, in lockstep, and writes down what it comes to.

python benchmarks/traffic.py [--traces ../shared/traces] [--target impl --target vllm==0.23.0] [--block-size 512]
    [--attention full --attention full+mamba] [--requests N] [--kept docs/evidence/traffic.json] [--write PAGE]

Each case is one run of `blockproof fuzz-traffic`, and is kept in a file as soon as it is done (`--kept`): what is there
is not run again. A last case of each log has all lengths divided and all oracles on.
"""

import json
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from blockproof.fuzz.findings.writing import write_file
from written import command, parser, processor, put

STRIDE, LOOK_EVERY = 16, 1_000
DIVISOR = 32
TARGETS = ("impl", "vllm==0.23.0")
HEAD = """\
# Recorded traffic, in full

Written by `{command}`;
[how a log is served](../guide/traffic.md).

Python {python} on {system}. A request samples {stride} tokens in a step; the pool holds 5 % more than the longest
request. In lockstep all outcomes are compared, and the whole state once in {look:,} operations. Seconds are
those of the processor, of the harness and of the release's process; counts are the same on every machine.

| log | block | target | judged by | requests | operations | preempted | found | hit | without end | seconds | of |
| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"""
TAIL = """
**Hit**: tokens of prompts found at the first admission. **Without end**: what a cache that never evicts would
find, in tokens; in brackets in numbers of the log, as such logs are usually quoted. **All oracles**:
lockstep, shadow memory, contract and liveness after every operation, all lengths divided by {divisor}, so that
blocks of {small} tokens share prefixes as blocks of 512 do. **Of**: day, commit and processor, without which
seconds cannot be compared.
"""


class Case(NamedTuple):
    """One run."""

    log: str
    block: int
    target: str
    whole: bool
    """True for lengths as they are, in lockstep; else divided, with all oracles."""
    attention: str = "full"

    @property
    def name(self) -> str:
        other = "" if self.attention == "full" else f"/{self.attention}"
        return f"{self.log}/{self.block}/{self.target}/{'whole' if self.whole else 'divided'}{other}"

    def arguments(self, folder: Path, requests: int | None) -> list[str]:
        """The command line behind `fuzz-traffic`."""
        how = [f"--divide={DIVISOR}", "--oracle=all"]
        if self.whole:
            how = [f"--stride={STRIDE}", f"--look-every={LOOK_EVERY}", "--oracle=lockstep"]
        some = [f"--requests={requests}"] if requests else []
        path = folder / f"{self.log}.jsonl"
        on = [f"--target={self.target}", f"--attention={self.attention}", f"--block-size={self.block}"]
        return [str(path), *on, *how, *some, "--json"]


def cases(logs: Sequence[str], blocks: Sequence[int], served: Iterable[tuple[str, str]]) -> list[Case]:
    """All runs, those of each log with all oracles last; `served`: attention types and target of each."""
    on = [(log, target, attention) for log, (attention, target) in product(logs, served)]
    whole = [Case(log, block, target, True, attention) for block in blocks for log, target, attention in on]
    return whole + [Case(log, 512 // DIVISOR, target, False, attention) for log, target, attention in on]


def run(case: Case, folder: Path, requests: int | None) -> dict[str, Any]:
    """What a case comes to, with the processor seconds of all its processes. The program ends if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    called = [sys.executable, "-m", "blockproof.fuzz.cli", "fuzz-traffic", *case.arguments(folder, requests)]
    done = subprocess.run(called, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{case.name}: exit code {done.returncode}")
    document = json.loads(done.stdout)
    kept = {name: document[name] for name in ("operations", "served", "ideal", "blocks", "finding")}
    return {**kept, "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "of": made()}


def made() -> str:
    """The day, the commit of this checkout, and the processor."""
    asked = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=Path(__file__).parent, stdout=subprocess.PIPE)
    return f"{date.today()}, {asked.stdout.decode().strip() or 'no checkout'}, {processor()}"


def row(case: Case, done: dict[str, Any]) -> str:
    """The line of a case."""
    served, best = done["served"], done["ideal"]
    judged = "lockstep" if case.whole else "all oracles"
    log = case.log.removeprefix("mooncake_").removesuffix("_trace")
    cells = [log if case.attention == "full" else f"{log}, {case.attention}", str(case.block), case.target, judged]
    cells += [f"{count:,}" for count in (served["arrived"], done["operations"], served["preemptions"])]
    cells += [done["finding"]["observable"] if done["finding"] else "nothing", f"{served['hit_ratio']:.2%}"]
    cells += [f"{best['ratio']:.2%} ({best['ratio_of_entries']:.2%})", f"{done['seconds']:,.0f}", done["of"]]
    return f"| {' | '.join(cells)} |"


def lines(every: Sequence[Case], kept: dict[str, Any]) -> Iterator[str]:
    """The page."""
    head = {"command": command(), "python": platform.python_version()}
    yield HEAD.format(**head, system=platform.system(), stride=STRIDE, look=LOOK_EVERY)
    for case in every:
        if case.name in kept:
            yield f"{row(case, kept[case.name])}\n"
    yield TAIL.format(divisor=DIVISOR, small=512 // DIVISOR)


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of .jsonl files")
    asked.add_argument("--target", action="append", help="a target; several by repeating it")
    asked.add_argument("--attention", action="append", help="attention types, as in full+mamba; several alike")
    asked.add_argument("--block-size", type=int, action="append", choices=(16, 512))
    asked.add_argument("--requests", type=int, metavar="N", help="of each log at most")
    asked.add_argument("--kept", type=Path, metavar="FILE", help="results so far, which are not made again")
    arguments = asked.parse_args()
    logs = sorted(path.stem for path in arguments.traces.glob("*.jsonl"))
    if not logs:
        sys.exit(f"--traces: there is no .jsonl file in {arguments.traces}")
    served = product(arguments.attention or ("full",), arguments.target or TARGETS)
    every = cases(logs, arguments.block_size or (512, 16), served)
    kept = json.loads(arguments.kept.read_text()) if arguments.kept and arguments.kept.exists() else {}
    for case in every:
        if case.name not in kept:
            print(case.name, file=sys.stderr, flush=True)
            kept[case.name] = run(case, arguments.traces, arguments.requests)
            if arguments.kept:
                write_file(arguments.kept, json.dumps(kept, indent=1))
    put("".join(lines(every, kept)), arguments.write)


if __name__ == "__main__":
    main()
