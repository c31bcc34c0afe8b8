"""The connectors that an engine of `SchedulerRun` can have, by name."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

from .scheduler_connector import connector_for

Factory: TypeAlias = Callable[[Any], Any]
"""Makes the scheduler's half of a connector for a `SchedulerRun` whose scheduler is built, and may build it again.

What it returns has the release's interface of connectors, and `arrived`, true while a load or a save is under way. If
it has `take_arrived`, that gives the requests whose load has ended since the last call; one without it reports to the
scheduler by itself. NotImplementedError if the release, or an engine of this shape, cannot have this connector."""
MINIMAL = "minimal"
_REAL = f"{__package__}.scheduler_real_connectors"
"""A module whose `REAL` has further factories by name; it need not be there."""


def _minimal(run: Any) -> Any:
    return connector_for(run.jobs, run.device.load, run.cache_config)


@cache
def connectors() -> Mapping[str, Factory]:
    """All factories by name."""
    real: Mapping[str, Factory] = import_module(_REAL).REAL if find_spec(_REAL) else {}
    return {MINIMAL: _minimal, **real}
