"""How far a run has come: a line on a terminal, nothing in a log; and how often somebody else is told (`Pace`)."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ..findings.visible import visible
from ..findings.words import plural
from .screen import guarded, unguarded

if TYPE_CHECKING:
    from rich.progress import Progress

OnProgress: TypeAlias = Callable[[int, int, float], None]
"""Takes runs, operations and seconds so far."""
OnStep: TypeAlias = Callable[[int, str], None]
"""Takes how much is done, and what is done now."""
_REDRAW_S = 0.1


@contextmanager
def progress(
    seconds: float | None, operations: int | None, words: tuple[str, str] = ("run", "operation"), title: str = ""
) -> Iterator[OnProgress]:
    """Show progress towards whichever limit is set while the context lasts; cheap enough to be called once a run."""
    if not sys.stderr.isatty():
        yield lambda runs, operations, elapsed: None
        return
    begin = f"{title}: " if title else ""
    with _display(ticks=False) as display:
        task = display.add_task("starting", total=1.0)
        drawn = 0.0

        def show(runs: int, done: int, elapsed: float) -> None:
            nonlocal drawn
            if time.monotonic() - drawn < _REDRAW_S:
                return
            drawn = time.monotonic()
            shares = [elapsed / seconds if seconds else 0.0, done / operations if operations else 0.0]
            rate = done / elapsed if elapsed else 0.0
            text = f"{begin}{plural(runs, words[0])}, {plural(done, words[1])}, {rate:,.0f}/s, {elapsed:.0f} s"
            display.update(task, completed=min(1.0, max(shares)), description=text, refresh=True)

        yield show


@contextmanager
def shrinking(seconds: float | None) -> Iterator[Callable[[int, int], None]]:
    """Show how far a search for a smaller trace is while the context lasts, on a terminal only. It takes the traces
    that were tried and the operations of the smallest so far.
    """
    if not sys.stderr.isatty():
        yield lambda tries, left: None
        return
    begin, drawn = time.monotonic(), 0.0
    with _display(ticks=True) as display:
        task = display.add_task("shrinking", total=seconds)

        def show(tries: int, left: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn >= _REDRAW_S:
                drawn = now
                text = f"shrinking: {plural(tries, 'try', 'tries')}, {plural(left, 'operation')} left"
                display.update(task, completed=now - begin, description=text, refresh=True)

        yield show


@contextmanager
def steps(total: int, noun: str) -> Iterator[OnStep]:
    """Show how many of so many things are done, what is done now, and the time, while the context lasts."""
    if not sys.stderr.isatty():
        yield lambda done, now: None
        return
    with _display(ticks=True) as display:
        task = display.add_task(f"0 of {plural(total, noun)}", total=total)

        def show(done: int, now: str) -> None:
            text = f"{done:,} of {plural(total, noun)}{now and ': '}{now}"
            display.update(task, completed=done, description=visible(text))

        yield show


@contextmanager
def _display(*, ticks: bool) -> "Iterator[Progress]":
    """A line on stderr with a bar; with `ticks` it draws itself, and shows the time."""
    from rich.console import Console  # costs a tenth of a second, which a script need not pay
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *((TimeElapsedColumn(),) if ticks else ()))
    line = Progress(
        *columns,
        console=Console(file=unguarded(sys.stderr)),
        transient=True,
        auto_refresh=ticks,
        refresh_per_second=4,
        redirect_stdout=sys.stdout.isatty(),  # what is printed goes above the line; but not if it goes to a file
    )
    with line as display, guarded():  # rich has put streams of its own before those that were guarded
        yield display


EVERY_S = 1.0
SHARE = 0.01
"""Of the time of a run, at most so much goes into telling of it."""


class Pace:
    """At most once in so many seconds, and the less often the longer it takes to tell."""

    def __init__(self, every: float = EVERY_S) -> None:
        self.every = every
        """Seconds that passed between the last two times at least."""
        self._least = every
        self._next = 0.0

    @property
    def due(self) -> bool:
        """True if it is time to tell again."""
        return time.monotonic() >= self._next

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is told in the block decides when the next time is."""
        begin = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self.every = max(self._least, (end - begin) / SHARE)
            self._next = end + self.every
