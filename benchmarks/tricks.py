"""What each trick of the core brings: the same work with it and without it, in turns in one process.

python benchmarks/tricks.py [--rounds N] [--only NAME] [--write docs/evidence/tricks.md] [--quote docs/guide/speed.md]

The core has no switches. What stands in `tricks_list.py` is put in the place of a function or a number of the core
while the work without the trick runs. benchmarks/README.md says what is compared.
"""

import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from blockproof.fuzz.bench.kinds import KINDS
from blockproof.fuzz.bench.report import amount
from blockproof.fuzz.bench.workload import BenchPiece
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.targets.driver import driver_of
from tricks_list import NOT_SWITCHED, OWN_KINDS, TRICKS, Trick
from written import bind_to_one_core, command, machine_lines, parser, put

HEAD = """\
# What each trick of the core brings

Written by `{command}`;
[what is compared and how](../../benchmarks/README.md#tricks-of-the-core).

{machine}
* pure Python; {rounds} pairs each; blocks of 16 tokens

Processor time of a thread; medians. **Times**: what the work takes without the trick, divided by what it
takes with it, for each pair of pieces that ran one after the other; in brackets the quartiles. Both did the
same work: equal hits, tables, hashes, and at the end equal free queues, references and identities. A function
that only the way without the trick needs, or needs more often, was seen to run more often there.

| trick | without it | work | of a | with | without | times |
| --- | --- | --- | --- | ---: | ---: | --- |
"""


class Side:
    """The work of a trick on a core of its own, always with the trick or always without."""

    def __init__(self, trick: Trick, replaced: bool) -> None:
        self._trick, self._replaced = trick, replaced
        self._driver = driver_of(open_here(trick.core))
        with self._switched():
            self._work = {**KINDS, **OWN_KINDS}[trick.kind](self._driver, trick.params)
            self._work.prepare()

    def piece(self) -> BenchPiece:
        """The next piece."""
        with self._switched():
            return self._work.piece()

    def state(self) -> list[object]:
        """What is left of all the work, to be compared with that of the other side."""
        with self._switched():
            core: Any = getattr(self._driver, "_manager", None)  # none where the work is on a queue alone
            pool = core and core.block_pool
            of_pool = [pool.free_ids(), pool.ref_counts(), pool.identities()] if pool else []
            return [self._work.digests(), *of_pool]

    def calls(self) -> int:
        """How often the witness of the trick runs in a piece."""
        count, code = 0, self._trick.witness.__code__

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal count
            count += event == "call" and frame.f_code is code

        sys.setprofile(look)
        try:
            self.piece()
        finally:
            sys.setprofile(None)
        return count

    @contextmanager
    def _switched(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, value in self._trick.replaced if self._replaced else ():
                stack.enter_context(patch.object(where, name, value))
            yield


class Gain(NamedTuple):
    """What one trick was measured to bring: nanoseconds of an operation, and a ratio for each pair."""

    trick: Trick
    with_ns: float
    without_ns: float
    ratios: tuple[float, ...]

    @property
    def quoted(self) -> str:
        """The median in short, as the page's figure is rounded."""
        times = round(median(self.ratios), 2)
        return f"{times:.1f}" if times < 100 else f"{times:,.0f}"

    @property
    def row(self) -> str:
        """Its line of the table."""
        trick = self.trick
        low, _, high = quantiles(self.ratios, n=4, method="inclusive") if len(self.ratios) > 1 else self.ratios * 3
        times = f"{median(self.ratios):.2f} [{low:.2f}, {high:.2f}]"
        both = f"{amount(self.with_ns, trick.kind)} | {amount(self.without_ns, trick.kind)}"
        return f"| `{trick.name}` | {trick.without} | {trick.work} | {trick.per} | {both} | {times} |"


def measure(trick: Trick, rounds: int) -> Gain:
    """So many pairs. Ends the program if both sides differ, or if the switch switches nothing."""
    sides = Side(trick, False), Side(trick, True)
    gc.collect()
    gc.freeze()
    done: tuple[list[BenchPiece], list[BenchPiece]] = [], []
    for number in range(rounds + 1):  # the first pair does not count
        for which in (0, 1) if number % 2 else (1, 0):
            done[which].append(sides[which].piece())
        here, there = done[0][-1], done[1][-1]
        if (here.operations, here.facts, here.notes) != (there.operations, there.facts, there.notes):
            sys.exit(f"{trick.name}: other work without the trick: {here} and {there}")
    calls = sides[0].calls(), sides[1].calls()
    if not calls[0] < calls[1]:
        name = trick.witness.__qualname__
        sys.exit(f"{trick.name}: {name} ran {calls[0]} times, and {calls[1]} times without the trick: not switched")
    if sides[0].state() != sides[1].state():
        sys.exit(f"{trick.name}: the cores differ when all is done")
    gc.unfreeze()
    ours, theirs = ([max(piece.ns, 1) / piece.operations for piece in pieces[1:]] for pieces in done)
    ratios = tuple(slow / fast for fast, slow in zip(ours, theirs, strict=True))
    return Gain(trick, median(ours), median(theirs), ratios)


def page(gains: Sequence[Gain], load: float, rounds: int) -> str:
    """All of it."""
    machine = "\n".join(machine_lines(load, "ratios, not times"))
    head = HEAD.format(command=command(), machine=machine, rounds=rounds)
    rows = "".join(f"{gain.row}\n" for gain in gains)
    return f"{head}{rows}\n## Without a figure\n\n" + "".join(f"* {line}\n" for line in NOT_SWITCHED)


def quote(gains: Sequence[Gain], text: str) -> str:
    """The text with these figures in it: each stands before the name of its trick, in brackets."""
    for gain in gains:
        text = re.sub(rf"[\d.,]+ (?=\(`{gain.trick.name}`\))", f"{gain.quoted} ", text)
    return text


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--rounds", type=int, default=25, help="pairs of pieces for each trick")
    asked.add_argument("--only", action="append", default=[], help="the trick of this name; several times for several")
    asked.add_argument("--quote", type=Path, help="put the medians in place of those that this page quotes")
    arguments = asked.parse_args()
    chosen = [trick for trick in TRICKS if not arguments.only or trick.name in arguments.only]
    if missing := [name for trick in chosen for name in trick.packages if find_spec(name) is None]:
        sys.exit(f"not installed: {', '.join(missing)}; or name tricks without it with --only")
    load = os.getloadavg()[0]
    bind_to_one_core()
    gains = []
    for trick in chosen:
        gains.append(measure(trick, arguments.rounds))
        print(gains[-1].row, file=sys.stderr)
    put(page(gains, load, arguments.rounds), arguments.write)
    if arguments.quote:
        put(quote(gains, arguments.quote.read_text(encoding="utf-8")), arguments.quote)


if __name__ == "__main__":
    main()
