"""transformers' continuous batching under simulation: its own manager, scheduler, cache and order of calls.

A pass of its loop prepares a step and launches it; in step, the results of this one are taken then; asynchronously,
those of the one before. So results may be there before the engine looks at them: they wait until it has launched the
next step, as they would on a GPU. What a kernel would get (indices to read and write, or block tables) is shown as the
engine put it into its tensors.

Nobody but the client of the manager knows how long a request may become; `add` asks for no more tokens than there is
length. A fork is what `num_return_sequences` makes of a request: it must be known before the request is first looked
at, and is refused later.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    ScheduledBatch,
    StepResults,
)
from .binding import Built, load
from .remedies import fixes
from .shown import IssuedStep, moves_of, parts_of


class _NotThereError(Exception):
    """The engine would wait for the results of a step."""


@dataclass
class _Client:
    """What a client has asked for and got."""

    request: ClientRequest
    got: int = 0


class TransformersEngine:
    """A release of transformers, simulated."""

    name = "transformers"
    offers: frozenset[str] = frozenset()
    attention = ("full", "sliding", "full+sliding")
    block_sizes = (4, 8)
    depth = 2

    def __init__(self, worker: bool = False, mended: Sequence[str] = ()) -> None:
        """With a `worker` a tiny random model computes and samples; `mended`: known defects that it does not have."""
        self._release, self._mended = load(), mended
        self.version = self._release.version
        self.samples = worker
        self.options: dict[str, tuple[Any, ...]] = {
            "asynchronous": (False, True),
            "scheduler": ("fifo", "prefill_first"),
            "swap": (0, 2, 5),
            "ratio": (1, 2),
            "margin": (0, 1, 2),
        } | ({} if worker else {"fast": (False, True)})

    @property
    def remedies(self) -> dict[str, Callable[[], "TransformersEngine"]]:
        """By known defect that this engine has, how one without it is made."""
        mended = (*self._mended,)
        left = [name for name in fixes() if name not in mended]
        return {name: partial(TransformersEngine, self.samples, (*mended, name)) for name in left}

    def start(self, shape: EngineShape) -> None:
        """Errors as from `TransformersRelease.build`."""
        self._release.mending.only(self._mended)
        self._built: Built = self._release.build(shape, self.samples)
        self._manager, self._processor = self._built.manager, self._built.processor
        self._max_length = shape.max_length
        self._asynchronous: bool = self._processor.use_async_batching
        self.depth = 1 + self._asynchronous
        self.reads_first = any(group.kind == "sliding" for group in shape.groups)
        self._clients: dict[str, _Client] = {}
        self._names: dict[str, str] = {}
        self._forks: dict[str, str] = {}
        self._unborn: dict[str, Any] = {}
        self._flight: deque[IssuedStep] = deque()
        self._before: IssuedStep | None = None
        self._moves = moves_of(self._built)
        self._wait_for_results()

    def _wait_for_results(self) -> None:
        """Where the engine would wait for the device, it gets what was sampled, or is told that nothing is there."""
        ios, processor = self._processor.inputs_and_outputs, self._processor
        taken, updated = ios.prepare_batch_update, processor.update_batch

        def take() -> Any:
            step = self._flight[0]
            if step.tokens is None:
                raise _NotThereError
            if not self.samples and step.tokens:
                step.io.output_ids[0, : len(step.tokens)] = self._release.torch.tensor(step.tokens)
            return taken()

        def update() -> None:
            updated()
            self._flight.popleft()

        ios.prepare_batch_update, processor.update_batch = take, update

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """As `add_request` of the manager, streaming."""
        room = self._max_length - len(request.prompt)
        if room < 1:
            return [Delivered(request.id, ended="refused", why="no length for an answer")]
        self._clients[request.id] = _Client(request)
        self._manager.add_request(
            list(request.prompt),
            request_id=request.id,
            max_new_tokens=min(request.max_tokens, room),
            eos_token_id=list(request.stop) or -1,
            streaming=True,
        )
        self._forks.pop(request.id, None)
        self._names[self._manager.input_queue.queue[-1].request_id] = request.id
        return []

    def cancel(self, id: str) -> Sequence[Delivered]:
        """As `cancel_request` of the manager; the fork of a sequence that is not made yet is taken back."""
        child = self._forks.pop(id, None)
        for name in [name for name, called in self._names.items() if called == id and child is not None]:
            self._names[name] = ""
        parent, scheduler = self._unborn.pop(child or "", None), self._processor.scheduler
        held = (scheduler.active_requests, scheduler.waiting_requests)
        if parent is None or any(child in known for known in held):
            self._manager.cancel_request(child or id)
            return []
        for known in held:
            known.get(parent.request_id, parent).num_children = 0
        return []

    def fork(self, id: str, new: str) -> Sequence[Delivered]:
        """A second sequence of a request that nobody has looked at."""
        queue = reversed(self._manager.input_queue.queue)
        state = next((one for one in queue if self._called(one.request_id) == id), None)
        told = f"{id}__child#0"
        if state is None or state.num_children or told in self._names:  # nobody could tell their outputs apart
            return [Delivered(new, ended="refused", why="sequences are forked where a request is added")]
        child = self._forks[new] = f"{state.request_id}__child#0"
        self._names[told] = self._names[child] = new
        self._clients[new] = _Client(replace(self._clients[id].request, id=new))
        self._unborn[child] = state
        state.num_children = 1
        return []

    def schedule(self) -> ScheduledBatch | None:
        """One pass of the loop, up to where it waits for the device."""
        ios = self._processor.inputs_and_outputs
        io = ios.io_pairs[ios.current_pair].host_io if self._asynchronous else ios
        try:
            prepared = self._processor.prepare_next_batch()
        except _NotThereError:
            return None
        told = [*self._delivered(), *self._orphans()]
        if not prepared:
            return ScheduledBatch(delivered=tuple(told)) if told else None
        step = IssuedStep(io, [one.state.request_id for one in io.requests_in_batch if one.has_new_token])
        parts = parts_of(self._built, step, self._before, self._called)
        if not parts:
            raise RuntimeError("the model is given a step of no tokens, which none takes unless it is padded")
        if self.samples:
            # Its own worker samples other tokens than our device, which could only find fault with them.
            parts = tuple(replace(part, slots=None, tokens=None) for part in parts)
            self._processor._generation_step(self._manager.model)
        elif self._asynchronous:
            ios.swap_io_pairs()
        self._before = step
        self._flight.append(step)
        moves = self._moves.taken()  # what is moved from here on comes behind this step
        told += self._look() if self._asynchronous else []
        preempted = tuple(map(self._called, moves.preempted))
        return ScheduledBatch(parts, tuple(moves.copies), tuple(moves.transfers), tuple(told), preempted, own=step)

    def _orphans(self) -> list[Delivered]:
        """Sequences of a request that was cancelled before they were forked: nobody serves them."""
        scheduler, orphans = self._processor.scheduler, []
        there = {*scheduler.active_requests, *scheduler.waiting_requests}
        for child, parent in list(self._unborn.items()):
            if child in there:
                del self._unborn[child]
            elif parent.request_id not in there:
                del self._unborn[child]
                orphans.append(Delivered(self._called(child), ended="refused", why="its parent was cancelled"))
        return orphans

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """The device is done with the oldest step; the engine looks at it when its loop comes there."""
        step = batch.own if batch is not None else None
        if step is None:
            return []
        step.tokens = [next(iter(results.tokens.get(self._called(name), ())), 0) for name in step.wanted]
        return self._look()

    def _look(self) -> list[Delivered]:
        """What the loop does behind a launch, if the results that it takes are there."""
        behind = 1 if self._asynchronous else 0
        if len(self._flight) > behind and self._flight[0].tokens is not None:
            self._processor.update_batch()
        return self._delivered()

    def _delivered(self) -> list[Delivered]:
        queue, found = self._manager.output_router.output_queue, []
        while not queue.empty():
            output = queue.get()
            name = self._called(output.request_id)
            client = self._clients.get(name)
            if client is None:
                continue
            tokens, request = tuple(output.generated_tokens), client.request
            new, client.got = tokens[client.got :], len(tokens)
            ended: Any = ""
            if output.status == self._release.statuses.FINISHED:
                ended = "stop" if tokens and tokens[-1] in request.stop else "length"
            elif output.status == self._release.statuses.FAILED:
                ended = "failed"
            if ended:
                del self._clients[name]
            found.append(Delivered(name, new, ended, output.error or ""))
        return found

    def _called(self, name: str) -> str:
        """The client's name of a request, which of a child is not the engine's."""
        return self._names.get(name, name)

    def idle(self) -> bool:
        """True if the scheduler has no request, and the queue of new ones is empty."""
        return self._manager.input_queue.empty() and not self._processor.has_pending_requests()

    def look(self) -> EngineView:
        """Bytes, blocks kept for later requests counted, with those of the CPU's memory."""
        cache, swapped = self._processor.cache, self._processor.offloading_manager._cpu_pool
        kept = sum(len(one.ledger.cached_blocks) * one.bytes_per_block for one in cache.cache_allocators.values())
        free = int(cache.compute_free_capacity(relative=False)) + kept
        capacity = cache.num_sectors * cache.bytes_per_sector
        if swapped is not None:
            capacity += swapped.num_sectors * cache.bytes_per_sector
            free += swapped.num_free_sectors * cache.bytes_per_sector
            free += sum(swapped.count_free_blocks(one.index) * one.bytes_per_block for one in self._built.allocators)
        return EngineView(free, capacity)
