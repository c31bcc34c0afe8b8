"""What judges a run: the one record that engines, replay and the reducer hand down to it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...model.ops import Shape
from ..findings.oracle_names import ORACLES
from ..oracles.shadow import ListMemory, Memory


@dataclass(frozen=True)
class Judging:
    """The oracles of a run, and what they need to know."""

    oracles: Collection[str] = ORACLES
    """Names in `oracle_names`."""
    without: Collection[str] = ()
    """Lockstep: ids of known deviations that count as findings all the same. With `ID.corruption`, so does what the
    deviation corrupts."""
    new_memory: Callable[[Shape], Memory] = ListMemory
    """What makes the shadow memory of a run."""


USUAL = Judging()
"""What judges a target of which there is an exact model, unless told otherwise."""
