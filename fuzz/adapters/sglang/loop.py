"""SGLang's own event loop, which runs until it would wait for the device.

It runs in a thread that never runs beside its caller: it stops where it looks for requests and where it waits for
results, and goes on from there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ...simulation.own_turns import Turns
from ...simulation.protocol import Slots
from .engine import Cache, SglangEngine, imported
from .host_tier import HostTier
from .refused import is_refused
from .scheduler import UNHEARD, ServerSettings, new_scheduler
from .standing_in import without_noise

_WIDEST = 64
"""More than there are requests in a step."""


@dataclass(frozen=True)
class LaunchedPart:
    """One request's part of a batch that was given to the worker."""

    name: str
    first: int
    count: int
    samples: bool
    is_refused: bool
    """It is computed with one token in place of its prompt, and ends with an error."""
    inputs: tuple[int, ...]
    """Token ids; -1: sampled by a step in flight for this request; -2: for another one."""
    table: tuple[int, ...]
    """Slots of its tokens, the last one of the step the last."""
    written: tuple[int, ...]
    """Slots of the tokens of the step."""
    window: tuple[int, tuple[int, ...], tuple[int, ...]] | None
    """In the window's pool: the first position that is read, the slots from there on, those of the step's tokens."""
    state: int | None
    """Slot of its state."""

    @property
    def slots(self) -> tuple[Slots, ...]:
        """Where the kernels read and write it, in each pool."""
        end = self.first + self.count
        places = range(self.first, end)
        found = [Slots(at=dict(enumerate(self.table)), written=dict(zip(places, self.written, strict=True)))]
        if self.window is not None:
            begin, table, written = self.window
            found.append(Slots(at=dict(enumerate(table, begin)), written=dict(zip(places, written, strict=True))))
        if self.state is not None:
            found.append(Slots(at={self.first: self.state, end: self.state}))
        return tuple(found)


class LaunchedStep:
    """A batch that was given to the worker; `tokens` are None while it is in flight."""

    def __init__(self, serial: int, parts: tuple[LaunchedPart, ...], result: Any) -> None:
        self.serial, self.parts, self.result = serial, parts, result
        self.tokens: list[int] | None = None


class EventLoop:
    """A scheduler over a cache, in its loop."""

    def __init__(self, engine: SglangEngine, cache: Cache, settings: ServerSettings) -> None:
        self._engine, self._cache = engine, cache
        self.inbox: list[Any] = []
        """Messages to the scheduler that it has not taken yet."""
        self.outbox: list[Any] = []
        """Messages to clients."""
        self.retracted: list[str] = []
        self.copies: list[tuple[int, int]] = []
        """States that were copied, from slot to slot, in this order."""
        self._launched: LaunchedStep | None = None
        """That nobody has been told of."""
        self._waits_for: LaunchedStep | None = None
        self._steps: dict[int, LaunchedStep] = {}
        self._serial = 0
        self._result_class = _result_class()
        self.host: HostTier | None = None
        self.is_flushed = False
        """The cache was, since somebody set this to False."""
        self._hears = UNHEARD in settings.mended
        if cache.states:
            self._note_copies(cache.rows.mamba_pool)
        with without_noise():
            self.scheduler = new_scheduler(self, engine, cache, settings)
        kind, role = "overlap" if settings.overlap else "normal", f"_disagg_{settings.role}" if settings.role else ""
        loop = getattr(self.scheduler, f"event_loop_{kind}{role}")
        self._turns = Turns(loop)
        self._turns.go_on()

    def turn(self) -> LaunchedStep | None:
        """A pass of the loop, or what can be done of it until results are there. Returns the step that it launched."""
        if self._launched is None and (self._waits_for is None or self._waits_for.tokens is not None):
            self._turns.go_on()
        launched, self._launched = self._launched, None
        return launched

    def land(self, step: LaunchedStep, tokens: list[int]) -> None:
        """The results of a step are there, a token for each part."""
        step.tokens = tokens
        if self.host is not None:
            self.host.copies.landed(step.serial)
        if self._waits_for is step:
            self._turns.go_on()

    def answers(self) -> Iterator[tuple[str, tuple[int, ...], Mapping[str, Any] | None]]:
        """What clients are told that nobody has taken: a request, its new tokens, and why it ends, if it does."""
        messages = list(self.outbox)
        self.outbox.clear()
        for message in messages:
            if hasattr(message, "output_ids"):
                told = zip(message.rids, message.output_ids, message.finished_reasons, strict=True)
                yield from ((name, tuple(tokens), reason) for name, tokens, reason in told)
            elif type(message).__name__ == "FlushCacheReqOutput":
                self.is_flushed |= bool(message.success)
            elif hasattr(message, "finished_reason"):
                yield message.rid, (), message.finished_reason or {"type": "abort"}

    def end(self) -> None:
        """Leave the loop."""
        self._turns.leave()

    def _note_copies(self, pool: Any) -> None:
        copy = pool.copy_from

        def copied(sources: Any, targets: Any) -> None:
            self.copies += zip(sources.tolist(), targets.tolist(), strict=True)
            copy(sources, targets)

        pool.copy_from = copied

    def newest_has_run(self) -> Callable[[], bool]:
        """Whether the step that was launched last has run."""
        step = self._steps.get(self._serial)
        return lambda: step is None or step.tokens is not None

    @property
    def allocator(self) -> Any:
        """Of its slots."""
        return self._cache.allocator

    @property
    def page(self) -> int:
        """Tokens of a page."""
        return self._cache.page

    @property
    def has_window(self) -> bool:
        """True if a window has a pool of its own."""
        return self._cache.swa_pages > 0

    # What the scheduler calls.

    def receive(self, local_reqs: list[Any]) -> list[Any]:
        """In place of the request receiver's method: a pass of the loop begins."""
        self._turns.stop()
        if self._hears and self.host is not None and self.scheduler._engine_paused:
            self._cache.tree.check_hicache_events()
        taken, self.inbox = [*local_reqs, *self.inbox], []
        return taken

    def synchronize(self, step: LaunchedStep) -> None:
        """In place of an event's method."""
        while step.tokens is None:
            self._waits_for = step
            self._turns.stop()
        self._waits_for = None
        step.result.next_token_ids = self._engine.torch.tensor(step.tokens)

    def launch(self, batch: Any, **named: object) -> Any:
        """In place of the worker's forward pass; returns its result, with placeholders for the tokens."""
        pool = self._cache.rows
        if self._cache.states:
            if batch.mamba_clear_indices is not None:
                pool.mamba_pool.clear_slots(batch.mamba_clear_indices)
            if batch.mamba_cow_src_indices is not None:
                pool.mamba_pool.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        self._serial += 1
        lengths, counts = batch.seq_lens.tolist(), [1] * len(batch.reqs)
        if batch.forward_mode.is_extend():
            counts = list(batch.extend_lens)
        inputs, written = batch.input_ids.tolist(), batch.out_cache_loc.tolist()
        parts, at = list[LaunchedPart](), 0
        for row, (request, length, count) in enumerate(zip(batch.reqs, lengths, counts, strict=True)):
            first, place = length - count, slice(at, at := at + count)
            table = pool.req_to_token[int(batch.req_pool_indices[row]), :length]
            parts.append(
                LaunchedPart(
                    request.rid,
                    first,
                    count,
                    samples=request is not self.scheduler.chunked_req,
                    is_refused=is_refused(request),
                    inputs=tuple(self._given(token, request.rid) for token in inputs[place]),
                    table=tuple(table.tolist()),
                    written=tuple(written[place]),
                    window=self._in_window(first, table, batch.out_cache_loc[place]),
                    state=int(request.kv.mamba_pool_idx) if self._cache.states else None,
                )
            )
        if self.host is not None:
            self._note_pages(parts, batch.hicache_consumer_index)
        tokens = [-1 - self._serial * _WIDEST - row for row in range(len(parts))]
        result = self._result_class(next_token_ids=self._engine.torch.tensor(tokens))
        self._launched = self._steps[self._serial] = LaunchedStep(self._serial, tuple(parts), result)
        result.copy_done = self.new_event()
        return result

    def _note_pages(self, parts: Sequence[LaunchedPart], consumer: int) -> None:
        assert self.host is not None
        self.host.copies.waited_for(self._serial, consumer)
        for part in parts:
            self.host.owned(part.name, dict(enumerate(part.written, part.first)), is_refused=part.is_refused)

    def _in_window(self, first: int, table: Any, written: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        if not self._cache.swa_pages:
            return None
        moved, begin = self._cache.allocator.translate_loc_from_full_to_swa, max(0, first - self._cache.window)
        return begin, tuple(moved(table[begin:].long()).tolist()), tuple(moved(written.long()).tolist())

    def new_event(self) -> Any:
        """An event behind the step that was launched last."""
        step = self._steps[self._serial]
        return SimpleNamespace(record=lambda: None, synchronize=lambda: self.synchronize(step))

    def _given(self, token: int, name: str) -> int:
        if token >= 0:
            return token
        serial, row = divmod(-1 - token, _WIDEST)
        step = self._steps.get(serial)
        if step is None or step.parts[row].name != name:
            return -2
        return -1 if step.tokens is None else step.tokens[row]


def _result_class() -> type[Any]:
    """The worker's result, whose copy to the CPU is awaited by `EventLoop.synchronize`."""
    base: type[Any] = imported("sglang.srt.managers.utils").GenerationBatchResult
    return type("PlacedResult", (base,), {"copy_to_cpu": lambda self, **named: None})
