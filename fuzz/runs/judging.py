"""`Judging`: the record that says which oracles judge a run. Engines, replay and shrinking pass it to the run."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...model.ops import Shape
from ..findings.oracle_names import ORACLES
from ..oracles.shadow import ListMemory, Memory


@dataclass(frozen=True)
class Judging:
    """The oracles of a run, and their options."""

    oracles: Collection[str] = ORACLES
    """Names from `findings.oracle_names`."""
    without: Collection[str] = ()
    """For lockstep: ids of known deviations that are findings all the same. `ID.corruption` makes the corruption that a
    known deviation causes a finding, too."""
    new_memory: Callable[[Shape], Memory] = ListMemory
    """Makes the memory in which the shadow memory of a run stores its tags."""
    notes: bool = False
    """Without a model: violations of `oracle_names.PASSABLE` are noted (`Run.noted`), and the run goes on."""
    full_look_every: int = 1
    """In lockstep without deviations: after every so many operations the whole state is compared, in between what an
    operation can have changed (`targets.glance`). A target that has no glance is looked at fully."""
    looks_between: bool = True
    """In lockstep without other oracles that look at the target: whether anything but the outcome is compared between
    two full looks. False is for large pools, where looking takes most of the time; a target that has no `answer` is
    looked at all the same."""
    seconds: float | None = None
    """Processor time of this process from a start on, after which the next step raises `TooLongError`."""


class TooLongError(Exception):
    """A run has taken the time that it was given, or the time of its target is over."""


USUAL = Judging()
"""The default for a target that the model describes exactly."""
