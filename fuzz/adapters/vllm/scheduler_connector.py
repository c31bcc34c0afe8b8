"""A minimal KV connector: it has the first tokens of some prompts, and loads them at once or one step later."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ...kinds import STATE_SPECS
from .scheduler_device import DeviceJob

Load = Callable[[str, Sequence[Sequence[int]], int, int], None]


def connector_for(jobs: Mapping[str, DeviceJob], load: Load, cache_config: Any) -> Any:
    """The scheduler's half of a connector for the installed release. `load` is called with what it loads."""
    base: Any = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    states = any(type(group.kv_cache_spec).__name__ in STATE_SPECS for group in cache_config.kv_cache_groups)

    def end_of(request: Any) -> int:
        """How many of its first tokens it has. Within a step, and where there are states, all but the last one: that
        one is computed again in any case, from the state before it. Nothing of a prompt of one token, which would be
        loaded for ever: the scheduler takes the token back, and asks again when none is computed."""
        job = jobs[request.request_id]
        if request.num_tokens == 1:
            return 0
        return min(job.external, int(request.num_tokens) - (states or not job.loads_later))

    class Connector(base.KVConnectorBase_V1, base.SupportsHMA):  # type: ignore[misc]
        """Has the external tokens of `jobs`."""

        def __init__(self) -> None:
            self.arrived: list[str] = []
            self._kv_cache_config = cache_config  # the base class of later releases reads it

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
            """How many more tokens it has, and whether they are loaded later."""
            job = jobs[request.request_id]
            more = max(0, end_of(request) - num_computed_tokens)
            return more, bool(more) and job.loads_later

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            """The blocks are allocated: load the external tokens into them."""
            name, job = request.request_id, jobs[request.request_id]
            if not num_external_tokens:
                return
            end = end_of(request)
            load(name, blocks.get_block_ids(), end - num_external_tokens, end)
            if job.loads_later:
                self.arrived.append(name)

        def take_arrived(self) -> list[str]:
            """Requests whose tokens have been loaded since the last call."""
            names, self.arrived = self.arrived, []
            return names

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            """None: there is no worker."""
            return None

        def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            """False: the blocks may be freed at once."""
            return False, None

        def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            """The same, for several groups."""
            return False, None

        def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
            """Workers only."""

        def wait_for_layer_load(self, layer_name: str) -> None:
            """Workers only."""

        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
            """Workers only."""

        def wait_for_save(self) -> None:
            """Workers only."""

    return Connector()
