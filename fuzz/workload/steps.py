"""Runs about steps of long requests: what a core does in bulk, or leaves out because nothing is due.

Requests are decoded to the end of a block, where another one looks up the same tokens within the very step; several
take their step in one call; and steps are in flight while the next one is allocated.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...model import ops
from ...model.attention import RULES
from ...model.ops import Group, Kind, Operation, Shape
from ...model.state import Request
from .bounds import (
    about_taken,
    draftable,
    holds_nothing,
    keeps_states,
    keeps_states_of,
    most_rejected,
    sampled_by_step,
    sampled_late,
    sink_blocks,
)
from .cuts import Cuts
from .draw import Draw, made
from .finished import finished_shape
from .past import Former
from .scene import Scene
from .tuning import Tuning

BLOCK_SIZES = (1, 2, 2, 3, 4)
"""Of such a core in tokens, where it can have any: there is an end of a block every few steps."""
MOST_TOKENS = 48
"""Of a request of such a core, where its blocks are small."""
MOST_BLOCKS = 56
"""Of the pool, where one request does not need more."""


def takes_steps(kinds: Sequence[Kind]) -> bool:
    """True if a core of these kinds caches."""
    return all(RULES[kind].cacheable for kind in kinds)


def with_steps(draw: Draw, shape: Shape) -> Shape:
    """The shape with long requests, with caching, and with Mamba layers mostly in mode align.

    Mostly hits end at every block of the largest size. The pool holds the longest request in one group at least, two of
    them at most.
    """
    drafts = draw.integer(0, 1) == 0
    groups = tuple(_stepping(draw, group, drafts) for group in shape.groups)
    if draw.integer(0, 1):  # a block that gets full is one that hits end at
        size = max(group.block_size for group in groups)
        groups = tuple(group if sink_blocks([group]) else replace(group, block_size=size) for group in groups)
    shape = replace(shape, groups=groups)
    unit = shape.least_scheduler_block_size if draw.integer(0, 3) else shape.scheduler_block_size
    length = max(2, min(draw.choose((6, 18, 24, 24)), MOST_TOKENS // unit)) * unit + draw.choose((1, 1, unit))
    tables = [-(-length // (group.block_size * shape.parallel)) + group.speculative_blocks for group in groups]
    sinks = sink_blocks(groups)
    room = draw.choose((max(tables), sum(tables), min(2 * sum(tables), max(sum(tables), MOST_BLOCKS))))
    return finished_shape(
        replace(
            shape,
            num_blocks=2 + sinks + room,
            max_model_len=length,
            scheduler_block_size=unit,
            caching=True,
            eagle=shape.eagle and drafts,
        )
    )


def _stepping(draw: Draw, group: Group, drafts: bool) -> Group:
    group = replace(group, eagle=group.eagle and drafts)
    if not keeps_states_of([group.kind]):
        return group
    mode = draw.choose((group.mamba_mode, "align", "align", "align"))
    return replace(group, mamba_mode=mode, speculative_blocks=draw.choose((0, group.speculative_blocks)))


def about_steps(tuning: Tuning) -> Tuning:
    """How such a run draws: hits are mostly used as they are found."""
    return replace(tuning, peels=(0,), meetings=30, batches=100, flights=4)


class Steps(Cuts):
    """Meetings within a step, batches, and tokens in flight. `Workload` adds the rest of a request's life."""

    _drafts: int

    @abstractmethod
    def work(self, scene: Scene) -> Operation | None:
        """The next operation in the life of some request."""

    def __init__(self, draw: Draw, shape: Shape, lacks: Collection[str], tuning: Tuning) -> None:
        super().__init__(draw, shape, lacks, tuning)
        meets, batches = self._looks_up and self.has("Allocate.hit"), self.has("AllocateBatch")
        if tuning.meetings and tuning.batches and meets and batches:  # either takes most of a run
            meets = draw.integer(0, 3) < (3 if keeps_states(shape) else 2)
            batches = not meets
        self._meetings, self._batches = tuning.meetings * meets, tuning.batches * batches
        self._max_live = max(self._max_live, 3 * (self._batches > 0))
        self._flights = tuning.flights * self.has("Allocate.in_flight")
        self._reserves = self.has("Allocate.reserved")
        self._counts = self.has("Allocate.alone") and not shape.host_blocks  # which has two pools to take from
        self._starving = 0
        """So many more times is a batch asked for, or what was taken for it given back."""
        self._driven = ""
        """The request that is decoded to the end of a block, where another one shall meet it."""
        self._met: Former | None = None
        """The tokens that were just allocated there, for the one that comes."""
        self._comer = ""
        """The request with these tokens, until it has used its lookup."""

    def meet(self, scene: Scene) -> Operation | None:
        """Decode a request up to a place where a hit may end; one with the same tokens then looks them up."""
        if not (self._driven or self._met or self._comer):
            running = [request for request in scene.requests.values() if request.computed and not request.arriving]
            if not running:
                return self.submit(scene) if not scene.requests else self.work(scene)
            chosen = max(running, key=_known) if self.draw.integer(0, 2) else self.draw.choose(running)
            self._driven = chosen.submit.request
        return self._meeting(scene)

    def _meeting(self, scene: Scene) -> Operation | None:
        """What comes next of a meeting that has begun."""
        if self._driven:
            request = scene.requests.get(self._driven)
            operation = None if request is None else self._driven_on(request)
            self._driven = self._driven if operation is not None and self._met is None else ""
            return operation
        if self._met is not None:
            if len(scene.requests) >= self._max_live:
                return self.finish(scene)
            former, self._met = self._met, None
            submit = self._sent_again(former, whole=True)
            self._comer = submit.request
            return submit
        if self._comer in scene.requests and holds_nothing(scene, self._comer) and scene.just_looked_up != self._comer:
            return ops.Lookup(self._comer)
        self._comer = ""
        return None

    def _driven_on(self, request: Request) -> Operation | None:
        """The next operation of a request that is decoded; None if there is nothing more to decode."""
        name, tokens, max_len = request.submit.request, request.tokens, self.shape.max_model_len
        if request.arriving or not (request.computed or request.scheduled):
            return None
        if request.scheduled:
            return self._has_run(request)
        if request.lead:
            count = sampled_late(request, max_len)
            return ops.Advance(name, self._sampled(request, count)) if count and not request.drafts else None
        if len(tokens) >= max_len:
            return None
        if len(tokens) % self._unit == 0 and len(tokens) > len(request.submit.prompt):
            self._met = Former(request.submit, (*tokens, *self._tokens(1)), ())
        return ops.Allocate(name, len(tokens) - request.computed)

    def _has_run(self, request: Request) -> Operation:
        """The step that was allocated has run, and its drafts were wrong."""
        rejected = most_rejected(request)
        ahead = request.computed + request.scheduled < len(request.tokens)
        count = 0 if ahead else sampled_by_step(request, rejected, self.shape.max_model_len)
        name, sampled = request.submit.request, self._sampled(request, count)
        return made(ops.Advance, request=name, sampled=sampled, rejected=rejected)

    def batch(self, scene: Scene) -> Operation | None:
        """Several running requests take their next step in one call."""
        draw = self.draw
        count = draw.choose((1, 1, 1, 2)) if draftable(self.shape, self._drafts) else 1
        ready = [request for request in scene.requests.values() if self._is_ready(request, count)]
        if len(ready) < 2:
            run = [request for request in scene.requests.values() if request.scheduled]
            if run and draw.integer(0, 3):
                return self._has_run(draw.choose(run))
            return self.submit(scene) if len(scene.requests) < 2 or not draw.integer(0, 3) else self.work(scene)
        due = [request for request in ready if self._needs_block(scene, request, count)]
        starves = self._starve(scene) if due or self._starving else None
        if starves is not None:
            return starves
        first = ready.index(due[0]) if due and self._starving else draw.integer(0, len(ready) - 1)
        chosen = [*ready[first:], *ready[:first]][: draw.integer(2, len(ready))]
        in_flight = min(map(self._in_flight, chosen))
        names = tuple(request.submit.request for request in chosen)
        return ops.AllocateBatch(names, count, draw.choose((0, 0, 1)) * self.has("Allocate.lookahead"), in_flight)

    def _needs_block(self, scene: Scene, request: Request, count: int) -> bool:
        """True if the tables of the request end within the step."""
        name, end = request.submit.request, request.computed + count
        tables = zip(scene.state.tables, self._sizes, strict=True)
        return any(len(of_group.get(name, ())) * size < end for of_group, size in tables)

    def _starve(self, scene: Scene) -> Operation | None:
        """Before some batches somebody outside takes nearly all that is free, and gives it back after it."""
        taken = tuple(dict.fromkeys(scene.state.outside))
        if self._starving and taken:
            self._starving -= 1
            return None if self._starving else ops.Release(taken)
        free = scene.state.references().count(0) - 1
        if taken or free < 2 or self.draw.integer(0, 1) or not (self.has("Take") and self.has("Release")):
            return None
        self._starving = 2
        return ops.Take(free - self.draw.integer(0, 1))

    def _reserved(self, scene: Scene, request: Request, end: int, hit: bool) -> int:
        """Mostly none; few blocks, or so many that about as many are left as a request of so many tokens needs. Of a
        core of today also as many as this step takes, mostly where it copies a block: only there one shows that counts
        a block less."""
        draw, (found, rows) = self.draw, (request.hit if hit and request.hit else (0, ()))
        often = 4 if any(found % size for size in self._sizes) else 1
        if (self._counts and draw.integer(0, 7) > often) or not self._reserves:
            return 0
        free = scene.state.references().count(0) - 1
        if self._counts and draw.integer(0, 2):
            return max(0, free - about_taken(scene, request, rows, end) - draw.integer(-1, 2))
        if draw.integer(0, 7) >= self._tuning.tight:
            return draw.integer(1, 4)
        return max(0, free - draw.integer(0, sum(-(-end // size) for size in self._sizes)))

    def _is_ready(self, request: Request, count: int) -> bool:
        """True if the request runs and may be asked for so many tokens."""
        waits = request.arriving or request.scheduled or not request.computed
        return not waits and request.computed + count <= self.shape.max_model_len

    def _in_flight(self, request: Request) -> int:
        """So many of the last computed tokens belong to steps whose outcome is not known yet: at most those of a few
        blocks, or all."""
        if not self._flights or not request.computed or self.draw.integer(0, 7) >= self._flights:
            return 0
        return min(request.computed, self.draw.integer(1, 2 * self._unit))


def _known(request: Request) -> int:
    return len(request.tokens)
