"""Times cores side by side: pieces in turns, so that what else the machine does meets all of them, and a ratio a pair.

A time is not compared with a time of another run; only ratios of pieces that ran one after the other are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from statistics import geometric_mean, median, quantiles

from ..adapters import family_of, references
from .entries import BenchEntry
from .side import BenchError, BenchSide, LacksError, one_processor
from .workload import BenchPiece, Facts

ROUNDS = 15
LEAST_ROUNDS = 3
LEAST_BYTES = 1.0
"""Resident bytes of a block that can be told from none: memory comes in pages."""


@dataclass(frozen=True)
class BenchResult:
    """One workload on the target and on one other core."""

    entry: BenchEntry
    target: str
    against: str
    target_ns: float = 0.0
    """Median of an operation in nanoseconds; for memory, bytes."""
    against_ns: float = 0.0
    ratios: tuple[float, ...] = ()
    """What the other core takes, divided by what the target takes, for each round; in ascending order."""
    lacks: str = ""
    """Why there are none: what one of the two does not have."""
    least: float = 0.0
    """The least median of a preparation."""

    @property
    def is_time(self) -> bool:
        """True if a time was measured, not memory and not nothing."""
        return bool(self.ratios) and self.entry.kind != "memory"

    @property
    def ratio(self) -> float:
        """The median; above 1 the target is faster."""
        return median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the ratios."""
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        low, _, high = quantiles(self.ratios, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True)
class Measured:
    """One workload on all cores."""

    results: tuple[BenchResult, ...]
    """One for each other core."""
    summaries: Mapping[str, Facts]
    """What else there is to tell, for each core."""


class Bench:
    """A target and others, each in a process of its own, on one processor, for any number of workloads."""

    def __init__(self, target: str, against: Sequence[str]) -> None:
        """TargetUnavailableError if one of them cannot be started."""
        self.target, self.against = target, tuple(against)
        self._cpu = one_processor()
        self._sides: list[BenchSide] = []
        self._memories: dict[tuple[str, int], Facts] = {}
        try:
            for spec in (target, *against):
                self._sides.append(BenchSide(spec, self._cpu))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        for side in self._sides:
            side.close()

    def measure(self, entry: BenchEntry, rounds: int = ROUNDS, preparations: int = 1) -> Measured:
        """Time one workload. BenchError if a core fails, or did other work than the target.

        So many `preparations`, each with all rounds: where memory comes to lie when a core is built can move a ratio
        by a fifth, however many rounds follow.
        """
        try:
            if entry.kind == "memory":
                return Measured(tuple(self._memory(entry)), {})
            return _pooled([self._once(entry, rounds) for _ in range(preparations)])
        except (BenchError, LacksError) as error:  # what it lacks it says when it is prepared
            raise BenchError(f"{entry.name}: {error}") from None

    def _once(self, entry: BenchEntry, rounds: int) -> Measured:
        """After one preparation."""
        ready, lacks = self._prepare(entry)
        target = self._sides[0]
        if target not in ready:
            return Measured(tuple(self._left_out(entry, other, lacks[target]) for other in self._sides[1:]), {})
        count = max(LEAST_ROUNDS, round(rounds * entry.rounds))
        pieces = self._take_turns(entry, ready, count)
        results = []
        for other in self._sides[1:]:
            if other in lacks:
                results.append(self._left_out(entry, other, lacks[other]))
            else:
                results.append(_compared(entry, (target, pieces[target]), (other, pieces[other])))
        return Measured(tuple(results), {side.name: summary for side in ready if (summary := side.summary())})

    def _prepare(self, entry: BenchEntry) -> tuple[list[BenchSide], dict[BenchSide, str]]:
        """Those that are ready for the workload, and why the others are not. BenchError if their hashes differ."""
        digests, lacks = {}, {}
        for side in self._sides:
            try:
                digests[side] = side.prepare(entry.kind, entry.params)
            except LacksError as lacking:
                lacks[side] = f"{side.name}: {lacking}"
                if side is self._sides[0]:
                    break
        for side, found in digests.items():
            if found != digests[self._sides[0]]:
                raise BenchError(f"{side.name} has other hashes than {self._sides[0].name}")
        return list(digests), lacks

    def _take_turns(
        self, entry: BenchEntry, sides: Sequence[BenchSide], rounds: int
    ) -> dict[BenchSide, list[BenchPiece]]:
        """So many pieces of each, in turns; which one begins changes from round to round. One round more at first does
        not count."""
        pieces: dict[BenchSide, list[BenchPiece]] = {side: [] for side in sides}
        for number in range(rounds + 1):
            first = number % len(sides)
            for side in (*sides[first:], *sides[:first]):
                pieces[side].append(side.piece())
            for side in sides[1:]:
                _require_same(sides[0], pieces[sides[0]][-1], side, pieces[side][-1])
        return {side: done[1:] for side, done in pieces.items()}

    def _memory(self, entry: BenchEntry) -> Iterator[BenchResult]:
        """Bytes of a block."""
        which, found, lacks = str(entry.params["which"]), {}, {}
        for side in self._sides:
            try:
                facts = self._memory_of(side, entry)
                found[side] = max(facts[which] / facts["blocks"], LEAST_BYTES)
            except LacksError as lacking:
                lacks[side] = f"{side.name}: {lacking}"
        target = self._sides[0]
        for other in self._sides[1:]:
            if target in found and other in found:
                ratio = found[other] / found[target]
                yield BenchResult(entry, target.name, other.name, found[target], found[other], (ratio,), least=ratio)
            else:
                yield self._left_out(entry, other, lacks.get(target) or lacks[other])

    def _memory_of(self, side: BenchSide, entry: BenchEntry) -> Facts:
        """What `memory.memory_of` says in a process that does nothing else; asked once for all entries."""
        asked = (side.name, int(entry.params["pool"]))
        if asked not in self._memories:
            with closing(BenchSide(side.name, self._cpu)) as fresh:
                self._memories[asked] = fresh.memory(entry.params)
        return self._memories[asked]

    def _left_out(self, entry: BenchEntry, other: BenchSide, why: str) -> BenchResult:
        return BenchResult(entry, self.target, other.name, lacks=why)


def _compared(
    entry: BenchEntry, target: tuple[BenchSide, list[BenchPiece]], other: tuple[BenchSide, list[BenchPiece]]
) -> BenchResult:
    ours, theirs = ([max(piece.ns, 1) / piece.operations for piece in pieces] for _, pieces in (target, other))
    ratios = tuple(sorted(slow / fast for fast, slow in zip(ours, theirs, strict=True)))
    return BenchResult(entry, target[0].name, other[0].name, median(ours), median(theirs), ratios, least=median(ratios))


def _pooled(tries: Sequence[Measured]) -> Measured:
    """All ratios of these tries together; of the times the median."""
    results = []
    for same in zip(*(one.results for one in tries), strict=True):
        told = [result for result in same if result.ratios]
        results.append(
            replace(
                same[0],
                target_ns=median(result.target_ns for result in told),
                against_ns=median(result.against_ns for result in told),
                ratios=tuple(sorted(ratio for result in told for ratio in result.ratios)),
                least=min(result.least for result in told),
            )
            if told
            else same[0]
        )
    return Measured(tuple(results), tries[0].summaries)


def _require_same(target: BenchSide, ours: BenchPiece, other: BenchSide, theirs: BenchPiece) -> None:
    """BenchError unless both did the same work: notes count too where both agree in everything."""
    exact = other.name in references() or family_of(other.name) is None
    same = [(ours.facts, theirs.facts)] + ([(ours.notes, theirs.notes)] if exact else [])
    for mine, others in same:
        for name, count in mine.items():
            if others.get(name) != count:
                raise BenchError(
                    f"{target.name} and {other.name} did different work, so their times cannot be "
                    f"compared: {name} {count} and {others.get(name)}; find out why with blockproof diff"
                )


def mean_ratio(results: Sequence[BenchResult]) -> float:
    """The geometric mean of the ratios of times. ValueError if there are none."""
    ratios = [result.ratio for result in results if result.is_time]
    if not ratios:
        raise ValueError("nothing was measured, so there is no mean")
    return geometric_mean(ratios)


@contextmanager
def opened(target: str, against: Sequence[str]) -> Iterator[Bench]:
    """A bench, closed at the end of the block. Errors as for `Bench`."""
    with ExitStack() as stack:
        yield stack.enter_context(closing(Bench(target, against)))


def measure_all(
    bench: Bench, entries: Sequence[BenchEntry], rounds: int, preparations: int, say: Callable[[str], None]
) -> list[Measured]:
    """All of these workloads, one after the other; `say` is told of each."""
    done = []
    for entry in entries:
        done.append(bench.measure(entry, rounds, preparations))
        said = [f"{one.against} {one.ratio:.2f}" if one.ratios else f"{one.against} -" for one in done[-1].results]
        say(f"{entry.name}: {', '.join(said)}")
    return done
