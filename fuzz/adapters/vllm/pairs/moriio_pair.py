"""Two vLLM engines as a pair, with the release's own MoRIIOConnector on both sides, in read mode: one computes prompts,
one reads their blocks within a step and answers. What stands in for library, sockets and threads: `moriio_wire`.
"""

import queue
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

from .....model.ops import NULL, Value
from ....simulation.judges import FATE, MEMORY, PROGRESS, TOKENS
from ....simulation.network import Port
from ....simulation.protocol import EngineShape, ScheduledBatch, StepResults
from ..engine.connectors import missing
from ..engine.scheduler_config import module
from .moriio_wire import MORIIO, PAGE, AtOnce, Reader, Released, put_in
from .nixl_worker import groups_of
from .pair_half import PairHalf
from .released_pair import DEFECTS, Defect, ReleasedPair

_WHERE: Mapping[str, object] = {"read_mode": "true", "handshake_port": 1, "notify_port": 2, "http_port": 3}
"""An engine that begins anew serves at the same address."""


class MoriioHalf(PairHalf):
    """One of the two engines."""

    connector_name = "MoRIIOConnector"
    told: tuple[str, ...] = ("defer_timeout",)
    agent: Reader

    def _told_always(self) -> Mapping[str, object]:
        return {**_WHERE, "host_ip": self._port.name}

    def _equip(self, counts: Counter[str]) -> None:
        put_in(lambda: self._port.now)
        self.agent = Reader(self.width)
        self.worker = moriio_worker(self, counts)
        self._heard: set[tuple[str, int]] = set()
        self._late: list[tuple[ScheduledBatch, StepResults]] = []

    def _hear(self, message: Released) -> None:
        """What was sent twice comes once, on a socket."""
        if (message.sender, message.number) in self._heard:
            return
        self._heard.add((message.sender, message.number))
        common = module(f"{MORIIO}.moriio_common")
        common.set_role(common.ROLE.PRODUCER)  # of the process, which a pair shares
        told = {"type": message.kind, "transfer_id": message.transfer, **dict(message.about)}
        self.worker.moriio_wrapper._handle_structured_message(told)

    def _parameters(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The router names the transfer, and the life of the engine that it asks."""
        named = {"transfer_id": f"{name} of {self.engine_id}"} if self._port.name == "prefill" else {}
        return {**parameters, **named}

    def schedule(self) -> ScheduledBatch | None:
        """See `HalfEngine`: while a handshake is not answered, the engine stands."""
        if self._waits_for_a_handshake():
            self._tell_alive()
            return None
        batch = super().schedule()
        return batch and replace(batch, awaited=tuple(one.id for one in batch.transfers))

    def _waits_for_a_handshake(self) -> bool:
        """The worker asks the first time that it is to read, and waits for as long as nobody serves there."""
        if self._port.name == "prefill" or self.worker._eager_handshaked_engines or self.agent.serves():
            return False
        asked = [one.kv_transfer_params or {} for one in self.scheduler.requests.values()]
        return any(one.get("do_remote_prefill") for one in asked)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """See `HalfEngine`: a step ends behind what it has read."""
        if batch is not None:
            self._late.append((batch, results))
        else:
            super().update(None, results)
        while self._late and not self.agent.reading:
            super().update(*self._late.pop(0))

    def _finish_worker(self) -> None:
        if self._outputs:
            self.worker.finish_reads(self.ends_failed)
        super()._finish_worker()

    def end_with(self, name: str) -> None:
        """A request ends, and whoever has a block of it; nothing of it is found any more."""
        manager = self.scheduler.kv_cache_manager
        own = {block for blocks in manager.get_block_ids(name) for block in blocks} - {NULL}
        manager.evict_blocks(own)
        for other in self.scheduler.requests:
            if own.intersection(block for blocks in manager.get_block_ids(other) for block in blocks):
                self.agent.failed.append(other)

    def idle(self) -> bool:
        """See `HalfEngine`."""
        return super().idle() and not self._late

    def keeps(self, engine: str, request: str) -> bool:
        """See `PairHalf`; a request by the name of its transfer."""
        held = {transfer for _, transfer in self.connector._deferred_send_deadlines.values()}
        return engine == self.engine_id and request in held


def moriio_worker(half: MoriioHalf, counts: Counter[str]) -> Any:
    """The worker half of an engine, on its `agent`."""
    base: Any = module(f"{MORIIO}.moriio_connector").MoRIIOConnectorWorker
    layout = module(f"{MORIIO}.moriio_layout")
    reader, layers = half.agent, [group.layer_names[0] for group in groups_of(half.connector.kv_cache_config)]

    class Worker(base):  # type: ignore[misc]
        """The release's, without its constructor, which needs the library and tensors."""

        def __init__(self, fields: Mapping[str, Any]) -> None:
            self.__dict__.update(fields)

        def __del__(self) -> None:
            """Nothing is to be released."""

        def _moriio_handshake(self, host: str, port: int, size: int, engine: str, *more: Any) -> set[str]:
            life = reader.serves()
            self.layer_name_to_remote_kv_cache_metadata[engine] = {
                name: [life] * len(regions) for name, regions in self.layer_name_to_local_kv_cache_metadata.items()
            }
            blocks = half.built.cache_config.num_blocks
            self.remote_moriio_metadata[engine] = SimpleNamespace(
                num_blocks=blocks, kv_head_layouts={}, attention_block_sizes={}
            )
            counts["handshakes"] += 1
            return {life}

        def _read_blocks_for_req(self, req_id: str, meta: Any) -> None:
            reader.transfer = meta.transfer_id
            super()._read_blocks_for_req(req_id, meta)

        def _record_failed_recv(self, req_id: str) -> None:
            counts["failed reads"] += 1
            if not half.ends_failed:
                super()._record_failed_recv(req_id)

        def _compute_block_transfer_offsets(self, layer: str, here: Any, there: Any, meta: Any, **more: Any) -> Any:
            layout.validate_transfer_block_ids(here, there, half.built.cache_config.num_blocks, meta.num_blocks)
            return self._in_bytes(here, there[: len(here)])

        def _compute_mamba_transfer_offsets(self, layer: str, here: Any, there: Any, **more: Any) -> Any:
            if len(here) != len(there):
                raise ValueError(f"{len(here)} slots of states here, {len(there)} there")
            return *self._in_bytes(here, there), len(here)

        def _in_bytes(self, here: Sequence[int], there: Sequence[int]) -> Any:
            ours, theirs = ([block * PAGE for block in blocks] for blocks in (here, there))
            return self.merge_contiguous_blocks(ours, theirs, [PAGE] * len(ours))

        def _await_reads_issued_this_step(self) -> None:
            """They are over before the step computes; what came of them is known with its results."""

        def finish_reads(self, is_survived: bool) -> None:
            """What was awaited before a step is over. `is_survived`: of who failed its end is told, nothing else."""
            if not is_survived:
                super()._await_reads_issued_this_step()
                return
            for name, statuses in self._recving_transfers.items():
                if any(status.Failed() for of_layer in statuses.values() for status in of_layer):
                    half.end_with(name)

    return Worker(_fields(half, layers))


def _fields(half: MoriioHalf, layers: Sequence[str]) -> Mapping[str, Any]:
    """What the methods of the worker read, for one rank."""
    found, scheduler = module(f"{MORIIO}.moriio_connector"), half.connector
    config = scheduler.kv_cache_config
    _, states = found._split_kv_cache_group_kinds(config)
    regions = {name: [group] * (1 + (group in states)) for group, name in enumerate(layers)}
    return {
        **{name: {} for name in _DICTS},
        **{name: set() for name in _SETS},
        **{name: [] for name in ("_reads_issued_this_step", "_pending_unmapped_acks")},
        **dict.fromkeys(("tp_rank", "dp_rank", "_rank"), 0),
        "mode": scheduler.mode,
        "is_producer": scheduler.is_producer,
        "world_size": 1,
        "use_mla": False,
        "engine_id": scheduler.engine_id,
        "moriio_config": SimpleNamespace(transfer_timeout=30.0, recv_abort_timeout=120.0, backend="rdma"),
        "moriio_wrapper": _wrapper(half, found),
        "tp_group": SimpleNamespace(cpu_group=None),
        "layer_to_spec": {name: group.kv_cache_spec for name, group in zip(layers, groups_of(config), strict=True)},
        "layer_to_group": {name: group for group, name in enumerate(layers)},
        "layer_name_to_local_kv_cache_metadata": regions,
        "_has_mamba": bool(states),
        "_num_mamba_transfer_groups": len(states),
        "_mamba_payload_index_by_layer": {layers[group]: at for at, group in enumerate(states, 1)},
        "_region_session_index": None,
        "_recving_transfers": defaultdict(dict),
        "_unmatched_write_failures": OrderedDict(),
        "_handshake_initiation_executor": AtOnce(),
        "_handshake_lock": threading.RLock(),
        "_ready_requests": queue.Queue(),
        "_heartbeat": None,
    }


def _wrapper(half: MoriioHalf, found: Any) -> Any:
    """The release's, on our engine and sockets."""
    base: Any = found.MoRIIOWrapper

    class Wrapper(base):  # type: ignore[misc]
        """See above."""

        sent = 0

        def get_unpack_memory_metadata(self, packed: Any) -> Any:
            return packed

        def async_wait_reqid(self) -> None:
            """Messages come by themselves."""

        def send_notify(self, ids: Any, host: str, port: str, message_type: str, message_fields: Any = None) -> None:
            self.sent += 1
            about = tuple((message_fields or {}).items())
            half.tell_other(Released(half.engine_id, self.sent, ids, message_type, about))

    made = Wrapper(half.agent)
    made.local_memory_registered = True
    return made


_DICTS = (
    "transfer_id_to_request_id",
    "_consumer_notification_counts",
    "_remote_agents",
    "layer_name_to_remote_kv_cache_metadata",
    "remote_moriio_metadata",
    "load_ready_flag",
    "write_ready_flags",
    "_handshake_futures",
    "_reqs_to_send",
    "_recving_transfers_callback_addr",
    "_recving_transfers_start",
    "_recving_local_blocks",
    "built_write_session",
    "kv_head_layouts",
    "attention_block_sizes",
)
_SETS = (
    "_completed_consumer_notifications",
    "_eager_handshaked_engines",
    "_unmatched_write_completions",
    "_invalid_block_ids",
)
"""Fields that begin empty."""


def _leave_the_last_token(half: MoriioHalf, pair: "MoriioPair") -> None:
    """The first engine does not compute the token that the second one does, wherever a group is not full attention, and
    blocks are paired from the end of what it has computed."""
    connector = half.connector
    clip, align, prompt = connector.get_exchange_clipped_blocks, connector.update_state_after_alloc, [0]

    def arrived(request: Any) -> None:
        if (request.kv_transfer_params or {}).get("do_remote_decode"):
            connector._truncate_mamba_request_for_prefill(request)

    def updated(request: Any, *more: Any, **named: Any) -> None:
        prompt[0] = request.num_prompt_tokens
        align(request, *more, **named)

    def clipped(block_ids: Any) -> Any:
        own = connector.kv_cache_config.select_transfer_block_ids(block_ids)
        sizes = connector._group_block_sizes
        return clip([blocks[: -(-(prompt[0] - 1) // size)] for blocks, size in zip(own, sizes, strict=True)])

    if any(connector.blocks_per_sw) and connector.is_producer:
        connector.on_new_request = arrived
    elif any(connector.blocks_per_sw):
        connector.update_state_after_alloc, connector.get_exchange_clipped_blocks = updated, clipped


def _read_states_where_they_are_looked_for(half: MoriioHalf, pair: "MoriioPair") -> None:
    """A state is read into the block in which the step looks for it, which is not that of the step's own token."""
    connector, after = half.connector, half.connector.update_state_after_alloc
    split, prompt = connector.split_block_groups, [0]

    def updated(request: Any, *more: Any, **named: Any) -> None:
        prompt[0] = request.num_prompt_tokens
        after(request, *more, **named)

    def divided(block_ids: Any) -> tuple[list[int], list[list[int]]]:
        attention, _ = split(block_ids)
        tables = connector.kv_cache_config.select_transfer_block_ids(block_ids)
        last = max(0, prompt[0] - 2)
        sizes = connector._group_block_sizes
        return attention, [tables[group][last // sizes[group] :][:1] for group in connector._mamba_group_ids]

    if connector._has_mamba and not connector.is_producer:
        connector.update_state_after_alloc, connector.split_block_groups = updated, divided


def _fail_what_came_too_late(half: MoriioHalf, pair: "MoriioPair") -> None:
    """A read fails of blocks that the other engine does not hold any more."""
    may_read = half.agent.may_read
    half.agent.may_read = lambda engine, transfer: (
        may_read(engine, transfer) and (not transfer.endswith(engine) or pair.keeps(engine, transfer))
    )


def _fail_reads_of_another_life(half: MoriioHalf, pair: "MoriioPair") -> None:
    """A read fails of an engine that has begun anew since the prompt was computed."""
    may_read = half.agent.may_read
    half.agent.may_read = lambda engine, transfer: may_read(engine, transfer) and transfer.endswith(engine)


def _end_who_failed(what: str) -> Callable[[MoriioHalf, "MoriioPair"], None]:
    """Of a read that fails the request ends, and nobody else; nothing of it is found any more."""

    def mend(half: MoriioHalf, pair: "MoriioPair") -> None:
        connector = half.connector
        several = "states" if connector._has_mamba else "groups"
        alone = "window" if any(connector.blocks_per_sw) else "plain"
        if what == (several if len(connector.blocks_per_sw) > 1 else alone):
            half.ends_failed = True

    return mend


def _ask_again(half: MoriioHalf, pair: "MoriioPair") -> None:
    """What is known of an engine is forgotten when it begins anew."""
    worker, load = half.worker, half.worker.start_load_kv

    def loaded(metadata: Any) -> None:
        if half.agent.serves() not in {life for lives in worker._remote_agents.values() for life in lives}:
            for known in (worker._eager_handshaked_engines, worker._remote_agents, worker.built_write_session):
                known.clear()
        load(metadata)

    worker.start_load_kv = loaded


def _drop_what_is_in_flight(half: MoriioHalf, pair: "MoriioPair") -> None:
    """Of whom a load has failed, nothing counts that is still sampled by steps in flight."""
    handle, requests = half.scheduler._handle_invalid_blocks, half.scheduler.requests

    def handled(*about: Any) -> Any:
        affected = handle(*about)
        for name in affected:
            request = requests[name]
            request.drop_stale_output = True
            request.num_stale_output_tokens = request.num_in_flight_tokens
            request.num_output_placeholders = 0
        return affected

    half.scheduler._handle_invalid_blocks = handled


def _evict_what_has_failed(half: MoriioHalf, pair: "MoriioPair") -> None:
    """Of everybody who has a block that could not be loaded, nothing from there on is found any more."""
    scheduler, manager = half.scheduler, half.scheduler.kv_cache_manager
    update = scheduler._update_requests_with_invalid_blocks

    def updated(requests: Any, invalid: Any, *more: Any, **named: Any) -> Any:
        answer = update(requests, invalid, *more, **named)
        for name in answer[0]:
            (own,) = manager.get_block_ids(name)
            first = min(number for number, block in enumerate(own) if block in invalid)
            manager.evict_blocks(set(own[first:]) - {NULL})
        return answer

    scheduler._update_requests_with_invalid_blocks = updated


def _count_nothing_in_flight(half: MoriioHalf, pair: "MoriioPair") -> None:
    """Who shares blocks that somebody else is to compute again goes on from what was computed before any step in
    flight."""
    scheduler = half.scheduler
    update = scheduler._update_requests_with_invalid_blocks

    def updated(requests: Any, invalid: Any, scheduled: Any, *more: Any, **named: Any) -> Any:
        in_flight = {name: request.num_in_flight_tokens for name, request in scheduler.requests.items()}
        return update(requests, invalid, in_flight, *more, **named)

    scheduler._update_requests_with_invalid_blocks = updated


MORIIO_DEFECTS: Mapping[str, Defect] = {
    "loads-block-each-other": DEFECTS["loads-block-each-other"],
    "window-dropped-before-the-last-token": Defect(MEMORY, "holds", _leave_the_last_token),
    "state-read-beside-its-block": Defect(MEMORY, "reads the state", _read_states_where_they_are_looked_for),
    "read-of-another-life": Defect(MEMORY, "holds", _fail_reads_of_another_life),
    "read-behind-the-lease": Defect(MEMORY, "holds", _fail_what_came_too_late),
    "failed-load-of-a-window": Defect(MEMORY, "for which there is no slot", _end_who_failed("window")),
    "failed-load-of-several-groups": Defect(FATE, "multiple KV cache groups", _end_who_failed("groups")),
    "failed-load-stays-cached": Defect(MEMORY, "holds", _evict_what_has_failed),
    "vllm-project/vllm#49250": Defect(TOKENS, "alone it gets", _drop_what_is_in_flight),
    "failed-load-counts-what-is-in-flight": Defect(PROGRESS, "nothing happens", _count_nothing_in_flight),
    "restarted-engine-is-not-asked-again": Defect(FATE, "TransferError", _ask_again),
    "failed-load-of-states": Defect(FATE, "TransferError", _end_who_failed("states")),
}
"""Those of the halves of MoRIIOConnector in read mode (docs/evidence/pairs.md)."""


class MoriioPair(ReleasedPair):
    """The second engine reads the blocks within a step."""

    connector_module = f"{MORIIO}.moriio_connector"
    half: ClassVar[Any] = MoriioHalf
    defects: ClassVar[Mapping[str, Defect]] = MORIIO_DEFECTS
    attention: tuple[str, ...] = tuple(kinds for kinds in ReleasedPair.attention if kinds != "full+chunked")
    floors: Mapping[str, int] = {"hits": 5, "transfers ended": 20, "handshakes": 1}
    options: Mapping[str, tuple[Value, ...]] = {**ReleasedPair.options, "defer_timeout": (60, 12, 30)}

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        if why := missing("MoRIIOConnector"):
            raise ImportError(why)
        super().__init__(mended)

    def _half(self, shape: EngineShape, port: Port) -> PairHalf:
        half = super()._half(shape, port)
        assert isinstance(half, MoriioHalf)
        half.agent.serves = self._served
        return half

    def _served(self) -> str:
        """The first engine, in its life of now."""
        return f"prefill {self._built['prefill']}" if self._is_up("prefill") else ""
