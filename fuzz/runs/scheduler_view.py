"""`SchedulerView`: what a scheduler knows about a core from the core's answers. It takes the place of the model's
state.

It believes the core and checks nothing; judging is up to the oracles. Requests are tracked as vLLM's scheduler does it:
computed tokens grow by the hit and by external tokens when an allocation succeeds, and by the scheduled tokens when the
step has run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...model import ops
from ...model.ops import NULL, Done, Operation, Outcome, Shape, Value
from ...model.snapshot import Snapshot
from ...model.state import Request
from ..targets.answers import answers_of, hit_of


class SchedulerView:
    """The `Scene` of a model-free run."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.requests: dict[str, Request] = {}
        self.state = ShownHoldings(shape)
        self.registered: Sequence[Mapping[str, int]] = [{} for _ in shape.groups]
        self.last: tuple[Operation, Outcome] | None = None
        self._told: Sequence[Value] = ()
        self.reached: Counter[str] = Counter()
        self.dead = False
        """True once an allocation has failed midway, which leaves the state undefined; the run ends there."""

    @property
    def just_looked_up(self) -> str | None:
        """The request of the last operation if that was a lookup: its hit may be used now."""
        return self.last[0].request if self.last and isinstance(self.last[0], ops.Lookup) else None

    def follow(self, operation: Operation, outcome: Outcome, snapshot: Snapshot, told: Sequence[Value] = ()) -> None:
        """The core has answered an operation, and `told` besides (`targets.base.handed_of`)."""
        self.last, self._told = (operation, outcome), told
        if isinstance(outcome, Done):
            self._apply(operation, outcome)
        elif isinstance(outcome, ops.Failed) and isinstance(operation, ops.Allocate | ops.AllocateBatch):
            self.dead = True
        self.look(snapshot)

    def start(self, snapshot: Snapshot, *, shows_free: bool = True) -> None:
        """The core has been built. Blocks that are not free now are set aside for ever (sinks)."""
        free = set(snapshot.free) if shows_free else set(range(self.shape.num_blocks))
        self.state.sinks = [block for block in range(1, self.shape.num_blocks) if block not in free]
        self.look(snapshot)

    def look(self, snapshot: Snapshot) -> None:
        """Take over the snapshot that the core shows now."""
        self.state.snapshot = snapshot
        self.registered = snapshot.registered

    def _apply(self, operation: Operation, outcome: Done) -> None:
        request = self.requests.get(operation.request) if isinstance(operation, ops.OnRequest) else None
        match operation:
            case ops.AllocateBatch():
                for allocation, answer in answers_of(operation, outcome):
                    if isinstance(answer, Done):
                        self._on_request(self.requests[allocation.request], allocation, answer)
            case ops.Submit(name):
                self.requests[name] = Request(operation, list(operation.prompt))
            case ops.Take():
                self.state.outside += _blocks(outcome.value, self.shape)
            case ops.Touch(blocks):
                self.state.outside += (block for block in blocks if block != NULL)
            case ops.Free(_, keep) if keep:
                self.state.outside += _blocks(outcome.value, self.shape)
            case ops.Release(blocks):
                for block in blocks:
                    if block in self.state.outside:
                        self.state.outside.remove(block)
        if request is not None:
            self._on_request(request, operation, outcome)

    def _on_request(self, request: Request, operation: Operation, outcome: Done) -> None:
        match operation:
            case ops.Lookup():
                request.hit, request.lags = hit_of(outcome), operation.for_connector and any(self._told)
            case ops.Allocate():
                hit = request.hit[0] if operation.hit and request.hit else 0
                request.computed += self.shape.taken(operation, hit) + operation.external
                request.scheduled = operation.new_tokens
                request.arriving = operation.external if operation.delay else 0
            case ops.Advance():
                request.computed += request.scheduled - operation.rejected
                request.scheduled = 0
                request.tokens += operation.sampled
            case ops.Reject():
                request.computed -= operation.count
            case ops.Arrive():
                request.computed, request.arriving = request.computed - operation.missing, 0
                request.computed -= request.computed == len(request.tokens)
            case ops.Preempt():
                request.computed = request.scheduled = 0
                request.arriving = 0
                request.preemptions += 1
                self.reached["preemption"] += 1
            case ops.Free(name):
                del self.requests[name]


class ShownHoldings:
    """The `Holdings` of a model-free run: what the core shows, and the blocks that outside holders were given."""

    def __init__(self, shape: Shape) -> None:
        empty: list[dict[str, list[int]]] = [{} for _ in shape.groups]
        self.snapshot = Snapshot([], 0, 0.0, [], empty, [], [], [], 0, (), [], None)
        self.outside: list[int] = []
        self.sinks: list[int] = []

    @property
    def tables(self) -> Sequence[Mapping[str, Sequence[int]]]:
        """Per group, the block table of every request that has one."""
        return self.snapshot.tables

    @property
    def identity(self) -> Mapping[int, object]:
        """Labels of the blocks that carry an identity, as far as the core shows them."""
        return {block: label for block, label in enumerate(self.snapshot.labels) if label is not None}

    def references(self) -> list[int]:
        """References per block as the core counts them."""
        return self.snapshot.ref_cnt


def _blocks(value: object, shape: Shape) -> list[int]:
    blocks = value if isinstance(value, tuple) else ()
    return [block for block in blocks if isinstance(block, int) and 0 < block < shape.num_blocks]
