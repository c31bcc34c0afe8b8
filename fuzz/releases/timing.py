"""How much faster or slower one target is than another on the same operations.

Both run at the same time in processes of their own and take turns, so that what else happens on the machine meets both.
Measured is processor time of the calls of the target: the core, its adapter and the snapshots. Pipes are not in it.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..findings.finding import Trace
from ..opening.child import ChildTarget
from ..opening.names import Program, parsed_or_none
from ..opening.process import ChildLimits
from ..opening.targets import Home
from ..targets.base import TargetLostError, TargetUnavailableError

ROUNDS = 9
FEWEST = 3
"""Rounds that are timed even if they take longer than they should."""
LIMITS = ChildLimits(operation_s=3600.0, growth_bytes=1 << 40)
"""Of a process that is timed, for all traces together."""


@dataclass(frozen=True)
class Timing:
    """Processor seconds of each round: of the old target, and of the new one."""

    rounds: tuple[tuple[float, float], ...]
    operations: int
    """Of each round."""

    @property
    def ratios(self) -> list[float]:
        """Time of the new target for each round, where the old one takes 1; the smallest first."""
        return sorted(new / old for old, new in self.rounds)

    def text(self) -> str:
        """The ratio, its spread, and what they show; a sentence."""
        ratios = self.ratios
        middle, low, high = median(ratios), ratios[0], ratios[-1]
        if low > 1:
            judged = "slower in every round"
        elif high < 1:
            judged = "faster in every round"
        else:
            judged = "no difference beyond the spread"
        each = f"{len(ratios)} rounds of {self.operations:,} operations"
        return f"the new one takes {middle:.2f} times as long ({low:.2f} to {high:.2f} in {each}): {judged}"

    def as_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        ratios = self.ratios
        return {
            "ratio": round(median(ratios), 4),
            "lowest": round(ratios[0], 4),
            "highest": round(ratios[-1], 4),
            "operations": self.operations,
            "rounds": [[round(seconds, 6) for seconds in pair] for pair in self.rounds],
            "text": self.text(),
        }


def compare_speed(
    old: Home, new: Home, traces: Sequence[Trace], rounds: int = ROUNDS, seconds: float | None = None
) -> Timing | str:
    """Time both on these traces, in turns; a line that says why if that does not work.

    One round more is run at first, which does not count. The one that begins changes from round to round. After so many
    seconds it ends with fewer rounds, `FEWEST` at least.
    """
    end = None if seconds is None else time.monotonic() + seconds
    operations = sum(len(trace.operations) for trace in traces)
    if any(isinstance(parsed_or_none(home.spec), Program) for home in (old, new)):
        return "not timed: a program does its work in a process that is not measured"
    if not operations:
        return "not timed: they differ at once"
    measured = []
    try:
        with ExitStack() as stack:
            sides = [stack.enter_context(closing(ChildTarget(home.spec, *home, LIMITS))) for home in (old, new)]
            for number in range(rounds + 1):
                if number > FEWEST and end is not None and time.monotonic() > end:
                    break
                order = (0, 1) if number % 2 else (1, 0)
                took = {side: sides[side].seconds_for(traces) for side in order}
                measured.append((took[0], took[1]))
    except (TargetLostError, TargetUnavailableError):
        return "not timed: a process with one of them has ended"
    kept = tuple(pair for pair in measured[1:] if min(pair) > 0)
    return Timing(kept, operations) if kept else "not timed: it takes no time that can be measured"
