"""When Python looks for garbage: not while an engine is imported, a million objects none of which becomes any."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """For what makes many objects that stay, as an import and a search do: looking for garbage among them only costs
    time, a tenth of the start of a released engine."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
