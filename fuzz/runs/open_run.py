"""Chooses the kind of run for a target, and adapts operations to the target."""

from ...model.legal import misuse
from ...model.ops import Operation
from ..findings.oracle_names import LOCKSTEP
from ..targets.base import Target, adapted
from .judging import USUAL, Judging
from .lockstep import LockstepRun
from .model_free import ModelFreeRun
from .pair import Pair, PairRun
from .run import Run


def open_run(target: Target, judging: Judging = USUAL) -> Run:
    """A lockstep run if lockstep is among the oracles, else a model-free run.

    A pair of targets gets a pair run: they are compared, and no oracle judges them.
    """
    if isinstance(target, Pair):
        return PairRun(target)
    return LockstepRun(target, judging) if LOCKSTEP in judging.oracles else ModelFreeRun(target, judging)


def usable(run: Run, operation: Operation) -> Operation | None:
    """The operation as far as the target supports it (`adapted`); None if it does not, or if only misuse is left.

    What is left out is counted (`Run.impossible`).
    """
    wanted = adapted(operation, run.lacks)
    if wanted is operation:
        return wanted
    if wanted is None or (misuse(run.scene, wanted) and not misuse(run.scene, operation)):
        run.impossible[type(operation).__name__] += 1
        return None
    return wanted
