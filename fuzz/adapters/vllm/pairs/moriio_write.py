"""Two vLLM engines as a pair, with the release's own MoRIIOConnector on both sides, in write mode: decode says where
its blocks are; a thread of prefill's worker, which is the release's own, writes them, in turns.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty
from types import SimpleNamespace
from typing import Any, ClassVar

from ....simulation.judges import CAPACITY, MEMORY, PROGRESS
from ....simulation.network import Node, Port
from ....simulation.own_turns import Turns
from ....simulation.protocol import EngineShape, ScheduledBatch, SlotTransfer, StepResults
from ..engine.scheduler_config import module
from .moriio_pair import MoriioHalf, MoriioPair, moriio_worker
from .moriio_wire import MORIIO, PAGE, AtOnce, ReadStatus, Released, put_in
from .nixl_agent import CLOCK
from .pair_half import PairHalf
from .released_pair import DEFECTS, Defect, ReleasedPair

LONGEST = 100
"""Rounds for which a request waits for its blocks at most, where it does not wait for ever."""


@dataclass(frozen=True)
class _WriteSession:
    """The memory of one group here, and there in one life of the other engine."""

    writer: "BlockWriter"
    group: int
    engine: str

    def batch_write(self, here: Sequence[int], there: Sequence[int], sizes: Sequence[int], number: int) -> ReadStatus:
        """Write these spans of bytes."""
        spans = zip(here, there, sizes, strict=True)
        pairs = [(mine // PAGE + at, theirs // PAGE + at) for mine, theirs, size in spans for at in range(size // PAGE)]
        return self.writer.write(self, number, pairs)


class BlockWriter:
    """In place of the library's engine, in one of ours."""

    def __init__(self, width: int) -> None:
        """`width`: slots of a block."""
        self._width = width
        self.begun: list[SlotTransfer] = []
        self.failed: list[str] = []
        self._writes: dict[str, ReadStatus] = {}
        self._number = 0

    def serves(self) -> str:
        """Which life of the other engine there is now; empty: none. The pair puts its own here."""
        return ""

    @property
    def reading(self) -> bool:
        """True while blocks are written."""
        return bool(self._writes)

    def ended(self, id: str, well: bool) -> None:
        """A transfer has ended."""
        write = self._writes.pop(id)
        write.left.discard(id)
        write.is_well &= well

    # What the worker calls.

    def allocate_transfer_uid(self) -> int:
        """A number for a write."""
        self._number += 1
        return self._number

    def create_session(self, here: int, there: str) -> _WriteSession:
        """For the memory of this group, here and in that life of the other engine."""
        return _WriteSession(self, here, there)

    def write(self, session: _WriteSession, number: int, pairs: Sequence[tuple[int, int]]) -> ReadStatus:
        """Blocks here and there."""
        if not pairs:
            return ReadStatus()
        here, there = (self._slots(blocks) for blocks in zip(*pairs, strict=True))
        id = f"{number} {session.group}"
        self.begun.append(SlotTransfer(id, "store", session.group, here, session.engine, there))
        self._writes[id] = status = ReadStatus({id})
        return status

    def _slots(self, blocks: Sequence[int]) -> tuple[int, ...]:
        return tuple(block * self._width + slot for block in blocks for slot in range(self._width))


class WriterTasks(list[Any]):
    """In place of the queue of the writer's thread: where nothing is left to do, its turn is over."""

    turns: Turns
    nothing = Empty

    def put(self, task: Any) -> None:
        """As of a queue; a task tells its age by our clock."""
        task.enqueue_time = CLOCK.perf_counter()
        self.append(task)

    def get(self, timeout: float) -> Any:
        """As of a queue."""
        if not self:
            self.turns.stop()
            raise self.nothing
        return self.pop(0)


class _Torch:
    """In place of the module in the connector: what a step has computed is there when its writes are asked for."""

    cuda = SimpleNamespace(
        current_stream=lambda: None,
        Event=lambda: SimpleNamespace(record=lambda stream: None, synchronize=lambda: None),
    )

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class MoriioWriteHalf(MoriioHalf):
    """One of the two engines."""

    agent: BlockWriter  # type: ignore[assignment]
    is_written: Callable[[str], bool] | None = None
    """Says whether the other engine is about a transfer; then nobody waits for ever who is not written."""

    def __init__(self, *about: Any) -> None:
        self._since: dict[str, int] = {}
        self._given_up: set[str] = set()
        super().__init__(*about)

    def _told_always(self) -> Mapping[str, object]:
        return {**super()._told_always(), "read_mode": "false"}

    def _take_role(self) -> None:
        """That of the process, which a pair shares."""
        common = module(f"{MORIIO}.moriio_common")
        is_first = self._port.name == "prefill"
        common.set_role(common.ROLE.PRODUCER if is_first else common.ROLE.CONSUMER)

    def _equip(self, counts: Counter[str]) -> None:
        put_in(lambda: self._port.now)
        found = module(f"{MORIIO}.moriio_connector")
        if not isinstance(found.torch, _Torch):
            found.torch = _Torch(found.torch)
        self.agent = BlockWriter(self.width)
        self.worker = _writing_worker(self, counts)
        self.turns = self._writer_in_turns()
        self._heard: set[tuple[str, int]] = set()
        self._sent = 0
        self.connector.send_notify_block = self._tell_blocks
        self.connector._send_transfer_release = self._tell_release

    def _writer_in_turns(self) -> Turns:
        made = module(f"{MORIIO}.moriio_engine").MoRIIOWriter(self.worker)
        made.ensure_worker_started = lambda: None
        made._write_task_q = tasks = WriterTasks()
        self.worker._writer = made
        tasks.turns = turns = Turns(made._write_worker_loop)
        return turns

    def _work_on(self) -> None:
        self._give_up()
        clock = module(f"{MORIIO}.moriio_engine").time
        clock.sleep = lambda seconds: self.turns.stop()
        self.turns.go_on()

    def waiting(self) -> dict[str, str]:
        """By transfer, the requests of this engine that wait for their blocks, or have left meanwhile."""
        all_of_them = module("v1.request").RequestStatus
        waits = all_of_them.WAITING_FOR_REMOTE_KVS, all_of_them.FINISHED_ABORTED
        names = self.connector.transfer_id_to_request_id
        status = {name: request.status for name, request in self.scheduler.requests.items()}
        return {transfer: name for transfer, name in names.items() if status.get(name) in waits}

    def is_about(self, transfer: str) -> bool:
        """True while the thread writes this transfer."""
        found = self.worker.moriio_wrapper.done_remote_allocate_req_dict.get(transfer)
        return found is not None and found.completion_request_id is not None

    def _give_up(self) -> None:
        """Those fail that have waited too long."""
        if self.is_written is None:
            return
        waiting, now = self.waiting(), self._port.now
        self._since = {transfer: self._since.get(transfer, now) for transfer in waiting}
        for transfer, since in self._since.items():
            if now - since > LONGEST and transfer not in self._given_up and not self.is_written(transfer):
                self._given_up.add(transfer)
                self.worker.moriio_wrapper.failed_write_cache_req_ids.append(transfer)

    # What goes over sockets.

    def _tell(self, kind: str, transfer: str, **about: object) -> None:
        self._sent += 1
        self.tell_other(Released(self.engine_id, -self._sent, transfer, kind, tuple(about.items())))

    def _tell_blocks(self, req_id: str, transfer_id: str, block_notify_list: Any, host: Any, port: Any) -> None:
        self._tell("remote_blocks", transfer_id, req_id=req_id, block_notify_list=block_notify_list, decode_rank=0)

    def _tell_release(self, transfer_id: str, host: str, port: int) -> None:
        self._tell("release", transfer_id, consumer_tp_size=1)

    def _hear(self, message: Released) -> None:
        if (message.sender, message.number) in self._heard or message.transfer in self._given_up:
            return
        self._heard.add((message.sender, message.number))
        self._take_role()
        told = {"type": message.kind, "transfer_id": message.transfer, **dict(message.about)}
        self.worker.moriio_wrapper._handle_structured_message(told)

    def _parameters(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The router names the transfer, and each engine to the other one."""
        given = super()._parameters(name, parameters)
        if self._port.name == "prefill":
            given.update(remote_host="decode", remote_handshake_port=1, remote_notify_port=2, remote_engine_id="decode")
            given["remote_block_ids"] = []
        return given

    # Steps.

    def schedule(self) -> ScheduledBatch | None:
        """See `HalfEngine`."""
        self._take_role()
        return PairHalf.schedule(self)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """See `HalfEngine`."""
        self._take_role()
        PairHalf.update(self, batch, results)

    def _finish_worker(self) -> None:
        for output in self._outputs:
            self.worker.wait_for_save(output.kv_connector_metadata)
        PairHalf._finish_worker(self)

    def _stop(self, name: str) -> None:
        self._take_role()
        super()._stop(name)

    def idle(self) -> bool:
        """See `HalfEngine`."""
        return PairHalf.idle(self)


def _writing_worker(half: MoriioWriteHalf, counts: Counter[str]) -> Any:
    """The worker half of an engine, on its `agent`."""
    worker = moriio_worker(half, counts)
    names = list(worker.layer_name_to_local_kv_cache_metadata)
    worker.moriio_config.defer_timeout = float(str(half.options["defer_timeout"]))
    kept = SimpleNamespace(shape=(), stride=lambda: (), dtype=None)
    worker.kv_caches = dict.fromkeys(names, kept)
    worker._mamba_payload_index_by_layer = {name: names.index(name) for name in worker._mamba_payload_index_by_layer}
    worker.model_config = SimpleNamespace(get_total_num_kv_heads=lambda: 1)
    shake = worker._moriio_handshake

    def shaken(*about: Any) -> Any:
        if not half.agent.serves():
            raise TimeoutError("nobody answers")
        return shake(*about[:4])

    worker._moriio_handshake = shaken
    worker._handshake_initiation_executor = AtOnce()
    return worker


def _tell_what_failed(half: MoriioHalf, pair: Any) -> None:
    """Of a write that fails the other engine is told, when nothing of it is under way any more."""
    writer, wrapper = half.worker._writer, half.worker.moriio_wrapper
    done, wait = writer._mark_request_done, wrapper.waiting_for_transfer_complete

    def told(transfer: str) -> None:
        done(transfer)
        wrapper.send_notify(transfer, "decode", "2", "write_failed")

    writer._mark_request_done = told
    wrapper.waiting_for_transfer_complete = lambda statuses: wait(statuses, fail_fast=False)


def _hear_of_who_left(half: MoriioHalf, pair: Any) -> None:
    """The second engine knows a request by its transfer also when its client has gone."""
    if half.connector.is_producer:
        return
    names, results = half.connector.transfer_id_to_request_id, half.worker.get_transfer_results
    half.connector.unmap_request_id = lambda *about, **named: None

    def heard() -> Any:
        for transfer in [one for one, name in names.items() if name not in half.scheduler.requests]:
            del names[transfer]
        found = results()
        for transfer in [one for one, name in names.items() if name in found.finished_recving]:
            del names[transfer]
        return found

    half.worker.get_transfer_results = heard


def _wait_no_longer(half: MoriioHalf, pair: Any) -> None:
    """Who waits too long for blocks that are not being written fails; they are not written behind that. It is heard of
    those who have left, too."""
    assert isinstance(half, MoriioWriteHalf)
    _hear_of_who_left(half, pair)
    half.is_written = pair.is_written
    writer = half.worker._writer
    execute = writer._execute_write_task

    def executed(task: Any) -> None:
        if not pair.waits(task.transfer_id):
            raise RuntimeError("nobody waits for it")
        execute(task)

    writer._execute_write_task = executed


def _shake_hands_first(half: MoriioHalf, pair: Any) -> None:
    """Before anything is written the other engine is asked once, and then each layer of each request is written."""
    worker = half.worker

    def saved(metadata: Any, layer: str, cache: Any, attention: Any) -> None:
        for name, meta in metadata.reqs_to_save.items():
            meta.remote_engine_id = f"{meta.remote_host}:{meta.remote_handshake_port}"
            engine = worker.get_engine_name_with_dp(meta.remote_engine_id, 0)
            if engine not in worker._remote_agents:
                with suppress(TimeoutError):  # then its write fails
                    worker._remote_agents[engine] = worker._moriio_handshake(meta.remote_host, 1, 1, engine)
            worker._write_blocks_for_req(name, meta, layer, cache)

    worker.save_kv_layer = saved


MORIIO_WRITE_DEFECTS: Mapping[str, Defect] = {
    "loads-block-each-other": DEFECTS["loads-block-each-other"],
    "failed-write-is-not-told": Defect(PROGRESS, "", _tell_what_failed),
    "left-while-written-keeps-blocks": Defect(CAPACITY, "", _hear_of_who_left),
    "write-never-comes": Defect(PROGRESS, "", _wait_no_longer),
    "handshake-loses-layers": Defect(MEMORY, "holds", _shake_hands_first),
}
"""Those of the halves of MoRIIOConnector in write mode (docs/evidence/pairs.md)."""


class MoriioWritePair(MoriioPair):
    """The first engine writes the blocks into the second one."""

    half: ClassVar[Any] = MoriioWriteHalf
    defects: ClassVar[Mapping[str, Defect]] = MORIIO_WRITE_DEFECTS
    attention = ("full", "full", "full+mamba")

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        self._threads: dict[str, Turns] = {}
        super().__init__(mended)

    def suspects(self, judge: str, what: str, story: Any) -> list[str]:
        """See `ReleasedPair`: a request of which no layer is written waits, and is held, for ever."""
        found = super().suspects(judge, what, story)
        return [*found, "handshake-loses-layers"] if judge in (CAPACITY, PROGRESS) else found

    def _half(self, shape: EngineShape, port: Port) -> PairHalf:
        if port.name in self._threads:
            self._threads.pop(port.name).leave()
        half = ReleasedPair._half(self, shape, port)
        assert isinstance(half, MoriioWriteHalf)
        self._threads[port.name] = half.turns
        other: Node = "decode" if port.name == "prefill" else "prefill"
        half.agent.serves = lambda: self._life_of(other)  # type: ignore[method-assign]
        return half

    def _life_of(self, name: Node) -> str:
        """An engine, in its life of now; empty: there is none."""
        return f"{name} {self._network.lives[name]}" if self._is_up(name) else ""

    def is_written(self, transfer: str) -> bool:
        """True if the first engine writes it."""
        half = self._halves["prefill"]
        return isinstance(half, MoriioWriteHalf) and self._is_up("prefill") and half.is_about(transfer)

    def waits(self, transfer: str) -> bool:
        """True if a request of the second engine waits for its blocks."""
        half = self._halves["decode"]
        return isinstance(half, MoriioWriteHalf) and self._is_up("decode") and transfer in half.waiting()
