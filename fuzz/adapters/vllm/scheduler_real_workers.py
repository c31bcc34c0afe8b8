"""The worker's half of connectors that keep blocks elsewhere on the same machine, over the simulated device.

Each reads the metadata that the release's own scheduler half builds in a step, and does on the device what the
release's worker does on a GPU; when a copy happens within its bounds is drawn.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from ....model.attention import RULES
from ....model.ops import NULL, Shape
from .scheduler_config import make, module
from .scheduler_real_transfers import Copy, DeviceBlocks, Page, Transfers

_CONNECTORS = "distributed.kv_transfer.kv_connector.v1"
_PLACE_BYTES = 4096
"""Bytes for which the release counts one place of a store: a page of memory, which is larger than any block here."""


@dataclass
class WorkerScene:
    """What a worker's half works on."""

    device: DeviceBlocks
    scheduler: Any
    shape: Shape
    transfers: Transfers
    random: Random


class IdleWorker:
    """A worker's half that does nothing."""

    name = ""
    """Name of the connector in the release."""
    role = "kv_both"

    def __init__(self, scene: WorkerScene) -> None:
        self.scene = scene

    @staticmethod
    def options(random: Random, shape: Shape) -> Mapping[str, object]:
        """The connector's own options. NotImplementedError for an engine that it does not take."""
        return {}

    def arrive(self, request: Any) -> None:
        """A request arrives."""

    def flush(self, metadata: Any) -> None:
        """Before the step: wait for what must have ended."""

    def load(self, metadata: Any, output: Any) -> None:
        """After blocks are cleared and before the step is computed."""

    def store(self, metadata: Any, output: Any) -> None:
        """Behind the step's computation."""

    def report(self) -> Mapping[str, object]:
        """Fields of the release's `KVConnectorOutput` for the step."""
        return {}

    def left_over(self) -> str:
        """What the scheduler half still holds once all has ended, in words; empty if nothing."""
        return ""


class Offloading(IdleWorker):
    """Blocks in chunks of several; loads are fenced by jobs that must have ended before a step."""

    name = "OffloadingConnector"

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._store: dict[Hashable, Page] = {}
        config = scene.scheduler.connector.connector_scheduler.config
        self._each = int(getattr(config, "blocks_per_chunk", 0) or getattr(config, "block_size_factor", 1))
        """Blocks in a chunk."""
        self._requests: dict[Hashable, str] = {}

    @staticmethod
    def options(random: Random, shape: Shape) -> Mapping[str, object]:
        """Few places, so that chunks are evicted; sometimes several blocks in a chunk, and loads within the step."""
        options: dict[str, object] = {"cpu_bytes_to_use": _PLACE_BYTES * random.choice((6, 20, 100))}
        options["eviction_policy"] = random.choice(("lru", "arc"))
        if random.random() < 0.4:
            options["blocks_per_chunk"] = random.choice((2, 3))
        if random.random() < 0.3:
            options["sync_load_budget_bytes"] = 1 << 30
        return options

    def _pairs(self, on_device: Any, in_store: Any) -> list[tuple[int, tuple[int, int]]]:
        """Blocks on the device and their places: group by group, and within a group in a row, as the release's copy
        kernel counts them. RuntimeError where it would refuse."""
        each, blocks, chunks = self._each, list(on_device.block_ids), list(in_store.block_ids)
        pairs: list[tuple[int, tuple[int, int]]] = []
        for size, index in zip(on_device.group_sizes, on_device.block_indices, strict=True):
            if not size:
                continue
            skip = index % each
            mine, chunks = chunks[: -(-(skip + size) // each)], chunks[-(-(skip + size) // each) :]
            places = [(int(chunk), at) for chunk in mine for at in range(each)][skip : skip + size]
            if len(places) < size:
                raise RuntimeError("the worker refuses a transfer: fewer chunks than blocks")
            pairs += zip((int(block) for block in blocks[:size]), places, strict=True)
            blocks = blocks[size:]
        if chunks or blocks:
            raise RuntimeError("the worker refuses a transfer: more chunks than blocks")
        return pairs

    @staticmethod
    def _ends(job: Any) -> tuple[Any, Any]:
        return (job.src_spec, job.dst_spec) if hasattr(job, "src_spec") else tuple(job.transfer_spec)

    def flush(self, metadata: Any) -> None:
        """Jobs to be flushed have ended before the step."""
        jobs = set(metadata.jobs_to_flush or ())
        self._begin_stores({number: job for number, job in metadata.store_jobs.items() if number in jobs})
        self.scene.transfers.finish(jobs)

    def load(self, metadata: Any, output: Any) -> None:
        """Begin loads; those of the step itself end at once."""
        for number, job in metadata.load_jobs.items():
            source, target = self._ends(job)
            copies = [
                self.scene.transfers.out_of(self._store, place, block) for block, place in self._pairs(target, source)
            ]
            if not getattr(job, "sync", False):
                self._requests[number] = job.req_id
            self.scene.transfers.begin(number, True, copies)
            if getattr(job, "sync", False):
                self.scene.transfers.finish([number])

    def store(self, metadata: Any, output: Any) -> None:
        """Begin stores, of which none is reported in the same step."""
        flushed = set(metadata.jobs_to_flush or ())
        self._begin_stores({number: job for number, job in metadata.store_jobs.items() if number not in flushed})

    def _begin_stores(self, jobs: Mapping[int, Any]) -> None:
        for number, job in jobs.items():
            source, target = self._ends(job)
            copies = [
                self.scene.transfers.into(self._store, place, block) for block, place in self._pairs(source, target)
            ]
            self.scene.transfers.begin(number, False, copies, silent=2)

    def report(self) -> Mapping[str, object]:
        """Jobs that ended, and the requests whose loads ended."""
        ended = self.scene.transfers.ended(True) + self.scene.transfers.ended(False)
        if not ended:
            return {}
        metadata = module(f"{_CONNECTORS}.offloading.common").OffloadingWorkerMetadata()
        for number in ended:
            metadata.mark_completed(number)
        arrived = {self._requests.pop(number) for number in ended if number in self._requests}
        return {"finished_recving": arrived, "kv_connector_worker_meta": metadata}


class SimpleOffload(IdleWorker):
    """Single blocks; what is under way holds the block, so that nothing needs to be fenced."""

    name = "SimpleCPUOffloadConnector"

    def __init__(self, scene: WorkerScene) -> None:
        super().__init__(scene)
        self._store: dict[Hashable, Page] = {}
        self._requests: dict[Hashable, list[str]] = {}
        self._pool = scene.scheduler.connector.scheduler_manager.cpu_block_pool
        self._free = self._pool.get_num_free_blocks()

    @staticmethod
    def options(random: Random, shape: Shape) -> Mapping[str, object]:
        """A store of few blocks or of many, filled at once or when blocks are about to be evicted."""
        if not any(RULES[group.kind].is_full for group in shape.groups) or not shape.caching:
            raise NotImplementedError("this connector needs a group of full attention")
        places = random.choice((4, 12, 100))
        # One block is counted as `bytes_of_block`; see there.
        return {"cpu_bytes_to_use": places * bytes_of_block(shape), "lazy_offload": random.random() < 0.3}

    def flush(self, metadata: Any) -> None:
        """All has ended before a step that preempts."""
        if metadata.need_flush:
            self.scene.transfers.finish()

    def load(self, metadata: Any, output: Any) -> None:
        """Begin loads."""
        self._requests |= metadata.load_event_to_reqs
        if metadata.load_event >= 0:
            pairs = zip(metadata.load_gpu_blocks, metadata.load_cpu_blocks, strict=True)
            copies = [self.scene.transfers.out_of(self._store, place, block) for block, place in pairs]
            self.scene.transfers.begin(metadata.load_event, True, copies)

    def store(self, metadata: Any, output: Any) -> None:
        """Begin stores."""
        if metadata.store_event >= 0:
            pairs = zip(metadata.store_gpu_blocks, metadata.store_cpu_blocks, strict=True)
            copies = [self.scene.transfers.into(self._store, place, block) for block, place in pairs]
            self.scene.transfers.begin(metadata.store_event, False, copies)

    def report(self) -> Mapping[str, object]:
        """Requests whose loads ended, and the numbers of stores that ended."""
        fields: dict[str, object] = {}
        loads, stores = self.scene.transfers.ended(True), self.scene.transfers.ended(False)
        if loads:
            fields["finished_recving"] = {name for event in loads for name in self._requests.pop(event, ())}
        if stores:
            kind = module("v1.simple_kv_offload.metadata").SimpleCPUOffloadWorkerMetadata
            fields["kv_connector_worker_meta"] = kind(completed_store_events=dict.fromkeys(stores, 1))
        return fields

    def left_over(self) -> str:
        """Blocks of the store that nobody can use again."""
        lost = self._free - self._pool.get_num_free_blocks()
        return f"{lost} blocks of the connector's store are held for ever" if lost else ""


class DecodeBench(IdleWorker):
    """Made-up contents for all of a prompt but its last token, within the step; here these are the right contents."""

    name = "DecodeBenchConnector"

    def load(self, metadata: Any, output: Any) -> None:
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
            fill = Copy(NULL, _done(self.scene.device, name, chosen, end - tokens, end))
            self.scene.transfers.begin(name, True, [fill])
            self.scene.transfers.finish([name])
        self.scene.transfers.ended(True)


def _done(device: DeviceBlocks, name: str, tables: list[list[int]], start: int, end: int) -> Callable[[], str]:
    """An act that writes the right contents of a request's positions into the blocks of these tables."""

    def act() -> str:
        device.load_now(name, tables, start, end)
        return ""

    return act


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
