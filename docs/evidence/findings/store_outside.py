"""A connector to a store outside the engine, which loads while the request waits."""

from typing import Any

from engine_without_device import NoDevice, connected
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA


class Store(KVConnectorBase_V1, SupportsHMA):
    """Has as many first tokens of a prompt as its `kv_transfer_params` say, and loads them within one step."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens that can be loaded, asynchronously."""
        more = (request.kv_transfer_params or {}).get("stored", 0) - num_computed_tokens
        return max(0, more), more > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The load begins; it has ended at the end of the step."""
        if num_external_tokens:
            NoDevice.arrived.add(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing to tell a worker."""
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """The blocks can be freed at once."""
        return False, None

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        """For workers."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """For workers."""

    def save_kv_layer(self, *given: Any, **more: Any) -> None:
        """For workers."""

    def wait_for_save(self) -> None:
        """For workers."""


def loading() -> dict[str, Any]:
    """Options of `start` for an engine with this connector."""
    return connected("Store", kv_connector_module_path=Store.__module__)
