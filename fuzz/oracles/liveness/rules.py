"""The four properties of liveness, and the checks of them (`Watch`) that the scheduler calls.

The model has these properties; each check says why. Known gaps of the reference's admission gate (T16.hit,
T16.lookahead, T16.overcommit, T16.states) are not violations: they are counted by name in `seen`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....model.attention import Mamba
from ....model.ops import NULL
from ...workload.scene import Scene
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
"""A request starves if it waits while nothing is scheduled in this number of steps in a row."""


class Violated(Exception):
    """A property does not hold: its id (`observable`), the request, and what was observed."""

    def __init__(self, observable: str, request: str, detail: str) -> None:
        super().__init__(detail)
        self.observable, self.request, self.detail = observable, request, detail


class Watch:
    """Watches one scheduler. Its methods are called when something happens; they raise `Violated`."""

    def __init__(self, bounds: Bounds, seen: Counter[str]) -> None:
        """Known gaps and other situations are counted in `seen`."""
        self.bounds, self.seen = bounds, seen
        self.lengths: dict[str, int] = {}
        """Per request: tokens that it computes until it is finished."""
        self.steps_left = 0
        """Steps within which all requests that have arrived must finish."""
        self.idle = 0
        self.deferred: set[str] = set()
        self.by_hit: set[str] = set()
        """Requests that were admitted only because the gate counts too few blocks after a hit (T16.hit)."""
        self.identity_before: dict[int, object] = {}
        """Identities of blocks at the start of the step."""

    def arrives(self, name: str, prompt: int, outputs: int) -> None:
        """A request arrives that fits alone. It may take its own steps and those of the requests before it (L1)."""
        self.lengths[name] = prompt + outputs - 1
        self.steps_left += self.bounds.steps(prompt, outputs)

    def step_begins(self, scene: Scene) -> None:
        """A scheduler step begins."""
        self.identity_before = dict(scene.state.identity)

    def step_ends(self, live: Sequence[str], scheduled: int) -> None:
        """L1. Once all other requests have ended or are preempted, the pool is free, and a request that fits alone must
        be admitted. So the oldest request computes something in every step."""
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
        """L1: all calls of this scheduler are correct, so a request whose call raises can never finish."""
        raise Violated("L1", name, f"{name} cannot go on: {call} raised {error}")

    def admitted(self, name: str, tokens: int, hit_tokens: int, free: int, shared: int) -> None:
        """L2, at admission: the request can use `free` blocks, and `shared` blocks of its hit that others hold.

        The gate counts the blocks for all tokens of the request, capped (T4, T6); that is no less than what its queries
        read. After a hit the gate counts too few (T16.hit), which is a known gap.
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
        """L2 and L4: a step of a running request does not fit, so the most recent running request will be preempted.

        No request holds more than `Bounds.most`. So if the sum of these fits into the pool, every step fits (T16).
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
        """Name of the known gap by which the gate has admitted too many requests."""
        bounds = self.bounds
        if sum(bounds.counted(self.lengths[name]) for name in running) <= bounds.usable:
            without_drafts = sum(bounds.most(self.lengths[name], drafts=0) for name in running)
            return "T16.lookahead" if without_drafts <= bounds.usable else "T16.states"
        return "T16.overcommit" if self.by_hit.isdisjoint(running) else "T16.hit"

    def waiting_refused(self, scene: Scene, name: str, hit: Sequence[Sequence[int]], free: int) -> bool:
        """L3, first part: a request is refused admission.

        It counts as deferred if it hits a state that was registered in this step, even if another block had it before.
        Returns True if it hits only older states and there is room for all it can need: then these states must not be
        the reason for the refusal.
        """
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

    def admitted_without_hit(self, name: str) -> None:
        """L3, second part: the same request is admitted without its hit, so the hit was the reason for the refusal."""
        what = f"{name} is refused because it would go on from a state, though that was registered in an earlier step"
        raise Violated("L3", name, what)

    def preempted(self, scene: Scene, name: str, own: Sequence[int]) -> None:
        """L4: of the preempted request's `own` blocks, which no other holds, some must be free
        (vllm-project/vllm#49674)."""
        if not own:
            self.seen["liveness: preempted one that shares all its blocks"] += 1
            return
        counts = scene.state.references()
        if all(counts[block] > 0 for block in own):
            what = f"none of the {len(own)} blocks that only {name} held is free"
            raise Violated("L4", name, f"{name} was preempted, but {what}: nobody gets further by it")

    def hopeless_answered(self, name: str, tokens: int, admitted: bool) -> None:
        """L4: a request that can never fit is not admitted. Without a hit the gate counts at least what it reads."""
        if not admitted:
            self.seen["liveness: refused what can never fit"] += 1
            return
        least, usable = self.bounds.least(tokens), self.bounds.usable
        what = f"its {tokens} tokens need {least} blocks at once and the pool has {usable} beside the null block"
        raise Violated("L4", name, f"the gate let {name} in, though {what}: it can never finish")
