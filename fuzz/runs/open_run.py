"""Chooses the kind of run for a target, and draws shapes and operations that the target has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...model.legal import misuse
from ...model.ops import Advance, AllocateBatch, Operation, Shape
from ..findings.finding import Finding, Trace, our_bug
from ..findings.oracle_names import CONTRACT, LOCKSTEP
from ..findings.starved import Starved
from ..kinds.few import UNASKED_OF_POOLS
from ..oracles.liveness import draw_script
from ..targets.base import Target, TargetLostError, TargetUnavailableError, adapted, adapted_shape
from ..targets.declarations import HOLDS_BACK, STARVED, in_shape
from ..workload.draw import Draw
from ..workload.operations import LandingsSaid, Workload
from ..workload.rounds import with_rounds
from ..workload.shapes import EVERY_ATTENTION, draw_shape, with_offered, with_states_uncached
from ..workload.steps import BLOCK_SIZES, with_steps
from ..workload.tuning import USUAL_TUNING, Tuning
from ..workload.turns import About
from .judging import USUAL, Judging, TooLongError
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


REFUSALS = (0, 1, 3)
"""`Tuning.refusals` of a target that offers `Starved`."""
_SPECIAL: Mapping[About, Callable[[Draw, Shape], Shape]] = {"rounds": with_rounds, "steps": with_steps}


def drawn_shape(run: Run, draw: Draw, attention: str, tuning: Tuning = USUAL_TUNING, *, about: About = "") -> Shape:
    """A shape with the groups of this name in `shapes.EVERY_ATTENTION`, as far as the target can have such a core; for
    a run that is `about` something special, such a one."""
    deep = {} if tuning is USUAL_TUNING else {"deep": tuning.deep}
    sizes = run.block_sizes or (BLOCK_SIZES if about == "steps" else ())
    drawn = draw_shape(draw, EVERY_ATTENTION[attention], sizes, **deep)
    drawn = _SPECIAL[about](draw, drawn) if about else with_states_uncached(draw, drawn, run.lacks)
    return with_offered(draw, adapted_shape(tuning.sized(drawn), run.lacks), run.lacks, rounds=about == "rounds")


def drawn_script(run: Run, draw: Draw, attention: str) -> Trace:
    """A script for a shape as from `drawn_shape`."""
    script = draw_script(draw, EVERY_ATTENTION[attention], run.block_sizes, run.losses, run.lacks)
    return replace(script, shape=adapted_shape(script.shape, run.lacks))


def workload_of(run: Run, draw: Draw, shape: Shape, *, chaos: bool = False, tuning: Tuning = USUAL_TUNING) -> Workload:
    """What draws the operations of the run: such as the target has, and its oracles can judge."""
    if STARVED not in in_shape(run.lacks, shape):
        tuning = replace(tuning, refusals=REFUSALS)
    tuned = {} if tuning is USUAL_TUNING else {"tuning": tuning}  # the generator of an earlier commit may know of none
    landings: LandingsSaid = "all" if HOLDS_BACK in run.hidden else "awaited" if landings_awaited(run) else "steps"
    lacks = in_shape(run.lacks, shape)
    if shape.host_blocks:
        lacks |= UNASKED_OF_POOLS
    return Workload(draw, shape, chaos=chaos, landings=landings, lacks=lacks, **tuned)


def landings_awaited(run: Run) -> bool:
    """True if the scheduler of this run has to wait until steps and loads have landed (S13): somebody judges it, and
    the core does not wait itself."""
    return CONTRACT in run.oracles and HOLDS_BACK not in run.hidden and "Landed" not in run.lacks_here


def usable(run: Run, operation: Operation) -> Operation | None:
    """The operation as far as the target supports it (`adapted`); None if it does not, or if only misuse is left.

    What is left out is counted (`Run.impossible`).
    """
    wanted = None if _is_late_news(run, operation) else adapted(operation, run.lacks_here)
    if wanted is operation:
        return wanted
    if wanted is None or (misuse(run.scene, wanted) and not misuse(run.scene, operation)):
        run.impossible[type(operation).__name__] += 1
        return None
    return wanted


def asked(run: Run, operation: Operation) -> Sequence[Operation]:
    """What the target is asked for in place of an operation of a trace, before `usable`: the requests of a batch one by
    one where it has no such call, or where the contract judges each of them; and for room as ever where nothing can be
    refused."""
    if isinstance(operation, Starved) and STARVED in run.lacks:
        return (operation.allocation,)
    if isinstance(operation, AllocateBatch) and "AllocateBatch" in run.lacks:
        return operation.allocations
    return (operation,)


def _is_late_news(run: Run, operation: Operation) -> bool:
    """True for tokens that no running step has sampled, where all news of a step comes with it: no `Reject`."""
    if "Reject" not in run.lacks_here or not isinstance(operation, Advance):
        return False
    request = run.scene.requests.get(operation.request)
    return request is not None and not request.scheduled


PASSED_ON = (TargetLostError, TargetUnavailableError, TooLongError)
"""Exceptions that say something of the target, or that the time is over."""


def guarded(
    run: Run, work: Callable[[], tuple[Finding, Trace] | None], script: Trace | None = None
) -> tuple[Finding, Trace] | None:
    """What the work has found in the run. An exception of the generator or of an oracle that schedules is a finding,
    too (`our_bug`), with the operations so far, or the script that was being scheduled.

    What fails inside a step is caught by the run itself.
    """
    try:
        return work()
    except PASSED_ON:
        raise
    except Exception as error:
        if script is not None:
            return our_bug(error, None, -1), script
        last = run.operations[-1] if run.operations else None
        return our_bug(error, last, len(run.operations) - 1), run.trace
