"""The calls that a scheduler makes on a core, written down as operations of the model.

So what a real scheduler did can be judged by the model, with the known deviations of a release in it or without.
"""

from collections.abc import Callable
from typing import Any

from .....model.ops import (
    Advance,
    Allocate,
    Done,
    Failed,
    Free,
    Lookup,
    Operation,
    Outcome,
    Preempt,
    Refused,
    Shape,
    StepStart,
    Submit,
    error_kind,
)
from ....findings.ops_json import to_json

REGISTER = "register"
"""Key of a call that is no operation: it has the request whose first `tokens` tokens are registered."""
PROCESSED = "processed"
"""Key of what is no call: the request of which the outcome of `tokens` tokens is known, by the scheduler's count."""


class CoreCalls:
    """Follows a `KVCacheManager`: each call as an operation, with its outcome."""

    def __init__(self, manager: Any, shape: Shape) -> None:
        self._manager, self._shape = manager, shape
        self._calls: list[tuple[object, Outcome | None]] = []
        self._known: dict[str, tuple[int, int]] = {}
        """Per request, its computed tokens and its tokens as the model has them now."""
        self._scheduled: dict[str, int] = {}
        self._hit: str | None = None
        for name in ("new_step_starts", "get_computed_blocks", "allocate_slots", "cache_blocks", "free"):
            setattr(manager, name, self._following(getattr(manager, name), getattr(self, f"_{name}")))

    @property
    def count(self) -> int:
        """How many operations there are."""
        return len(self._calls)

    def as_json(self) -> dict[str, object]:
        """Shape, operations and outcomes; the outcome is None where it is not compared."""
        return {
            "shape": to_json(self._shape),
            "calls": [
                [to_json(operation), None if outcome is None else to_json(outcome)]
                for operation, outcome in self._calls
            ],
        }

    def _following(self, call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def followed(*given: Any, **named: Any) -> Any:
            if given:
                self._catch_up(given[0])
            try:
                result = call(*given, **named)
            except Exception as error:
                self._calls.append((self._asked(given), Failed(error_kind(error))))
                raise
            note(result, *given, **named)
            return result

        return followed

    def _asked(self, given: tuple[Any, ...]) -> Operation:
        """The operation of a call that failed: a lookup, or one that no model need answer."""
        return Lookup(given[0].request_id) if len(given) == 1 else StepStart()

    def _catch_up(self, request: Any) -> None:
        """Tell what has happened to a request since its last call: it has arrived, or a step of it has run."""
        name = request.request_id
        if name not in self._known:
            tokens = tuple(request.all_token_ids)
            self._calls.append((Submit(name, tokens), None))
            self._known[name] = (0, len(tokens))
            return
        computed, length = self._known[name]
        if name in self._scheduled or request.num_tokens > length:
            ran = self._scheduled.pop(name, 0)  # none if an earlier step has brought its tokens late
            sampled = tuple(request.all_token_ids[length:])
            rejected = computed + ran - request.num_computed_tokens if ran else 0
            self._calls.append((Advance(name, sampled, max(0, rejected)), None))
        self._known[name] = (request.num_computed_tokens, request.num_tokens)

    def _new_step_starts(self, result: object) -> None:
        self._calls.append((StepStart(), None))

    def _get_computed_blocks(self, result: Any, request: Any, limit: int | None = None) -> None:
        blocks, tokens, *_ = result
        self._calls.append((Lookup(request.request_id, limit), Done((tokens, _ids(blocks)))))
        self._hit = request.request_id

    def _allocate_slots(
        self, result: Any, request: Any, num_new_tokens: int, new_computed_blocks: Any = None, **more: Any
    ) -> None:
        name, in_flight = request.request_id, getattr(request, "num_in_flight_tokens", None)
        if in_flight is not None:
            self._calls.append(({PROCESSED: name, "tokens": request.num_computed_tokens - in_flight}, None))
        operation = Allocate(
            name,
            num_new_tokens,
            hit=new_computed_blocks is not None and self._hit == name,
            lookahead=more.get("num_lookahead_tokens", 0),
            external=more.get("num_external_computed_tokens", 0),
            delay=more.get("delay_cache_blocks", False),
            encoder_tokens=more.get("num_encoder_tokens", 0),
            gate=more.get("full_sequence_must_fit", False),
            reserved=more.get("reserved_blocks", 0),
            in_flight=in_flight or 0,
            alone=not more.get("has_scheduled_reqs", True),
        )
        self._calls.append((operation, Refused() if result is None else Done(_ids(result))))
        if result is not None:
            computed, length = self._known[name]
            self._known[name] = (computed + more.get("num_new_computed_tokens", 0), length)
            self._scheduled[name] = num_new_tokens
            self._hit = None

    def _cache_blocks(self, result: object, request: Any, num_computed_tokens: int) -> None:
        called = {REGISTER: request.request_id, "tokens": num_computed_tokens}
        self._calls.append((called, None))

    def _free(self, result: object, request: Any) -> None:
        name = request.request_id
        finished = request.is_finished()
        self._calls.append((Free(name) if finished else Preempt(name), None))
        self._scheduled.pop(name, None)
        self._known[name] = (0, self._known[name][1])


def _ids(blocks: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block.block_id for block in group) for group in blocks.blocks)
