"""vLLM under simulation: its own scheduler with its core, in step or one step ahead of the results.

Pretended: the worker, which keeps block tables as vLLM's does (ids are appended and never removed) and has room for
the outputs of all encoders; the front end, which refuses prompts that leave no room for an answer and gives each
request a name that was never used; a connector that has what comes from outside (`loads`), or the worker's half of one
of the release's own (`connectors`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from .....model.attention import Rule, rule_for
from .....model.ops import Value
from ....simulation.protocol import (
    ClientRequest,
    Delivered,
    Ended,
    EngineShape,
    EngineView,
    PoolTooSmallError,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    StepResults,
)
from ....workload.bounds import keeps_states
from .built_scheduler import BuiltScheduler
from .connector_workers import ConnectorWorker, Several
from .connectors import OPTIONS_OF, WORKERS, ConnectorLink, connect
from .contract_judge import ContractJudge
from .known_causes import KNOWN, KnownCause, suspected
from .loads import LATER, NOW, connector_for
from .scheduler_config import module, setup_of
from .worker_rows import WorkerRows

ENDS: Mapping[int, Ended] = {0: "stop", 1: "length", 2: "cancelled", 3: "failed"}
"""By vLLM's number of the reason."""


class VllmSimulated:
    """An installed vLLM, simulated."""

    name = "vllm"
    depth = 2
    offers = frozenset({"drafts", "priorities", "adapters", "versions", "items", "salts", "external"})
    attention = (
        *("full", "mla", "sliding", "chunked", "mamba", "full+sliding", "full+sliding", "full+chunked"),
        *("full+mamba", "full+mamba", "full+mamba", "full+mamba", "full+sliding+mamba"),
        *("full+full+sliding", "full+sliding+sliding"),
    )
    block_sizes = (4, 8, 16)
    unequal_blocks = True
    mamba_modes = ("align",)
    own_blocks = 1
    floors: Mapping[str, int] = {
        "preemptions": 1,
        "hits": 5,
        "evictions": 5,
        "steps with drafts rejected": 5,
        "contract: S7 checked": 20,
        "contract: S13 checked": 20,
    }
    options: Mapping[str, tuple[Value, ...]] = {
        "asynchronous": (False, False, True),
        "connector": ("", "", LATER, NOW),
        "policy": ("fcfs", "priority"),
        "drafter": ("ngram", "eagle", "eagle"),
        "resets_running": (False, True),
        "adapters_in_place": (False, False, False, True),
    }
    options_of = OPTIONS_OF

    def __init__(self, mended: tuple[str, ...] = (), contract_maker: Callable[..., Any] | None = None) -> None:
        """`mended`: known defects that it does not have; `contract_maker`: makes the contract that judges its calls on
        its core, if one does. ImportError, or whatever else a failing import raises."""
        self.version = str(module("version").__version__)
        self._mended, self.contract_maker = mended, contract_maker
        self.contract: ContractJudge | None = None

    # Known defects.

    @property
    def remedies(self) -> Mapping[str, Callable[[], "VllmSimulated"]]:
        """By known defect of this release, how an engine without it is made."""
        return {
            name: partial(VllmSimulated, (*self._mended, name), self.contract_maker)
            for name in KNOWN
            if name not in self._mended
        }

    def suspects(self, judge: str, what: str, story: Any) -> list[str]:
        """The known defects that may lead to such a finding of a story."""
        return suspected(self.version, judge, what, story)

    def _each(self) -> Iterator[KnownCause]:
        return (KNOWN[name] for name in self._mended)

    # Start.

    def start(self, shape: EngineShape) -> None:
        """See `Engine`; NotImplementedError, with the reason, for what the release does not have."""
        setup = setup_of(shape)
        for known in self._each():
            setup = known.setup(setup)
        self.setup = setup
        self.depth = 1 + setup.asynchronous
        self.resets_running = bool(shape.options.get("resets_running")) and not setup.connector
        self.built = BuiltScheduler(setup)
        if self.built.room < 0:
            raise PoolTooSmallError("the start-up check refuses the pool")
        self.rules: list[Rule] = [rule_for(group, shape.core) for group in shape.groups]
        self.clients: dict[str, ClientRequest] = {}
        self._names: dict[str, str] = {}
        self._numbers = count()
        told_later = setup.asynchronous and bool(setup.drafts)
        self._worker = WorkerRows(self.clients, self.rules, learns_accepted=told_later)
        self._computes = self._reset_waits = False
        self._link: ConnectorLink | None = None
        self._broken: Exception | None = None
        if setup.connector in WORKERS:
            self._connect(shape.options)
        elif setup.connector:
            self.scheduler.connector = connector_for(self.clients, self._worker.loads.append, self.built)
            if setup.asynchronous and hasattr(self.scheduler, "defer_block_free"):
                self.scheduler.defer_block_free = True  # as for every connector that loads
        for known in self._each():
            known.engine(self)
        self.contract = ContractJudge(self, self.contract_maker) if self.contract_maker else None
        own = self._link and self.scheduler.connector
        differ = getattr(own, "supports_divergent_local_hybrid_hits", False) and keeps_states(setup.shape)
        if self.contract and differ:  # a hit of the full groups alone, whose state is loaded
            self.contract.rest()
        self._evicted = Counter[str]()
        _count(self._evicted, "evictions", self.pool, "_maybe_evict_cached_block")

    def _connect(self, options: Mapping[str, Value]) -> None:
        """What a connector's construction raises, and is no refusal, is a finding: the first request meets it."""
        try:
            self._link = connect(self, options)
        except NotImplementedError:
            raise
        except Exception as error:
            self._broken = error

    def connected(self) -> list[ConnectorWorker]:
        """The workers of a connector of the release, if there are any."""
        worker = None if self._link is None else self._link.worker
        return [*worker.workers.values()] if isinstance(worker, Several) else [worker] if worker else []

    @property
    def _transferring(self) -> bool:
        """True while a connector of the release transfers something."""
        return self._link is not None and self._link.busy

    @property
    def scheduler(self) -> Any:
        """The release's scheduler."""
        return self.built.scheduler

    @property
    def pool(self) -> Any:
        """Its pool."""
        return self.built.pool

    # Clients.

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `Engine`."""
        if len(request.prompt) >= self.setup.shape.max_model_len:
            return (Delivered(request.id, ended="refused", why="the prompt leaves no room for an answer"),)
        for known in self._each():
            request = known.request(request)
        name = f"{request.id}-{next(self._numbers)}"
        self._names[request.id], self.clients[name] = name, request
        if self._broken is not None:
            raise self._broken
        if self._link is not None:
            request = self._link.asked_for(request)
        made = self.built.request(request, name, self.setup.adapters_in_place)
        if self._link is not None:
            self._link.arrive(made)
        self.scheduler.add_request(made)
        return ()

    def cancel(self, id: str) -> None:
        """See `Engine`."""
        self.scheduler.finish_requests(self._names[id], module("v1.request").RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        """See `Engine`; with all running requests set back for it, or only if nothing runs. An engine in step looks at
        what it is asked behind the step."""
        if self._computes and not self.setup.asynchronous:
            self._reset_waits = True
            return
        self.scheduler.reset_prefix_cache(reset_running_requests=self.resets_running)

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        if not (self.scheduler.has_requests() or self._worker.arrived or self._transferring):
            return None
        output = self.scheduler.schedule()
        self._worker.receive(output)
        if self.contract and self.setup.asynchronous:
            self.contract.look()
        self._computes = True
        parts = tuple(self._part(name, many, output) for name, many in output.num_scheduled_tokens.items())
        loads, awaited = tuple(self._worker.begun(later=self.setup.connector == LATER)), tuple[str, ...]()
        if self._link is not None:
            loads, awaited = self._link.begin(output)
        return ScheduledBatch(
            parts,
            tuple(SlotCopy(0, one.src_block_id, one.dst_block_id) for one in _told(output, "kv_cache_block_copies")),
            loads,
            preempted=tuple(self.clients[name].id for name in output.preempted_req_ids or ()),
            own=output,
            cleared=tuple(_told(output, "new_block_ids_to_zero")),
            awaited=awaited,
        )

    def _part(self, name: str, many: int, output: Any) -> Scheduled:
        request = self.scheduler.requests[name]
        drafts = tuple(output.scheduled_spec_decode_tokens.get(name) or ())
        return self._worker.part(name, many, drafts, samples=request.num_computed_tokens >= request.num_tokens)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """See `Engine`; of transfers vLLM hears with the results of a step."""
        (self._link or self._worker).transferred(results.transferred)
        if batch is None:
            return ()
        output, names = batch.own, list(batch.own.num_scheduled_tokens)
        heard = self._link.report(output) if self._link is not None else self._worker.heard()
        if self.contract and self._runs_on(getattr(heard, "invalid_block_ids", None) or ()):
            self.contract.rest()
        told = self.scheduler.update_from_output(output, self._worker.report(names, results.tokens, heard))
        if self.setup.drafts and not self.setup.asynchronous:
            self._propose(names, results)
        if self.contract:
            self.contract.look()
        self._computes = False
        if self._reset_waits:
            self._reset_waits = False
            self.reset()
        return [self._delivered(one) for answers in told.values() for one in answers.outputs]

    def _runs_on(self, failed: Collection[int]) -> bool:
        """True if a request has computed with blocks into which a load has failed: there is no operation for that."""
        tables = map(self.scheduler.kv_cache_manager.get_block_ids, (one.request_id for one in self.scheduler.running))
        return bool(failed) and any(not set(failed).isdisjoint(ids) for table in tables for ids in table)

    def _propose(self, names: Sequence[str], results: StepResults) -> None:
        proposed = {name: list(results.drafts.get(self.clients[name].id, ())) for name in names}
        going = [name for name in names if name in self.scheduler.requests and proposed[name]]
        drafts = module("v1.outputs").DraftTokenIds(going, [proposed[name] for name in going])
        self.scheduler.update_draft_token_ids(drafts)

    def _delivered(self, one: Any) -> Delivered:
        ended: Ended = "" if one.finish_reason is None else ENDS[int(one.finish_reason)]
        return Delivered(self.clients[one.request_id].id, tuple(one.new_token_ids), ended)

    def idle(self) -> bool:
        """See `Engine`."""
        return not (self.scheduler.has_requests() or self._worker.loading or self._transferring)

    def look(self) -> EngineView:
        """See `Engine`; less what a connector's own store cannot give."""
        held = self._link.held() if self._link is not None else 0
        return EngineView(None if held is None else self.pool.get_num_free_blocks() - held)

    def objections(self) -> Sequence[str]:
        """What the contract objects to in the scheduler's calls on its core; and blocks that are free too early."""
        lines = list(self._link.objections()) if self._link is not None else []
        return [*lines, *self.contract.taken()] if self.contract else lines

    def counts(self) -> Mapping[str, int]:
        """Evictions, what a connector moved, and how often each property was checked."""
        moved = self._link.begun if self._link is not None else Counter[str]()
        return self._evicted + moved + (self.contract.reached if self.contract else Counter())


def _count(counts: Counter[str], name: str, owner: Any, method: str) -> None:
    """Count the calls of a method that return something true."""
    call = getattr(owner, method)

    def counted(*given: Any, **named: Any) -> Any:
        result = call(*given, **named)
        counts[name] += bool(result)
        return result

    setattr(owner, method, counted)


def _told(output: Any, name: str) -> Sequence[Any]:
    """A field of the output that not all releases have."""
    return getattr(output, name, None) or ()
