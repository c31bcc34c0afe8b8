"""How a run went on: what it had done at which time, cheap enough to be kept of every run, and bounded.

The same for a run that lasts seconds and one that lasts days: a few hundred samples, and of each situation when it
first came up.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

MOST_SAMPLES = 400
"""Kept at a time; half of them are given up where there are more."""
TOLD = 200
"""Samples that a report tells."""


class Sample(NamedTuple):
    """What was done until some time; all but the time are counts since the start."""

    seconds: float
    operations: float
    lookups: float
    """Lookups in a cache, and the hits among them."""
    hits: float


NOTHING = Sample(0.0, 0, 0, 0)
_SECONDS = attrgetter("seconds")


@dataclass
class History:
    """Samples in the order of time, and when each situation first came up."""

    samples: list[Sample] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    """By situation, seconds."""
    gap: float = 0.0
    """Seconds between two samples at least."""

    def see(self, now: Sample) -> None:
        """Keep the sample if the one before it is long enough ago."""
        samples = self.samples
        if samples and now.seconds - samples[-1].seconds < self.gap:
            return
        samples.append(now)
        if len(samples) >= MOST_SAMPLES:
            self.gap = 2 * now.seconds / MOST_SAMPLES
            self.samples = _apart(samples, self.gap)

    def reach(self, counts: Mapping[str, int], seconds: float) -> None:
        """So often each situation came up in what has just ended."""
        first = self.first
        for name, times in counts.items():
            if times and name not in first:
                first[name] = seconds

    def join(self, ours: Sample, other: "History", theirs: Sample, shift: float = 0.0) -> None:
        """Add what another process did from `shift` seconds on; `ours` and `theirs` are what both have come to. Between
        two samples a process is taken to go on evenly."""
        mine, added = self._until(ours), [_moved(one, shift) for one in other._until(theirs)]
        times = sorted({*map(_SECONDS, mine), *map(_SECONDS, added)})
        self.samples = _few([_sum(_at(mine, time), _at(added, time)) for time in times], MOST_SAMPLES - 1)
        self.gap = max(self.gap, other.gap)
        for name, seconds in other.first.items():
            self.first[name] = min(seconds + shift, self.first.get(name, seconds + shift))

    def as_json(self, now: Sample, findings: Sequence[float], most: int = TOLD) -> dict[str, object]:
        """JSON-ready, times to the millisecond, with at most so many samples; `now` is what it has come to,
        `findings` when each came up first."""
        samples = _few(list({round(one.seconds, 3): one for one in self._until(now)}.values()), most)
        return {
            "seconds": [round(one.seconds, 3) for one in samples],
            "operations": [round(one.operations) for one in samples],
            "lookups": [round(one.lookups) for one in samples],
            "hits": [round(one.hits) for one in samples],
            "situations": {name: round(seconds, 3) for name, seconds in sorted(self.first.items(), key=lambda p: p[1])},
            "findings": [round(seconds, 3) for seconds in sorted(findings)],
        }

    def _until(self, now: Sample) -> list[Sample]:
        """From nothing to now."""
        before = [one for one in self.samples if 0 < one.seconds < now.seconds]
        return [NOTHING, *before, now] if now.seconds > 0 else [NOTHING]


def _apart(samples: Sequence[Sample], gap: float) -> list[Sample]:
    kept = [samples[0]]
    for one in samples:
        if one.seconds - kept[-1].seconds >= gap:
            kept.append(one)
    return kept


def _few(samples: list[Sample], most: int) -> list[Sample]:
    """So many of them at most, the first and the last among them."""
    last = len(samples) - 1
    return samples if last < most else [samples[place * last // (most - 1)] for place in range(most)]


def _moved(sample: Sample, seconds: float) -> Sample:
    return sample._replace(seconds=sample.seconds + seconds)


def _at(samples: Sequence[Sample], seconds: float) -> Sample:
    """What was done at this time."""
    place = bisect_right(samples, seconds, key=_SECONDS)
    if place in (0, len(samples)):
        return (samples[-1] if place else NOTHING)._replace(seconds=seconds)
    before, after = samples[place - 1], samples[place]
    share = (seconds - before.seconds) / (after.seconds - before.seconds)
    return Sample(seconds, *(one + share * (two - one) for one, two in zip(before[1:], after[1:], strict=True)))


def _sum(one: Sample, two: Sample) -> Sample:
    return Sample(one.seconds, one.operations + two.operations, one.lookups + two.lookups, one.hits + two.hits)
