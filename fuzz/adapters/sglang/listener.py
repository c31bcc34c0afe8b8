"""`Told`: what SGLang's scheduler does in batches, told to contract and shadow memory one request at a time.

A batch is allocated by one call. The oracles know operations on one request, so the call is told as several: first what
each request of the batch gave up, then what each was given, as if the requests had come one after the other. What is
free in between is what nobody holds; after the last one `settled` compares that with what SGLang itself has free.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from ....model import ops
from ....model.ops import NULL, Done, Operation, Outcome, Shape, Value
from ....model.shown.snapshot import Snapshot
from .engine import Cache, SglangEngine
from .observe import SglangObserver
from .states import StatePool


class AnswerJudge(Protocol):
    """What judges a core whose answers it is told."""

    def start(self, shape: Shape, shown: Snapshot) -> None:
        """A core of this shape has been built."""

    def step(self, operation: Operation, outcome: Outcome, shown: Snapshot) -> str:
        """The core has answered an operation. Returns what is wrong, empty if nothing."""


class Told:
    """A `batches.Listener`."""

    def __init__(
        self, engine: SglangEngine, cache: Cache, shape: Shape, states: StatePool | None, judge: AnswerJudge
    ) -> None:
        self._calls, self._cache, self._states = engine.calls, cache, states
        self._groups = len(shape.groups)
        self._observer = SglangObserver(cache, engine.calls, self._groups, shape.num_blocks)
        self._blocks = range(1, shape.num_blocks)
        self._requests: dict[str, Any] = {}
        """Requests that hold memory."""
        self._tables: dict[str, list[list[int]]] = {}
        self._hits: dict[str, tuple[int, Value]] = {}
        self.found: list[str] = []
        self.seen: Counter[str] = Counter()
        self.error: Exception | None = None
        self._judge = judge
        judge.start(shape, self._observer.snapshot({}))

    # What the scheduler does.

    def arrives(self, name: str, prompt: tuple[int, ...], salt: str | None) -> None:
        """A request is queued."""
        self._tell(ops.Submit(name, prompt, salt=salt), len(prompt) // self._cache.page)

    def matched(self, name: str, request: Any) -> None:
        """See `Listener`. It is told when the request is admitted; until then nothing has happened."""
        self._hits[name] = (self._calls.prefix(request), self._observer.prefix(request))

    def allocated(self, requests: Sequence[Any], starts: Sequence[int], ends: Sequence[int], hits: bool) -> None:
        """See `Listener`."""
        self.seen[f"batches of {min(len(requests), 4)}{'+' if len(requests) > 3 else ''}"] += 1
        for request in requests:
            self._gives_up(request)
        for request, start, end in zip(requests, starts, ends, strict=True):
            name, fresh = request.rid, request.rid not in self._requests
            hit, rows = self._hits.get(name, (0, ())) if fresh else (0, ())
            if fresh and hits:
                self._tell(ops.Lookup(name), (hit, rows))
            before = -(-hit // self._cache.page) if fresh else len(self._tables[name][0])
            self._requests[name] = request
            tables = self._tables[name] = self._observer.tables(request)
            given = tuple(tuple(table[before:]) for table in tables)
            self.seen["hit tokens"] += hit
            self._tell(ops.Allocate(name, end - start, hit=hit > 0), given)

    def runs(self, requests: Sequence[Any], starts: Sequence[int], ends: Sequence[int], batch: Any) -> None:
        """See `Listener`."""
        if self._states is not None:
            self.found += self._states.run(requests, starts, ends, batch)
            self.seen["states read back"] += len(requests)

    def ran(self, request: Any, sampled: tuple[int, ...]) -> None:
        """See `Listener`."""
        self._tell(ops.Advance(request.rid, sampled), request.seqlen // self._cache.page)

    def published(self, request: Any) -> None:
        """See `Listener`."""
        self._gives_up(request)

    def left(self, request: Any, *, preempted: bool) -> None:
        """See `Listener`."""
        name = request.rid
        self._requests.pop(name, None)
        self._tables.pop(name, None)
        self.seen["retracted" if preempted else "finished"] += 1
        self._tell(ops.Preempt(name) if preempted else ops.Free(name), None)

    def objects(self, what: str, request: Any) -> None:
        """See `Listener`."""
        outputs = len(request.output_ids)
        self.found.append(
            f"{what}: {request.rid}, {len(request.origin_input_ids)} tokens of prompt, {outputs} of"
            f" {request.sampling_params.max_new_tokens} generated"
        )

    # What is compared.

    def settled(self) -> None:
        """All of a step has been told: what SGLang has free and shows in its rows must be what follows from it."""
        if self.found:
            return
        shown, true = self._shown(), self._observer.snapshot(self._requests)
        if self._states is not None:
            self.found += self._states.problems(self._requests.values())
        if shown.tables != true.tables:
            self.found.append(f"rows: {true.tables} instead of {shown.tables}")
        elif shown.free != true.free or shown.num_free != true.num_free:
            self.found.append(f"free: {true.free} ({true.num_free} counted) instead of {shown.free}")

    def _gives_up(self, request: Any) -> None:
        """Entries of its table that have become null, or another page with the same content."""
        had = self._tables.get(request.rid)
        if had is None:
            return
        length = len(had[0])
        has = [table[:length] for table in self._observer.tables(request)]
        if has != had:
            self._tables[request.rid] = has
            self._tell(ops.RemoveSkipped(request.rid), None)

    def _tell(self, operation: Operation, value: Value) -> None:
        if self.found:
            return
        self.seen["operations"] += 1
        if wrong := self._judge.step(operation, Done(value), self._shown()):
            self.found.append(wrong)

    def _shown(self) -> Snapshot:
        """What follows from the tables that were told so far."""
        tables = [{name: list(rows[group]) for name, rows in self._tables.items()} for group in range(self._groups)]
        counts = [0] * (len(self._blocks) + 1)
        for rows in self._tables.values():
            for block in {block for table in rows for block in table if block != NULL}:
                counts[block] += 1
        free = [block for block in self._blocks if not counts[block]]
        empty: list[dict[str, int]] = [{} for _ in range(self._groups)]
        nothing: list[list[int]] = [[] for _ in range(self._groups)]
        labels: list[int | None] = [None] * len(counts)
        return Snapshot(free, len(free), 0.0, counts, tables, empty, labels, labels, 0, (), nothing, None)
