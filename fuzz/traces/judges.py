"""Which oracles judge a trace when it is replayed: those that the caller names, else those that the file names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..findings.oracle_names import CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, MODEL_FREE
from ..opening.oracles import memory_named
from ..runs.judging import Judging
from .steps import why_unbuilt
from .trace_file import TraceFile


@dataclass(frozen=True)
class Judges:
    """The oracles of a replay, and where their names come from."""

    oracles: tuple[str, ...]
    origin: str
    """In words, for a person."""
    tensors: str | None = None
    """Where the shadow memory keeps its tags."""

    def judging(self, seconds: float | None = None) -> Judging:
        """What judges, for so long at most. Errors as from `memory_named`."""
        return Judging(self.oracles, new_memory=memory_named(self.tensors), seconds=seconds)

    def __str__(self) -> str:
        return f"judged by {', '.join(self.oracles)} ({self.origin})"


def judges_for(
    file: TraceFile,
    suited: Callable[[], Sequence[str]],
    given: Sequence[str] = (),
    tensors: str | None = None,
) -> Judges:
    """Who judges a trace: `given` and `tensors` if they are said, else what the file says, else what suits the target.

    A file of old does not say. Its finding tells whether it was judged without a model; so does a shape of which the
    model has no core.
    """
    tensors = tensors or file.tensors
    if given:
        return Judges(tuple(given), "as asked for", tensors)
    if file.oracles:
        return Judges(file.oracles, "as the trace says", tensors)
    best = tuple(suited())
    if LOCKSTEP in best and (origin := _needs_no_model(file)):
        return Judges(MODEL_FREE, origin, tensors)
    return Judges(best, "which suit the target; the trace does not say", tensors)


def _needs_no_model(file: TraceFile) -> str:
    """Why a trace that does not say so was not judged in lockstep; empty if it may have been."""
    found = file.finding
    head = "" if found is None else found.text.partition(":")[0]
    if head in (CONTRACT, LIVENESS):
        return f"the trace was written for a finding of {head}"
    if (found is None or found.operation != "start") and (why := why_unbuilt(file.target, file.trace.shape)):
        return f"the model has no core of this shape: {why}"
    return ""


def was_difference(file: TraceFile) -> bool:
    """True if the trace was written for a difference between two targets."""
    found = file.finding
    return found is not None and (found.identity[:1] == (DIFFERENCE,) or found.text.startswith(f"{DIFFERENCE}:"))
