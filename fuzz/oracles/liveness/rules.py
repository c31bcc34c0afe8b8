"""The four properties of liveness, and the checks of them (`Watch`) that the scheduler calls.

The model has these properties; each check says why. What a target is known to do otherwise (its `loses`) is no
violation: it is counted by name in `seen`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ....model.attention import Mamba
from ....model.lookup import alignment
from ....model.ops import NULL, Done, Outcome
from ...workload.scene import Scene
from ..chunk_losses import is_astride, is_hard_to_look_up
from .bounds import Bounds

PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "L1": "requests that each fit alone all finish, within a bounded number of steps; none starves",
        "L2": "the admission gate lets nobody in whom the free blocks cannot hold, with what is known of it; nobody"
        " holds more than its memory bound; and requests whose bounds fit the pool together never preempt one another",
        "L3": "a request that waits for a state registered in this very step is admitted in the next one",
        "L4": "every preemption makes progress possible, and what can never fit is refused at once, the null block"
        " counted",
    }
)
IDLE_STEPS = 2
"""A request starves if it waits while nothing is scheduled in this number of steps in a row."""


class Violated(Exception):
    """A property does not hold: its id (`observable`), the request, and what was observed."""

    def __init__(self, observable: str, request: str, detail: str, kind: str = "") -> None:
        """`kind`: which of the property's sentences it is, whoever it is about."""
        super().__init__(detail)
        self.observable, self.request, self.detail, self.kind = observable, request, detail, kind


class Excused(Exception):
    """The target is known for what happened, and the script cannot go on after it."""


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
        self.identity_before: dict[int, object] = {}
        """Identities of blocks at the start of the step."""

    def arrives(self, name: str, prompt: int, outputs: int) -> None:
        """A request arrives that fits alone. It may take its own steps and those of the requests before it (L1)."""
        self.lengths[name] = prompt + outputs - 1
        self.steps_left += self.bounds.steps(prompt, outputs)

    def step_begins(self, scene: Scene) -> None:
        """A scheduler step begins."""
        self.identity_before = dict(scene.state.identity)

    def takes(self, outcome: Outcome) -> None:
        """A step was allocated: what its new blocks held before is gone, even if they are registered as the same."""
        for row in outcome.value if isinstance(outcome, Done) and isinstance(outcome.value, tuple) else ():
            for block in row if isinstance(row, tuple) else ():
                if isinstance(block, int):
                    self.identity_before.pop(block, None)

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
            what = f"{oldest} starves: nothing runs, {len(live)} waiting, though {fits}"
            self._end_unless_known(self._apart(), "L1", oldest, what, "starves")
        if self.steps_left < 0:
            what = f"{oldest} and {len(live) - 1} more are unfinished after the bound of steps"
            self._end_unless_known(self._apart(), "L1", oldest, what, "too many steps")

    def fails(self, name: str, call: str, error: str) -> None:
        """L1: all calls of this scheduler are correct, so a request whose call raises can never finish."""
        unit = alignment(self.bounds.shape, self.bounds.rules)
        chunks = is_hard_to_look_up(self.bounds.rules, unit)
        losses = ["chunked-refuses"] if chunks and call == "Lookup" else []
        what = f"{name} cannot go on: {call} raised {error}"
        self._end_unless_known(losses, "L1", name, what, f"{call} raised {error}")

    def admitted(self, name: str, tokens: int, hit_tokens: int, free: int, shared: int) -> None:
        """L2, at admission: the request can use `free` blocks, and `shared` blocks of its hit that others hold.

        The gate counts no less than what the request can come to hold with the tokens that are known now, behind a hit
        and with lookahead, too.
        """
        ahead = self.bounds.ahead(hit_tokens, tokens)
        if ahead <= free + shared:
            return
        what = f"its {tokens} tokens, {hit_tokens} of them a hit, come to hold {ahead} blocks at once"
        what += f" and {free} were free" + (f" beside {shared} of its hit" if shared else "")
        what = f"the gate let {name} in: {what}"
        self._break_unless_known(self._gate_losses(hit_tokens), "L2", name, what, "let in")

    def holds(self, name: str, count: int) -> None:
        """L2, after each step that was allocated: the request holds no more blocks than its bound."""
        most = self.bounds.most(self.lengths[name])
        if count > most:
            what = f"{name} holds {count} blocks, and no request of its length needs more than {most} at once"
            self._break_unless_known([], "L2", name, what, "holds too much")

    def _gate_losses(self, hit_tokens: int) -> Iterator[str]:
        """Known losses that explain why the gate counts too little."""
        rules = self.bounds.rules
        if hit_tokens and any(rule.cap() is not None for rule in rules):
            yield "gate-behind-hit"
        if self.bounds.drafts:
            yield "gate-lookahead"
        if any(isinstance(rule, Mamba) and rule.align for rule in rules):
            yield "mamba-gate"
        if any(map(is_astride, rules)):
            yield "chunked-cap"

    def _apart(self) -> Sequence[str]:
        """The known loss of several groups that do not share one pool."""
        return ["pools-apart"] if len(self.bounds.rules) > 1 else []

    def _break_unless_known(self, losses: Iterable[str], observable: str, name: str, what: str, kind: str) -> bool:
        """A property does not hold: raises Violated, or counts the first loss that explains it and is declared."""
        for loss in losses:
            if loss in self.bounds.losses:
                self.seen[f"liveness: known loss {loss}"] += 1
                return True
        raise Violated(observable, name, what, kind)

    def _end_unless_known(self, losses: Iterable[str], observable: str, name: str, what: str, kind: str) -> None:
        """The same where nothing can be said of what follows: raises Excused if it is known."""
        if self._break_unless_known(losses, observable, name, what, kind):
            raise Excused

    def _together(self, running: Sequence[str]) -> int:
        """The most blocks that these requests hold at once, all together."""
        return sum(self.bounds.most(self.lengths[other]) for other in running)

    def fit_together(self, running: Sequence[str]) -> bool:
        """True if the pool holds the most that these requests can hold together."""
        return self._together(running) <= self.bounds.usable

    def running_refused(self, name: str, running: Sequence[str]) -> None:
        """L2 and L4: a step of a running request does not fit, so the most recent running request will be preempted.

        No request holds more than `Bounds.most`. So if the sum of these fits into the pool, every step fits (T16).
        """
        together = self._together(running)
        if together > self.bounds.usable:
            self.seen["liveness: preempted, as T16.overcommit allows"] += 1
            return
        facts = f"the pool has {self.bounds.usable} blocks and they hold at most {together} at once"
        if len(running) == 1:
            what = (
                f"{name} runs alone and is refused its next step, though {facts}: prefilled again, it ends here again"
            )
            self._end_unless_known(self._apart(), "L4", name, what, "refused alone")
        what = f"{name} is refused its next step among {', '.join(running)}, though {facts}"
        self._break_unless_known(self._apart(), "L2", name, what, "refused though all fit")

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
        raise Violated("L3", name, what, "refused for a state")

    def preempted(self, scene: Scene, name: str, own: Sequence[int]) -> None:
        """L4: of the preempted request's `own` blocks, which no other holds, some must be free
        (vllm-project/vllm#49674)."""
        if not own:
            self.seen["liveness: preempted one that shares all its blocks"] += 1
            return
        counts = scene.state.references()
        if all(counts[block] > 0 for block in own):
            what = f"none of the {len(own)} blocks that only {name} held is free"
            raise Violated("L4", name, f"{name} was preempted, but {what}: nobody gets further by it", "nothing free")

    def hopeless_answered(self, name: str, tokens: int, admitted: bool) -> None:
        """L4: a request that can never fit is not admitted. Without a hit the gate counts at least what it reads."""
        if not admitted:
            self.seen["liveness: refused what can never fit"] += 1
            return
        least, usable = self.bounds.least(tokens), self.bounds.usable
        what = f"its {tokens} tokens need {least} blocks at once and the pool has {usable} beside the null block"
        what = f"the gate let {name} in, though {what}: it can never finish"
        self._end_unless_known(self._gate_losses(0), "L4", name, what, "let in for ever")
