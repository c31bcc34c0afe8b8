"""Replaying a trace: applying it to a target again."""

from itertools import chain

from ...model.legal import allows
from ...model.ops import Operation
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import LIVENESS
from ..oracles.liveness import is_script, judge
from ..runs.judging import USUAL, Judging, TooLongError
from ..runs.open_run import asked, open_run, usable
from ..runs.run import Run
from ..targets.base import Target, adapted_shape, lacking
from .files import TraceError


def replay(trace: Trace, target: Target, judging: Judging = USUAL) -> tuple[Finding | None, Trace]:
    """Run a trace again. Left out are operations whose precondition does not hold (`legal.allows`), and what the target
    has no equivalent of. A script of requests is scheduled anew if liveness is one of the oracles.

    Returns the finding, if any, and the trace actually applied, ending with the operation that showed the finding.
    """
    return replay_in(open_run(target, judging), trace)


def replay_in(run: Run, trace: Trace) -> tuple[Finding | None, Trace]:
    """The same in a run that is open. TraceError if it takes longer than its judging allows."""
    try:
        return _replayed(run, trace)
    except TooLongError:
        problem = f"given up after {run.judging.seconds:.0f} s of processor time; allow more with --seconds"
        raise TraceError("", f"operations[{len(run.operations)}]", problem) from None


def _replayed(run: Run, trace: Trace) -> tuple[Finding | None, Trace]:
    shape = adapted_shape(trace.shape, lacking(run.target))
    if LIVENESS in run.oracles and is_script(trace):
        script = Trace(shape, trace.operations)
        return judge(run, script) or (None, script)
    finding = run.start(shape)
    if finding is None and run.built:
        finding = _apply(run, trace.operations)
    return finding, run.trace


def _apply(run: Run, operations: tuple[Operation, ...]) -> Finding | None:
    for operation in chain.from_iterable(asked(run, one) for one in operations):
        if run.dead:
            break
        wanted = usable(run, operation)
        if wanted is not None and allows(run.scene, wanted):
            finding = run.step(wanted)
            if finding is not None:
                return finding
    return None
