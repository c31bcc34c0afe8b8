"""What drives a target: which kind of run its oracles need."""

from ...model.legal import misuse
from ...model.ops import Operation
from ..findings.oracle_names import LOCKSTEP
from ..targets.base import Target, adapted, lacking
from .judging import USUAL, Judging
from .lockstep import LockstepRun
from .model_free import ModelFreeRun
from .pair import Pair, PairRun
from .run import Run


def open_run(target: Target, judging: Judging = USUAL) -> Run:
    """What drives a target under these oracles: the model leads if lockstep is one of them, else the target does.

    A pair of targets is compared and nothing else.
    """
    if isinstance(target, Pair):
        return PairRun(target)
    return LockstepRun(target, judging) if LOCKSTEP in judging.oracles else ModelFreeRun(target, judging)


def usable(run: Run, operation: Operation) -> Operation | None:
    """The operation as the target of this run can be asked for it (`adapted`); None if nothing sensible is left."""
    wanted = adapted(operation, lacking(run.target))
    if wanted is operation or wanted is None:
        return wanted
    return None if misuse(run.scene, wanted) and not misuse(run.scene, operation) else wanted
