"""The calls that a scheduler makes on its core, told at once as operations with the state before and after each.

`CoreCalls` writes operations down for a comparison afterwards. A judge that looks at every state needs them while they
happen, and needs to know when a step ran: so what a request learnt is told when the scheduler has learnt it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from .....model import ops
from .....model.ops import NULL, Done, Failed, Operation, Outcome, Refused, error_kind
from .....model.snapshot import Snapshot
from ..observe import Observer

NOT_LOOKED_AT = frozenset({"usage", "registered", "earliest", "num_identities", "events", "new_block_ids", "stats"})
"""Fields of a state that stay empty here (`_Looks`)."""
Judge = Callable[[Operation, Outcome, Snapshot, Snapshot], None]
"""Takes an operation, its outcome, and the state before and after it."""
Cut = Callable[[str, int, list[list[int]]], None]
"""Takes a request, and how much of its hit is used: tokens, and block ids of each group."""


class _Looks(Observer):
    """What the contract reads of a state, and nothing else: this is taken twice for each call on the core."""

    def snapshot(self) -> Snapshot:
        """The present state; fields that the contract does not read are empty."""
        tables = [
            {request: [block.block_id for block in table] for request, table in manager.req_to_blocks.items() if table}
            for manager in self._managers
        ]
        if "labels" in self._hidden:
            labels = self._hidden["labels"]
        else:
            keys = self._block_keys()
            if keys != self._keys:
                label = self._label
                self._keys, self._labels = keys, [None if key is None else label[key] for key in keys]
            labels = self._labels
        counts = self._ref_counts()
        counts[NULL] = 0
        free = self._pool.get_num_free_blocks()
        return Snapshot(self._free_ids(), free, 0.0, counts, tables, [], labels, [], 0, (), [], None)


class ManagerWatch:
    """Follows the `KVCacheManager` of one scheduler and tells `judge` each operation."""

    def __init__(
        self, manager: Any, submitted: Callable[[str], ops.Submit], hides: frozenset[str], judge: Judge, cut: Cut
    ) -> None:
        """`submitted`: what the request of this name is; `cut` is called before an allocation that uses less of a hit
        than was found."""
        self._manager, self._submitted, self._judge, self._cut = manager, submitted, judge, cut
        self._observer = _Looks(manager, {}, hides)
        self.shown = self._settled = self._observer.snapshot()
        """The state as it was last looked at, and after the last operation that was told."""
        self._computed: dict[str, int] = {}
        """Per request, the computed tokens that were told."""
        self._length: dict[str, int] = {}
        """Per request, the known tokens that were told."""
        self._scheduled: dict[str, int] = {}
        """Per request, the tokens of an allocated step that was not told to have run."""
        self._requests: dict[str, Any] = {}
        """The requests that were told, as the scheduler has them."""
        self._arriving: set[str] = set()
        self._inside = False
        """True within a call that is told: what the core calls of itself then is a part of it."""
        self._hit = ""
        """The request whose hit may be used: the last lookup was for it."""
        self._found = 0
        """Tokens of that hit. A scheduler with a connector may take none of it, or less, and load the rest."""
        self._of_groups: tuple[Any, Any] | None = None
        """What was found by a scheduler that asks the coordinator itself, each group alone: hashes of the request, and
        tokens. The core learns whose lookup it was when it allocates."""
        for name in ("new_step_starts", "get_computed_blocks", "allocate_slots", "cache_blocks"):
            self._wrap(name, getattr(self, f"_{name}"))
        for name in ("free", "pop_blocks_for_free"):
            if hasattr(manager, name):
                self._wrap(name, self._left)
        if hasattr(manager, "remove_skipped_blocks"):
            self._wrap("remove_skipped_blocks", self._skipped)
        self._wrap("reset_prefix_cache", self._reset)
        coordinator = manager.coordinator
        if hasattr(coordinator, "find_longest_cache_hit_per_group"):
            self._alone = coordinator.find_longest_cache_hit_per_group
            coordinator.find_longest_cache_hit_per_group = self._each_alone

    # Telling.

    def _wrap(self, name: str, tell: Callable[..., None]) -> None:
        call = getattr(self._manager, name)

        def watched(*given: Any, **named: Any) -> Any:
            if self._inside:
                return call(*given, **named)
            about = given[0] if given else named.get("request_id")
            request = self._requests.get(about) if isinstance(about, str) else about
            if hasattr(request, "request_id"):
                self.learnt(request)
            before = self._see()
            self._inside = True
            try:
                result = call(*given, **named)
            except Exception as error:
                self._failed(name, given, error, before)
                raise
            finally:
                self._inside = False
            tell(before, result, *given, **named)
            return result

        setattr(self._manager, name, watched)

    def _see(self) -> Snapshot:
        self.shown = self._observer.snapshot()
        return self.shown

    def _tell(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot | None = None) -> None:
        self._settled = self._see() if after is None else after
        self._judge(operation, outcome, before, self._settled)

    def _failed(self, name: str, given: tuple[Any, ...], error: Exception, before: Snapshot) -> None:
        """A lookup that fails is judged; the others end the engine, which the run itself reports."""
        if name == "get_computed_blocks":
            self._tell(ops.Lookup(given[0].request_id), Failed(error_kind(error)), before)

    def learnt(self, request: Any) -> None:
        """Tell what has happened to a request since it was last told: it arrived, a step ran, drafts were rejected."""
        name = request.request_id
        if name not in self._length:
            self._length[name], self._computed[name], self._requests[name] = request.num_tokens, 0, request
            self._tell(self._submitted(name), Done(), self.shown, self.shown)
        computed, length = self._computed[name], self._length[name]
        if name in self._arriving or (request.num_computed_tokens, request.num_tokens) == (computed, length):
            return  # nothing new; a step that was allocated in this call of the scheduler does not count yet
        ran, sampled = self._scheduled.pop(name, 0), tuple(request.all_token_ids[length:])
        back = computed + ran - request.num_computed_tokens
        if back > 0 and not ran:
            self._tell(ops.Reject(name, back), Done(), self.shown, self.shown)
            back = 0
        if ran or sampled:
            self._tell(ops.Advance(name, sampled, max(0, back)), Done(), self.shown, self.shown)
        self._computed[name], self._length[name] = request.num_computed_tokens, request.num_tokens

    def all_learnt(self, requests: Iterable[Any]) -> None:
        """The same for all of these, which the core need not know yet. Unjudged changes since the last call count as
        made by the first of them."""
        self._see()
        for request in requests:
            if request.request_id in self._length:
                self.learnt(request)

    # The calls.

    def _new_step_starts(self, before: Snapshot, result: object) -> None:
        self._tell(ops.StepStart(), Done(), before)

    def _get_computed_blocks(self, before: Snapshot, result: Any, request: Any, *limit: Any) -> None:
        blocks, tokens = result[0], result[1]
        self._found, self._of_groups = tokens, None
        self._hit = request.request_id
        self._tell(ops.Lookup(self._hit), Done((tokens, _ids(blocks))), before)

    def _each_alone(self, hashes: Any, *given: Any, **named: Any) -> Any:
        answer = self._alone(hashes, *given, **named)
        self._of_groups = (hashes, max(answer[1]))
        return answer

    def _allocate_slots(
        self,
        before: Snapshot,
        result: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        **more: Any,
    ) -> None:
        name, external = request.request_id, more.get("num_external_computed_tokens", 0)
        if self._of_groups is not None and self._of_groups[0] is request.block_hashes:
            tokens, self._of_groups = self._of_groups[1], None
            if new_computed_blocks is not None:
                self._found, self._hit = tokens, name
                self._tell(ops.Lookup(name), Done((tokens, _ids(new_computed_blocks))), before, before)
        found = new_computed_blocks is not None and self._hit == name
        if found and 0 < num_new_computed_tokens < self._found:
            self._found = num_new_computed_tokens
            self._cut(name, self._found, [list(row) for row in _ids(new_computed_blocks)])
        operation = ops.Allocate(
            name,
            num_new_tokens,
            hit=found and num_new_computed_tokens == self._found,
            lookahead=more.get("num_lookahead_tokens", 0),
            external=external,
            delay=more.get("delay_cache_blocks", False),
            encoder_tokens=more.get("num_encoder_tokens", 0),
            gate=more.get("full_sequence_must_fit", False),
            reserved=more.get("reserved_blocks", 0),
        )
        if result is not None:
            self._computed[name] += num_new_computed_tokens + external
            self._hit = ""
            if operation.delay:
                self._arriving.add(name)
            else:
                self._scheduled[name] = num_new_tokens
        self._tell(operation, Refused() if result is None else Done(_ids(result)), before)

    def _cache_blocks(self, before: Snapshot, result: object, request: Any, num_computed_tokens: int) -> None:
        """External tokens have arrived, or as many of them as have before a failure; or an asynchronous scheduler
        registers what it has learnt late."""
        name = request.request_id
        if name not in self._arriving:
            self._tell(ops.Advance(name), Done(), before)
            return
        self._arriving.discard(name)
        missing = self._computed[name] - num_computed_tokens
        self._computed[name] = num_computed_tokens - (num_computed_tokens == request.num_tokens)
        self._tell(ops.Arrive(name, missing), Done(), before)

    def _left(self, before: Snapshot, result: object, request: Any) -> None:
        name = request.request_id
        finished = request.is_finished()
        self._scheduled.pop(name, None)
        if name in self._arriving and not finished:  # its load has failed altogether, and is over
            self._tell(ops.Landed(name), Done(), self._settled, self._settled)
        self._arriving.discard(name)
        self._computed[name] = 0
        # Before a request leaves, the scheduler may give its skipped blocks back by itself, for a connector.
        self._tell(ops.Free(name) if finished else ops.Preempt(name), Done(), self._settled)
        if finished:
            del self._computed[name], self._length[name], self._requests[name]

    def _skipped(self, before: Snapshot, result: object, request_id: str, *more: Any, **named: Any) -> None:
        """A scheduler gives skipped blocks back by itself before it hands the table of a request to a connector."""
        if request_id in self._requests:
            self._tell(ops.RemoveSkipped(request_id), Done(), before)

    def _reset(self, before: Snapshot, result: Any) -> None:
        self._tell(ops.Reset(), Done(bool(result)), before)


def _ids(blocks: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block.block_id for block in group) for group in blocks.blocks)
