"""Three defects of NixlConnector and NixlPushConnector in vLLM 0.33.0, shown by calls of their worker halves; nothing
of blockproof.

Run in an environment of that release: python nixl_confirm.py
The worker is made without its constructor, which needs the library, a GPU and tensors; what it reads is set by hand.
"""

import logging
import queue
import threading
from collections import defaultdict
from types import SimpleNamespace
from unittest.mock import MagicMock

from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker, push_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.tp_mapping import ReadSpec


class Worker(NixlPullConnectorWorker):
    """One rank, blocks of one size."""

    def __init__(self, groups: int) -> None:
        vars(self).update(
            engine_id="here",
            nixl_wrapper=MagicMock(),
            xfer_stats=MagicMock(),
            kv_cache_config=SimpleNamespace(transfer_groups=[None] * groups),
            transfer_topo=SimpleNamespace(
                get_engine_info=lambda engine: SimpleNamespace(
                    remote_block_size=16, remote_physical_blocks_per_logical=1, remote_dcp_size=1
                ),
                block_size_ratio=lambda size: 1,
            ),
            dst_num_blocks={"there": 100, "here": 100},
            dst_region_num_blocks={},
            dst_region_group_ids={},
            dst_uses_region_group_mapping={"there": False, "here": False},
            _reqs_to_process=set(),
            _reqs_to_send={},
            _recving_metadata={},
            _recving_transfers=defaultdict(list),
            _recv_failures=set(),
            _pending_recv_notifs={},
            _failed_recv_reqs=queue.Queue(),
            _failed_remote_engines=set(),
            _invalid_remote_engines=set(),
            _remote_agents={"there": {(0, 0): "agent"}},
            _engine_by_address={("host", 1): "there"},
            _handshake_futures={},
            _handshake_lock=threading.RLock(),
            _replicated_pcp_done_sending=set(),
            consumer_notification_counts_by_req=defaultdict(int),
            expected_consumer_notifications_by_req={},
            num_regions=1,
            region_group_ids=[],
            _uses_region_group_mapping=False,
            dcp_size=1,
            tp_rank=0,
            _physical_blocks_per_logical_kv_block=1,
            _has_mamba=False,
            _mixed_mem_types=False,
            use_host_buffer=False,
            enable_permute_local_kv=False,
            enable_heterogeneous_attn_post_process=False,
        )

    def __del__(self) -> None:
        pass

    def _compute_desc_ids(self, block_ids, **rest):  # type: ignore[no-untyped-def]
        return [(group, block) for group, blocks in enumerate(block_ids) for block in blocks]


def read(worker: Worker, mine: list[list[int]], theirs: list[list[int]]) -> None:
    """Read blocks of the other engine for the request `r`."""
    worker._read_blocks(
        read_spec=ReadSpec(0, mine, theirs),
        dst_engine_id="there",
        request_id="r",
        remote_request_id="r",
        local_xfer_side_handle=0,
        local_dram_handle=None,
        remote_xfer_side_handle=0,
        expected_consumers=1,
        awaiting_kvs=True,
    )


def nothing_to_read_of_a_group() -> None:
    """Chunks of 32, a prompt of 96: of the last chunk nothing is to be read, of full attention everything is."""
    worker = Worker(2)
    try:
        read(worker, [[11, 12, 13, 14, 15, 16], []], [[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])
    except AssertionError:
        print("nothing-to-read-of-a-group: shown; six blocks here are paired with twelve there: AssertionError")
        return
    print("nothing-to-read-of-a-group: not shown")


class Prefill(NixlPushConnectorWorker):
    """It writes; its thread takes one turn."""

    def __init__(self, groups: int) -> None:
        vars(self).update(vars(Worker(groups)))
        vars(self).update(
            world_size=1,
            use_mla=False,
            _is_csa_linear=False,
            _transfer_layer_group_ids=None,
            tp_mappings={"there": SimpleNamespace(all_source_ranks=(0,), source_ranks_per_group=[(0,)] * groups)},
            src_xfer_handles_by_block_size={16: 0},
            dst_xfer_side_handles={"there": {0: 0}},
            dst_region_num_blocks={"there": [], "here": []},
            _engine_ttl=0,
            _sending_transfers=defaultdict(list),
            _sending_transfers_lock=threading.Lock(),
            _push_finished_blocks={},
            _pending_d_registrations={},
            _pending_completion_notifs=queue.Queue(),
            _push_writer_stop=MagicMock(is_set=MagicMock(side_effect=[False, True])),
            _push_writer_wake=MagicMock(),
        )
        for name in ("_reg_send_inbox", "_deferred_push_inbox", "_finished_blocks_inbox", "_evict_finished_inbox"):
            setattr(self, name, queue.Queue())
        self.transfer_topo.tp_ratio = lambda size: 1
        self.transfer_topo.get_engine_info = lambda engine: SimpleNamespace(
            remote_block_size=16, remote_physical_blocks_per_logical=1, remote_dcp_size=1, remote_tp_size=1
        )

    def __del__(self) -> None:
        pass

    _compute_desc_ids = Worker._compute_desc_ids  # type: ignore[assignment]


def nothing_to_write_of_a_group() -> None:
    """As above, by push: the thread of prefill fails with the request, logs that and goes on. Who tells decode?"""
    worker = Prefill(2)
    mine: list[list[int]] = [[11, 12, 13, 14, 15, 16], []]
    worker._pending_d_registrations["r"] = {
        "request_id": "r",
        "decode_engine_id": "there",
        "decode_host": "host",
        "decode_port": 1,
        "decode_tp_size": 1,
        "local_block_ids": mine,
    }
    worker._finished_blocks_inbox.put(("r", ([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])))
    errors = MagicMock()
    push_worker.logger = errors
    worker._push_writer_loop()
    raised = errors.exception.called and not worker.nixl_wrapper.make_prepped_xfer.called
    forgotten = not (worker._pending_d_registrations or worker._push_finished_blocks or worker._sending_transfers)
    shown = raised and forgotten and not worker.nixl_wrapper.send_notif.called
    what = "nothing is written, nothing is left to be written, and decode is not told" if shown else "not so"
    print(f"nothing-to-write-of-a-group: {'shown' if shown else 'not shown'}; {what}")


def read_behind_the_lease() -> None:
    """The lease ends while decode reads; the blocks are given to somebody else. Who is told?"""
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=0.0)
    base_worker.time = clock
    prefill, decode = Worker(1), Worker(1)
    prefill._reqs_to_process, prefill._reqs_to_send = {"r"}, {"r": 30.0}
    prefill.nixl_wrapper.get_new_notifs.return_value = {}
    decode.nixl_wrapper.get_new_notifs.return_value = {}
    decode._recving_metadata["r"] = SimpleNamespace(
        remote=SimpleNamespace(engine_id="there", block_ids=[[1, 2]]),
        region_blocks_to_zero=[],
        local_physical_block_ids=[[11, 12]],
        local_block_ids=[[11, 12]],
    )
    read(decode, [[11, 12]], [[1, 2]])
    clock.now = 31.0
    freed = prefill.get_transfer_results().finished_sending
    decode.nixl_wrapper.check_xfer_state.return_value = "DONE"  # it has read what lies there now
    told = decode.get_transfer_results()
    prefill.nixl_wrapper.get_new_notifs.return_value = {"decode": [b"r:1"]}
    late = prefill.get_transfer_results().finished_sending
    shown = freed == {"r"} and told.finished_recving == {"r"} and not told.failed_recving and not late
    what = "freed at the end of the lease, then read, and received without a failure" if shown else "not so"
    print(f"read-behind-the-lease: {'shown' if shown else 'not shown'}; {what}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    nothing_to_read_of_a_group()
    nothing_to_write_of_a_group()
    read_behind_the_lease()
