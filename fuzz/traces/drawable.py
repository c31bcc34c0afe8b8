"""Which candidates a trace may be shrunk to: those that a generator could have drawn for the target.

What the original does not fulfil itself is not asked for. A candidate that breaks a rule says nothing about the target,
whatever it shows: no user could meet it.
"""

from collections import Counter
from collections.abc import Collection

from ...model.core import Model
from ...model.legal import allows, misuse
from ...model.ops import Allocate, Done, Failed, Lookup, Operation, Outcome, Shape
from ..findings.finding import Trace
from ..targets.answers import hit_of
from ..targets.base import Target, adapted_shape, block_sizes_of, lacking
from ..workload.scene import Scene
from .trace_file import shape_problems


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
    return not (shape.caching and any(group.kind == "cross" for group in shape.groups))


def _is_modelled(shape: Shape) -> bool:
    return isinstance(Model(shape).construction, Done)


class Calls:
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
    start = request.computed + (request.hit[0] if step.hit and request.hit else 0) + step.external
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
        outcome = model.apply(operation)
        said = "misuse" if broken else _word(operation, outcome, raised)
    return said


def _word(operation: Operation, outcome: Outcome, raised: bool) -> str:
    if not isinstance(outcome, Done):
        return getattr(outcome, "error", "refusal")
    if not isinstance(operation, Lookup) or (hit := hit_of(outcome)) is None:
        return "value"
    entries = max(map(len, hit[1]), default=0) if hit[0] else 0
    return f"hit of {('none', 'one', 'several')[min(entries, 2)]}" if raised else f"hit: {entries > 0}"
