"""Many findings of planted mistakes are shrunk, and whoever looks at the smallest traces is not the shrinker.

python benchmarks/shrinking.py [--findings N] [--first N] [--candidates N] [--only NAME] [--seed N]

Subjects, in turn: each mistake of the catalogue in our core; the same in our core as a target that lacks much; two of
them at once; the mistakes of the example's engine, alone and two at once. Each finding is shrunk, and then it is asked
of the smallest trace, by experiment and not by what the shrinker compares:

* does it show nothing on the core without the mistake;
* of two mistakes, is it still the one that showed in the whole trace: with it alone the finding is there, with the
  other alone it is not (whole traces of which that cannot be said are counted apart);
* is the sentence the same, its names and numbers left out; are oracle, property and operation;
* has it no call that breaks a precondition unless the whole trace has one of its kind, and is the last one what it was;
* does it have nothing that the target lacks.

Prints figures by kind of subject, and each broken promise; exits with 1 if there is one.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import mean
from typing import Any

from blockproof.fuzz.adapters.impl import open_changed_impl, open_impl
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults import FAULTS, Fault, Part, faults_in
from blockproof.fuzz.faults.registry import the_long_way
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import LIVENESS, LOCKSTEP, MODEL_FREE, ORACLES
from blockproof.fuzz.oracles.liveness import is_script
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.open_run import open_run
from blockproof.fuzz.targets.answers import hit_of
from blockproof.fuzz.targets.base import Target, adapted, adapted_shape, lacking
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import NotReproducedError, shrink
from blockproof.fuzz.workload.operations import UNKNOWN_REQUEST
from blockproof.model.legal import allows, misuse
from blockproof.model.ops import Advance, Allocate, Done, Free, Lookup, Preempt, Reject, Submit
from written import table

HERE = Path(__file__).resolve().parents[1]
sys.path += [str(HERE / "tests" / "fuzz"), str(HERE / "examples" / "my-engine")]

import faulty_engines  # type: ignore[import-not-found]  # noqa: E402  # both stand beside what they belong to
import my_target  # type: ignore[import-not-found]  # noqa: E402

OPERATIONS = 6_000
"""After so many without a finding a seed is given up."""
LACKS = (
    frozenset({"drafts", "Reject", "Take", "Touch", "Evict", "Release", "Allocate.lookahead"}),
    frozenset({"Preempt", "Reset", "Submit.items", "Submit.salt", "Submit.adapter", "Allocate.external", "hybrids"}),
    frozenset({"Lookup", "RemoveSkipped", "Shape.eagle", "Group.kind=full", "Arrive", "Submit.embeds", "drafts"}),
)
"""What our core is told to lack, in turn."""
Opened = Callable[[], Target]


@dataclass(frozen=True)
class Subject:
    """Something with mistakes in it."""

    kind: str
    name: str
    faulty: Opened
    clean: Opened
    alone: tuple[Opened, ...]
    """With each of two mistakes by itself; none if there is one only."""
    oracles: tuple[str, ...]
    attention: tuple[str, ...] = ()


@dataclass
class Figures:
    """What came of the subjects of one kind."""

    found: int = 0
    undecided: int = 0
    """Findings of which it cannot be said that one of the mistakes makes them: with two, or by an oracle that objects
    to the core as it is."""
    missed: int = 0
    incomplete: int = 0
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)


# Subjects.


def with_lacks(target: Target, lacks: frozenset[str]) -> Target:
    """The target as one that says that it lacks this."""
    target.lacks = lacks  # type: ignore[attr-defined]
    return target


def planted(faults: Sequence[Fault], lacks: frozenset[str] = frozenset(), *, long: bool = False) -> Target:
    """Our core with these mistakes. `long`: without its quick way through a step. Many mistakes can only be planted
    then, so that another one beside them shows where it does not by itself."""

    def plant(manager: Any) -> None:
        if long:
            the_long_way(manager)
        for one in faults:
            one.plant(manager)

    core = open_changed_impl("+".join(one.name for one in faults), plant) if faults else open_impl()
    return with_lacks(core, lacks) if lacks else core


def engine(*mistakes: Callable[[Any], None]) -> Target:
    """The example's engine with these mistakes."""
    made = my_target.make_target()
    begin = made.start

    def start(shape: Any) -> Any:
        outcome = begin(shape)
        for mistake in mistakes if isinstance(outcome[0], Done) else ():
            mistake(made.core)
        return outcome[0], outcome[1] if outcome[1] is None else made.look()

    made.start = start
    made.name = "+".join(["my-engine", *(one.__name__ for one in mistakes)])
    return made  # type: ignore[no-any-return]


def subjects(only: str) -> Iterator[Subject]:
    """Without end, another kind each time."""
    every = [FAULTS[name] for name in sorted(faults_in(Part.CORE)) if not FAULTS[name].chaos]
    mine = list(faulty_engines.MINE)
    for turn in count():
        one, other = every[turn % len(every)], every[(7 * turn + 3 + turn // len(every)) % len(every)]
        judges = one.oracles if turn // len(every) % 2 == 0 else tuple(MODEL_FREE)
        lacks = LACKS[turn % len(LACKS)]
        clean = partial(planted, ())
        both = tuple(dict.fromkeys((*ORACLES, *one.oracles, *other.oracles)))
        a, b = mine[turn % len(mine)], mine[(5 * turn + 1 + turn // len(mine)) % len(mine)]
        kinds = [
            Subject("one in our core", one.name, partial(planted, [one]), clean, (), judges),
            Subject(
                *("one in our core that lacks much", one.name, partial(planted, [one], lacks)),
                *(partial(planted, (), lacks), (), judges),
            ),
            Subject(
                *("two in our core", f"{one.name} and {other.name}", partial(planted, [one, other], long=True), clean),
                *((partial(planted, [one], long=True), partial(planted, [other], long=True)), both),
            ),
            Subject("one in my-engine", a.__name__, partial(engine, a), engine, (), MODEL_FREE, ("full",)),
            Subject(
                *("two in my-engine", f"{a.__name__} and {b.__name__}", partial(engine, a, b), engine),
                *((partial(engine, a), partial(engine, b)), MODEL_FREE, ("full",)),
            ),
        ]
        yield from (one for one in kinds if only in f"{one.kind}: {one.name}" and len(set(one.alone)) != 1)


# What is asked of a smallest trace.


@dataclass
class Seen:
    """What a replay was made of, call by call."""

    finding: Finding | None
    misused: Counter[str] = field(default_factory=Counter)
    last: bool = False
    """True if the last call was misuse."""
    drafting: bool = False
    """True if a step began behind the tokens that were known."""


def seen(trace: Trace, target: Target, judging: Judging) -> Seen:
    """Apply the trace once more and look at each call. A script is only replayed."""
    if LIVENESS in judging.oracles and is_script(trace):
        return Seen(replay(trace, target, judging)[0])
    run, known, computed = open_run(target, judging), dict[str, int](), dict[str, int]()
    found = Seen(run.start(trace.shape))
    hits: dict[str, int] = {}
    for operation in trace.operations if found.finding is None and run.built else ():
        if not allows(run.scene, operation):
            raise ValueError(f"{operation} makes no sense where it stands")
        found.last = misuse(run.scene, operation)
        found.misused[type(operation).__name__] += found.last
        if isinstance(operation, Allocate) and not found.last and operation.request in known:
            name = operation.request
            start = computed[name] + operation.external + (hits.get(name, 0) if operation.hit else 0)
            found.drafting |= start + operation.new_tokens > max(known[name], start + 1)
        found.finding = run.step(operation)
        _follow(operation, run.outcomes[-1], known, computed, hits)
        if found.finding is not None:
            break
    found.misused = +found.misused
    return found


def _follow(
    operation: Any, outcome: Any, known: dict[str, int], computed: dict[str, int], hits: dict[str, int]
) -> None:
    """How many tokens are known and computed of each request, as its scheduler counts them."""
    if not isinstance(outcome, Done):
        return
    match operation:
        case Submit(name):
            known[name], computed[name] = len(operation.prompt), 0
        case Lookup(name):
            hits[name] = hit[0] if (hit := hit_of(outcome)) else 0
        case Allocate(name):
            computed[name] += operation.external + operation.new_tokens + (hits.get(name, 0) if operation.hit else 0)
        case Advance(name):
            known[name] += len(operation.sampled)
            computed[name] -= operation.rejected
        case Reject(name, many):
            computed[name] -= many
        case Preempt(name):
            computed[name] = 0
        case Free(name):
            known.pop(name, None)


def sentence(finding: Finding, trace: Trace) -> tuple[str, ...]:
    """What the finding says, its names and numbers left out."""
    names = {name for one in trace.operations if isinstance(name := getattr(one, "request", None), str)}
    text = finding.detail.partition("\n")[0]
    for _ in range(5):  # brackets in brackets
        text = re.sub(r"\[[^][]*\]|\([^()]*\)|\{[^{}]*\}", "#", text)
    text = re.sub(r"\ba (?=hit|state|step|later|draft|lookup)", "one ", text)  # and no request of this name
    text = text.replace(f"{UNKNOWN_REQUEST} is unknown", "# is unknown")
    for name in sorted(names - {UNKNOWN_REQUEST}, key=len, reverse=True):  # "nobody" is a word of the sentences, too
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "#", text)
    text = re.sub(r"-?\d+(\.\.\d+)?", "#", text)
    text = re.sub(r"\b(block|token|entry|entrie|holder|reference)s?\b", r"\1", text)
    text = text.replace("while somebody outside still holds it", "while # in group # still holds it")
    who = r"(# in group #|# in group #, entry #|in no table|itself again|somebody outside|#)"
    text = re.sub(rf"{who}(,? (and |or )?\1)*", r"\1", text)
    text = text.replace(" beside # of its hit", "")
    said = (type(finding.expected).__name__, type(finding.actual).__name__) if finding.oracle == LOCKSTEP else ()
    return (finding.oracle, *finding.kind, text, *said)


def lacked(trace: Trace, drafting: bool, lacks: frozenset[str]) -> Iterator[str]:
    """What of the trace a target lacks that says so."""
    if adapted_shape(trace.shape, lacks) != trace.shape:
        yield "its shape"
    if len(trace.shape.groups) > 1 and "hybrids" in lacks:
        yield "hybrids"
    yield from (f"Group.kind={one.kind}" for one in trace.shape.groups if f"Group.kind={one.kind}" in lacks)
    yield from (str(one) for one in trace.operations if adapted(one, lacks) != one)
    if drafting and "drafts" in lacks:
        yield "drafts"


def whose(trace: Trace, finding: Finding, subject: Subject, judging: Judging) -> list[int]:
    """Numbers of the mistakes that show the finding by themselves, at the same operation."""
    mine = []
    for number, opened in enumerate(subject.alone):
        again, applied = replay(trace, opened(), judging)
        same = again is not None and (again.oracle, again.kind) == (finding.oracle, finding.kind)
        if same and len(applied.operations) == len(trace.operations):
            mine.append(number)
    return mine


def broken(subject: Subject, whole: Seen, small: Seen, traces: tuple[Trace, Trace], judging: Judging) -> Iterator[str]:
    """Each promise that the smallest trace does not keep."""
    first, last = whole.finding, small.finding
    if first is None or last is None:
        yield "the finding does not show again"
        return
    if replay(traces[1], subject.clean(), judging)[0] is not None:
        yield "it shows without the mistake"
    if sentence(first, traces[0]) != sentence(last, traces[1]):
        yield f"another sentence: {sentence(first, traces[0])} became {sentence(last, traces[1])}"
    if whole.last != small.last or small.misused - whole.misused:
        yield f"legal calls became misuse: {small.misused - whole.misused}"
    lacks = lacking(subject.faulty())
    yield from (f"it has what the target lacks: {what}" for what in lacked(traces[1], small.drafting, lacks))


def main() -> int:
    """Find, shrink, ask, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--findings", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first subject: to go on, or for a part")
    parser.add_argument("--candidates", type=int, default=4_000, help="to shrink each, at most")
    parser.add_argument("--only", default="", help="subjects in whose kind and name this stands")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    figures, problems, begin = dict[str, Figures](), list[str](), time.monotonic()
    number = asked.first
    for number, subject in enumerate(islice(subjects(asked.only), asked.first, None), asked.first):
        if sum(one.found for one in figures.values()) >= asked.findings:
            break
        told = figures.setdefault(subject.kind, Figures())
        promises = one_more(subject, asked.seed + number, asked.candidates, told)
        problems += [f"{subject.kind}: {subject.name}, seed {asked.seed + number}: {what}" for what in promises]
        if number % 100 == 99:
            done = sum(one.found for one in figures.values())
            print(f"{done} findings, {len(problems)} broken, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print(*page(figures), *problems, sep="\n")
    found = sum(one.found for one in figures.values())
    print(
        f"{found} findings in {time.monotonic() - begin:.0f} s; {len(problems)} broken promises; next: --first {number}"
    )
    return 1 if problems else 0


def one_more(subject: Subject, seed: int, candidates: int, told: Figures) -> list[str]:
    """Fuzz a subject, shrink what is found, and ask. The promises that are broken."""
    target, judging = subject.faulty(), Judging(subject.oracles)
    plan = Plan(seed, operations=OPERATIONS, oracles=subject.oracles)
    plan = Plan(**{**vars(plan), "attention": subject.attention}) if subject.attention else plan.possible_on(target)
    summary = Summary(subject.name, "random", seed, oracles=subject.oracles)
    run_random(target, plan, summary)
    if summary.finding is None or summary.trace is None:
        told.missed += 1
        return []
    mine = whose(summary.trace, summary.finding, subject, judging)
    if (subject.alone and len(mine) != 1) or replay(summary.trace, subject.clean(), judging)[0] is not None:
        told.undecided += 1
        return []
    told.found += 1
    try:
        shrunk = shrink(summary.trace, summary.finding.kind, target, judging, max_candidates=candidates)
    except NotReproducedError as error:
        return [f"not shrunk: {error}"]
    told.incomplete += not shrunk.complete
    told.before.append(len(summary.trace.operations))
    told.after.append(len(shrunk.trace.operations))
    told.tries.append(shrunk.candidates)
    whole, small = (seen(trace, subject.faulty(), judging) for trace in (summary.trace, shrunk.trace))
    problems = list(broken(subject, whole, small, (summary.trace, shrunk.trace), judging))
    if subject.alone and (now := whose(shrunk.trace, shrunk.finding, subject, judging)) != mine:
        problems.append(f"another cause: mistake {mine} became {now}: {shrunk.finding.in_short()}")
    return problems


def page(figures: dict[str, Figures]) -> list[str]:
    """A line for each kind of subject; sizes are averages."""
    rows = []
    for kind, one in figures.items():
        sizes = [f"{mean(row):.2f}" if row else "-" for row in (one.before, one.after, one.tries)]
        rows.append([kind, one.found, one.missed, one.undecided, *sizes, one.incomplete])
    counted = "findings: | none found: | not clear whose: | operations: | shrunk to: | tries: | given up:"
    return table(f"subjects | {counted}", rows)


if __name__ == "__main__":
    sys.exit(main())
