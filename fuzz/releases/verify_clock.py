"""How the time of a verification is shared out: `--seconds` is what it takes in all, the start of the sides counted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Clock:
    """The time that a verification has, and what it was spent on."""

    limit: float | None = None
    """In seconds; None: as long as it takes."""
    begin: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, in the order in which they began."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.begin

    def until(self, share: float) -> float | None:
        """Seconds until so much of the limit is used up, at least 0; None without a limit."""
        return None if self.limit is None else max(0.0, self.limit * share - self.seconds)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what the block takes under this name."""
        since = time.monotonic()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.monotonic() - since

    def text(self) -> str:
        """What it took, and what for; a few words."""
        parts = [f"{name} {seconds:.0f} s" for name, seconds in self.spent.items() if seconds >= 0.5]
        return f"{self.seconds:.0f} s in all" + (f": {', '.join(parts)}" if parts else "")
