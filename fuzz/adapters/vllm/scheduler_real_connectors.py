"""The release's own connectors in scheduler runs: their scheduler half is real, their worker half works on the device.

`REAL` has a factory for each by a short name. A factory raises NotImplementedError where the release has no such
connector, cannot import it here, or refuses the engine.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ...simulation.device import RanStep
from ...simulation.memory import Slot
from ...simulation.protocol import ScheduledBatch
from .scheduler_config import make, module
from .scheduler_real_remote import Mooncake, MoriioGives, MoriioTakes, Nixl, third_party_missing
from .scheduler_real_transfers import DeviceBlocks, Transfers
from .scheduler_real_workers import (
    DecodeBench,
    IdleWorker,
    Offloading,
    SimpleOffload,
    WorkerScene,
    cache_tensors,
)

WORKERS: Mapping[str, type[IdleWorker]] = {
    "offloading": Offloading,
    "simple-offload": SimpleOffload,
    "decode-bench": DecodeBench,
    "nixl": Nixl,
    "mooncake": Mooncake,
    "moriio-takes": MoriioTakes,
    "moriio-gives": MoriioGives,
}
"""The worker's half of each connector, by the name under which a run asks for it."""
_MODEL: Mapping[str, object] = {
    "use_mla": False,
    "model": "none",
    "dtype": "float32",
    "get_total_num_kv_heads": lambda: 1,
}
"""Fields of the model's configuration that connectors read besides those of the scheduler."""
_DELAY = 8
"""Most moments that a transfer takes; a step has two."""


class Link:
    """Ties a worker's half to a run: does its part in every step, and gives the scheduler its reports."""

    def __init__(self, run: Any, worker: IdleWorker) -> None:
        self.worker = worker
        self.transfers = worker.scene.transfers
        self._reports: dict[int, Mapping[str, object]] = {}
        scheduler, device = run.scheduler, run.device
        self._add, self._launch, self._update = scheduler.add_request, device.launch, scheduler.update_from_output
        scheduler.add_request, device.launch, scheduler.update_from_output = self.add, self.launch, self.update

    def add(self, request: Any) -> None:
        """A request arrives at the scheduler."""
        self.worker.arrive(request)
        self._add(request)

    def launch(self, batch: ScheduledBatch, now: int, flying: frozenset[Slot]) -> RanStep:
        """A step on the device, with the transfers that are due around it; what they object to is added."""
        output = batch.own
        metadata = output.kv_connector_metadata
        self.worker.flush(metadata)
        self.worker.scene.device.when_cleared(partial(self._before, metadata, output))
        ran: RanStep = self._launch(batch, now, flying)
        self.worker.store(metadata, output)
        self.transfers.moment()
        self._reports[id(output)] = self.worker.report()
        return replace(ran, wrong=(*ran.wrong, *self.transfers.take_wrong()))

    def _before(self, metadata: Any, output: Any) -> None:
        self.worker.load(metadata, output)
        self.transfers.moment()

    def update(self, output: Any, result: Any) -> Any:
        """The scheduler learns a step's result, and what has been transferred by then."""
        if report := self._reports.pop(id(output), None):
            result.kv_connector_output = make(module("v1.outputs").KVConnectorOutput, **report)
        return self._update(output, result)

    def left_over(self) -> str:
        """What has not ended, in words, once all requests have."""
        if len(self.transfers):
            return f"{len(self.transfers)} transfers have not ended"
        return self.worker.left_over()


class _UnderWay:
    """True while something is to be transferred."""

    def __init__(self, connector: Any, transfers: Transfers) -> None:
        self._connector, self._transfers = connector, transfers

    def __bool__(self) -> bool:
        return bool(len(self._transfers)) or bool(getattr(self._connector, "has_pending_push_work", bool)())


def connect(kind: type[IdleWorker], run: Any) -> Any:
    """Build the scheduler of a run again, now with this connector, and tie the worker's half to it.

    Returns the connector. NotImplementedError as above.
    """
    if why := third_party_missing(kind.name):
        raise NotImplementedError(f"{kind.name}: {why}")
    random = Random(repr(run.setup))
    shape, built = run.setup.shape, run.engine.built
    config = vars(built.config)
    vars(config["model_config"]).update(_MODEL)
    extra = dict(kind.options(random, shape))
    config["kv_transfer_config"] = make(
        module("config").KVTransferConfig,
        kv_connector=kind.name,
        kv_role=kind.role,
        kv_connector_extra_config=extra,
        kv_load_failure_policy=random.choice(("fail", "recompute")),
    )
    built.cache_config.kv_cache_tensors = cache_tensors(shape)
    for group in built.cache_config.kv_cache_groups:
        group.kv_cache_spec = _with_two_states(group.kv_cache_spec)
    try:
        built.build()
    except Exception as error:
        raise NotImplementedError(f"{kind.name}: {type(error).__name__}: {error}") from error
    connector = run.scheduler.connector
    blocks = DeviceBlocks(run.device, run.engine.clients)
    transfers = Transfers(blocks, built.pool, random, _DELAY)
    worker = kind(WorkerScene(blocks, run.scheduler, shape, transfers, random))
    connector.link = Link(run, worker)
    run.engine.transferring = _UnderWay(connector, transfers)
    return connector


def _with_two_states(spec: Any) -> Any:
    """A layer of states with two of them, as models have; some connectors insist on it."""
    states = getattr(spec, "shapes", None)
    return spec if states is None else replace(spec, shapes=2 * states[:1], dtypes=2 * spec.dtypes[:1])


REAL: Mapping[str, Callable[[Any], Any]] = {name: partial(connect, kind) for name, kind in WORKERS.items()}
"""Factories for a `PlayedRun`."""
