"""The release's own connectors under simulation: their scheduler half is real, their worker half works on the device.

A connector is asked for by name, as `--option connector=offloading`; what it can be told is drawn as options of the
engine (`OPTIONS_OF`). NotImplementedError, with the reason, where a release has no such connector, cannot import it
here, or refuses the engine; whatever else its construction raises is raised by the first call of the engine instead,
since it is a finding.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from .....model.ops import NULL, Value
from ....simulation.protocol import ClientRequest, SlotTransfer
from .built_scheduler import BuiltScheduler
from .connector_remotes import Mooncake, MoriioGives, MoriioTakes, Nixl, NixlPush
from .connector_workers import (
    ConnectorJob,
    ConnectorWorker,
    DecodeBench,
    Offloading,
    Options,
    Several,
    SimpleOffload,
    WorkerScene,
    cache_tensors,
)
from .scheduler_config import make, module

WORKERS: Mapping[str, type[ConnectorWorker]] = {
    "offloading": Offloading,
    "simple-offload": SimpleOffload,
    "decode-bench": DecodeBench,
    "nixl": Nixl,
    "nixl-push": NixlPush,
    "mooncake": Mooncake,
    "moriio-takes": MoriioTakes,
    "moriio-gives": MoriioGives,
    "multi": Several,
}
"""The worker of each, by the value of option `connector`."""
Several.pairs = {
    "+".join(names): tuple(WORKERS[name] for name in names)
    for names in (
        ("offloading", "simple-offload"),
        ("simple-offload", "offloading"),
        ("nixl", "offloading"),
        ("nixl", "simple-offload"),
    )
}
Several.options = {"children": tuple(Several.pairs), **Offloading.options, **SimpleOffload.options, "loads_fail": (0,)}
OPTIONS_OF: Mapping[str, Options] = {f"connector={name}": kind.options for name, kind in WORKERS.items()}
"""What is drawn besides where a connector is asked for."""
_MODEL: Mapping[str, object] = {
    "use_mla": False,
    "model": "none",
    "dtype": "float32",
    "get_total_num_kv_heads": lambda: 1,
}
"""Fields of the model's configuration that connectors read besides those of the scheduler."""
_UNUSED = ("httpx", "msgpack", "uvicorn")
"""What connectors import for their workers alone: an empty module stands in for it where it is not installed."""
_RESTLESS = 200
"""Steps without any request in which an engine comes to rest."""
_NO_REFUSALS = (AssertionError, AttributeError, LookupError, TypeError, ArithmeticError)
"""What does not say, at construction, that something is not to be had; whatever else is raised does."""


@dataclass
class _Open:
    """A job that the scheduler has not heard the end of."""

    job: ConnectorJob
    left: set[str]
    """Its transfers that have not ended."""
    began: int
    """The step with which it began."""
    told_from: int
    """The first step with whose results it may be reported."""


class ConnectorLink:
    """Ties a worker to an engine: what begins with each step, what is reported with its results."""

    def __init__(self, worker: ConnectorWorker, pool: Any) -> None:
        self.worker, self._pool, self._scheduler = worker, pool, worker.scene.scheduler
        self._open: dict[str, _Open] = {}
        self._step = self._asked_for = 0
        """The last step, and the last one in which anybody asked for something or had just left."""
        self._numbers: dict[int, int] = {}
        self.begun: Counter[str] = Counter()
        """Blocks that were loaded and stored."""

    @property
    def busy(self) -> bool:
        """True while the scheduler is yet to hear of a transfer that began for somebody.

        Without requests an engine takes no steps, unless its connector says so. Here it does, to hear of what is left,
        and some connectors begin a store in each of them."""
        return any(one.began <= self._asked_for for one in self._open.values()) or self._works_on

    @property
    def _works_on(self) -> bool:
        return bool(getattr(self._scheduler.connector, "has_pending_push_work", bool)())

    def asked_for(self, request: ClientRequest) -> ClientRequest:
        """What the scheduler is given for a client's request."""
        return self.worker.asked_for(request)

    def arrive(self, request: Any) -> None:
        """A request arrives at the scheduler."""
        self.worker.arrive(request)

    def begin(self, output: Any) -> tuple[tuple[SlotTransfer, ...], tuple[str, ...]]:
        """The transfers that begin with a step, and those that must be over before it."""
        self._step += 1
        self._numbers[id(output)] = self._step
        if self._scheduler.requests or output.finished_req_ids:
            self._asked_for = self._step
        metadata = output.kv_connector_metadata
        jobs = list(self.worker.jobs(metadata, output))
        awaited = set(self.worker.awaited(metadata, list(self._open)))
        for job in jobs:
            left = {one.id for one in job.transfers if not one.now}
            self._open[job.key] = _Open(job, left, self._step, self._step + (job.late and job.key not in awaited))
            self.begun[f"blocks of a {job.kind} by the connector"] += len(job.blocks)
        now = (id for key in self._open if key in awaited for id in self._open[key].left)
        return tuple(one for job in jobs for one in job.transfers), tuple(now)

    def transferred(self, ids: Sequence[str]) -> None:
        """These have ended."""
        for one in self._open.values():
            one.left.difference_update(ids)

    def report(self, output: Any) -> Any:
        """What the scheduler hears with the results of a step; None if nothing."""
        step, ended, waited = self._numbers.pop(id(output)), list[str](), set[str]()
        for key, one in self._open.items():
            if one.left or one.told_from > step:
                waited.add(one.job.queue)
            elif not one.job.queue or one.job.queue not in waited:
                ended.append(key)
        for key in ended:
            del self._open[key]
        return make(module("v1.outputs").KVConnectorOutput, **self.worker.report(ended)) if ended else None

    def objections(self) -> Iterator[str]:
        """Blocks that anybody can get while something is loaded into them; an engine that never comes to rest."""
        if self._step - self._asked_for > _RESTLESS and self._works_on:
            yield "never at rest: it goes on and on, and nobody has asked for anything"
        for key, one in self._open.items():
            for block in one.job.blocks if one.job.kind == "load" and one.left else ():
                if block != NULL and not self._pool.blocks[block].ref_cnt:
                    yield f"free while loaded: block {block}, by {key}"

    def held(self) -> int | None:
        """Blocks of the connector's store that are in use; None while something is under way."""
        return None if self._open else self.worker.held()


def connect(engine: Any, options: Mapping[str, Value]) -> ConnectorLink:
    """Build the scheduler of an engine again, now with its connector, and tie the worker to it."""
    setup, built = engine.setup, engine.built
    kind, shape = WORKERS[setup.connector], setup.shape
    drawn = {name: options.get(name, values[0]) for name, values in kind.options.items()}
    if tuple(int(part) for part in engine.version.split(".")[:2]) < kind.since:
        first = ".".join(map(str, kind.since))
        raise NotImplementedError(f"{kind.name}: the worker's half here is that of {first} and later")
    for part in Several.pairs[str(drawn["children"])] if kind is Several else (kind,):
        if why := missing(part.name):
            raise NotImplementedError(f"{part.name}: {why}")
    extra = kind.extra(drawn, shape)
    try:
        build_with(
            built,
            kv_connector=kind.name,
            kv_role=kind.role,
            kv_connector_extra_config=extra,
            kv_load_failure_policy="recompute",
        )
    except _NO_REFUSALS:
        raise
    except Exception as error:
        raise NotImplementedError(f"{kind.name}: {type(error).__name__}: {error}") from error
    scheduler = built.scheduler
    scene = WorkerScene(scheduler.connector, scheduler, engine.clients, engine.rules, shape, drawn)
    return ConnectorLink(kind(scene), built.pool)


def build_with(built: BuiltScheduler, **transfer: object) -> None:
    """Make a scheduler again, now with a connector; `transfer`: what its `KVTransferConfig` is made of."""
    config = vars(built.config)
    vars(config["model_config"]).update(_MODEL)
    config["kv_transfer_config"] = make(module("config").KVTransferConfig, **transfer)
    built.cache_config.kv_cache_tensors = cache_tensors(built.setup.shape)
    for group in built.cache_config.kv_cache_groups:
        group.kv_cache_spec = _with_two_states(group.kv_cache_spec)
    built.build()


def missing(name: str) -> str:
    """Why the release cannot import a connector here; empty if it can."""
    for unused in _UNUSED:
        if unused not in sys.modules and find_spec(unused) is None:
            sys.modules[unused] = ModuleType(unused)
    try:
        module("distributed.kv_transfer.kv_connector.factory").KVConnectorFactory._registry[name]()
    except KeyError:
        return "the release has none"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _with_two_states(spec: Any) -> Any:
    """A layer of states with two of them, as models have; some connectors insist on it."""
    states = getattr(spec, "shapes", None)
    return spec if states is None else replace(spec, shapes=2 * states[:1], dtypes=2 * spec.dtypes[:1])
