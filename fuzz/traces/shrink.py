"""The reducer: from a trace that shows a finding to one that cannot be shortened by any of many steps.

A candidate is accepted only if replaying it gives a finding of the same cause and it is simpler by a measure that
cannot fall for ever: fewer operations, then less to read in them, then the text that sorts first. The cause is what the
finding says (`Finding.key`): the oracle, the property, the operation, the exception; which of the oracle's sentences,
whether the call was misuse, and what model and target say of it. It is what is shown of several objections. Where no
model runs beside the target, the model is asked afterwards. Shape and calls must be such as could have been drawn for
the target (`drawable`): nothing that it lacks, no misuse in the place of legal calls. The same trace and target give
the same result, unless a limit in seconds ends the search early, which the result says.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...model.attention import RULES
from ...model.core import Model
from ...model.legal import allows, misuse
from ...model.ops import Allocate, Done, Failed, Lookup, Operation, Outcome, Shape
from ..findings.finding import Finding, Trace
from ..findings.ops_json import to_json
from ..findings.oracle_names import CONTRACT, SHADOW, TARGET
from ..oracles.liveness import simpler_scripts
from ..runs.judging import USUAL, Judging
from ..targets.answers import hit_of
from ..targets.base import Target, adapted_shape, block_sizes_of, lacking
from ..targets.rule import model_answer
from ..workload.scene import Scene
from . import simplify, simplify_shape
from . import simplify_story as story
from .reducer import MAX_CANDIDATES, OnTry, Reduced, Reducer, SearchLimits
from .replay import NotDrawnError, replay
from .trace_file import shape_problems

Pass: TypeAlias = Callable[[Trace], Iterator[Trace]]
Keeps: TypeAlias = Callable[[Trace, Finding], bool]
"""Says of a trace, and of what it shows, whether it is what is looked for."""
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
SEEKING: tuple[Pass, ...] = (simplify_shape.simpler_shapes, story.without_request)
"""Tried before anything is made smaller, if the trace is not yet what is looked for."""


class DrawableShapes:
    """Says which shapes are drawable.

    They have groups, a pool with room for a block, no prefix cache beside cross attention; the model has a core of
    them, and the target's declarations leave them as they are.
    """

    def __init__(self, original: Shape, target: Target) -> None:
        lacks, sizes = lacking(target), frozenset(block_sizes_of(target))

        def is_declared(shape: Shape) -> bool:
            return not sizes or sizes.issuperset(group.block_size for group in shape.groups)

        def is_adapted(shape: Shape) -> bool:
            return adapted_shape(shape, lacks) == shape

        def has_groups_of_it(shape: Shape) -> bool:
            several = len(shape.groups) > 1 and "hybrids" in lacks
            return not several and not any(f"Group.kind={group.kind}" in lacks for group in shape.groups)

        rules = (_has_groups, _has_room, _caches_no_encoder, _is_modelled, is_declared, is_adapted, has_groups_of_it)
        self._rules = [rule for rule in rules if rule(original)]
        self._answers: dict[Shape, bool] = {}

    def __call__(self, shape: Shape) -> bool:
        """True if it could have been drawn."""
        if shape not in self._answers:
            self._answers[shape] = not any(shape_problems(shape)) and all(rule(shape) for rule in self._rules)
        return self._answers[shape]


def _has_groups(shape: Shape) -> bool:
    return bool(shape.groups)


def _has_room(shape: Shape) -> bool:
    return shape.num_blocks > 1


def _caches_no_encoder(shape: Shape) -> bool:
    return not shape.caching or all(RULES[group.kind].cacheable for group in shape.groups)


def _is_modelled(shape: Shape) -> bool:
    return isinstance(Model(shape).construction, Done)


class CallWatch:
    """Looks at each call of a replay before it is made: what kind it is, for this target and in this state.

    What a target lacks as a whole, a replay leaves out. Drafts are not a call or a field of one: it depends on what is
    known of a request whether a step begins with tokens that are.
    """

    def __init__(self, lacks: Collection[str]) -> None:
        self._lacks_drafts = "drafts" in lacks
        self.counts: Counter[str] = Counter()
        """How many were misuse, by kind of operation, and how many of what the target lacks."""
        self.most: Counter[str] | None = None
        """How many there may be; None if that is not known yet."""

    def __call__(self, scene: Scene, operation: Operation) -> bool:
        """True if it may be made: it is neither misuse nor lacking, or not more often so than it may be."""
        what = ""
        if misuse(scene, operation):
            what = type(operation).__name__
        elif self._lacks_drafts and isinstance(operation, Allocate) and _drafts(scene, operation):
            what = "drafts"
        if not what:
            return True
        self.counts[what] += 1
        return self.most is None or self.counts[what] <= self.most[what]


def _drafts(scene: Scene, step: Allocate) -> bool:
    """True if the step goes on behind the known tokens; the first token of a step is never a draft."""
    request = scene.requests[step.request]
    start = request.computed + (scene.shape.taken(step, request.hit[0]) if request.hit else 0) + step.external
    return start + step.new_tokens > max(len(request.tokens), start + 1)


def said_by_model(trace: Trace, *, raised: bool = False) -> str | None:
    """What the model says of the last operation of a trace that a target was given: `value`, `refusal`, `misuse`, or an
    error; of a lookup whether it hits, and if the target `raised`, so that nothing else says it, whether it hits none,
    one or several entries.

    None if it does not get there: with the target's own ids of blocks, or after another answer, operations may make no
    sense to it.
    """
    model = Model(trace.shape)
    if isinstance(model.construction, Failed) or not trace.operations:
        return None
    said = None
    for operation in trace.operations:
        if not allows(model, operation):
            return None
        broken = misuse(model, operation)
        outcome = model_answer(model, operation)
        said = "misuse" if broken else _word(operation, outcome, raised)
    return said


def _word(operation: Operation, outcome: Outcome, raised: bool) -> str:
    if not isinstance(outcome, Done):
        return getattr(outcome, "error", "refusal")
    if not isinstance(operation, Lookup) or (hit := hit_of(outcome)) is None:
        return "value"
    entries = max(map(len, hit[1]), default=0) if hit[0] else 0
    return f"hit of {('none', 'one', 'several')[min(entries, 2)]}" if raised else f"hit: {entries > 0}"


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
    return _shrunk(trace, kind, target, judging, SearchLimits(max_candidates, max_seconds, on_try))


def shrink_keeping(
    trace: Trace,
    kind: tuple[str, str],
    target: Target,
    keeps: Keeps,
    judging: Judging = USUAL,
    *,
    max_seconds: float | None = None,
) -> Shrunk:
    """The same, but a trace is looked for that is so as well: once there is one, only such ones are accepted. If none
    is found the result is none either."""
    return _shrunk(trace, kind, target, judging, SearchLimits(seconds=max_seconds), keeps)


def _shrunk(
    trace: Trace,
    kind: tuple[str, str],
    target: Target,
    judging: Judging,
    limits: SearchLimits,
    keeps: Keeps | None = None,
) -> Shrunk:
    calls = CallWatch(lacking(target))

    def replays(candidate: Trace) -> tuple[Finding | None, Trace]:
        calls.counts.clear()
        return replay(candidate, target, judging, calls)

    finding, applied = replays(trace)
    if finding is None or finding.kind != kind:
        seen = f"`{finding.kind[0]}` at {finding.kind[1]}" if finding else "no difference"
        raise NotReproducedError(f"replaying shows {seen} instead of `{kind[0]}` at {kind[1]}")
    shapes = DrawableShapes(applied.shape, target)
    reducer = _TraceReducer(applied, finding, limits, replays, (shapes, calls), keeps)
    return Shrunk(**vars(reducer.run()), trace=reducer.best)


class _TraceReducer(Reducer[Trace, Finding]):
    """Deletes operations and applies the passes; the best is what a replay applied of a candidate."""

    def __init__(
        self,
        best: Trace,
        finding: Finding,
        limits: SearchLimits,
        replays: Callable[[Trace], tuple[Finding | None, Trace]],
        drawable: tuple[DrawableShapes, CallWatch],
        keeps: Keeps | None,
    ) -> None:
        """`drawable`: what says which shapes are, and what sees all calls of a replay; the first one is over."""
        super().__init__(best, finding, limits)
        self._replay = replays
        self._shapes, self._calls = drawable
        self._calls.most = self._calls.counts.copy()
        about_answer = finding.oracle in (SHADOW, CONTRACT, TARGET) or finding.kind[0] == "outcome"
        self._says_more = about_answer and finding.step >= 0
        self._raised = not isinstance(finding.actual, Done)
        self._said = said_by_model(best, raised=self._raised) if self._says_more else None
        self._tried = {best}
        self._keeps = keeps
        self._is_kept = self._keeps_now = keeps is None or keeps(best, finding)
        self._seeks = False

    def search(self) -> None:
        """Apply all passes until none of them helps any more."""
        if not self._is_kept:
            self._seek()
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

    def _seek(self) -> None:
        """Leave out options and requests of the whole trace, one at a time, until it is what is looked for."""
        self._seeks, untouched = True, self._tried.copy()
        candidates = (candidate for simpler in SEEKING for candidate in simpler(self.best))
        any(self.accept(candidate) for candidate in candidates)
        self._seeks, self._tried = False, untouched

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

    def accept(self, candidate: Trace) -> bool:
        """As `Reducer.accept`; of misuse, and of what the target lacks, there is never more than in the best so far."""
        accepted = super().accept(candidate)
        if accepted:
            self._calls.most = self._calls.counts.copy()
            self._is_kept |= self._keeps_now
        return accepted

    def worth_trying(self, candidate: Trace) -> bool:
        """False for what has been tried before, and for a shape that could not have been drawn."""
        if candidate in self._tried:
            return False
        self._tried.add(candidate)
        return self._shapes(candidate.shape)

    def shows(self, candidate: Trace) -> tuple[Trace, Finding] | None:
        """What was applied of the candidate, and the finding."""
        try:
            finding, applied = self._replay(candidate)
        except NotDrawnError:
            return None
        if finding is None or finding.key != self.finding.key:
            return None
        if self._says_more and (said := said_by_model(applied, raised=self._raised)) != self._said:
            if self._said is not None or not self.is_smaller(applied):
                return None
            self._said = said  # of what the original is about the model knows nothing, from here on it does
        if self._keeps is not None and self.is_smaller(applied):
            self._keeps_now = self._keeps(applied, finding)
            if not self._keeps_now and (self._is_kept or self._seeks):
                return None
        return applied, finding

    def size(self) -> int:
        """Operations of the best so far."""
        return len(self.best.operations)

    def is_smaller(self, case: Trace) -> bool:
        """By the measure."""
        size, least = _size(case), _size(self.best)
        return size < least or (size == least and _text(case) < _text(self.best))


def _size(trace: Trace) -> tuple[int, int]:
    """The measure's first two parts: operations, and how much there is to read in them and in the shape."""
    return len(trace.operations), simplify.weight(trace.shape) + simplify.weight(trace.operations)


def _text(trace: Trace) -> str:
    """The measure's last part, which settles ties."""
    return str([to_json(trace.shape), to_json(trace.operations)])
