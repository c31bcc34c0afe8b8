"""Operations as a scheduler would make them, drawn through one small interface.

`Workload.next` draws one operation after the other from what the model's state allows. The same generator serves the
seeded engine, the Hypothesis state machine and coverage-guided bytes: they differ in their `Draw` only.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from ..model.core import Model
from ..model.ops import (
    Advance,
    Allocate,
    Arrive,
    CommonPrefix,
    Evict,
    Free,
    Item,
    Lookup,
    Operation,
    Preempt,
    ReadTable,
    Refused,
    Reject,
    Release,
    RemoveSkipped,
    Reset,
    Shape,
    StepStart,
    Submit,
    Take,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
    Touch,
)
from ..model.requests import Request

T = TypeVar("T")
Action: TypeAlias = Callable[[Model], Operation | None]

ADAPTERS = ("x", "y")
SALTS = ("x", "z")
"""One name is an adapter and a salt, so that identities which mix the two up collide (report 44701)."""
UNKNOWN_REQUEST = "nobody"
SWARM_WEIGHTS = (0, 0, 1, 1, 4)
"""Swarm testing: per run, an action is off, ordinary or much more frequent."""


class Draw(Protocol):
    """The only source of choice."""

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        ...

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...


class SeededDraw:
    """Choices from a seed: the fastest way."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed).random

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random() * len(options))]


class Workload:
    """Draws the operations of one run over a core of the given shape."""

    def __init__(self, draw: Draw, shape: Shape, *, chaos: bool = False) -> None:
        self.draw = draw
        self.shape = shape
        self._submitted = 0
        self._max_live = draw.choose((1, 2, 3, 5, 8))
        self._alphabet = draw.choose((1, 2, 3))
        self._families = [self._tokens(shape.max_model_len) for _ in range(3)]
        """Prefixes that requests share; the first is hot."""
        self._features = draw.integer(0, 3) == 0 and shape.caching
        self._drafts = draw.choose((0, 0, 1, 3))
        self._externals = draw.integer(0, 3) == 0
        self._lookahead = draw.choose((0, 0, 1, 4))
        self._gates = draw.choose((0, 1, 2))
        self._actions = self._swarm(chaos)

    def next(self, model: Model) -> Operation:
        """An operation that the model's state allows."""
        if model.just_looked_up in model.requests and self.draw.integer(0, 9):
            return self._allocate(model, model.requests[model.just_looked_up])
        if model.last and isinstance(model.last[1], Refused) and self.draw.integer(0, 2):
            name = self.draw.choose(list(model.requests))
            return Preempt(name) if self.draw.integer(0, 2) == 0 else Free(name)
        while True:
            operation = self.draw.choose(self._actions)(model)
            if operation is not None:
                return operation

    def drain(self, model: Model) -> list[Operation]:
        """What gives everything back, after which the pool must be whole (S1)."""
        held: list[Operation] = [Release((block,)) for block in model.state.outside]
        return [*(Free(name) for name in model.requests), *held]

    def _swarm(self, chaos: bool) -> Sequence[Action]:
        """Actions, each as often as its weight of this run. Work on requests is never off."""
        optional: dict[Action, int] = {
            self._preempt: 1,
            self._evict: 1,
            self._observe: 4,
            self._step_start: 2,
            self._reset: 1,
            self._remove_skipped: 1,
            self._outside: 1,
            self._free_unknown: 1,
        }
        weights: dict[Action, int] = {self._submit: 6, self._work: 30, self._finish: 2, self._observe: 1}
        for action, weight in optional.items():
            weights[action] = weights.get(action, 0) + weight * self.draw.choose(SWARM_WEIGHTS)
        weights[self._misuse] = 4 if chaos else 0
        return [action for action, weight in weights.items() for _ in range(weight)]

    # Requests.

    def _tokens(self, count: int) -> tuple[int, ...]:
        integer, last = self.draw.integer, self._alphabet - 1
        return tuple(integer(0, last) for _ in range(count))

    def _submit(self, model: Model) -> Operation | None:
        if len(model.requests) >= self._max_live:
            return None
        draw, max_len = self.draw, self.shape.max_model_len
        length = max_len if draw.integer(0, 15) == 0 else draw.integer(1, max_len)
        family = self._families[0] if draw.integer(0, 2) else draw.choose(self._families)
        fork = length if draw.integer(0, 2) else draw.integer(0, length)
        prompt = family[:fork] + self._tokens(length - fork)
        name = f"r{self._submitted}"
        self._submitted += 1
        skip = draw.integer(0, 15) == 0
        if not self._features:
            return Submit(name, prompt, skip_lookup=skip)
        embeds = tuple(prompt) if draw.integer(0, 5) == 0 else None
        return Submit(
            name,
            (0,) * length if embeds else prompt,
            adapter=draw.choose((None, None, *ADAPTERS)),
            salt=draw.choose((None, None, *SALTS)),
            items=() if embeds else self._items(length),
            embeds=embeds,
            skip_lookup=skip,
        )

    def _items(self, length: int) -> tuple[Item, ...]:
        items: list[Item] = []
        start = 0
        for _ in range(self.draw.choose((0, 0, 1, 2, 3))):
            if start >= length:
                break
            offset = self.draw.integer(start, length - 1)
            item = Item(self.draw.choose(("p", "q")), offset, self.draw.integer(1, min(6, length - offset)))
            items.append(item)
            start = offset + item.length
        return tuple(items)

    def _work(self, model: Model) -> Operation | None:
        """Bring one request forward."""
        if not model.requests:
            return None
        request = self.draw.choose(list(model.requests.values()))
        name = request.submit.request
        if request.arriving:
            return Arrive(name)
        if request.scheduled:
            return self._advance(request)
        if request.lead and self.draw.integer(0, 1):
            return self._late_news(request)
        if not request.computed and not any(tables.get(name) for tables in model.state.tables):
            return Lookup(name) if self.draw.integer(0, 9) else self._allocate(model, request)
        return self._allocate(model, request)

    def _allocate(self, model: Model, request: Request) -> Operation:
        draw, name, max_len = self.draw, request.submit.request, self.shape.max_model_len
        looked_up = model.just_looked_up == name and not request.computed
        hit = looked_up and request.hit is not None and draw.integer(0, 15) > 0
        start = request.computed + (request.hit[0] if hit and request.hit else 0)
        fresh = not request.computed and name not in model.registered[0] if model.registered else False
        fresh = fresh and not any(tables.get(name) for tables in model.state.tables)
        tokens = len(request.tokens)
        external = draw.integer(0, tokens - start) if fresh and self._externals and start < tokens else 0
        room = max_len - start - external
        delay = external > 0 and (not room or draw.integer(0, 1) == 1)
        if delay or room <= 0:
            new = 0
        elif start + external < tokens:
            remaining = tokens - start - external
            new = remaining if draw.integer(0, 1) else draw.integer(1, remaining)
        else:
            new = min(room, 1 + draw.integer(0, self._drafts))
        if not new and not external:
            return Free(name)
        if new and not delay and start + external + new >= tokens:
            new = min(room, new + draw.integer(0, self._drafts))
        return Allocate(
            name,
            new,
            hit=hit,
            lookahead=self._lookahead,
            external=external,
            delay=delay,
            encoder_tokens=self._encoder_tokens(fresh),
            gate=draw.integer(0, 2) < self._gates,
            reserved=draw.integer(1, 4) if draw.integer(0, 15) == 0 else 0,
        )

    def _encoder_tokens(self, fresh: bool) -> int:
        has_cross = any(group.kind == "cross" for group in self.shape.groups)
        return self.draw.integer(1, self.shape.max_model_len) if has_cross and fresh else 0

    def _advance(self, request: Request) -> Operation:
        """The step has run. What comes after the known tokens are drafts: some are rejected, the others sampled."""
        draw, name = self.draw, request.submit.request
        tokens, max_len = len(request.tokens), self.shape.max_model_len
        end = request.computed + request.scheduled
        if end < tokens:
            return Advance(name)
        drafts = end - tokens
        if drafts and draw.integer(0, 3) == 0:
            return Advance(name)  # asynchronous: the news comes later
        rejected = draw.integer(0, min(drafts, request.scheduled - 1))
        sampled = min(end - rejected + 1 - tokens, max_len - tokens)
        return Advance(name, self._tokens(max(0, sampled)), rejected)

    def _late_news(self, request: Request) -> Operation:
        name = request.submit.request
        sampled = min(request.lead, self.shape.max_model_len - len(request.tokens))
        if sampled and self.draw.integer(0, 1):
            return Advance(name, self._tokens(sampled))
        return Reject(name, self.draw.integer(1, request.lead))

    def _finish(self, model: Model) -> Operation | None:
        return Free(self.draw.choose(list(model.requests))) if model.requests else None

    def _free_unknown(self, model: Model) -> Operation:
        return Free(UNKNOWN_REQUEST)

    def _preempt(self, model: Model) -> Operation | None:
        return Preempt(self.draw.choose(list(model.requests))) if model.requests else None

    def _remove_skipped(self, model: Model) -> Operation | None:
        return RemoveSkipped(self.draw.choose(list(model.requests))) if model.requests else None

    # The pool and what is seen of it.

    def _block(self) -> int:
        return self.draw.integer(1, self.shape.num_blocks - 1)

    def _evict(self, model: Model) -> Operation:
        registered = list(model.state.identity)
        if registered and self.draw.integer(0, 3):
            return Evict((self.draw.choose(registered),))
        return Evict(tuple(dict.fromkeys(self.draw.integer(0, self.shape.num_blocks - 1) for _ in range(2))))

    def _reset(self, model: Model) -> Operation:
        return Reset()

    def _step_start(self, model: Model) -> Operation:
        return StepStart()

    def _observe(self, model: Model) -> Operation:
        name = self.draw.choose([*model.requests, UNKNOWN_REQUEST])
        options: tuple[Operation, ...] = (
            CommonPrefix(name),
            CommonPrefix(name),
            ReadTable(name),
            TakeEvents(),
            TakeNewBlockIds(),
            TakeStats(),
        )
        return self.draw.choose(options)

    def _outside(self, model: Model) -> Operation | None:
        """Somebody else takes, shares or gives back blocks."""
        outside = list(dict.fromkeys(model.state.outside))
        if outside and self.draw.integer(0, 2):
            count = self.draw.integer(1, len(outside))
            return Release(tuple(outside[:count]), prepend=self.draw.integer(0, 1) == 1)
        if self.shape.num_blocks < 2 or len(outside) > 4:
            return None
        return Touch((self._block(),)) if self.draw.integer(0, 1) else Take(self.draw.integer(0, 3))

    def _misuse(self, model: Model) -> Operation | None:
        """A broken precondition (core.md, deviation 6)."""
        draw, num_blocks = self.draw, self.shape.num_blocks
        name = draw.choose([*model.requests, UNKNOWN_REQUEST])
        counts = model.state.references()
        overdrawn = draw.integer(0, num_blocks - 1)
        outside = model.state.outside
        return draw.choose(
            (
                Release((overdrawn,) * (counts[overdrawn] + 1)),
                Release(tuple(outside)) if outside else None,
                Release((0,)),
                Touch((0,)),
                Take(-draw.integer(1, 3)),
                Evict((num_blocks + draw.integer(0, 2),)),
                Evict((-1,)),
                Allocate(name, 0),
                Allocate(name, -1),
                Allocate(name, 1, lookahead=-1),
                Allocate(name, 1, external=-1),
            )
        )
