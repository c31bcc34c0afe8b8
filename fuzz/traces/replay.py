"""Replaying a trace: applying it to a target again."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TypeAlias

from ...model.legal import allows
from ...model.ops import Operation
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import LIVENESS
from ..oracles.liveness import is_script, judge
from ..runs.judging import USUAL, Judging, TooLongError
from ..runs.open_run import asked, guarded, open_run, usable
from ..runs.run import Run
from ..targets.base import Target, adapted_shape, lacking
from ..workload.scene import Scene
from .files import TraceError

May: TypeAlias = Callable[[Scene, Operation], bool]
"""Says whether an operation may be applied in a state."""


class NotDrawnError(Exception):
    """An operation of the trace may not be applied."""


def replay(
    trace: Trace, target: Target, judging: Judging = USUAL, may: May | None = None
) -> tuple[Finding | None, Trace]:
    """Run a trace again. Left out are operations whose precondition does not hold (`legal.allows`), and what the target
    has no equivalent of. A script of requests is scheduled anew if liveness is one of the oracles.

    `may` is asked about each operation of a trace that is no script; NotDrawnError at the first that it does not allow.
    Returns the finding, if any, and the trace actually applied, ending with the operation that showed the finding.
    """
    return replay_in(open_run(target, judging), trace, may)


def replay_in(run: Run, trace: Trace, may: May | None = None) -> tuple[Finding | None, Trace]:
    """The same in a run that is open. TraceError if it takes longer than its judging allows; TooLongError if the time
    of the target is over, whatever the judging."""
    try:
        return _replayed(run, trace, may)
    except TooLongError:
        if run.judging.seconds is None:
            raise
        problem = f"given up after {run.judging.seconds:.0f} s of processor time; allow more with --seconds"
        raise TraceError("", f"operations[{len(run.operations)}]", problem) from None


def _replayed(run: Run, trace: Trace, may: May | None) -> tuple[Finding | None, Trace]:
    shape = adapted_shape(trace.shape, lacking(run.target))
    if LIVENESS in run.oracles and is_script(trace):
        script = Trace(shape, trace.operations)
        return guarded(run, partial(judge, run, script), script) or (None, script)
    finding = run.start(shape)
    if finding is None and run.built:
        finding = _apply(run, trace.operations, may)
    return finding, run.trace


def _apply(run: Run, operations: tuple[Operation, ...], may: May | None) -> Finding | None:
    for operation in chain.from_iterable(asked(run, one) for one in operations):
        if run.dead:
            break
        wanted = usable(run, operation)
        if wanted is not None and allows(run.scene, wanted):
            if may is not None and not may(run.scene, wanted):
                raise NotDrawnError
            finding = run.step(wanted)
            if finding is not None:
                return finding
    return None
