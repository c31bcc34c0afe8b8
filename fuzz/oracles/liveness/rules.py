"""The four properties of liveness, and what a scheduler has to watch to judge them.

The model satisfies them as they stand here, by arguments that are written beside each check. What the admission gate of
the reference is known not to guarantee (T16.hit, T16.lookahead, T16.overcommit, T16.states) is no violation: it is
counted with its name, under `seen`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....model.attention import Mamba
from ....model.ops import NULL
from ....model.scene import Scene
from .bounds import Bounds

PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "L1": "requests that each fit alone all finish, within a bounded number of steps; none starves",
        "L2": "the admission gate lets nobody in whom the free blocks cannot hold, and requests whose memory bounds fit"
        " the pool together never preempt one another",
        "L3": "a request that waits for a state registered in this very step is admitted in the next one",
        "L4": "every preemption makes progress possible, and what can never fit is refused at once, the null block"
        " counted",
    }
)
IDLE_STEPS = 2
"""Steps in which nothing happens though somebody waits, after which that counts as for ever."""


class Violated(Exception):
    """A property does not hold; says which, for which request, and what was seen."""

    def __init__(self, observable: str, request: str, detail: str) -> None:
        super().__init__(detail)
        self.observable, self.request, self.detail = observable, request, detail


class Watch:
    """Follows one scheduler and raises `Violated` at the first thing that is wrong."""

    def __init__(self, bounds: Bounds, seen: Counter[str]) -> None:
        """Known losses and other situations are counted in `seen`."""
        self.bounds, self.seen = bounds, seen
        self.lengths: dict[str, int] = {}
        """Tokens that each request computes until it is finished."""
        self.steps_left = 0
        """Steps until all that have arrived must be finished."""
        self.idle = 0
        self.deferred: set[str] = set()
        self.by_hit: set[str] = set()
        """Admitted only because the gate counts too little behind a hit (T16.hit)."""
        self.identity_before: dict[int, object] = {}
        """Identities of the blocks when the step began."""

    def arrives(self, name: str, prompt: int, outputs: int) -> None:
        """A request that fits alone: it has its own steps, and whatever those before it have left (L1)."""
        self.lengths[name] = prompt + outputs - 1
        self.steps_left += self.bounds.steps(prompt, outputs)

    def step_begins(self, scene: Scene) -> None:
        """A scheduler step begins."""
        self.identity_before = dict(scene.state.identity)

    def step_ends(self, live: Sequence[str], scheduled: int) -> None:
        """L1. With everybody gone or preempted the pool is free, and whoever fits alone must be let in; so the oldest
        computes something in every step."""
        if not live:
            self.steps_left = self.idle = 0
            return
        self.steps_left -= 1
        self.idle = 0 if scheduled else self.idle + 1
        oldest = live[0]
        most, usable = self.bounds.most(self.lengths[oldest]), self.bounds.usable
        if self.idle == IDLE_STEPS:
            fits = f"it holds at most {most} blocks at once and the pool has {usable}"
            raise Violated("L1", oldest, f"{oldest} starves: nothing runs, {len(live)} waiting, though {fits}")
        if self.steps_left < 0:
            raise Violated("L1", oldest, f"{oldest} and {len(live) - 1} more are unfinished after the bound of steps")

    def fails(self, name: str, call: str, error: str) -> None:
        """L1: nothing that this scheduler asks for is an error, so whoever gets one can never finish."""
        raise Violated("L1", name, f"{name} cannot go on: {call} raised {error}")

    def admitted(self, name: str, tokens: int, hit_tokens: int, free: int, shared: int) -> None:
        """L2, at admission: `free` blocks and `shared` ones of its hit that others hold are all there is.

        The gate counts what the whole of its tokens needs, at most the cap (T4, T6), and that is at least what they
        read. Behind a hit it counts too little (T16.hit): that is counted as a loss.
        """
        self.by_hit.discard(name)
        least = self.bounds.least(tokens)
        if least <= free + shared:
            return
        if not hit_tokens:
            what = f"its {tokens} tokens need {least} blocks at once and {free} were free"
            raise Violated("L2", name, f"the gate let {name} in: {what}")
        self.by_hit.add(name)

    def running_refused(self, name: str, running: Sequence[str]) -> None:
        """L2 and L4: a step of a running request does not fit; the most recent one is going to be preempted.

        What each holds is bounded by `Bounds.most`, so if the bounds fit the pool, so does every step (T16).
        """
        together = sum(self.bounds.most(self.lengths[other]) for other in running)
        if together > self.bounds.usable:
            self.seen[f"liveness: preempted, as {self._gap(running)} allows"] += 1
            return
        facts = f"the pool has {self.bounds.usable} blocks and they hold at most {together} at once"
        if len(running) == 1:
            what = (
                f"{name} runs alone and is refused its next step, though {facts}: prefilled again, it ends here again"
            )
            raise Violated("L4", name, what)
        raise Violated("L2", name, f"{name} is refused its next step among {', '.join(running)}, though {facts}")

    def _gap(self, running: Sequence[str]) -> str:
        """Which of the known gaps of the gate let so many in."""
        bounds = self.bounds
        if sum(bounds.counted(self.lengths[name]) for name in running) <= bounds.usable:
            without_drafts = sum(bounds.most(self.lengths[name], drafts=0) for name in running)
            return "T16.lookahead" if without_drafts <= bounds.usable else "T16.states"
        return "T16.overcommit" if self.by_hit.isdisjoint(running) else "T16.hit"

    def waiting_refused(self, scene: Scene, name: str, hit: Sequence[Sequence[int]], free: int) -> bool:
        """L3, first part: a request is refused admission. Deferred is who hits a state that was registered since the
        step began, be it on another block once more. Returns whether it hits older states only and has room for all
        that it can need: then it must not be those states that keep it out."""
        rows = [row for rule, row in zip(self.bounds.rules, hit, strict=True) if isinstance(rule, Mamba)]
        identity = scene.state.identity
        states = [identity[block] for row in rows for block in row if block != NULL and block in identity]
        fresh = [now for block, now in identity.items() if now != self.identity_before.get(block)]
        room = self.bounds.most(self.lengths[name]) <= free
        if any(state in fresh for state in states):
            again = " again" if name in self.deferred else ""
            self.seen[f"liveness: deferred{again} by a state of the same step"] += room
            self.deferred.add(name)
            return False
        return room and bool(states)

    def held_back(self, name: str) -> None:
        """L3, second part: the same request was let in without its hit."""
        what = f"{name} is refused because it would go on from a state, though that was registered in an earlier step"
        raise Violated("L3", name, what)

    def preempted(self, scene: Scene, name: str, own: Sequence[int]) -> None:
        """L4: the blocks that nobody else holds must come free (report 49674)."""
        if not own:
            self.seen["liveness: preempted one that shares all its blocks"] += 1
            return
        counts = scene.state.references()
        if all(counts[block] > 0 for block in own):
            what = f"none of the {len(own)} blocks that only {name} held is free"
            raise Violated("L4", name, f"{name} was preempted, but {what}: nobody gets further by it")

    def hopeless_answered(self, name: str, tokens: int, admitted: bool) -> None:
        """L4: who can never fit is never let in. Without a hit the gate counts at least what its tokens read."""
        if not admitted:
            self.seen["liveness: refused what can never fit"] += 1
            return
        least, usable = self.bounds.least(tokens), self.bounds.usable
        what = f"its {tokens} tokens need {least} blocks at once and the pool has {usable} beside the null block"
        raise Violated("L4", name, f"the gate let {name} in, though {what}: it can never finish")
