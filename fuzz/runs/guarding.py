"""What becomes of an exception of our own around a run: a finding that says so, so that nothing found is lost."""

from collections.abc import Callable

from ..findings.finding import Finding, Trace, our_bug
from ..targets.base import TargetLostError, TargetUnavailableError
from .judging import TooLongError
from .run import Run

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
