"""The time that a verification has, which stage has how much of it, and what it was spent on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPARED, JUDGED = 0.5, 0.25
"""Shares of a limit in operations: of the comparison, and of the oracles on each side."""
RUNS = 0.35
"""Share of a limit in seconds for the runs of the comparison."""
UNTIL = {
    "comparing": 0.45,
    "judging new": 0.65,
    "judging old": 0.78,
    "placing": 0.86,
    "timing": 0.92,
    "proving": 1.0,
}
"""How much of a limit in seconds is used up when a stage ends, what it has found shrunk. What is left, others get."""
RUN = 0.6
"""Share of the time for judging a side that is for its runs; the rest is for what they find."""
ALONE = 0.6
"""Share of the time for one finding that is for its smallest trace; the rest is for one without mistakes of the other
side."""
GRACE = 5.0
"""Seconds that a stage has even if the time was over before it began, as where the start has taken all of it."""


def latest(stage: str) -> float:
    """How much of the limit may be used up when no side is asked any more for this stage: it may go on into the time of
    the next one, not further."""
    stages = list(UNTIL)
    return UNTIL[stages[min(stages.index(stage) + 1, len(stages) - 1)]]


@dataclass
class Clock:
    """The time that a verification has, and what it was spent on."""

    limit: float | None = None
    """In seconds; None: as long as it takes."""
    begin: float = field(default_factory=time.monotonic)
    started: float = 0.0
    """When both sides had started, in seconds since the start."""
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, in the order in which they began."""
    ends: float | None = None
    """When the stage that runs is over, in seconds since the start; None: never."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.begin

    def until(self, share: float) -> float | None:
        """Seconds until so much of what the start has left is used up, at least 0; None without a limit."""
        if self.limit is None:
            return None
        return max(0.0, self.started + max(0.0, self.limit - self.started) * share - self.seconds)

    def is_over(self) -> bool:
        """True once no side is to be asked any more for the stage that runs."""
        return self.ends is not None and self.seconds > self.ends

    def last_call(self) -> None:
        """Give the stage that runs a little more, for what it has to say of what it has found."""
        if self.ends is not None:
            self.ends = max(self.ends, self.seconds + GRACE)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what the block takes under the first word of its name, and end it in time."""
        since, left = time.monotonic(), self.until(latest(name))
        self.ends = None if left is None else self.seconds + max(left, GRACE)
        try:
            yield
        finally:
            self.ends, short = None, name.partition(" ")[0]
            self.spent[short] = self.spent.get(short, 0.0) + time.monotonic() - since

    def text(self) -> str:
        """What it took, and what for; a few words."""
        parts = [f"{name} {seconds:.0f} s" for name, seconds in self.spent.items() if seconds >= 0.5]
        return f"{self.seconds:.0f} s in all" + (f": {', '.join(parts)}" if parts else "")
