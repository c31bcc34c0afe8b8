"""What came of replaying a trace, for a person and for machines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...model.ops import Failed
from ..findings.finding import Finding, Trace
from ..findings.ops_json import to_json
from ..findings.oracle_names import LIVENESS, LOCKSTEP
from ..findings.words import outcome_text, plural, shape_text
from ..oracles.liveness import is_script
from ..targets.base import Target
from .judges import Judges, was_difference
from .replay import replay
from .steps import Recording, TraceStep, model_steps, step_lines, why_unbuilt
from .trace_file import TraceFile


@dataclass(frozen=True)
class Replayed:
    """A trace that was applied to a target, and what it showed."""

    wanted: Trace
    """The trace as it was given."""
    applied: Trace
    """The operations of it that made sense where they stood, up to the one that showed the finding."""
    target: str
    """What the target calls itself."""
    finding: Finding | None
    judges: Judges | None = None
    """What judged, if that is to be said."""
    seen: Sequence[TraceStep] | None = None
    """What was asked of the target, and what it changed there; None if that was not kept."""
    notes: tuple[str, ...] = ()
    """What a person should know besides, a line each."""
    built: bool = True
    """False if the target had no core of this shape, so that nothing was judged."""

    @property
    def left_out(self) -> int:
        """Operations that made no sense where they stood; not counted if a finding ended the trace early."""
        return len(self.wanted.operations) - len(self.applied.operations) if self.finding is None else 0

    def lines(self, show: bool, verbose: bool = False) -> list[str]:
        """What it showed, for a person; with `show` first every step and what it changes; `verbose` as for
        `Finding.text`."""
        lines = []
        if show:
            whose, steps = self._steps()
            lines.append(shape_text(self.applied.shape))
            lines += [line for step in steps for line in step_lines(step)]
            lines += [whose] if whose else []
            lines.append("")
        if self.left_out:
            lines.append(f"operations left out, since they make no sense where they stand: {self.left_out}")
        lines += self.notes
        agreed = f"no difference in {plural(len(self.applied.operations), 'operation')} on {self.target}"
        lines.append(self.finding.text(verbose=verbose) if self.finding else agreed if self.built else "nothing judged")
        return [*lines, *([str(self.judges)] if self.judges else [])]

    def as_json(self, show: bool) -> dict[str, Any]:
        """The same as JSON-ready data."""
        count = len(self.applied.operations)
        document: dict[str, Any] = {"target": self.target, "operations": count, "left_out": self.left_out}
        document["finding"] = self.finding and self.finding.as_json()
        document |= {"oracles": list(self.judges.oracles)} if self.judges else {}
        document |= {"notes": list(self.notes)} if self.notes else {}
        if show:
            document["steps"] = [
                {
                    "operation": to_json(step.operation),
                    "outcome": to_json(step.outcome),
                    "changes": step.changes,
                }
                for step in self._steps()[1]
            ]
        return document

    def _steps(self) -> tuple[str, Sequence[TraceStep]]:
        """A line that says whose states the steps show, empty for the model's; and the steps."""
        exact = self.judges is None or LOCKSTEP in self.judges.oracles
        unbuilt = why_unbuilt(self.target, self.applied.shape)
        if self.seen is not None and (unbuilt or not exact):
            return "(changes of the state that the target shows)", self.seen
        if unbuilt:
            return f"(no steps: the model has no core of this shape, it {unbuilt})", ()
        return "", list(model_steps(self.applied, self.target))


def replayed(
    file: TraceFile,
    target: Target,
    judges: Judges,
    until: int | None = None,
    *,
    keep: bool = True,
    seconds: float | None = None,
) -> Replayed:
    """Replay the first `until` operations of a file on an opened target, and keep the steps unless told otherwise.

    TraceError if it takes more `seconds` of processor time. Errors as from `replay` and `memory_named`.
    """
    wanted = replace(file.trace, operations=file.trace.operations[:until])
    recording = Recording(target, keep)
    finding, applied = replay(wanted, recording, judges.judging(seconds))
    # In lockstep a target that builds no core agrees with a model that has none.
    built = finding is not None or LOCKSTEP in judges.oracles or not isinstance(recording.construction, Failed)
    notes = tuple(_notes(file, recording, judges, wanted))
    seen = recording.steps(applied.operations) if keep else None
    return Replayed(wanted, applied, target.name, finding, judges, seen, notes, built)


def _notes(file: TraceFile, recording: Recording, judges: Judges, wanted: Trace) -> list[str]:
    notes = []
    if was_difference(file):
        notes.append("the trace shows how two targets differ; replay runs one of them, `blockproof diff` compares two")
    if LIVENESS in judges.oracles and is_script(wanted):
        notes.append("the trace is a script of requests: what the steps show was asked by a scheduler of our own")
    why = why_unbuilt(recording.name, recording.shape or wanted.shape) if LOCKSTEP in judges.oracles else ""
    if why:
        notes.append(f"the model has no core of this shape, it {why}: there is nothing to compare a core with")
    if isinstance(recording.construction, Failed):
        notes.append(f"{recording.name} builds no core of this shape: it {outcome_text(recording.construction)}")
    return notes
