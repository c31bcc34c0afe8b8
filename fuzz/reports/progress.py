"""The progress display of a run: a line on a terminal, nothing in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

OnProgress: TypeAlias = Callable[[int, int, float], None]
"""Takes runs, operations and seconds so far."""
_REDRAW_S = 0.1


@contextmanager
def shrinking(seconds: float | None) -> Iterator[Callable[[int, int], None]]:
    """Show how far a search for a smaller trace is while the context lasts, on a terminal only. It takes the traces
    that were tried and the operations of the smallest so far.
    """
    begin = time.monotonic()
    with progress(seconds, None, text="shrinking: {0:,} tries, {1:,} operations left, {3:.0f} s") as show:
        yield lambda tries, left: show(tries, left, time.monotonic() - begin)


@contextmanager
def progress(
    seconds: float | None,
    operations: int | None,
    words: tuple[str, str] = ("runs", "operations"),
    text: str = "",
) -> Iterator[OnProgress]:
    """Show progress towards whichever limit is set while the context lasts; cheap enough to be called once a run.

    `text` is what is shown instead of the usual, with places for runs, operations, rate and seconds.
    """
    if not sys.stderr.isatty():
        yield lambda runs, operations, elapsed: None
        return
    from rich.console import Console  # costs a tenth of a second, which a script need not pay
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as display:
        task = display.add_task("starting", total=1.0)
        drawn = 0.0

        def show(runs: int, done: int, elapsed: float) -> None:
            nonlocal drawn
            if time.monotonic() - drawn < _REDRAW_S:
                return
            drawn = time.monotonic()
            shares = [elapsed / seconds if seconds else 0.0, done / operations if operations else 0.0]
            rate = done / elapsed if elapsed else 0.0
            usual = f"{{0:,}} {words[0]}, {{1:,}} {words[1]}, {{2:,.0f}}/s, {{3:.0f}} s"
            said = (text or usual).format(runs, done, rate, elapsed)
            display.update(task, completed=min(1.0, max(shares)), description=said, refresh=True)

        yield show
