"""Defects of MoRIIOConnector in read mode and of loads that fail within a step, in vLLM 0.33.0; nothing of blockproof.

Run in an environment of that release: PYTHONPATH=docs/evidence/findings python docs/evidence/moriio_pair_confirm.py
The worker's half is made without its constructor, which needs MoRI, a GPU and tensors; what it reads is set by hand.
The scheduler runs in the engine without a device of `findings/`.
"""

import logging
import sys
import threading
from collections import defaultdict
from concurrent.futures import Future
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

from engine_without_device import NoDevice, layer, release, start, submit
from store_outside import Store, loading
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput

sys.modules.setdefault("msgpack", MagicMock())  # for messages alone
found = import_module("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector")
common = import_module("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common")

# The worker's half.


class Worker(found.MoRIIOConnectorWorker):  # type: ignore[misc]
    """One rank, one group, reading."""

    def __init__(self) -> None:
        vars(self).update(
            {name: {} for name in ("_remote_agents", "layer_name_to_remote_kv_cache_metadata", "load_ready_flag")},
            is_producer=False,
            mode=common.MoRIIOMode.READ,
            world_size=1,
            tp_rank=0,
            use_mla=False,
            moriio_config=SimpleNamespace(transfer_timeout=1.0, backend="rdma"),
            tp_group=MagicMock(),
            _handshake_lock=threading.RLock(),
            _handshake_initiation_executor=SimpleNamespace(submit=at_once),
            _eager_handshaked_engines=set(),
            _ready_requests=MagicMock(empty=lambda: True),
            _reads_issued_this_step=[],
            _reqs_to_send={},
            _has_mamba=False,
            _recving_local_blocks=defaultdict(list, r=[1, 2, 3, 4]),
            _invalid_block_ids=set(),
        )
        self.shaken: list[str] = []
        self.read: list[tuple[str, str]] = []

    def __del__(self) -> None:
        pass

    def _moriio_handshake(self, host: str, port: int, size: int, engine: str, *more: object) -> set[str]:
        self.shaken.append(SERVES[0])
        self.layer_name_to_remote_kv_cache_metadata[engine] = {}
        return {SERVES[0]}

    def _read_blocks(self, **about: Any) -> None:
        (life,) = self._remote_agents[f"{about['dst_engine_id']}_dp0"]
        self.read.append((about["transfer_id"], life))


SERVES = ["the first process"]
"""Who serves at that address."""


def at_once(call: Any, *about: Any) -> "Future[Any]":
    """In place of the thread for handshakes."""
    future: Future[Any] = Future()
    future.set_result(call(*about))
    return future


def asked(transfer: str) -> Any:
    """What the scheduler's half tells of a request."""
    metadata = common.MoRIIOConnectorMetadata()
    where = {"remote_host": "host", "remote_handshake_port": 1, "remote_notify_port": 2, "tp_size": 1}
    metadata.add_new_req(
        "r", [[5]], {"transfer_id": transfer, "remote_engine_id": "host:1", "remote_block_ids": [[7]], **where}
    )
    return metadata


def engines() -> None:
    """What the second engine makes of a first one that begins anew."""
    import_module("torch.distributed").all_reduce = lambda *vote, **more: None  # one rank
    worker = Worker()
    worker.start_load_kv(asked("a"))
    SERVES[0] = "the second process"
    worker.start_load_kv(asked("b"))
    print(f"handshakes: {worker.shaken}; the second request is read with what is known of {worker.read[1][1]}")
    late = Worker()
    late.start_load_kv(asked("computed by the first process"))
    print(f"blocks '{late.read[0][0]}' are read from {late.read[0][1]}: nothing compares them")
    late._record_failed_recv("r")
    print(f"a failed read of two groups with blocks [1, 2] and [3, 4] is reported as {late._invalid_block_ids}")


# The scheduler.

STORED, PROMPT, STEP, BLOCK = 160, 192, 64, 16


class Within(Store):
    """Loads before the step computes."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens that are loaded, and that nobody waits for."""
        return super().get_num_new_matched_tokens(request, num_computed_tokens)[0], False


class Failing(NoDevice):
    """The first load fails."""

    manager: ClassVar[Any] = None
    has_failed: ClassVar[bool] = False

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """The step."""
        arrived = set(self.arrived)
        self.arrived.clear()
        answer = super().execute_model(scheduler_output, False)
        if arrived and not Failing.has_failed:
            tables = self.manager.get_block_ids(next(iter(arrived)))
            failed = {block for table in tables for block in table[: -(-STORED // BLOCK)]}
            Failing.has_failed = True
            answer.kv_connector_output = KVConnectorOutput(invalid_block_ids=failed)
        if not non_block:
            return answer
        done: Future[Any] = Future()
        done.set_result(answer)
        return done


def options() -> dict[str, Any]:
    """Of an engine whose loads end within a step."""
    made = loading()
    made["kv_transfer_config"].kv_connector = "Within"
    made["kv_transfer_config"].kv_connector_module_path = __name__
    made["kv_transfer_config"].kv_load_failure_policy = "recompute"
    return made


def served(layers: dict[str, Any]) -> Any:
    """An engine that has taken the step whose load fails."""
    Failing.has_failed = False
    engine = start(layers, 64, 512, STEP, device=Failing, **options())
    Failing.manager = engine.scheduler.kv_cache_manager
    submit(engine, "r", range(1, PROMPT + 1), answer=2, extra_args={"kv_transfer_params": {"stored": STORED}})
    while not Failing.has_failed:
        engine.post_step(engine.step_fn()[1])
    return engine


def loads() -> None:
    """A load that fails within a step: what is found afterwards, and what is made of several groups."""
    engine = served({"layer": layer("FullAttentionSpec")})
    engine.post_step(engine.step_fn()[1])  # a part of it is computed again
    engine.abort_requests(["r"])
    submit(engine, "s", range(1, PROMPT + 1), answer=2)
    while not engine.model_executor.steps[-1].scheduled_new_reqs:
        engine.post_step(engine.step_fn()[1])
    (new,) = engine.model_executor.steps[-1].scheduled_new_reqs
    print(f"{STEP} tokens are computed again, then {new.num_computed_tokens} are found in the cache")
    engine.scheduler.shutdown()
    try:
        served({"full": layer("FullAttentionSpec"), "window": layer("SlidingWindowSpec", sliding_window=40)})
    except RuntimeError as error:
        print(f"with a window beside: RuntimeError: {str(error)[:60]}...")


def shared() -> None:
    """Two requests of five tokens each that share a block; its load fails while one step more is in flight."""
    shares = [
        SimpleNamespace(request_id=name, num_computed_tokens=6, num_in_flight_tokens=2, num_tokens=5) for name in "ab"
    ]
    tables = {"a": ([1, 2],), "b": ([1, 3],)}
    scheduler = SimpleNamespace(block_size=4, kv_cache_manager=SimpleNamespace(get_block_ids=lambda name: tables[name]))
    of_this_step = dict.fromkeys("ab", 1)
    Scheduler._update_requests_with_invalid_blocks(scheduler, shares, {1}, of_this_step)
    first, second = shares
    print(
        f"of {second.num_tokens} tokens, who shares a block that failed counts {second.num_computed_tokens} as computed"
        f" (who computes it again: {first.num_computed_tokens}): nothing is left to sample its first token from"
    )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"vLLM {release}")
    engines()
    loads()
    shared()
