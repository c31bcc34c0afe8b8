"""`blockproof fuzz-traffic`: a log is served once; what is found is cut to few requests and shrunk like any trace."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...model.arith import down
from ..engines.plan import Plan
from ..engines.reproductions import KeptFinding, keep_found
from ..findings.finding import Finding
from ..findings.interruption import interrupted_by
from ..findings.words import plural
from ..reports.progress import OnProgress
from ..reports.run import RunDocument
from ..reports.summary import Found, Summary
from ..reports.vacuity import vacuity
from ..runs.judging import TooLongError
from ..runs.open_run import open_run
from ..targets.base import Target
from .driver import Objection, ServedTraffic, Service, TrafficSetting
from .logs import Log


@dataclass(frozen=True)
class Ideal:
    """What a cache without end would find."""

    asked: int
    """Tokens of all prompts."""
    hit: int
    """Tokens of these in whole blocks that an earlier prompt begins with, the last token left out."""
    entries: int
    """Numbers of the log's content."""
    entries_hit: int
    """Of these, leading ones of a prompt that came up before; the figure that is published with such logs."""

    @property
    def ratio(self) -> float:
        """Of the tokens asked for, the share that was there."""
        return self.hit / self.asked

    @property
    def ratio_of_entries(self) -> float:
        """The same of the log's own numbers."""
        return self.entries_hit / self.entries


def ideal(log: Log, block_size: int) -> Ideal:
    """What a cache without end would find in blocks of so many tokens.

    Equal content is known by equal chains: a number counts together with those before it.
    """
    chains: dict[tuple[int, int], int] = {}
    longest: dict[int, int] = {0: 0}  # by chain, the most tokens of its last number that a prompt had
    asked = hit = entries = entries_hit = 0
    for one in log.requests:
        chain, shared, known, left = 0, 0, True, one.prompt
        for number in one.content:
            tokens = min(left, log.unit)
            link = (chain, number)
            entries_hit += known and link in chains
            known = known and link in chains
            chain = chains.setdefault(link, len(chains) + 1)
            shared += min(tokens, longest.get(chain, 0)) if known else 0
            known = known and longest[chain] >= tokens
            longest[chain] = max(longest.get(chain, 0), tokens)
            left -= tokens
        asked += one.prompt
        hit += min(down(shared, block_size), down(one.prompt - 1, block_size))
        entries += len(one.content)
    return Ideal(asked, hit, entries, entries_hit)


MOST_SHOWN = 300
"""Characters of a line about a finding that are printed."""
SLICE_SHARE = 0.5
"""Of the seconds for shrinking, the share in which a short slice of the log is looked for."""


@dataclass(frozen=True)
class TrafficTask:
    """A log, and how it is served."""

    log: Log
    setting: TrafficSetting
    attention: str
    """Name of the attention types, for reports."""
    plan: Plan
    """`oracles`, `shrink_seconds` and `seed` are used."""
    look_every: int
    """In lockstep, operations between two comparisons of the whole state; 1 compares it after each one."""
    repeat: str
    """The shell command that does it again."""


@dataclass
class TrafficOutcome:
    """What came of a task."""

    done: Summary
    served: ServedTraffic
    ideal: Ideal
    task: TrafficTask
    sliced: str = ""
    """How the finding was cut down to few requests."""
    kept: KeptFinding | None = None
    """What was found."""
    processor_s: float = 0.0
    """Seconds of this process's processor time."""
    blocks: int = 0
    """Of the pool, besides the null block."""

    @property
    def exit_code(self) -> int:
        """1 on a finding, 130 if Ctrl-C ended it before one, 3 if nothing was tested, else 0."""
        if self.done.finding is not None or self.done.interrupted:
            return 130 if self.done.finding is None else 1
        return 0 if vacuity(self.done).problem is None else 3

    def document(self) -> RunDocument:
        """What came of it, for people and machines."""
        document = RunDocument.of(self.done)
        document.served = {**vars(self.served), "hit_ratio": self.served.hit_ratio}
        ratios = {"ratio": self.ideal.ratio, "ratio_of_entries": self.ideal.ratio_of_entries}
        document.ideal = {**vars(self.ideal), **ratios}
        document.blocks, document.processor_seconds = self.blocks, round(self.processor_s, 1)
        document.repeat = self.task.repeat
        if self.kept is not None:
            document.reproduction, document.slice = self.kept.reproduced(), self.sliced
        return document

    def lines(self) -> list[str]:
        """What a person is told below the report."""
        served, best = self.served, self.ideal
        away = f", {served.turned_away:,} of them turned away" if served.turned_away else ""
        size = self.task.setting.block_size
        lines = [
            f"{plural(served.arrived, 'request')} arrived{away}; {plural(served.steps, 'step')}, "
            f"{served.clock:,.0f} s pretended",
            f"pool of {self.blocks:,} blocks of {size} tokens: {plural(served.preemptions, 'preemption')}",
            f"hit {served.hit_ratio:.2%} of {served.asked:,} tokens; a cache without end: {best.ratio:.2%}"
            f" ({best.ratio_of_entries:.2%} of the log's own numbers)",
            f"processor: {self.processor_s:.0f} s of this process",
        ]
        lines += [self.sliced] if self.sliced else []
        lines += [_cut(line) for line in self.kept.lines()] if self.kept else []
        lines += [f"note: {warning}" for warning in vacuity(self.done).warnings]
        lines += [f"repeat this run: {self.task.repeat}"]
        return [*lines, f"interrupted by {interrupted_by()}"] if self.done.interrupted else lines


def _cut(line: str) -> str:
    """The line, or its beginning: prompts of logs have thousands of tokens, and the trace has them all."""
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ... ({len(line):,} characters)"


def fuzz_traffic(
    task: TrafficTask,
    target: Target,
    name: str,
    folder: Path,
    say: Callable[[str], None],
    on_progress: OnProgress = lambda steps, requests, seconds: None,
) -> TrafficOutcome:
    """Serve the log of a task, and keep what is found. `name` is what the user calls the target. Ctrl-C ends it early:
    the outcome holds what was done. Errors as from `open_run`."""
    judging = replace(task.plan.judging(), full_look_every=task.look_every, looks_between=task.look_every == 1)
    run = open_run(target, judging)
    service = Service(run, task.setting, task.log)
    done = Summary(name, "traffic", task.plan.seed, oracles=task.plan.oracles)
    done.allow_vacuous = task.plan.allow_vacuous
    begin, used = time.monotonic(), time.process_time()
    objection = None
    try:
        objection = service.serve(lambda now: on_progress(now.steps, now.arrived, time.monotonic() - begin))
    except KeyboardInterrupt:
        done.interrupted = True
    done.seconds = time.monotonic() - begin
    done.add_run(task.attention, run, None, None)
    blocks = service.shape.num_blocks - 1
    outcome = TrafficOutcome(done, service.served, ideal(task.log, task.setting.block_size), task, blocks=blocks)
    outcome.processor_s = time.process_time() - used
    if objection is not None:
        _keep(outcome, objection, target, folder, say)
    return outcome


def _keep(outcome: TrafficOutcome, whole: Objection, target: Target, folder: Path, say: Callable[[str], None]) -> None:
    """Cut the log, and shrink what the slice shows."""
    task, done = outcome.task, outcome.done
    arrived = plural(whole.newest + 1, "request")
    say(f"found after {plural(done.operations, 'operation')} of {arrived}; looking for a short slice of the log ...")
    small, outcome.sliced = whole, "no shorter slice of the log shows it"
    with suppress(KeyboardInterrupt):
        if (sliced := _Slices(task, whole, target, outcome.blocks).smallest()) is not None:
            small, outcome.sliced = sliced
    found = Found(small.finding, small.trace, attention=Counter([task.attention]), seed=task.plan.seed)
    done.add_found(found)
    left = replace(task.plan, shrink_seconds=task.plan.shrink_seconds * (1 - SLICE_SHARE))
    outcome.kept = keep_found(found, done, target, left, folder, say)


class _Slices:
    """Tries short slices of a log, each in a fresh core in which everything is compared after each operation."""

    def __init__(self, task: TrafficTask, whole: Objection, target: Target, blocks: int) -> None:
        self.task, self.whole, self.target = task, whole, target
        self.setting = replace(task.setting, blocks=blocks, longest=task.log.longest)
        self.left = task.plan.shrink_seconds * SLICE_SHARE
        """Processor time."""

    def smallest(self) -> tuple[Objection, str] | None:
        """What the shortest slice of 1, 2, 4, ... requests up to the newest shows, if it is of the same kind; with all
        lengths and the blocks divided, if that shows it, too. With a sentence about it; None within the time."""
        end = self.whole.newest + 1
        for count in (2**power for power in range(end.bit_length() + 1)):
            first = max(0, end - count)
            log = self.task.log.cut(first, end - first)
            if (objection := self._shows(log, self.setting)) is not None:
                divided = self._divided(log)
                how = f", with lengths divided by {divided[1]}" if divided else ""
                what = f"the last {plural(end - first, 'request')} of these alone show it{how}"
                return (divided[0] if divided else objection), what
            if not first or self.left <= 0:
                break
        return None

    def _divided(self, log: Log) -> tuple[Objection, int] | None:
        """The same of blocks that are as small as can be."""
        setting, size = self.setting, self.setting.block_size
        assert setting.longest is not None
        for divisor in range(size, 1, -1):
            if size % divisor == 0 and log.unit % divisor == 0:
                longest = -(-setting.longest // divisor) + 1
                small = replace(setting, block_size=size // divisor, longest=longest, divisor=setting.divisor * divisor)
                if (objection := self._shows(log.shortened(divisor), small)) is not None:
                    return objection, divisor
        return None

    def _shows(self, log: Log, setting: TrafficSetting) -> Objection | None:
        """What serving this shows, if it is of the same kind as the whole."""
        if self.left <= 0:
            return None
        begin = time.process_time()
        judging = replace(self.task.plan.judging(), full_look_every=1, seconds=self.left)
        try:
            objection = Service(open_run(self.target, judging), setting, log).serve()
        except TooLongError:
            objection = None
        self.left -= time.process_time() - begin
        return objection if objection is not None and self._alike(objection.finding) else None

    def _alike(self, finding: Finding) -> bool:
        """True if it has the same cause; is of the same oracle where the whole was seen late, at a look at
        everything."""
        whole = self.whole.finding
        return finding.oracle == whole.oracle and (self.task.look_every > 1 or finding.key == whole.key)
