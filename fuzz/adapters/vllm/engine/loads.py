"""A minimal KV connector: it has the first tokens of some prompts, and loads them within a step or beside the steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .....model.attention import Mamba, Rule, Step
from .....model.ops import NULL
from ....kinds import STATE_SPECS
from ....simulation.protocol import ClientRequest, SlotTransfer


@dataclass(frozen=True)
class ExternalLoad:
    """Positions `start .. end - 1` of a request are loaded into the blocks of these tables."""

    name: str
    """As the scheduler knows the request."""
    tables: list[list[int]]
    start: int
    end: int

    def transfers(self, rules: list[Rule], width: int, request: str, *, now: bool) -> list[SlotTransfer]:
        """One for each group that has a block for any of them. `width`: slots of a block."""
        told = []
        for group, rule in enumerate(rules):
            pairs = list(self._pairs(rule, self.tables[group], width))
            if pairs:
                device, positions = zip(*pairs, strict=True)
                id = f"load {self.name} {group}"
                told.append(SlotTransfer(id, "load", group, device, request=request, positions=positions, now=now))
        return told

    def _pairs(self, rule: Rule, table: list[int], width: int) -> "list[tuple[int, int]]":
        """Slots, each with the position whose content it gets."""

        def block(entry: int) -> int:
            return table[entry] if entry < len(table) else NULL

        if isinstance(rule, Mamba):
            states = rule.writes(Step(self.end - 1, self.end)).items()
            held = [(block(entry), after - 1) for entry, after in states]
            return [(at * width + slot, last) for at, last in held if at != NULL for slot in range(width)]
        places = [(block(position // rule.b), position) for position in range(self.start, self.end)]
        return [(at * width + position % rule.b, position) for at, position in places if at != NULL]


def connector_for(clients: Mapping[str, ClientRequest], load: Callable[[ExternalLoad], None], built: Any) -> Any:
    """The scheduler's half of a connector for the installed release. `clients`: by the scheduler's names; `load` is
    called with what it loads; `built` has a `cache_config`, and `loads_later`: beside the steps."""
    base: Any = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    groups = built.cache_config.kv_cache_groups
    states = any(type(group.kv_cache_spec).__name__ in STATE_SPECS for group in groups)

    def end_of(request: Any, later: bool) -> int:
        """How many of its first tokens it has. Within a step, and where there are states, all but the last one: that
        one is computed again in any case, from the state before it. Nothing of a prompt of one token, which would be
        loaded for ever: the scheduler takes the token back, and asks again when none is computed."""
        if request.num_tokens == 1:
            return 0
        return min(clients[request.request_id].external, int(request.num_tokens) - (states or not later))

    class Connector(base.KVConnectorBase_V1, base.SupportsHMA):  # type: ignore[misc]
        """Has the external tokens of the clients."""

        def __init__(self, later: bool) -> None:
            self._later = later
            self._kv_cache_config = built.cache_config  # the base class of later releases reads it

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
            """How many more tokens it has, and whether they are loaded later."""
            more = max(0, end_of(request, self._later) - num_computed_tokens)
            return more, bool(more) and self._later

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            """The blocks are allocated: load the external tokens into them."""
            if num_external_tokens:
                end = end_of(request, self._later)
                tables = [list(table) for table in blocks.get_block_ids()]
                load(ExternalLoad(request.request_id, tables, end - num_external_tokens, end))

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

    return Connector(built.setup.connector == LATER)


LATER, NOW = "loads-later", "loads-now"
"""The connector that loads beside the steps while a request waits, and the one that loads within its first step."""
