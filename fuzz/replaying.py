"""A trace, applied once more."""

from collections.abc import Callable, Collection

from ..model.legal import allows, misuse
from ..model.ops import Operation, Shape
from .beside import Beside, Pair
from .finding import Finding, Trace
from .led import Led
from .liveness import is_script, judge
from .lockstep import Lockstep
from .oracles import LIVENESS, LOCKSTEP, ORACLES
from .run import Run
from .shadow import ListMemory, Memory
from .targets.base import Target, adapted, adapted_shape, lacking


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
        return Beside(target)
    if LOCKSTEP in oracles:
        return Lockstep(target, without, oracles, new_memory)
    return Led(target, oracles, new_memory)


def replay(
    trace: Trace,
    target: Target,
    without: Collection[str] = (),
    oracles: Collection[str] = ORACLES,
    new_memory: Callable[[Shape], Memory] = ListMemory,
) -> tuple[Finding | None, Trace]:
    """Run a trace again. Left out are operations whose precondition does not hold (`legal.allows`), and what the target
    has no equivalent of. A script of requests is scheduled anew if liveness is one of the oracles.

    Returns the finding, if any, and the trace actually applied, ending with the operation that showed the finding.
    """
    run = open_run(target, without, oracles, new_memory)
    shape = adapted_shape(trace.shape, lacking(target))
    if LIVENESS in oracles and is_script(trace):
        script = Trace(shape, trace.operations)
        return judge(run, script) or (None, script)
    finding = run.start(shape)
    if finding is None and run.built:
        finding = _apply(run, trace.operations)
    return finding, run.trace


def _apply(run: Run, operations: tuple[Operation, ...]) -> Finding | None:
    for operation in operations:
        if run.dead:
            break
        wanted = usable(run, operation)
        if wanted is not None and allows(run.scene, wanted):
            finding = run.step(wanted)
            if finding is not None:
                return finding
    return None


def usable(run: Run, operation: Operation) -> Operation | None:
    """The operation as the target of this run can be asked for it (`adapted`); None if nothing sensible is left."""
    wanted = adapted(operation, lacking(run.target))
    if wanted is operation or wanted is None:
        return wanted
    return None if misuse(run.scene, wanted) and not misuse(run.scene, operation) else wanted
