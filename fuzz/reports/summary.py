"""What a run did: the `Summary` that the engines fill in. `formats` makes reports of it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from ...model.ops import Done, Failed, Lookup, Operation, Outcome, Shape
from ..findings.finding import Finding, Trace
from ..findings.known import KnownFinding, attention_of
from ..findings.oracle_names import LOCKSTEP, ORACLES
from ..findings.severity import Severity, severity
from ..opening.known_deviations import declared_for
from ..runs.canary import Canary
from ..runs.run import Run
from ..targets.deviations import Deviation
from .history import History, Sample

COUNTERS: tuple[str, ...] = ("attention", "unbuilt", "unobserved", "operation_counts", "outcomes", "reached")
COUNTERS += ("deviated", "misuse", "known", "compared", "causes", "impossible", "hits", "shared")
NEW = "new"
"""The root cause of a finding that no known flaw explains."""
FIRST_SAMPLES, MOST_SAMPLES = 3, 8
"""How many findings of one key are kept beside the shortest: in all, and where each has groups of other kinds."""


@dataclass
class Found:
    """All findings of one cause (`Found.key`): how often, and the shortest trace that shows one."""

    finding: Finding
    trace: Trace
    times: int = 1
    attention: Counter[str] = field(default_factory=Counter)
    """Times by the name of the attention types."""
    passed: tuple[str, ...] = ()
    """Properties that were violated before it in its run and did not end it (`oracle_names.PASSABLE`)."""
    seed: int = 0
    """Seed of the process that found it."""
    root: str = ""
    """Its root cause (`engines.root_causes`); empty if nobody has asked."""
    settled: int = 0
    """For how many of these times that was settled by experiment."""
    seconds: float | None = None
    """When it first came up, since the start of the runs; None before it is counted."""
    samples: list["Found"] = field(default_factory=list)
    """Some of the others that were counted with it: the first ones, and the first for each kind of groups. Whether they
    have another cause after all, their smallest traces tell (`engines.smallest`)."""
    form: tuple[str, ...] = ()
    """What its smallest trace uses, where that parts it from another one of its key."""

    @property
    def key(self) -> tuple[str, ...]:
        """What those have in common that are kept as one."""
        return (*self.finding.key, *([self.root] if self.root else []), *self.form)

    def add(self, other: "Found") -> None:
        """More of the same cause. A trace that shows nothing else is better than a short one."""
        self.times += other.times
        self.settled += other.settled
        self.attention.update(other.attention)
        self.seconds = min((one for one in (self.seconds, other.seconds) if one is not None), default=None)
        rest = other
        if other._cost() < self._cost():
            rest = replace(self)
            self.finding, self.trace = other.finding, other.trace
            self.passed, self.seed = other.passed, other.seed
        for one in (rest, *other.samples):
            kinds = [attention_of(each.trace) for each in (self, *self.samples)]
            if len(self.samples) < (FIRST_SAMPLES if attention_of(one.trace) in kinds else MOST_SAMPLES):
                attention = Counter([*one.attention][:1])
                self.samples.append(Found(one.finding, one.trace, 1, attention, one.passed, one.seed, root=self.root))

    def _cost(self) -> tuple[bool, int]:
        return bool(self.passed), len(self.trace.operations)


@dataclass
class Summary:
    """What the runs of one engine on one target came to. Engines call `add_run` once a run."""

    target: str
    engine: str
    seed: int
    runs: int = 0
    operations: int = 0
    seconds: float = 0.0
    attention: Counter[str] = field(default_factory=Counter)
    """Runs by the name of their attention types."""
    unbuilt: Counter[str] = field(default_factory=Counter)
    """Those of them whose core cannot be built, on either side: nothing else was observed in them."""
    operation_counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of operation and `Done`, `Refused` or the kind of error."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each interesting situation came up."""
    deviated: Counter[str] = field(default_factory=Counter)
    """How often each known deviation of the target occurred."""
    misuse: Counter[str] = field(default_factory=Counter)
    """What the target made of broken preconditions, where that is only reported."""
    finding: Finding | None = None
    """The first one of the worst that were found (`findings.severity`)."""
    trace: Trace | None = None
    """The run that showed it."""
    finding_attention: str | None = None
    found: dict[tuple[str, ...], Found] = field(default_factory=dict)
    """All that was found and is not known, by `Found.key`; more than one if the runs go on after a finding."""
    known: Counter[str] = field(default_factory=Counter)
    """How often each known finding came up, by its id."""
    shared: Counter[str] = field(default_factory=Counter)
    """How often what another target does, too, came up (`Plan.known_of`), by what was found."""
    compared: Counter[str] = field(default_factory=Counter)
    """How often of these the trace was shrunk and compared; the others were taken to be like the last one."""
    known_findings: tuple[KnownFinding, ...] = ()
    """Those that the user has declared."""
    finding_seed: int = 0
    """Seed of the process that found it."""
    causes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """What did not return: kind of operation (or `start`), `Refused` or `Failed`, and why (`runs.run.why_not_done`)."""
    impossible: Counter[str] = field(default_factory=Counter)
    """Kinds of operations that were drawn although they are not possible on the target."""
    hits: Counter[str] = field(default_factory=Counter)
    """In cores with caching on: `lookups`, and the `hits` among them."""
    allow_vacuous: bool = False
    """True if a run that tested nothing is to be no failure (`vacuity`)."""
    interrupted: bool = False
    """True if Ctrl-C ended it."""
    oracles: tuple[str, ...] = ORACLES
    """What judged."""
    unobserved: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Runs by a property that could not be judged in them, and why."""
    core_name: str = ""
    """What the target calls itself, if that is not `target`: its deviations are declared under this name."""
    history: History = field(default_factory=History)
    """How it came to this."""
    drawn: int = 0
    """The digest of its operations (`reports.summary`)."""
    lost: str = ""
    """Why not all of it was run; empty if it was."""
    canary: Canary | None = None
    """What was planted before the runs, and which oracles have seen it; None if nothing judges them."""

    def add_run(self, attention: str, run: Run, finding: Finding | None, trace: Trace | None) -> None:
        """Count one run that is over; `finding` is what it ended with, and `trace` what shows it."""
        self.runs += 1
        self.operations += len(run.operations)
        self.drawn = together((self.drawn, digest_of(run.shape, run.operations)))
        self.attention[attention] += 1
        self.unbuilt[attention] += not run.built
        self._count_outcomes(run)
        self.reached.update(reached := run.reached())
        self.history.reach(reached, self.seconds)
        self.deviated.update(getattr(run.scene, "deviated", {}))
        self.misuse.update(run.misuse)
        self.unobserved.update(run.unobserved().items())
        self.causes.update(run.causes)
        self.impossible.update(run.impossible)
        if not run.built:
            self.causes["start", Failed.__name__, run.not_built or "the target was lost"] += 1
        elif run.shape.caching:
            answers = zip(run.operations, run.outcomes, strict=True)
            self.hits["hits"] += sum(_is_hit(outcome) for operation, outcome in answers if type(operation) is Lookup)
        self.history.see(self.now())
        if finding is not None and trace is not None:
            self.add_found(Found(finding, trace, attention=Counter([attention]), seed=self.seed))

    def _count_outcomes(self, run: Run) -> None:
        counted = Counter(zip(map(type, run.operations), map(type, run.outcomes), strict=True))
        for (kind, result), times in counted.items():
            self.operation_counts[kind.__name__] += times
            if result is not Failed:
                self.outcomes[kind.__name__, result.__name__] += times
            if kind is Lookup and run.built and run.shape.caching:
                self.hits["lookups"] += times
        if any(result is Failed for _, result in counted):
            answers = zip(run.operations, run.outcomes, strict=True)
            self.outcomes.update((type(one).__name__, end.error) for one, end in answers if isinstance(end, Failed))

    def now(self) -> Sample:
        """What it has come to, for its history."""
        return Sample(self.seconds, self.operations, self.hits["lookups"], self.hits["hits"])

    def add_found(self, found: Found) -> None:
        """Keep a finding; the worst one comes first in reports."""
        found.seconds = self.seconds if found.seconds is None else found.seconds
        if self.finding is None or severity(found.finding) < severity(self.finding):
            self.finding, self.trace = found.finding, found.trace
            self.finding_attention, self.finding_seed = next(iter(found.attention), None), found.seed
        if (key := found.key) in self.found:
            self.found[key].add(found)
        else:
            self.found[key] = found

    def ranked(self) -> list[Found]:
        """All that was found, the worst first: `finding`, then those of the same severity that came up most often."""
        first = self.finding and self.finding.key

        def rank(one: Found) -> tuple[Severity, bool, int]:
            return severity(one.finding), one.finding.key != first, -one.times

        return sorted(self.found.values(), key=rank)

    def merge(self, other: "Summary", *, later: bool = False) -> None:
        """Add what another process did at the same time, or what was done after this (`later`); the first finding
        stays."""
        shift = self.seconds if later else 0.0
        self.history.join(self.now(), other.history, other.now(), shift)
        self.runs += other.runs
        self.operations += other.operations
        self.drawn = together((self.drawn, other.drawn))
        self.lost = self.lost or other.lost
        self.seconds = max(self.seconds, shift + other.seconds)
        self.interrupted |= other.interrupted
        self.canary = self.canary or other.canary
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for found in other.found.values():
            self.add_found(replace(found, seconds=(found.seconds or 0.0) + shift))

    @property
    def rate(self) -> float:
        """Operations a second, over all processes."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def declared(self) -> tuple[Deviation, ...]:
        """The deviations that lockstep takes as declared for the target."""
        return () if LOCKSTEP not in self.oracles else declared_for(self.core_name or self.target)

    def unseen_deviations(self) -> list[str]:
        """Ids of declared deviations that did not occur, without those that only chaos shows."""
        return unseen(self.declared, self.deviated)


def unseen(declared: Sequence[Deviation], counts: Mapping[str, int]) -> list[str]:
    """Ids of declared deviations that did not occur; without those that only chaos shows."""
    return [one.id for one in declared if not counts.get(one.id, 0) and not one.chaos_only]


def _is_hit(outcome: Outcome) -> bool:
    """True if a lookup found something."""
    match outcome:
        case Done((int(tokens), tuple())):
            return tokens > 0
    return False


_BYTES = 8
_SIZE = 1 << 8 * _BYTES
_encode = msgspec.msgpack.Encoder().encode


def digest_of(shape: Shape, operations: Sequence[Operation]) -> int:
    """The digest of one run. Measured at 0.2 microseconds an operation, which is 0.2% of lockstep on our core."""
    fields = [operation.__dict__ for operation in operations]  # in half the time of the records, which give the same
    data = _encode((shape, [type(operation).__name__ for operation in operations], fields))
    return int.from_bytes(hashlib.blake2b(data, digest_size=_BYTES).digest())


def together(digests: Iterable[int]) -> int:
    """The digest of several runs, the same in whichever order they come: processes share them as they can."""
    return sum(digests) % _SIZE


def digest_text(digest: int) -> str:
    """As it is printed."""
    return f"{digest:0{2 * _BYTES}x}"
