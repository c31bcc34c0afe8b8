"""Two vLLM engines as a pair, with the release's own MooncakeConnector on both sides: one computes prompts and writes
their blocks into the other one, which answers. What stands in for library, sockets and web server: `mooncake_wire`.
"""

import asyncio
import queue
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from .....model.ops import Value
from ....simulation.judges import MEMORY, PROGRESS
from ..engine.connectors import missing
from ..engine.scheduler_config import module
from .mooncake_wire import MOONCAKE, Connections, TurnsLoop, Writer, put_in, regions
from .nixl_worker import Counted, groups_of
from .pair_half import PairHalf
from .released_pair import DEFECTS, Defect, ReleasedPair


class MooncakeHalf(PairHalf):
    """One of the two engines."""

    connector_name = "MooncakeConnector"
    agent: Writer

    def _equip(self, counts: Counter[str]) -> None:
        port, other = self._port, self._other  # the loop does not hold the half, so that it ends with it
        put_in(lambda: port.now, int(str(self.options["abort_request_timeout"])))
        self.agent, self.loop = Writer(self.width), TurnsLoop()
        self.wire = self.loop.web = Connections(self.engine_id, lambda message: port.send(other, message))
        self.worker = _worker(self, counts)
        weakref.finalize(self, self.loop.end)
        if port.name == "prefill":
            self.loop.create_task(self.worker._mooncake_sender_listener(threading.Event()))
        self.loop.turn()

    def _hear(self, message: Any) -> None:
        self.wire.hear(message)
        self.loop.turn()

    def _wait(self) -> None:
        self.loop.turn()

    def _parameters(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The router names the transfer."""
        return {**parameters, "transfer_id": name} if self._port.name == "prefill" else dict(parameters)

    def _where(self, answer: Any) -> Mapping[str, Any]:
        """The router knows where it has asked."""
        return {
            "do_remote_prefill": True,
            "remote_engine_id": self.engine_id,
            "remote_bootstrap_addr": "http://prefill",
            "transfer_id": answer.request_id,
        }

    def keeps(self, engine: str, request: str) -> bool:
        """See `PairHalf`."""
        return engine == self.engine_id and request in self.worker.reqs_need_send


def _worker(half: MooncakeHalf, counts: Counter[str]) -> Any:
    found = module(MOONCAKE)
    base: Any = found.MooncakeConnectorWorker

    class Worker(base):  # type: ignore[misc]
        """The release's, without its constructor, which needs the library and tensors."""

        def __init__(self, fields: Mapping[str, Any]) -> None:
            self.__dict__.update(fields)

        def __del__(self) -> None:
            """Nothing is to be released."""

        async def register_worker_with_bootstrap(self) -> None:
            """The web server knows."""

    return Worker(_fields(half, counts, found))


def _fields(half: MooncakeHalf, counts: Counter[str], found: Any) -> Mapping[str, Any]:
    """What the methods of the worker read, for one rank."""
    scheduler = half.connector
    groups = groups_of(scheduler.kv_cache_config)
    packed = found.msgspec.msgpack
    return {
        **regions(groups),
        **{name: {} for name in ("_pending_bootstrap_queries", "_remote_agents", "reqs_need_send", "_layer_specs")},
        **{name: set() for name in ("finished_sending_reqs", "finished_recving_reqs", "_acked_layout_peers")},
        **{name: queue.Queue() for name in ("_invalid_block_ids", "_failed_recv_reqs")},
        **dict.fromkeys(("tp_rank", "dp_rank", "pp_rank", "rpc_port", "side_channel_port"), 0),
        **dict.fromkeys(("tp_size", "pp_size", "_physical_blocks_per_logical_kv_block"), 1),
        "vllm_config": scheduler.vllm_config,
        "kv_cache_config": scheduler.kv_cache_config,
        "is_kv_producer": scheduler.is_kv_producer,
        "is_kv_consumer": scheduler.is_kv_consumer,
        "num_sender_tasks": 20,
        "sender_worker_queue": asyncio.Queue(),
        "sender_loop": half.loop,
        "receiver_loop": half.loop,
        "_sender_executor": half.agent,
        "engine": half.agent,
        "engine_id": half.engine_id,
        "hostname": half.engine_id,
        "block_size": scheduler.block_size,
        "use_mla": False,
        "_tp_size": {half.engine_id: 1},
        "_prepared_transfer_regions": {},
        "_layout_by_peer": OrderedDict(),
        "_kv_layout_id": 2 * half.life + 1,
        "_is_hma_required": len(scheduler.kv_cache_config.kv_cache_groups) > 1,
        "transfer_topo": SimpleNamespace(
            handshake_target_ranks=lambda size: [0], local_replicates_kv_cache=False, total_num_kv_heads=1
        ),
        "xfer_stats": Counted(counts),
        "async_zmq_ctx": half.wire,
        "_encoder": packed.Encoder(),
        "_xfer_meta_decoder": packed.Decoder(found.MooncakeXferMetadata),
        "_xfer_resp_decoder": packed.Decoder(found.MooncakeXferResponse),
    }


def _fail_requests(half: MooncakeHalf, pair: "MooncakePair") -> None:
    """Of a load that fails the request is told, not its blocks."""
    half.worker._is_hma_required = True


def _tell_of_nothing(half: MooncakeHalf, pair: "MooncakePair") -> None:
    """Who waits hears the end of a load also where no block was to be loaded."""
    complete, waiting = half.worker._complete_pull_task, module("v1.request").RequestStatus.WAITING_FOR_REMOTE_KVS

    def completed(task: Any) -> None:
        complete(task)
        request = half.scheduler.requests.get(task.d_req_id)
        if not task.pull_tasks_count and request is not None and request.status == waiting:
            half.worker.finished_recving_reqs.add(task.d_req_id)

    half.worker._complete_pull_task = completed


def _refuse_unknown(half: MooncakeHalf, pair: "MooncakePair") -> None:
    """Who asks for blocks that are not held, not even by a request that runs, is told so at once."""
    send = half.worker.send_kv_to_decode

    async def sent(connection: str, wire: Connections, asked: Any) -> None:
        if any(transfer not in half.worker.reqs_need_send for transfer, _ in asked.req_blocks.values()):
            raise LookupError("no such transfer")
        await send(connection, wire, asked)

    half.worker.send_kv_to_decode = sent


MOONCAKE_DEFECTS: Mapping[str, Defect] = {
    **DEFECTS,
    "failed-load-of-a-window": Defect(MEMORY, "for which there is no slot", _fail_requests),
    "unknown-transfer-is-waited-for": Defect(PROGRESS, "nothing happens", _refuse_unknown),
    "nothing-to-load-is-not-told": Defect(PROGRESS, "nothing happens", _tell_of_nothing),
}
"""Those of the halves of MooncakeConnector (docs/evidence/pairs.md)."""


class MooncakePair(ReleasedPair):
    """The first engine writes the blocks, once the second one has asked for them."""

    connector_module = MOONCAKE
    half: ClassVar[Any] = MooncakeHalf
    defects: ClassVar[Mapping[str, Defect]] = MOONCAKE_DEFECTS
    options: Mapping[str, tuple[Value, ...]] = {**ReleasedPair.options, "abort_request_timeout": (30, 12, 60)}

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        if why := missing("MooncakeConnector"):
            raise ImportError(why)
        super().__init__(mended)
