"""The release's own worker half of NixlConnector, with stand-ins for the library, the memory and the threads.

What is the release's: which blocks are read, when a request counts as loaded or sent, leases and heartbeats, handshakes
under way, what is told when. What stands in for the rest: `nixl_agent`.
"""

import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ..engine.scheduler_config import module
from .nixl_agent import NIXL, Agent, Handshakes, Send


class Counted:
    """In place of the connector's statistics: how often what was recorded."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(*given: object, **more: object) -> None:
            self._counts[name.removeprefix("record_").replace("_", " ")] += 1

        return note

    def is_empty(self) -> bool:
        """Nothing is told to the scheduler."""
        return True


def nixl_worker(scheduler: Any, agent: Agent, send: Send, counts: Counter[str], mode: str = "pull") -> Any:
    """The worker half for the scheduler half of a connector, on this agent. `counts` gets what it records; by `mode`
    pull or push."""
    base: Any = getattr(module(f"{NIXL}.{mode}_worker"), f"Nixl{mode.capitalize()}ConnectorWorker")
    mapping = module(f"{NIXL}.tp_mapping").TPMapping
    groups = groups_of(scheduler.kv_cache_config)

    class Worker(base):  # type: ignore[misc]
        """The release's, without its constructor, which needs the library and tensors."""

        def __init__(self) -> None:
            self.__dict__.update(_fields(scheduler, agent, send, counts))
            self._know(self.engine_id)

        def __del__(self) -> None:
            """Nothing is to be released."""

        def _nixl_handshake(self, host: str, port: int, size: int, engine: str, *more: Any) -> tuple[Any, float]:
            ranks = (0,)
            self.tp_mappings[engine] = mapping((ranks,) * len(groups), ranks, {0: 0}, 0)
            self.dst_xfer_side_handles[engine] = {0: engine}
            self._know(engine)
            return {(0, 0): engine}, 0.0

        def _know(self, engine: str) -> None:
            self.dst_num_blocks[engine] = self.num_blocks
            self.dst_region_group_ids[engine] = []
            self.dst_region_num_blocks[engine] = []
            self.dst_uses_region_group_mapping[engine] = False

        def _compute_desc_ids(self, block_ids: Any, **rest: Any) -> list[tuple[int, int]]:
            return [(group, int(block)) for group, blocks in enumerate(block_ids) for block in blocks]

        def _log_failure(self, failure_type: str, req_id: str | None, *given: Any, **more: Any) -> None:
            counts[failure_type.replace("_", " ")] += 1
            if req_id is not None:
                agent.failed.append(req_id)

    return Worker()


def _fields(scheduler: Any, agent: Agent, send: Send, counts: Counter[str]) -> Mapping[str, Any]:
    """What the methods of the worker read, for one rank, one block size and one device."""
    config, own = scheduler.kv_cache_config, scheduler.vllm_config.kv_transfer_config
    information = SimpleNamespace(
        remote_tp_size=1,
        remote_block_size=scheduler.block_size,
        remote_physical_blocks_per_logical=1,
        remote_dcp_size=1,
    )
    topology = SimpleNamespace(
        get_engine_info=lambda engine: information,
        tp_ratio=lambda size: 1,
        block_size_ratio=lambda size: 1,
        unregister_remote_engine=lambda engine: None,
    )
    representative = module(f"{NIXL}.base_worker").get_representative_spec_type
    return {
        **{name: {} for name in _DICTS},
        **{name: set() for name in _SETS},
        **{name: queue.Queue() for name in _QUEUES},
        **dict.fromkeys(("tp_rank", "pcp_rank", "dcp_rank"), 0),
        **dict.fromkeys(("dcp_size", "pp_size", "world_size", "num_regions"), 1),
        **dict.fromkeys(_NOT, False),
        "engine_id": scheduler.engine_id,
        "vllm_config": scheduler.vllm_config,
        "kv_cache_config": config,
        "nixl_wrapper": agent,
        "num_blocks": config.num_blocks,
        "block_size": scheduler.block_size,
        "region_group_ids": [],
        "transfer_topo": topology,
        "src_xfer_handles_by_block_size": {scheduler.block_size: 0},
        "_has_mamba": scheduler._has_mamba,
        "_is_hma_required": scheduler._is_hma_required,
        "_physical_blocks_per_logical_kv_block": 1,
        "_group_spec_types": tuple(representative(group.kv_cache_spec) for group in groups_of(config)),
        "_lease_extension": own.get_from_extra_config("kv_lease_duration", 30) * 2 // 3,
        "_engine_ttl": own.get_from_extra_config("engine_ttl", 3600.0),
        "_bidirectional_kv_xfer_enabled": own.get_from_extra_config("bidirectional_kv_xfer", False),
        "_remote_agents": defaultdict(dict),
        "_recving_transfers": defaultdict(list),
        "consumer_notification_counts_by_req": defaultdict(int),
        "_handshake_lock": threading.RLock(),
        "_handshake_initiation_executor": Handshakes(send),
        "xfer_stats": Counted(counts),
    }


def groups_of(config: Any) -> Sequence[Any]:
    """The groups whose blocks are transferred."""
    groups: Sequence[Any] = getattr(config, "transfer_groups", config.kv_cache_groups)
    return groups


_DICTS = (
    "_invalid_engine_backoff",
    "_engine_clock_offset",
    "kv_caches_base_addr",
    "dst_xfer_side_handles",
    "dst_num_blocks",
    "dst_region_num_blocks",
    "dst_region_group_ids",
    "dst_uses_region_group_mapping",
    "dst_region_mem_types",
    "tp_mappings",
    "draft_tp_mappings",
    "_recving_metadata",
    "_reqs_to_send",
    "_pending_recv_notifs",
    "_handshake_futures",
    "_engine_last_active",
    "_engine_by_address",
    "expected_consumer_notifications_by_req",
    "_remote_registration_generations",
)
_SETS = (
    "_failed_remote_engines",
    "_invalid_remote_engines",
    "_replicated_pcp_done_sending",
    "_reqs_to_process",
    "_recv_failures",
)
_QUEUES = ("_invalid_block_ids", "_failed_recv_reqs", "_ready_requests")
_NOT = (
    "use_mla",
    "use_host_buffer",
    "pcp_dcp_sharded",
    "enable_permute_local_kv",
    "enable_heterogeneous_attn_post_process",
    "_mixed_mem_types",
    "_skip_dram_xfer",
    "_hb_handshake_notif_only",
    "_is_csa_linear",
    "_uses_region_group_mapping",
)
"""Fields that begin empty, and switches that are off."""
