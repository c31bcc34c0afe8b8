"""What drives a target: which kind of run its oracles need."""

from collections.abc import Callable, Collection

from ...model.legal import misuse
from ...model.ops import Operation, Shape
from ..findings.oracle_names import LOCKSTEP, ORACLES
from ..oracles.shadow import ListMemory, Memory
from ..targets.base import Target, adapted, lacking
from .lockstep import LockstepRun
from .model_free import ModelFreeRun
from .pair import Pair, PairRun
from .run import Run


def open_run(
    target: Target,
    without: Collection[str] = (),
    oracles: Collection[str] = ORACLES,
    new_memory: Callable[[Shape], Memory] = ListMemory,
) -> Run:
    """What drives a target under these oracles: the model leads if lockstep is one of them, else the target does.

    A pair of targets is compared and nothing else.
    """
    if isinstance(target, Pair):
        return PairRun(target)
    if LOCKSTEP in oracles:
        return LockstepRun(target, without, oracles, new_memory)
    return ModelFreeRun(target, oracles, new_memory)


def usable(run: Run, operation: Operation) -> Operation | None:
    """The operation as the target of this run can be asked for it (`adapted`); None if nothing sensible is left."""
    wanted = adapted(operation, lacking(run.target))
    if wanted is operation or wanted is None:
        return wanted
    return None if misuse(run.scene, wanted) and not misuse(run.scene, operation) else wanted
