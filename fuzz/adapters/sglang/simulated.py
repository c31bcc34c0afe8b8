"""SGLang under simulation: its own scheduler in its own event loop, with or without overlap.

Pretended, since there is no GPU: the worker, streams and events (`loop`); what a server has beside its scheduler
(`scheduler`). Shown is what kernels would get: the row of slots of each request, the slots that are written, the input
ids, copies of states.

A server gives a client fewer tokens than it asked for where its pool could never hold them. `add` refuses such a
request, so that each one that is served gets what it asked for.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    StepResults,
)
from ...simulation.tiers import LowerTier, TierEvent
from .clients import clipped, ended_by, sampling_of, tokenized
from .engine import Cache, imported, load
from .host_copies import TIER
from .host_settings import POLICIES, HostSettings
from .host_tier import HostTier
from .loop import EventLoop, LaunchedPart, LaunchedStep
from .releases import numbers
from .scheduler import DEFECTS, IN_VAIN, LOCKED, PINNED, PREFIX, ServerSettings

SINCE = "0.5.22"
STATES = 4
"""Slots of states for each request that runs at once: more than the server's least, so that some are kept."""


class SglangSimulated:
    """An installed SGLang, simulated."""

    name = "sglang"
    depth = 2
    offers = frozenset({"priorities", "salts"})
    lacks = frozenset({"ids", "uncached"})
    attention = ("full", "full+sliding", "full+mamba")
    block_sizes = (1, 2, 4, 16)
    separate_pools = True
    options: Mapping[str, tuple[Any, ...]] = {
        "overlap": (False, True),
        "mixed": (False, True),
        "policy": ("fcfs", "lpm"),
        "priority": (False, True),
        "tenths kept": (10, 10, 1, 0),
        "hicache": ("", *POLICIES),
    }
    options_of: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
        f"hicache={policy}": {"host percent": (200, 100, 50), "host least": (10, 1)} for policy in POLICIES
    }

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        """`mended`: known defects that it does not have. Errors as for `load`; ImportError for a release whose
        scheduler is made in another way."""
        self._engine = load()
        self.version: str = self._engine.version
        if numbers(self.version) < numbers(SINCE):
            raise ImportError(f"SGLang {self.version} is not simulated, only {SINCE} and newer")
        self._mended = mended
        self._end = "." if PREFIX in mended else ""
        """Behind a name: so no name is the beginning of another."""
        left = [name for name in DEFECTS if name not in mended]
        self.remedies = {name: partial(SglangSimulated, (*mended, name)) for name in left}
        self._loop: EventLoop | None = None
        self._host: HostTier | None = None

    def start(self, shape: EngineShape) -> None:
        """See `Engine`. NotImplementedError, with the reason, for what SGLang does not have."""
        self.close()
        options: Mapping[str, Any] = shape.options
        cache = self._cache = self._built(shape)
        chunk = shape.max_tokens // cache.page * cache.page
        if not chunk:
            raise NotImplementedError("steps of less than a page")
        overlap = bool(options["overlap"]) and not cache.states
        self._host, self._is_renewing = None, False
        settings = ServerSettings(
            longest=shape.max_length,
            chunk=chunk,
            requests=shape.max_requests,
            overlap=overlap,
            mixed=bool(options["mixed"]),
            policy=str(options["policy"]),
            priority=bool(options["priority"]),
            conservative=int(options["tenths kept"]) / 10,
            mended=self._mended,
            host=self._host_settings(shape),
        )
        self.depth = 2 if overlap else 1
        self._priorities = settings.priority
        self._loop = EventLoop(self._engine, cache, settings)
        if settings.host is not None:
            self._host = self._loop.host = HostTier(cache, settings.host, self._called)
        self._clients: dict[str, ClientRequest] = {}

    def _built(self, shape: EngineShape) -> Cache:
        size = shape.groups[0].block_size
        if any(group.kind == "mamba" for group in shape.groups):
            return self._engine.build_with_states(
                (shape.num_blocks - 1) * size, STATES * shape.max_requests, shape.max_length
            )
        host = self._host_settings(shape)
        step = shape.max_tokens if PINNED in self._mended else 0
        return self._engine.build(shape.core, step, host)

    def _host_settings(self, shape: EngineShape) -> HostSettings | None:
        """For layers of full attention with a prefix cache, if it is asked for."""
        options: Mapping[str, Any] = shape.options
        is_plain = len(shape.groups) == 1 and shape.core.caching
        if not options.get("hicache") or not is_plain:
            return None
        percent, least = int(options["host percent"]), int(options["host least"])
        mended = self._mended
        return HostSettings(str(options["hicache"]), percent, least, IN_VAIN in mended, LOCKED in mended)

    @property
    def _live(self) -> EventLoop:
        assert self._loop is not None
        return self._loop

    def close(self) -> None:
        """See `Engine`."""
        if self._loop is not None:
            self._loop.end()
            self._loop = None

    # Clients.

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `Engine`."""
        sampling = sampling_of(self._engine.sampling.SamplingParams, request)
        if clipped(self._live.scheduler, request, sampling):
            return (Delivered(request.id, ended="refused", why="there is no room for so many tokens"),)
        self._clients[request.id] = request
        fields = tokenized(request, sampling, priorities=self._priorities)
        self._tell("TokenizedGenerateReqInput", rid=request.id + self._end, **fields)
        return ()

    def _called(self, inside: str) -> str:
        """The client's name of a request."""
        return inside.removesuffix(self._end) if self._end else inside

    def cancel(self, id: str) -> None:
        """See `Engine`."""
        del self._clients[id]
        self._tell("AbortReq", rid=id + self._end)

    def reset(self) -> None:
        """See `Engine`: a server forgets its cache only when nothing runs."""
        self._tell("FlushCacheReqInput")

    def reweigh(self) -> None:
        """As new weights are loaded while requests run: they are retracted, the cache is flushed, and they go on.
        Where copies to the host may be under way, whoever does that asks for the flush until it is done."""
        self._tell("PauseGenerationReqInput", mode="retract")
        if self._host is not None:
            self._is_renewing, self._live.is_flushed = True, False
            self._host.renew()
            return
        self._tell("FlushCacheReqInput")
        self._tell("ContinueGenerationReqInput", torch_empty_cache=False)

    def _flush(self) -> None:
        """Ask for it; go on behind it."""
        assert self._host is not None
        if self._live.is_flushed:
            self._is_renewing = self._host.is_stale = False
            self._tell("ContinueGenerationReqInput", torch_empty_cache=False)
        elif not self._live.inbox:
            self._tell("FlushCacheReqInput")

    def _tell(self, kind: str, **fields: object) -> None:
        self._live.inbox.append(getattr(imported("sglang.srt.managers.io_struct"), kind)(**fields))

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        if self._is_renewing:
            self._flush()
        step = self._live.turn()
        told = self._delivered()
        copies = self._copies()
        retracted = tuple(map(self._called, self._live.retracted))
        self._live.retracted.clear()
        moved, awaited = self._host.copied() if self._host is not None else ((), ())
        if step is None and not (told or copies or moved or awaited):
            return None
        parts = tuple(self._part(part) for part in step.parts if not part.is_refused) if step else ()
        return ScheduledBatch(parts, copies, moved, told, retracted, own=step, awaited=awaited)

    def _copies(self) -> tuple[SlotCopy, ...]:
        copies = list(self._live.copies)
        self._live.copies.clear()
        return tuple(SlotCopy(1, source, target) for source, target in copies)

    def _part(self, part: LaunchedPart) -> Scheduled:
        """What the kernels get of a request."""
        name, many = self._called(part.name), part.count
        return Scheduled(name, part.first, many, slots=part.slots, tokens=part.inputs, samples=part.samples)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """See `Engine`."""
        if self._host is not None:
            self._host.copies.ended(results.transferred)
        step: LaunchedStep | None = batch.own if batch is not None else None
        if step is None:
            return ()
        self._live.land(step, [next(iter(results.tokens.get(self._called(part.name), ())), 0) for part in step.parts])
        return self._delivered()

    def _delivered(self) -> tuple[Delivered, ...]:
        """What the clients get that are still there."""
        told = ((self._called(inside), tokens, reason) for inside, tokens, reason in self._live.answers())
        return tuple(self._told(name, tokens, reason) for name, tokens, reason in told if name in self._clients)

    def _told(self, name: str, tokens: tuple[int, ...], reason: Mapping[str, Any] | None) -> Delivered:
        if reason is None:
            return Delivered(name, tokens)
        del self._clients[name]
        ended = ended_by(reason)
        return Delivered(name, () if ended == "refused" else tokens, ended, str(reason.get("message", "")))

    def idle(self) -> bool:
        """See `Engine`."""
        return not self._live.inbox and not self._is_renewing and bool(self._live.scheduler.is_fully_idle())

    def look(self) -> EngineView:
        """Slots of all pools, those of the tree that would be evicted counted as free."""
        stats, cache = self._live.scheduler.pool_stats_observer.get_pool_stats(), self._cache
        free = stats.full_available_size + stats.full_evictable_size
        if cache.swa_pages:
            free += stats.swa_available_size + stats.swa_evictable_size
        if cache.states:
            free += stats.mamba_available_size + stats.mamba_evictable_size
        tiers = {TIER: self._host.blocks} if self._host is not None else {}
        return EngineView(int(free), (cache.full_pages + cache.swa_pages) * cache.page + cache.states, tiers)

    # The host.

    def tiers(self) -> Mapping[str, LowerTier]:
        """Its memory on the host, if it has any."""
        return {TIER: self._host.facts()} if self._host is not None else {}

    def tier_events(self) -> list[TierEvent]:
        """What was done with it."""
        return self._host.taken() if self._host is not None else []
