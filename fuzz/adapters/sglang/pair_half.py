"""One of two SGLang engines that share the work: its own scheduler in its loop for disaggregation, its own queues,
senders and receivers, and Mooncake's manager with its threads. What stands in for the rest is in `pair_world`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ...simulation.attempts import AttemptsHalf
from ...simulation.network import Port
from ...simulation.protocol import (
    ClientRequest,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    SlotTransfer,
    StepResults,
)
from .clients import clipped, ended_by, sampling_of, tokenized
from .engine import SplitRole, imported, load
from .loop import EventLoop, LaunchedPart, LaunchedStep
from .pair_stand_ins import BOOTSTRAP, new_server
from .pair_world import Frames, World
from .scheduler import ServerSettings

WINDOWS = frozenset({"window-kept-that-never-came", "no-room-for-the-window"})
"""Known defects of a prefix cache with windows in the second engine."""
_END = "."
"""Behind a name, so that no name is the beginning of another."""


class SglangHalf(AttemptsHalf):
    """See `HalfEngine`."""

    def __init__(
        self,
        shape: EngineShape,
        port: Port,
        other: Callable[[], World | None],
        counts: Counter[str],
        mended: tuple[str, ...] = (),
    ) -> None:
        """`other` and `counts`: see `World`; `mended`: known defects that it does not have. NotImplementedError, with
        the reason, for what SGLang does not have."""
        super().__init__(port)
        self._engine = load()
        self.world = World(port, other, counts)
        self._options: Mapping[str, Any] = shape.options
        self._backed_up = 0
        """Slots of the host that were written to."""
        with self.world.entered():
            if port.name == "prefill":
                self.world.server = new_server()
            self._loop = EventLoop(self._engine, *self._made(shape, mended))
            self.world.newest = self._loop.newest_has_run
            self._know_memory()
            self._show_backups(self._loop.allocator)
            self.world.turn()

    def _made(self, shape: EngineShape, mended: tuple[str, ...]) -> tuple[Any, ServerSettings]:
        """Its cache and its settings."""
        has_window = len(shape.groups) > 1
        size, is_decode = shape.groups[0].block_size, self._port.name == "decode"
        settings = ServerSettings(
            longest=shape.max_length,
            chunk=shape.max_tokens // size * size,
            requests=shape.max_requests,
            overlap=bool(self._options["overlap"]),
            policy=str(self._options["policy"]),
            priority=bool(self._options["priority"]),
            mended=mended,
            role=self._port.name,
            reserved=int(self._options["reserved"]),
            keeps_prefixes=bool(self._options["decode keeps prefixes"]) and not (WINDOWS & {*mended} and has_window),
        )
        if not settings.chunk:
            raise NotImplementedError("steps of less than a page")
        caching = shape.core.caching and (settings.keeps_prefixes or not is_decode)
        core = replace(shape.core, caching=caching)
        self._engine.configure(page_size=size, **settings.of_its_role)
        envs = self._engine.environ.envs
        envs.SGLANG_DISAGGREGATION_WAITING_TIMEOUT.set(int(self._options["waiting timeout"]))
        envs.SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT.set(int(self._options["bootstrap timeout"]))
        step = shape.max_tokens
        return self._engine.build(core, step, shared=SplitRole(self._port.name, shape.max_requests)), settings

    @property
    def scheduler(self) -> Any:
        """The release's."""
        return self._loop.scheduler

    @property
    def is_first(self) -> bool:
        """True if it computes prompts."""
        return self._port.name == "prefill"

    @property
    def manager(self) -> Any:
        """The release's, of its connections."""
        scheduler = self.scheduler
        queue = scheduler.disagg_prefill_bootstrap_queue if self.is_first else scheduler.disagg_decode_prealloc_queue
        return queue.kv_manager

    def _know_memory(self) -> None:
        """What its pools told the library, by group; of each page as many slots as it has tokens."""
        self.world.manager = self.manager
        told, page = self.manager.kv_args, self._loop.page
        items = [item // page for item in told.kv_item_lens]
        self.world.knows(told.kv_data_ptrs, told.kv_data_lens, items, 0)
        self.world.knows(told.aux_data_ptrs, told.aux_data_lens, told.aux_item_lens, None)
        states = zip(told.state_data_ptrs, told.state_data_lens, told.state_item_lens, strict=True)
        for group, (pointers, lengths, sizes) in enumerate(states, 1):
            self.world.knows(pointers, lengths, [size // page for size in sizes], group)

    def _show_backups(self, allocator: Any) -> None:
        """Who is set back is copied to the host, and back again: both are over at once."""
        keep, restore = allocator.get_cpu_copy, allocator.load_cpu_copy
        kept: dict[int, dict[int, tuple[int, ...]]] = {}

        def copied(indices: Any, **named: Any) -> Any:
            copy, places = keep(indices, **named), {}
            for group, slots in self._slots_of(allocator, indices).items():
                places[group] = tuple(range(self._backed_up, self._backed_up + len(slots)))
                self._backed_up += len(slots)
                self._move("store", group, slots, places[group])
            kept[id(copy)] = places
            return copy

        def loaded(copy: Any, indices: Any, **named: Any) -> None:
            restore(copy, indices, **named)
            places = kept.pop(id(copy))
            for group, slots in self._slots_of(allocator, indices).items():
                self._move("load", group, slots, places[group])

        allocator.get_cpu_copy, allocator.load_cpu_copy = copied, loaded

    def _slots_of(self, allocator: Any, indices: Any) -> dict[int, tuple[int, ...]]:
        """Those of these tokens, by group."""
        slots = {0: tuple(indices.tolist())}
        if self._loop.has_window:
            slots[1] = tuple(allocator.translate_loc_from_full_to_swa(indices.long()).tolist())
        return slots

    def _move(self, kind: Literal["store", "load"], group: int, slots: Sequence[int], places: Sequence[int]) -> None:
        """Slots of no page are in slot 0; nobody reads them."""
        pairs = [(slot, place) for slot, place in zip(slots, places, strict=True) if slot]
        here, there = tuple(slot for slot, _ in pairs), tuple(place for _, place in pairs)
        name = f"{kind} {self._backed_up} {len(self.world.begun)}"
        if pairs:
            self.world.begun.append(SlotTransfer(name, kind, group, here, "backup", there, now=True))

    # Messages.

    def _hear(self, message: Frames) -> None:
        self.world.hear(message)

    def _serve(self, name: str, request: ClientRequest, parameters: Mapping[str, Any]) -> bool:
        sampling = sampling_of(self._engine.sampling.SamplingParams, request)
        if clipped(self.scheduler, request, sampling):
            return False
        self._ask(
            "TokenizedGenerateReqInput",
            rid=name,
            **tokenized(request, sampling, priorities=bool(self._options["priority"])),
            bootstrap_host=BOOTSTRAP[0],
            bootstrap_port=BOOTSTRAP[1],
            bootstrap_room=parameters["room"],
        )
        return True

    def _name(self, id: str, attempt: int) -> str:
        return f"{super()._name(id, attempt)}{_END}"

    def _stop(self, name: str) -> None:
        self._ask("AbortReq", rid=name)

    def _ask(self, kind: str, **fields: object) -> None:
        self._loop.inbox.append(getattr(imported("sglang.srt.managers.io_struct"), kind)(**fields))

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `HalfEngine`."""
        self._tell_alive()
        with self.world.entered():
            self.world.turn()
            step = self._loop.turn()
            self.world.turn()
        self._answer()
        begun, self.world.begun = self.world.begun, []
        retracted = tuple(name.partition("/")[0] for name in self._loop.retracted)
        self._loop.retracted.clear()
        if step is None and not begun:
            return None
        parts = tuple(self._part(part) for part in step.parts if not part.is_refused) if step else ()
        return ScheduledBatch(parts, transfers=tuple(begun), preempted=retracted, own=step)

    def _part(self, part: LaunchedPart) -> Scheduled:
        return Scheduled(
            part.name.partition("/")[0],
            part.first,
            part.count,
            slots=tuple(Slots(at=one.at, written=one.written) for one in part.slots),
            tokens=part.inputs,
            samples=part.samples,
        )

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """See `HalfEngine`."""
        with self.world.entered():
            for id_ in results.transferred:
                self.world.ended(id_, True)
            for id_ in results.failed:
                self.world.ended(id_, False)
            step: LaunchedStep | None = batch.own if batch is not None else None
            if step is not None:
                told = [results.tokens.get(part.name.partition("/")[0], ()) for part in step.parts]
                self._loop.land(step, [next(iter(tokens), 0) for tokens in told])
            self.world.turn()
        self._answer()

    def _answer(self) -> None:
        for name, tokens, reason in self._loop.answers():
            self._tell_tokens(name, tokens, ended_by(reason))

    def idle(self) -> bool:
        """See `HalfEngine`."""
        with self.world.entered():
            return not self._loop.inbox and not self.world.writing and bool(self.scheduler.is_fully_idle())

    def look(self) -> EngineView:
        """See `HalfEngine`."""
        with self.world.entered():
            stats = self.scheduler.pool_stats_observer.get_pool_stats()
        free = stats.full_available_size + stats.full_evictable_size
        if len(self.world.regions) and self._loop.has_window:
            free += stats.swa_available_size + stats.swa_evictable_size
        return EngineView(int(free))

    def end(self) -> None:
        """Its process has ended."""
        with self.world.entered():
            self._loop.end()
            self.world.end()
