"""The worker's half of the release's own connectors: what the metadata of a step ask for, as transfers of the device.

The scheduler's half is the release's. Each worker here reads the metadata that it builds in a step, says what a worker
would copy on a GPU and between which blocks, and what that worker would report; when a copy ends, the story says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, Literal

from .....model.attention import Rule
from .....model.ops import NULL, Shape, Value
from ....simulation.protocol import ClientRequest, SlotTransfer
from .loads import ExternalLoad
from .scheduler_config import make, module

_PLACE_BYTES = 4096
"""Bytes for which the release counts one place of a store: a page of memory, which is larger than any block here."""
Options = Mapping[str, tuple[Value, ...]]


@dataclass
class WorkerScene:
    """What a worker works on."""

    connector: Any
    """The scheduler's half."""
    scheduler: Any
    clients: Mapping[str, ClientRequest]
    """By the scheduler's names."""
    rules: list[Rule]
    shape: Shape
    options: Mapping[str, Value]
    """What was drawn for the connector."""
    prefix: str = ""
    """Before the names of all jobs: of one of several connectors."""
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def width(self) -> int:
        """Slots of a block."""
        return max(rule.b for rule in self.rules)

    def slots(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """All of these blocks, of the device or of a store."""
        return tuple(block * self.width + slot for block in blocks for slot in range(self.width))


@dataclass(frozen=True)
class ConnectorJob:
    """What is reported at once: its transfers."""

    key: str
    kind: Literal["load", "store"]
    transfers: tuple[SlotTransfer, ...]
    blocks: tuple[int, ...] = ()
    """On the device."""
    queue: str = ""
    """Of several jobs of one queue, one that has not ended holds up the reports of those behind it."""
    late: bool = False
    """It is not reported in the step in which it begins, unless that waits for it."""


class ConnectorWorker:
    """A worker of a connector; this one does nothing."""

    name = ""
    """The connector's, in the release."""
    role = "kv_both"
    since = (0, 26)
    """The first release whose metadata it reads."""
    options: ClassVar[Options] = {}
    """By name the values to draw, the plainest first."""
    stores_wait = False
    """No store is reported in the step in which it begins."""

    def __init__(self, scene: WorkerScene) -> None:
        self.scene = scene

    @classmethod
    def extra(cls, options: Mapping[str, Value], shape: Shape) -> dict[str, object]:
        """The connector's own configuration."""
        return {}

    def asked_for(self, request: ClientRequest) -> ClientRequest:
        """What the scheduler is given for a client's request."""
        return request

    def arrive(self, request: Any) -> None:
        """A request arrives."""

    def jobs(self, metadata: Any, output: Any) -> Iterable[ConnectorJob]:
        """What begins with the step."""
        return ()

    def awaited(self, metadata: Any, under_way: Sequence[str]) -> Iterable[str]:
        """Jobs that must have ended before the step, of those under way and of its own."""
        return ()

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        """Fields of the release's `KVConnectorOutput` for these jobs."""
        return {}

    def held(self) -> int:
        """Blocks of its store that nobody else can get."""
        return 0

    def _moved(self, key: str, kind: Literal["load", "store"], pairs: Iterable[tuple[int, int]]) -> ConnectorJob:
        """Whole blocks, each with its place in the connector's store."""
        scene, moved = self.scene, list(pairs)
        blocks, places = [block for block, _ in moved], [place for _, place in moved]
        store, is_store = f"{scene.prefix}store", kind == "store"
        told = SlotTransfer(key, kind, 0, scene.slots(blocks), store, scene.slots(places), kept=is_store)
        late = is_store and self.stores_wait
        return ConnectorJob(key, kind, (told,), tuple(blocks), f"{scene.prefix}{kind}", late)


class Offloading(ConnectorWorker):
    """Blocks in chunks of several; a step says which jobs must have ended before it."""

    name = "OffloadingConnector"
    stores_wait = True
    options: ClassVar[Options] = {
        "chunks": (6, 20, 100),
        "eviction": ("lru", "arc"),
        "blocks_per_chunk": (1, 1, 2, 3),
        "sync_loads": (False, False, True),
        "offload_prompt_only": (True, False),
        "store_threshold": (0, 0, 2),
    }

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        half = scene.connector.connector_scheduler
        self._manager = half.manager
        self._each = int(getattr(half.config, "blocks_per_chunk", 0) or getattr(half.config, "block_size_factor", 1))
        self._requests: dict[str, str] = {}

    @classmethod
    def extra(cls, options: Mapping[str, Value], shape: Shape) -> dict[str, object]:
        """Few places, so that chunks are evicted."""
        each = count_in(options, "blocks_per_chunk")
        chunk = -(-bytes_of_block(shape) * each // _PLACE_BYTES) * _PLACE_BYTES
        return {
            "cpu_bytes_to_use": count_in(options, "chunks") * chunk,
            "eviction_policy": options["eviction"],
            "blocks_per_chunk": each,
            "sync_load_budget_bytes": 1 << 30 if options["sync_loads"] else 0,
            "offload_prompt_only": options["offload_prompt_only"],
            "store_threshold": options["store_threshold"],
        }

    def _key(self, number: int) -> str:
        return f"{self.scene.prefix}job {number}"

    def _pairs(self, on_device: Any, in_store: Any) -> list[tuple[int, int]]:
        """Blocks on the device and their places: group by group, and within a group in a row, as the release's copy
        kernel counts them. RuntimeError where it would refuse."""
        each, blocks, chunks = self._each, list(on_device.block_ids), list(in_store.block_ids)
        pairs: list[tuple[int, int]] = []
        for size, index in zip(on_device.group_sizes, on_device.block_indices, strict=True):
            if not size:
                continue
            skip = index % each
            mine, chunks = chunks[: -(-(skip + size) // each)], chunks[-(-(skip + size) // each) :]
            places = [int(chunk) * each + at for chunk in mine for at in range(each)][skip : skip + size]
            if len(places) < size:
                raise RuntimeError("the worker refuses a transfer: fewer chunks than blocks")
            pairs += zip((int(block) for block in blocks[:size]), places, strict=True)
            blocks = blocks[size:]
        if chunks or blocks:
            raise RuntimeError("the worker refuses a transfer: more chunks than blocks")
        return pairs

    def jobs(self, metadata: Any, output: Any) -> Iterator[ConnectorJob]:
        """Loads, of which some must be over before the step computes, and stores."""
        for number, job in metadata.load_jobs.items():
            made = self._moved(self._key(number), "load", self._pairs(job.dst_spec, job.src_spec))
            if getattr(job, "sync", False):
                yield at_once(made)
            else:
                self._requests[made.key] = job.req_id
                yield made
        for number, job in metadata.store_jobs.items():
            yield self._moved(self._key(number), "store", self._pairs(job.src_spec, job.dst_spec))

    def awaited(self, metadata: Any, under_way: Sequence[str]) -> Iterable[str]:
        """Jobs to be flushed."""
        return [self._key(number) for number in metadata.jobs_to_flush or ()]

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        """Jobs that ended, and the requests whose loads ended."""
        metadata = module("distributed.kv_transfer.kv_connector.v1.offloading.common").OffloadingWorkerMetadata()
        for key in ended:
            metadata.mark_completed(int(key.rpartition(" ")[2]))
        arrived = {self._requests.pop(key) for key in ended if key in self._requests}
        return {"finished_recving": arrived, "kv_connector_worker_meta": metadata}

    def held(self) -> int:
        """Chunks that can neither be evicted nor are free."""
        manager = self._manager
        kind = "chunks" if hasattr(manager, "_num_allocated_chunks") else "blocks"
        used = int(getattr(manager, f"_num_allocated_{kind}")) - len(manager._free_list)
        return used - int(getattr(manager, f"_num_evictable_cache_{kind}"))


class SimpleOffload(ConnectorWorker):
    """Single blocks; what is under way holds the block, so that nothing needs to be waited for."""

    name = "SimpleCPUOffloadConnector"
    options: ClassVar[Options] = {"host_blocks": (4, 12, 100), "lazy_offload": (False, False, True)}

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._requests: dict[int, list[str]] = {}
        manager = scene.connector.scheduler_manager
        if manager is None:
            raise NotImplementedError(f"{self.name}: does nothing without a prefix cache")
        self._pool = manager.cpu_block_pool
        self._free = int(self._pool.get_num_free_blocks())

    @classmethod
    def extra(cls, options: Mapping[str, Value], shape: Shape) -> dict[str, object]:
        """A store of few blocks or of many, filled at once or when blocks are about to be evicted."""
        places = count_in(options, "host_blocks")
        return {"cpu_bytes_to_use": places * bytes_of_block(shape), "lazy_offload": options["lazy_offload"]}

    def jobs(self, metadata: Any, output: Any) -> Iterator[ConnectorJob]:
        """At most one load and one store a step."""
        self._requests |= metadata.load_event_to_reqs
        for kind in ("load", "store"):
            event = getattr(metadata, f"{kind}_event")
            if event >= 0:
                blocks, places = (getattr(metadata, f"{kind}_{where}_blocks") for where in ("gpu", "cpu"))
                key = f"{self.scene.prefix}{kind} {event}"
                yield self._moved(key, kind, zip(blocks, places, strict=True))

    def awaited(self, metadata: Any, under_way: Sequence[str]) -> Iterable[str]:
        """All has ended before a step that preempts."""
        return under_way if metadata.need_flush else ()

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        """Requests whose loads ended, and the numbers of stores that ended."""
        fields: dict[str, Any] = {}
        events = {
            kind: [int(key.rpartition(" ")[2]) for key in ended if f"{kind} " in key] for kind in ("load", "store")
        }
        if events["load"]:
            fields["finished_recving"] = {name for event in events["load"] for name in self._requests.pop(event, ())}
        if events["store"]:
            kind = module("v1.simple_kv_offload.metadata").SimpleCPUOffloadWorkerMetadata
            fields["kv_connector_worker_meta"] = kind(completed_store_events=dict.fromkeys(events["store"], 1))
        return fields

    def held(self) -> int:
        """Blocks of the store that are in use."""
        return self._free - int(self._pool.get_num_free_blocks())


class DecodeBench(ConnectorWorker):
    """Made-up contents for all of a prompt but its last token, within the step; here these are the right contents."""

    name = "DecodeBenchConnector"
    since = (0, 30)  # before, it filled the first blocks of a table, also where these came from the cache

    def jobs(self, metadata: Any, output: Any) -> Iterator[ConnectorJob]:
        """Fill the blocks."""
        tables = {data.req_id: data.block_ids for data in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        new = zip(cached.req_ids, cached.new_block_ids, strict=True)
        tables |= {name: blocks for name, blocks in new if name in cached.resumed_req_ids}
        for name, (blocks, tokens) in metadata.reqs_to_fill.items():
            chosen = [
                [block if block in mine else NULL for block in table]
                for table, mine in zip(tables[name], blocks, strict=True)
            ]
            end = self.scene.scheduler.requests[name].num_tokens - 1
            yield at_once(loaded(self.scene, name, chosen, end - tokens, end))


class Several(ConnectorWorker):
    """Several connectors in one: what is loaded comes from the first that has it, and all of them store."""

    name = "MultiConnector"
    pairs: ClassVar[Mapping[str, tuple[type[ConnectorWorker], ...]]] = {}
    """By the value of option `children`; set where the workers are listed."""

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        kinds = self.pairs[str(scene.options["children"])]
        halves = vars(scene.connector)["_connectors"]
        self.workers = {
            f"{number}: ": kind(self._of_child(scene, half, f"{number}: "))
            for number, (kind, half) in enumerate(zip(kinds, halves, strict=True))
        }
        self._more_sends: dict[str, int] = {}

    @staticmethod
    def _of_child(scene: WorkerScene, half: Any, prefix: str) -> WorkerScene:
        return WorkerScene(half, scene.scheduler, scene.clients, scene.rules, scene.shape, scene.options, prefix)

    @classmethod
    def extra(cls, options: Mapping[str, Value], shape: Shape) -> dict[str, object]:
        """What each of them is told."""
        return {
            "connectors": [
                {
                    "kv_connector": kind.name,
                    "kv_role": kind.role,
                    "kv_connector_extra_config": kind.extra(options, shape),
                }
                for kind in cls.pairs[str(options["children"])]
            ]
        }

    def asked_for(self, request: ClientRequest) -> ClientRequest:
        """See above."""
        for worker in self.workers.values():
            request = worker.asked_for(request)
        return request

    def arrive(self, request: Any) -> None:
        """See above."""
        for worker in self.workers.values():
            worker.arrive(request)

    def jobs(self, metadata: Any, output: Any) -> Iterator[ConnectorJob]:
        """See above."""
        self._more_sends |= metadata.extra_async_saves or {}
        for worker, told in zip(self.workers.values(), metadata.metadata, strict=True):
            yield from worker.jobs(told, output)

    def awaited(self, metadata: Any, under_way: Sequence[str]) -> Iterator[str]:
        """See above."""
        for (prefix, worker), told in zip(self.workers.items(), metadata.metadata, strict=True):
            yield from worker.awaited(told, [key for key in under_way if key.startswith(prefix)])

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        """The fields of all in one; who is sent by several is told when the last one has."""
        fields: dict[str, Any] = {}
        told: list[Any] = []
        for prefix, worker in self.workers.items():
            mine = [key for key in ended if key.startswith(prefix)]
            one = worker.report(mine) if mine else {}
            told.append(one.pop("kv_connector_worker_meta", None))
            sent = [name for name in one.pop("finished_sending", ()) if not self._is_sent_again(name)]
            for name, value in (one | ({"finished_sending": set(sent)} if sent else {})).items():
                fields[name] = fields.get(name, set()) | value
        if any(one is not None for one in told):
            kind = module("distributed.kv_transfer.kv_connector.v1.multi_connector").MultiKVConnectorWorkerMetadata
            fields["kv_connector_worker_meta"] = kind(metadata=tuple(told))
        return fields

    def _is_sent_again(self, name: str) -> bool:
        left = self._more_sends.pop(name, 0)
        if left > 1:
            self._more_sends[name] = left - 1
        return left > 0

    def held(self) -> int:
        """See above."""
        return sum(worker.held() for worker in self.workers.values())


def loaded(scene: WorkerScene, name: str, tables: list[list[int]], start: int, end: int) -> ConnectorJob:
    """Positions `start .. end - 1` of a request are loaded, with the right content, where the tables have a block."""
    key = f"{scene.prefix}load {next(scene.numbers)} of {name}"
    of = ExternalLoad(name, tables, start, end).transfers(scene.rules, scene.width, scene.clients[name].id, now=False)
    told = tuple(replace(one, id=f"{key}, group {one.group}") for one in of)
    return ConnectorJob(key, "load", told, tuple(block for table in tables for block in table if block != NULL))


def at_once(job: ConnectorJob) -> ConnectorJob:
    """The same before the step computes."""
    return replace(job, transfers=tuple(replace(one, now=True) for one in job.transfers))


def count_in(options: Mapping[str, Value], name: str) -> int:
    """The number that was drawn for an option."""
    value = options[name]
    assert isinstance(value, int)
    return value


def bytes_of_block(shape: Shape) -> int:
    """Bytes for which a block of the engine's pool is counted in `cache_tensors`."""
    return 64 * len(shape.groups)


def cache_tensors(shape: Shape) -> list[Any]:
    """The release's description of where the blocks lie in memory: one allocation, a layer for each group."""
    layers = [f"layer.{index}" for index in range(len(shape.groups))]
    each = bytes_of_block(shape)
    return [
        make(
            module("v1.kv_cache_interface").KVCacheTensor,
            size=each * shape.num_blocks,
            layers=layers,
            shared_by=layers,
            layer_stride=64,
            block_stride=each,
        )
    ]
