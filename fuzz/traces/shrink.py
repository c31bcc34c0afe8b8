"""The reducer: from a trace that shows a finding to one that cannot be shortened by any of many steps.

A candidate is accepted only if replaying it gives a finding of the same cause (`Finding.identity`) and it is simpler by
a measure that cannot fall for ever: fewer operations, then less to read in them, then the text that sorts first. Its
shape must be one that could have been drawn for the target (`_Drawable`). The same trace and target give the same
result, unless a limit in seconds ends the search early, which the result says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ...model.core import Model
from ...model.ops import Done, Shape
from ..findings.finding import Finding, Trace
from ..findings.ops_json import to_json
from ..oracles.liveness import simpler_scripts
from ..runs.judging import USUAL, Judging
from ..targets.base import Target, adapted_shape, block_sizes_of, lacking
from . import simplify, simplify_shape
from . import simplify_story as story
from .reducer import MAX_CANDIDATES, Limits, OnTry, Reduced, Reducer
from .replay import replay
from .trace_file import shape_problems

Pass: TypeAlias = Callable[[Trace], Iterator[Trace]]
PASSES: tuple[Pass, ...] = (
    story.without_request,
    story.one_by_one,
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
    simplify_shape.one_rank,
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


class NotReproducedError(Exception):
    """The trace does not show the finding when it is replayed, so there is nothing to shrink."""


@dataclass(frozen=True)
class Shrunk(Reduced[Finding]):
    """The reduced trace and what it shows. The candidates are the traces that were replayed."""

    trace: Trace


def shrink(
    trace: Trace,
    kind: tuple[str, str],
    target: Target,
    judging: Judging = USUAL,
    *,
    max_candidates: int = MAX_CANDIDATES,
    max_seconds: float | None = None,
    on_try: OnTry | None = None,
) -> Shrunk:
    """Reduce a trace that shows a finding of this kind (`Finding.kind`) on the target, to one of the same cause.

    NotReproducedError if it does not show one. Ctrl-C ends the search with the best trace so far. `on_try` is told
    before each candidate how many were tried, and how many operations the best has.
    """
    replays = partial(replay, target=target, judging=judging)
    finding, applied = replays(trace)
    if finding is None or finding.kind != kind:
        seen = f"`{finding.kind[0]}` at {finding.kind[1]}" if finding else "no difference"
        raise NotReproducedError(f"replaying shows {seen} instead of `{kind[0]}` at {kind[1]}")
    drawable = _Drawable(applied.shape, target)
    reducer = _TraceReducer(applied, finding, Limits(max_candidates, max_seconds, on_try), replays, drawable)
    return Shrunk(**vars(reducer.run()), trace=reducer.best)


class _TraceReducer(Reducer[Trace, Finding]):
    """Deletes operations and applies the passes; the best is what a replay applied of a candidate."""

    def __init__(
        self,
        best: Trace,
        finding: Finding,
        limits: Limits,
        replays: Callable[[Trace], tuple[Finding | None, Trace]],
        drawable: "_Drawable",
    ) -> None:
        super().__init__(best, finding, limits)
        self._replay = replays
        self._drawable = drawable
        self._tried = {best}

    def search(self) -> None:
        """Apply all passes until none of them helps any more."""
        while True:
            before = self.best
            self._delete_chunks()
            for simpler in PASSES:
                self.exhaust(simpler)
            if self.best == before:
                for simpler in LAST_PASSES:
                    self.exhaust(simpler)
            if self.best == before:
                return

    def _delete_chunks(self) -> None:
        """Delete ever smaller pieces, from the end; the last operation shows the finding and stays."""
        size = max(1, len(self.best.operations) // 2)
        while size:
            end = len(self.best.operations) - 1
            while end > 0:
                operations = self.best.operations
                start = max(0, end - size)
                self.accept(Trace(self.best.shape, operations[:start] + operations[end:]))
                end = min(start, len(self.best.operations) - 1)
            size //= 2

    def worth_trying(self, candidate: Trace) -> bool:
        """False for what has been tried before, and for a shape that could not have been drawn."""
        if candidate in self._tried:
            return False
        self._tried.add(candidate)
        return self._drawable(candidate.shape)

    def shows(self, candidate: Trace) -> tuple[Trace, Finding] | None:
        """What was applied of the candidate, and the finding."""
        finding, applied = self._replay(candidate)
        return None if finding is None or finding.identity != self.finding.identity else (applied, finding)

    def size(self) -> int:
        """Operations of the best so far."""
        return len(self.best.operations)

    def is_smaller(self, case: Trace) -> bool:
        """By the measure."""
        size, least = _size(case), _size(self.best)
        return size < least or (size == least and _text(case) < _text(self.best))


class _Drawable:
    """Says which shapes a trace may be shrunk to: those that a generator could have drawn for the target.

    They have groups, a pool with room for a block, no prefix cache beside cross attention; the model has a core of
    them, and the target's declarations leave them as they are. What the original shape does not fulfil is not asked
    for.
    """

    def __init__(self, original: Shape, target: Target) -> None:
        lacks, sizes = lacking(target), frozenset(block_sizes_of(target))

        def is_declared(shape: Shape) -> bool:
            return not sizes or sizes.issuperset(group.block_size for group in shape.groups)

        def is_adapted(shape: Shape) -> bool:
            return adapted_shape(shape, lacks) == shape

        rules = (_has_groups, _has_room, _caches_no_encoder, _is_modelled, is_declared, is_adapted)
        self._rules = [rule for rule in rules if rule(original)]
        self._answers: dict[Shape, bool] = {}

    def __call__(self, shape: Shape) -> bool:
        if shape not in self._answers:
            self._answers[shape] = not any(shape_problems(shape)) and all(rule(shape) for rule in self._rules)
        return self._answers[shape]


def _has_groups(shape: Shape) -> bool:
    return bool(shape.groups)


def _has_room(shape: Shape) -> bool:
    return shape.num_blocks > 1


def _caches_no_encoder(shape: Shape) -> bool:
    return not (shape.caching and any(group.kind == "cross" for group in shape.groups))


def _is_modelled(shape: Shape) -> bool:
    return isinstance(Model(shape).construction, Done)


def _size(trace: Trace) -> tuple[int, int]:
    """The measure's first two parts: operations, and how much there is to read in them and in the shape."""
    return len(trace.operations), simplify.weight(trace.shape) + simplify.weight(trace.operations)


def _text(trace: Trace) -> str:
    """The measure's last part, which settles ties."""
    return str([to_json(trace.shape), to_json(trace.operations)])
