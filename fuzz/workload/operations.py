"""Generates operations on a core as a scheduler would make them.

`Workload.next` returns one operation after the other, each of them allowed in the present state (`Scene`), with choices
of the seeded engine (`Draw`). The Hypothesis state machine has a rule for each operation instead (`testing`), and takes
shapes and bounds from here. What a target lacks (`targets.declarations`) is not drawn.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import Literal, TypeAlias

from ...model import ops
from ...model.attention import RULES
from ...model.legal import allows
from ...model.ops import Operation, Shape
from ...model.state import Request
from ..findings.offered import OF_TODAY
from ..findings.starved import Starved
from .bounds import draftable, failures, holds_nothing, keeps_states, most_rejected, sampled_by_step, sampled_late
from .draw import Draw, made
from .landings import Landings
from .scene import Scene
from .steps import Steps
from .tuning import USUAL_TUNING, Tuning

LandingsSaid: TypeAlias = Literal["", "steps", "all", "awaited"]
"""Of what is said when it has landed: of nothing; of steps, where they run ahead of their news; also of loads that
nobody waits for any more; of steps, and of all that a scheduler waits for whose core does not (`landings`)."""
Action: TypeAlias = Callable[[Scene], Operation | None]

UNKNOWN_REQUEST = "nobody"
READS: tuple[type[Operation], ...] = (
    ops.CommonPrefix,
    ops.CommonPrefix,
    ops.ReadTable,
    ops.TakeEvents,
    ops.TakeNewBlockIds,
    ops.TakeStats,
)
"""Calls that read or drain something, by weight."""
MOST_KEPT = 4
"""References from outside beside which more are taken."""
TRIES = 20
"""How many actions are tried that are not possible in the present state, before one that always is (`observe`)."""


class Workload(Steps):
    """Draws the operations of one run over a core of the given shape."""

    def __init__(
        self,
        draw: Draw,
        shape: Shape,
        *,
        chaos: bool = False,
        landings: LandingsSaid = "",
        lacks: Collection[str] = OF_TODAY,
        tuning: Tuning = USUAL_TUNING,
    ) -> None:
        """`chaos` adds misuse: broken preconditions. `landings`: of what is said when it has landed. `lacks`: what the
        target has no equivalent of (`targets.base.lacking`); if not said, what few targets have."""
        super().__init__(draw, shape, lacks, tuning)
        self._preempting = draw.choose(tuning.preempting)
        self._drafts = draftable(shape, draw.choose((0, 1, 2, 3, 3))) * self.has("drafts")
        self._states = keeps_states(shape)
        self._named_inside = self.has("hits_inside_blocks") and any(
            group.block_size > shape.hash_block_size for group in shape.groups
        )
        if self._named_inside and draw.integer(0, 3):  # only who sends a prompt again finds its end
            self._again, self._remembers, self._unit = max(self._again, 4), True, shape.hash_block_size
        self._cross = any(RULES[group.kind].by_encoder for group in shape.groups) and self.has(
            "Allocate.encoder_tokens"
        )
        seldom = 3 if shape.caching else 1  # unless hits end inside blocks, where such tokens cut them
        often = self._named_inside or shape.old_names  # which are for cores with a connector
        self._externals = draw.integer(0, seldom) <= often and self.has("Allocate.external")
        self._lookahead = draw.choose((0, 0, 1, 4)) * self.has("Allocate.lookahead")
        self._gates = draw.choose((0, 1, 2)) * self.has("Allocate.gate")
        self._preempts, self._takes_hits = map(self.has, ("Preempt", "Allocate.hit"))
        self._delays = self.has("Allocate.delay")
        self._limits, self._unzeroed = map(self.has, ("Lookup.limit", "Allocate.unzeroed"))
        self._connects = self._externals and self.has("Lookup.for_connector")
        self._reads = [kind for kind in READS if self.has(kind.__name__)]
        loads = landings == "all" and self._externals and self._delays
        lands = loads or (landings != "" and self._drafts > 0)
        self._lands = lands and self.has("Landed")
        tells = self.has("Allocate.in_flight")
        self._landings = Landings(shape, loads=self._externals, tells=tells) if landings == "awaited" else None
        self._refusing = draw.choose(tuning.refusals) if tuning.refusals else 0
        self._waits: ops.Allocate | None = None
        """What is asked for again, since it was refused while the world gave out."""
        self._actions = self._swarm(chaos)
        self._keeps = self.has("Free.keep") and self.outside in self._actions

    def next(self, scene: Scene) -> Operation:
        """An operation that is allowed in the present state."""
        if self._landings is None:
            return self.drawn(scene)
        return self._landings.next() or self._landings.before(scene, self.drawn(scene))

    @property
    def waits(self) -> bool:
        """Whether `is_waiting` is to be asked behind each operation."""
        return self._landings is not None

    @property
    def is_waiting(self) -> bool:
        """True if the operation that was returned last is a landing before another one, which is no call on a core."""
        return self._landings is not None and self._landings.is_waiting

    def drawn(self, scene: Scene) -> Operation:
        """The same, where nothing is said to have landed before it."""
        if self._refusing and (again := self._asked_again(scene)) is not None:
            return again
        if self._meetings and (self._driven or self._met or self._comer) and self.draw.integer(0, 7):
            met = None if scene.last and isinstance(scene.last[1], ops.Refused) else self._meeting(scene)
            if met is not None:
                return met
        looked_up = scene.just_looked_up
        if looked_up is not None and looked_up in scene.requests:
            request = scene.requests[looked_up]
            loss = self._loses(scene, request) if self._peels else None
            if loss is not None:
                return loss
            if self.draw.integer(0, 9):
                return self._allocate(scene, request)
        last = scene.last
        if last and isinstance(last[1], ops.Refused) and self.draw.integer(0, 2):
            name = self.draw.choose(list(scene.requests))
            back = self.draw.integer(0, 2) < self._preempting and self._preempts
            return ops.Preempt(name) if back else self._free(scene, name)
        if self._next is not None or self._look is not None:
            probe = self._probe(scene)
            if probe is not None:
                return probe
        choose, actions = self.draw.choose, self._actions
        for _ in range(TRIES):
            operation = choose(actions)(scene)
            if operation is not None:
                return operation
        return self.observe(scene)  # bytes that are used up choose the same action for ever

    def drain(self, scene: Scene) -> list[Operation]:
        """Operations that free every request and every outside reference; afterwards no block may be missing (S1)."""
        held: list[Operation] = [ops.Release((block,)) for block in scene.state.outside]
        return [*(ops.Free(name) for name in scene.requests), *held]

    def _swarm(self, chaos: bool) -> Sequence[Action]:
        """Actions, each repeated by its weight in this run. Submitting and work on requests are never off."""
        optional: dict[Action, int] = {
            self.preempt: 1,
            self.evict: 1,
            self.cut: self._tuning.cuts * self.shape.caching,
            self.observe: 4,
            self.step_start: 2,
            self.reset: 1,
            self.remove_skipped: 1,
            self.outside: 1,
            self.free_unknown: 1,
        }
        if self._tuning.reads_only:
            return [self.observe]
        lacking = {action for action, kind in self._kinds().items() if not self.has(kind)}
        weights: dict[Action, int] = {self.submit: 6, self.work: 30, self.finish: 2, self.observe: 1}
        for action, weight in optional.items():
            more = weight * self.draw.choose(self._tuning.swarm)
            weights[action] = weights.get(action, 0) + (0 if action in lacking else more)
        if len(self.shape.groups) > 1 and self.cut not in lacking and self.shape.caching:
            weights[self.cut] += self._tuning.cuts  # what groups find apart from each other is what hybrids are about
        if self._meetings and self.shape.caching:
            weights[self.meet] = self._meetings
        if self._batches:
            weights[self.batch] = self._batches
        weights[self.misuse] = 4 if chaos and not self.shape.host_blocks else 0  # of two pools nothing is declared
        weights[self.landed] = 2 if self._lands else 0
        return [action for action, weight in weights.items() for _ in range(weight)]

    def _kinds(self) -> dict[Action, str]:
        """Actions that make one kind of operation only, which a target may lack."""
        return {
            self.preempt: "Preempt",
            self.evict: "Evict",
            self.cut: "Evict",
            self.step_start: "StepStart",
            self.reset: "Reset",
            self.remove_skipped: "RemoveSkipped",
            self.outside: "Release",
        }

    # Work on requests.

    def work(self, scene: Scene) -> Operation | None:
        """The next operation in the life of some request."""
        if not scene.requests:
            return None
        draw, request = self.draw, self.draw.choose(list(scene.requests.values()))
        name = request.submit.request
        if request.arriving:
            return self._arrive(scene, request)
        if request.scheduled:
            unknown = self._states and self.has("Reject") and request.drafts and draw.integer(0, 2)
            if self._remembers:
                self._past.steps(scene, name)
            return ops.Reject(name, draw.integer(1, request.drafts)) if unknown else self._advance(request)
        if request.lead and self.draw.integer(0, 2):
            return self._late_news(request)
        if not request.computed and holds_nothing(scene, name):
            lookup = draw.integer(0, 9) > 0 and self._looks_up
            return self._lookup(request) if lookup else self._allocate(scene, request)
        return self._allocate(scene, request)

    def _lookup(self, request: Request) -> Operation:
        draw, name, limit = self.draw, request.submit.request, None
        if self._limits and draw.integer(0, 7) == 0:
            limit = draw.integer(0, len(request.tokens) - 1)
        return made(ops.Lookup, request=name, limit=limit, for_connector=self._connects and draw.integer(0, 1) == 1)

    def _allocate(self, scene: Scene, request: Request) -> Operation:
        draw, name, max_len = self.draw, request.submit.request, self.shape.max_model_len
        looked_up = scene.just_looked_up == name and not request.computed
        hit = looked_up and request.hit is not None and draw.integer(0, 15) > 0 and self._takes_hits
        found = request.hit[0] if hit and request.hit else 0
        start = request.computed + found
        fresh = not request.computed and name not in scene.registered[0] if scene.registered else False
        fresh = fresh and holds_nothing(scene, name)
        tokens = len(request.tokens)
        missing = tokens - start if self._delays else tokens - start - 1  # a step without new tokens is one that waits
        missing -= self._states and missing == tokens - start  # a state is of no use if its last token comes again
        external = draw.integer(0, missing) if fresh and self._externals and start < tokens else 0
        if hit and request.lags and not external:
            return ops.Lookup(name)  # nobody brings the states
        tail = found % self.shape.least_scheduler_block_size if external else 0
        start, external = start - tail, external + tail
        room = max_len - start - external
        delay = external > 0 and (not room or draw.integer(0, 1) == 1 or self.shape.host_blocks > 0) and self._delays
        if delay or room <= 0:
            new = 0
        elif start + external < tokens:
            remaining = tokens - start - external
            new = remaining if draw.integer(0, 1) else draw.integer(1, remaining)
            end = (len(request.submit.prompt) - 1) // self.shape.hash_block_size * self.shape.hash_block_size
            if self.shape.names_junctions and request.junction > start + external and draw.integer(0, 2):
                end = request.junction
            if self._named_inside and end > start + external and draw.integer(0, 2):
                new = end - start - external  # where a prompt's end gets a name
        else:
            new = min(room, 1 + self._drafted(self._drafts))
        if not new and not external:
            return self._free(scene, name)
        if new and not delay and start + external + new >= tokens:
            drafts = max(0, self._drafts + 1 - new) if self._states else self._drafts
            new = min(room, new + self._drafted(drafts))
        return self._starved(
            request=name,
            new_tokens=new,
            hit=hit,
            lookahead=draw.choose((self._lookahead, self._lookahead, 0)),
            external=external,
            delay=delay,
            encoder_tokens=self._encoder_tokens(fresh),
            gate=draw.integer(0, 2) < self._gates,
            reserved=self._reserved(scene, request, start + external + new, hit)
            if self._counts or draw.integer(0, 7) == 0
            else 0,
            in_flight=self._in_flight(request),
            alone=bool(self.shape.watermark) and self.has("Allocate.alone") and draw.integer(0, 2) == 0,
            unzeroed=self._spared() if delay and self._unzeroed else (),
        )

    def _spared(self) -> tuple[int, ...]:
        """Groups whose blocks a load writes."""
        return tuple(group for group in range(len(self.shape.groups)) if self.draw.integer(0, 2))

    def _arrive(self, scene: Scene, request: Request) -> Operation:
        """The load has ended: with all of its tokens, or it has failed in a block, or altogether."""
        often = self._states and self.has("Group.checkpoint")  # then blocks are listed to be zeroed again
        name = request.submit.request
        fails = self.has("Arrive.missing") and self.draw.integer(0, 1 if often else 3) == 0
        if not fails:
            return ops.Arrive(name)
        missing = failures(scene, request, self.draw.choose(self._sizes))
        if missing:
            return ops.Arrive(name, self.draw.choose(missing))
        return ops.Preempt(name) if self._preempts and self.draw.integer(0, 1) else ops.Arrive(name)

    def _starved(self, **asked: object) -> ops.Allocate:
        """The allocation; now and then one while which the world gives out, after some calls or at once."""
        if self._refusing and self.draw.integer(0, 7) < self._refusing:
            return made(Starved, **asked, served=self.draw.integer(0, len(self.shape.groups)))
        return made(ops.Allocate, **asked)

    def _asked_again(self, scene: Scene) -> Operation | None:
        """What the world has refused, asked for again at once, behind another lookup if it used one; mostly."""
        match scene.last:
            case (Starved() as starved, ops.Refused()) if self.draw.integer(0, 3):
                self._waits = starved.allocation
                return ops.Lookup(starved.request) if starved.hit else self._waits
            case (ops.Lookup(name), ops.Done()) if self._waits is not None and self._waits.request == name:
                again, self._waits = self._waits, None
                return again if allows(scene, again) else None
        self._waits = None
        return None

    def _drafted(self, most: int) -> int:
        """Drafts of a step: often none or as many as there may be."""
        return self.draw.choose((0, most, most, self.draw.integer(0, most))) if most else 0

    def _encoder_tokens(self, fresh: bool) -> int:
        return self.draw.integer(1, self.shape.max_model_len) if self._cross and fresh else 0

    def _advance(self, request: Request) -> Operation:
        """The step has run. Positions behind the known tokens are drafts: some are rejected, the others sampled."""
        draw, name = self.draw, request.submit.request
        end = request.computed + request.scheduled
        if end < len(request.tokens):
            return made(ops.Advance, request=name)
        late = not (self._states and request.lead)  # with states, at most one step is ahead of the news
        if late and end > len(request.tokens) and draw.integer(0, 2) and self.has("Reject"):
            return ops.Advance(name)  # asynchronous: the news comes later
        most = most_rejected(request)
        rejected = draw.integer(0, most) if draw.integer(0, 2) else most
        sampled = self._sampled(request, sampled_by_step(request, rejected, self.shape.max_model_len))
        return made(ops.Advance, request=name, sampled=sampled, rejected=rejected)

    def _late_news(self, request: Request) -> Operation:
        name = request.submit.request
        sampled = sampled_late(request, self.shape.max_model_len)
        if not request.drafts or (sampled and self.draw.integer(0, 2) == 0):
            return ops.Advance(name, self._sampled(request, sampled)) if sampled else ops.Free(name)
        return ops.Reject(name, self.draw.integer(1, request.drafts))

    def _free(self, scene: Scene, name: str) -> Operation:
        freed = super()._free(scene, name)
        keeps = self._keeps and len(scene.state.outside) <= MOST_KEPT and self.draw.integer(0, 2) == 0
        return ops.Free(name, keep=True) if keeps else freed

    def free_unknown(self, scene: Scene) -> Operation:
        """Free a request that was never submitted (S12)."""
        return ops.Free(UNKNOWN_REQUEST)

    def preempt(self, scene: Scene) -> Operation | None:
        """A request is preempted: it gives its blocks back and will start again."""
        return ops.Preempt(self.draw.choose(list(scene.requests))) if scene.requests else None

    def landed(self, scene: Scene) -> Operation | None:
        """The oldest step of one of the last requests, which may have gone, has left the device."""
        first = max(0, self._submitted - 2 * self._max_live)
        return ops.Landed(f"r{self.draw.integer(first, self._submitted - 1)}") if self._submitted else None

    def remove_skipped(self, scene: Scene) -> Operation | None:
        """Window skipping outside of an allocation."""
        return ops.RemoveSkipped(self.draw.choose(list(scene.requests))) if scene.requests else None

    # The pool, and calls that only read.

    def _block(self) -> int:
        return self.draw.integer(1, self.shape.num_blocks - 1)

    def evict(self, scene: Scene) -> Operation:
        """Evict blocks, mostly a registered one, whether in use or not."""
        registered = list(scene.state.identity)
        if registered and self.draw.integer(0, 3):
            return ops.Evict((self.draw.choose(registered),))
        return ops.Evict(tuple(dict.fromkeys(self.draw.integer(0, self.shape.num_blocks - 1) for _ in range(2))))

    def reset(self, scene: Scene) -> Operation:
        """Reset the prefix cache."""
        return ops.Reset()

    def step_start(self, scene: Scene) -> Operation:
        """A scheduler step begins."""
        return ops.StepStart()

    def observe(self, scene: Scene) -> Operation:
        """One of the calls that read something, or drain events, new block ids or statistics.

        A target that lacks all of them is asked to free a request that was never submitted, which is always possible.
        """
        name = self.draw.choose([*scene.requests, UNKNOWN_REQUEST])
        if not self._reads:
            return self.draw.choose([self.free_unknown(scene)])
        kind = self.draw.choose(self._reads)
        return kind(name) if issubclass(kind, ops.OnRequest) else kind()

    def outside(self, scene: Scene) -> Operation | None:
        """An outside holder (a connector) takes, shares or gives back blocks."""
        outside = list(dict.fromkeys(scene.state.outside))
        if outside and self.draw.integer(0, 2):
            count = self.draw.integer(1, len(outside))
            prepend = self.draw.integer(0, 1) == 1 and self.has("Release.prepend")
            watched = self.has("Release.watched") and self.draw.integer(0, 3) == 0
            return ops.Release(tuple(outside[:count]), prepend=prepend, watched=watched)
        if self.shape.num_blocks < 2 or len(outside) > MOST_KEPT:
            return None
        if self.draw.integer(0, 1):
            return ops.Take(self.draw.integer(0, 3)) if self.has("Take") else None
        if not self.has("Touch"):
            return None
        block = self._block()
        return _touch(scene, self.draw.choose(((block,), (block,), (block, block), (block, self._block()))))

    def misuse(self, scene: Scene) -> Operation | None:
        """A broken precondition (core.md, "What 0.23.0 does otherwise")."""
        draw, num_blocks = self.draw, self.shape.num_blocks
        name = draw.choose([*scene.requests, UNKNOWN_REQUEST])
        counts = scene.state.references()
        overdrawn = draw.integer(0, num_blocks - 1)
        outside = scene.state.outside
        twice = next((block for block in outside if outside.count(block) > 1), None)
        options = (
            ops.Release((overdrawn,) * (counts[overdrawn] + 1)),
            _touch(scene, (self._block(),) * 2)
            if twice is None
            else ops.Release((twice, twice)),  # more references than it has, once it is held twice
            ops.Release(tuple(outside)) if outside else None,
            ops.Release((0,)),
            ops.Touch((0,)),
            ops.Take(-draw.integer(1, 3)),
            ops.Evict((num_blocks + draw.integer(0, 2),)),
            ops.Evict((-1,)),
            ops.Allocate(name, 0),
            ops.Allocate(name, -1),
            ops.Allocate(name, 1, lookahead=-1),
            ops.Allocate(name, 1, external=-1),
            ops.Allocate(name, 1, encoder_tokens=-1),
            ops.Allocate(name, 1, reserved=-1),
        )
        return draw.choose([one for one in options if one is None or self._possible(one)])

    def _possible(self, operation: Operation) -> bool:
        """True if the target has this kind of operation and all fields of it that are not at their default."""
        kind = type(operation).__name__
        changed = (one.name for one in fields(operation) if getattr(operation, one.name) != one.default)
        return not self._lacks or (self.has(kind) and all(self.has(f"{kind}.{name}") for name in changed))


def _touch(scene: Scene, blocks: tuple[int, ...]) -> Operation | None:
    """One more reference to each block; None if one of them is not visible outside the core."""
    return None if set(blocks) & set(scene.state.sinks) else ops.Touch(blocks)
