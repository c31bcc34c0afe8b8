"""MoRIIOConnector in write mode (vLLM 0.33.0) leaves out layers, keeps blocks of who has left, and does not tell of a
write that failed; nothing of blockproof.

Run in an environment of that release: python moriio_write_confirm.py
The methods are the release's own. The first step after the start has two prompts, for an engine that is not known yet;
which of their layers are queued to be written is told. Then a write fails, and a request leaves while it is written.
"""

import logging
import queue
import sys
import threading
from concurrent.futures import Future
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

sys.modules.setdefault("msgpack", MagicMock())  # over sockets only
MORIIO = "vllm.distributed.kv_transfer.kv_connector.v1.moriio"
connector, engine = (import_module(f"{MORIIO}.moriio_{name}") for name in ("connector", "engine"))
LAYERS = ("layer.0", "layer.1", "layer.2")


class InThread:
    """In place of the worker's pool of one thread: what is asked for is done in turn, beside who asks."""

    def __init__(self) -> None:
        self._asked: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            future, call, about = self._asked.get()
            future.set_result(call(*about))

    def submit(self, call: Any, *about: Any) -> "Future[Any]":
        """It is done later."""
        future: Future[Any] = Future()
        self._asked.put((future, call, about))
        return future

    def shutdown(self, wait: bool) -> None:
        """Its thread ends with the process."""


def made(name: str, **fields: Any) -> Any:
    """An object of the release without its constructor, which needs addresses, tensors and sockets."""
    one = object.__new__(getattr(connector, name))
    one.__dict__.update(fields)
    return one


def worker(is_producer: bool) -> Any:
    """The worker's half of an engine."""
    wrapper = engine.MoRIIOWrapper()
    wrapper.send_notify = lambda *about, **more: TOLD.append((about[0], more["message_type"]))
    one = made(
        "MoRIIOConnectorWorker",
        mode=connector.MoRIIOMode.WRITE,
        is_producer=is_producer,
        world_size=1,
        tp_rank=0,
        use_mla=False,
        _has_mamba=False,
        model_config=SimpleNamespace(get_total_num_kv_heads=lambda: 1),
        moriio_config=SimpleNamespace(transfer_timeout=5.0, defer_timeout=60.0),
        moriio_wrapper=wrapper,
        kv_caches=dict.fromkeys(LAYERS),
        transfer_id_to_request_id={},
        write_ready_flags={},
        load_ready_flag={},
        _remote_agents={},
        _handshake_futures={},
        _unmatched_write_completions=set(),
        _unmatched_write_failures={},
        _ready_requests=queue.Queue(),
        _handshake_lock=threading.RLock(),
        _handshake_initiation_executor=InThread(),
        _moriio_handshake=lambda *about: {"decode"},
    )
    one._writer = engine.MoRIIOWriter(one)
    one._writer.ensure_worker_started = lambda: None
    one.schedule_write_blocks = lambda **about: one._writer.schedule_write(SimpleNamespace(**about))
    return one


def a_prompt(name: str) -> Any:
    """What the scheduler's half says of a prompt that this step ends."""
    return SimpleNamespace(
        transfer_id=f"transfer of {name}",
        local_block_ids=[[1]],
        remote_block_ids=[],
        remote_host="decode",
        remote_handshake_port=1,
        remote_notify_port=2,
        remote_engine_id=None,
        tp_size=1,
        remote_dp_size=1,
        remote_dp_size_local=1,
        multi_pod_hosts=[],
    )


def layers_that_are_written() -> dict[str, list[str]]:
    """Of each prompt of the first step."""
    prefill = worker(is_producer=True)
    prefill.wait_for_save(SimpleNamespace(reqs_to_save={name: a_prompt(name) for name in ("a", "b")}))
    layers = prefill._writer._scheduled_layers
    return {name: sorted(layers.get(f"transfer of {name}", ())) for name in ("a", "b")}


def told_of_a_failed_write() -> list[Any]:
    """What decode is told of a write that raises."""
    TOLD.clear()
    prefill = worker(is_producer=True)
    writer, task = prefill._writer, SimpleNamespace(transfer_id="t", request_id="r", layer_name=LAYERS[0])
    writer._deferred_tasks = [task]
    prefill.moriio_wrapper.done_remote_allocate_req_dict["t"] = object()

    def fails(task: Any) -> None:
        raise engine.TransferError("the write has failed")

    writer._execute_write_task = fails
    writer._process_deferred_tasks()
    return list(TOLD)


def received_of_who_left() -> set[str]:
    """Of whom decode's scheduler hears that his blocks are not written any more: he left before the write ended."""
    decode = worker(is_producer=False)
    scheduler = made(
        "MoRIIOConnectorScheduler",
        is_producer=False,
        transfer_id_to_request_id={"t": "r"},
        request_id_to_transfer_id={"r": "t"},
    )
    request = SimpleNamespace(request_id="r", status=None, kv_transfer_params={"transfer_id": "t"})
    scheduler.request_finished(request, [])  # its client has gone; its blocks are held while they are written
    decode.transfer_id_to_request_id = scheduler.transfer_id_to_request_id
    decode.moriio_wrapper.done_write_cache_req_ids.append("t")
    return set(decode.get_transfer_results().finished_recving)


TOLD: list[Any] = []

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    written, told, received = layers_that_are_written(), told_of_a_failed_write(), received_of_who_left()
    for name, layers in written.items():
        print(f"prompt {name}: written are {', '.join(layers) or 'no layers'}, of {', '.join(LAYERS)}")
    print(f"of a write that failed decode is told: {told or 'nothing'}")
    print(f"blocks of who left while they were written are given back for: {', '.join(received) or 'nobody'}")
    sys.exit(0 if any(len(layers) < len(LAYERS) for layers in written.values()) and not told and not received else 1)
