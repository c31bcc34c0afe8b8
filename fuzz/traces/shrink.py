"""The reducer: from a trace that shows a finding to one that cannot be shortened by any of many steps.

A candidate is accepted only if replaying it gives a finding of the same kind and it is simpler by a measure that cannot
fall for ever: fewer operations, then less to read in them, then the text that sorts first. The same trace and target
give the same result, unless a limit in seconds ends the search early, which the result says.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ...model.ops import Shape, to_json
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import ORACLES
from ..oracles.liveness import simpler_scripts
from ..oracles.shadow import ListMemory, Memory
from ..targets.base import Target
from . import simplify, simplify_shape
from . import simplify_story as story
from .replay import replay
from .trace_file import shape_problems

Pass: TypeAlias = Callable[[Trace], Iterator[Trace]]
PASSES: tuple[Pass, ...] = (
    story.without_request,
    story.simpler_actors,
    story.computed_instead,
    story.known_from_the_start,
    story.merged_steps,
    story.merged_requests,
    story.merged_holders,
    story.split_requests,
    simplify.plain_everywhere,
    simplify_shape.simpler_shapes,
    simplify.shorter_prompts,
    simplify_shape.smaller_blocks,
    simplify.plain_tokens,
    simplify.simpler_operations,
    simpler_scripts,
)
LAST_PASSES: tuple[Pass, ...] = (
    story.without_two,
    simplify.lowered_together,
    story.without_one_adjusted,
    simplify.plain_names,
)
"""Tried when nothing else helps: many candidates, few hits."""
MAX_CANDIDATES = 100_000


class NotReproducedError(Exception):
    """The trace does not show the finding when it is replayed, so there is nothing to shrink."""


@dataclass(frozen=True)
class Shrunk:
    """The reduced trace and what it shows."""

    trace: Trace
    finding: Finding
    candidates: int
    """How many were replayed."""
    seconds: float
    complete: bool
    """False if a limit or Ctrl-C ended the search early: it may be possible to shorten the trace further."""
    interrupted: bool = False
    """Was it Ctrl-C?"""


def shrink(
    trace: Trace,
    kind: tuple[str, str],
    target: Target,
    *,
    max_candidates: int = MAX_CANDIDATES,
    max_seconds: float | None = None,
    without: Collection[str] = (),
    oracles: Collection[str] = ORACLES,
    new_memory: Callable[[Shape], Memory] = ListMemory,
) -> Shrunk:
    """Reduce a trace that shows a finding of this kind (`Finding.kind`) on the target.

    Known deviations named in `without` count as findings; `oracles` judge, the shadow memory with `new_memory`.

    NotReproducedError if it does not show one. Ctrl-C ends the search with the best trace so far.
    """
    reducer = _Reducer(
        trace,
        kind,
        max_candidates,
        max_seconds,
        partial(replay, target=target, without=without, oracles=oracles, new_memory=new_memory),
    )
    complete = interrupted = False
    try:
        reducer.run()
        complete = True
    except _LimitReached:
        pass
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.monotonic() - reducer.started
    return Shrunk(reducer.best, reducer.finding, reducer.candidates, seconds, complete, interrupted)


class _LimitReached(Exception):
    pass


class _Reducer:
    """The best trace so far, and the search for a better one."""

    def __init__(
        self,
        trace: Trace,
        kind: tuple[str, str],
        max_candidates: int,
        max_seconds: float | None,
        run: Callable[[Trace], tuple[Finding | None, Trace]],
    ) -> None:
        self.started = time.monotonic()
        self.kind = kind
        self.replay = run
        self.candidates = 0
        self.max_candidates = max_candidates
        self.deadline = None if max_seconds is None else self.started + max_seconds
        finding, self.best = run(trace)
        if finding is None or finding.kind != kind:
            seen = f"`{finding.kind[0]}` at {finding.kind[1]}" if finding else "no difference"
            raise NotReproducedError(f"replaying shows {seen} instead of `{kind[0]}` at {kind[1]}")
        self.finding = finding
        self._tried = {trace, self.best}
        self._size = _size(self.best)

    def run(self) -> None:
        """Apply all passes until none of them helps any more."""
        while True:
            before = self.best
            self._delete_chunks()
            for simpler in PASSES:
                self._exhaust(simpler)
            if self.best == before:
                for simpler in LAST_PASSES:
                    self._exhaust(simpler)
            if self.best == before:
                return

    def _exhaust(self, simpler: Pass) -> bool:
        """Take what the pass offers until it offers nothing of use. Returns whether anything was."""
        helped = False
        while any(self._accept(candidate) for candidate in simpler(self.best)):
            helped = True
        return helped

    def _delete_chunks(self) -> None:
        """Delete ever smaller pieces, from the end; the last operation shows the finding and stays."""
        size = max(1, len(self.best.operations) // 2)
        while size:
            end = len(self.best.operations) - 1
            while end > 0:
                operations = self.best.operations
                start = max(0, end - size)
                self._accept(Trace(self.best.shape, operations[:start] + operations[end:]))
                end = min(start, len(self.best.operations) - 1)
            size //= 2

    def _accept(self, candidate: Trace) -> bool:
        """Is the candidate simpler and does it show the same kind of finding? Then it is the best from now on."""
        if candidate in self._tried:
            return False
        self._tried.add(candidate)
        if any(shape_problems(candidate.shape)):
            return False
        if self.candidates >= self.max_candidates or (self.deadline and time.monotonic() > self.deadline):
            raise _LimitReached
        self.candidates += 1
        finding, applied = self.replay(candidate)
        if finding is None or finding.kind != self.kind:
            return False
        size = _size(applied)
        if size > self._size or (size == self._size and _text(applied) >= _text(self.best)):
            return False
        self.best, self.finding, self._size = applied, finding, size
        return True


def _size(trace: Trace) -> tuple[int, int]:
    """The measure's first two parts: operations, and how much there is to read in them and in the shape."""
    return len(trace.operations), simplify.weight(trace.shape) + simplify.weight(trace.operations)


def _text(trace: Trace) -> str:
    """The measure's last part, which settles ties."""
    return str([to_json(trace.shape), to_json(trace.operations)])
