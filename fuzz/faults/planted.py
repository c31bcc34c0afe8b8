"""Every planted fault of our core, whichever oracle it is meant for: who checks the checkers?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..adapters.impl import open_changed_impl
from ..findings.oracle_names import CONTRACT, LIVENESS, ORACLES
from ..targets.base import Target
from .contract import CONTRACT_FAULTS
from .core import FAULTS
from .liveness import LIVENESS_FAULTS


@dataclass(frozen=True)
class Planted:
    """One mistake, and who must find it."""

    name: str
    describe: str
    plant: Callable[[Any], None]
    """Changes a newly built manager of our core."""
    observables: tuple[str, ...]
    """Where it may show first: which of them depends on the run."""
    oracles: tuple[str, ...]
    """What it is meant for."""


@cache
def planted_faults() -> Mapping[str, Planted]:
    """All of them by name. Those of lockstep that the contract uses too stand for both."""
    lockstep = [Planted(one.name, one.describe, one.plant, one.observables, ORACLES) for one in FAULTS.values()]
    contract = [
        Planted(one.name, one.describe, one.plant, (one.property,), (CONTRACT,))
        for one in CONTRACT_FAULTS.values()
        if one.name not in FAULTS
    ]
    liveness = [
        Planted(one.name, one.describe, one.plant, one.observables, (LIVENESS,)) for one in LIVENESS_FAULTS.values()
    ]
    return {one.name: one for one in (*lockstep, *contract, *liveness)}


def open_planted(name: str) -> Target:
    """Our core with this fault. KeyError for an unknown name."""
    return open_changed_impl(f"fault:{name}", planted_faults()[name].plant)
