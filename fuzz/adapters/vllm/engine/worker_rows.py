"""The worker that vLLM is pretended to have: a row for each request, as vLLM's own keeps it, and loads under way.

Ids of blocks are appended to a row and never removed; a request that is resumed gets a new one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....model.attention import Rule
from ....simulation.protocol import ClientRequest, Scheduled, Slots, SlotTransfer
from .loads import ExternalLoad
from .scheduler_config import make, module


@dataclass
class _Row:
    """A request, as the worker has it."""

    tables: list[list[int | None]]
    computed: int
    begins: bool = True


class WorkerRows:
    """What the worker knows of requests and loads. `clients`: by the scheduler's names."""

    def __init__(self, clients: Mapping[str, ClientRequest], rules: list[Rule], *, learns_accepted: bool) -> None:
        """`learns_accepted`: the worker alone knows how many drafts of the step before were accepted."""
        self._clients, self._rules, self._learns_accepted = clients, rules, learns_accepted
        self._width = max(rule.b for rule in rules)
        self._rows: dict[str, _Row] = {}
        self._under_way: dict[str, set[str]] = {}
        self.loads: list[ExternalLoad] = []
        """To be begun with the next step."""
        self.arrived: set[str] = set()
        """Requests whose loads have ended, of which the scheduler has not been told."""

    @property
    def loading(self) -> bool:
        """True while the scheduler is yet to hear of a load."""
        return bool(self._under_way or self.arrived)

    def receive(self, output: Any) -> None:
        """As a worker does at the begin of a step."""
        rows = self._rows
        for name in output.finished_req_ids:
            rows.pop(name, None)
        for data in output.scheduled_new_reqs:
            rows[data.req_id] = _Row([_table(ids) for ids in data.block_ids], data.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for name, new, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if name in cached.resumed_req_ids:
                rows[name] = _Row([_table(ids) for ids in new], computed)
                continue
            row = rows[name]
            row.begins, row.computed = False, computed
            if new is not None:
                for table, ids in zip(row.tables, new, strict=True):
                    table += _table(ids)

    def part(self, name: str, many: int, drafts: tuple[int, ...], *, samples: bool) -> Scheduled:
        """What a step computes of a request."""
        row = self._rows[name]
        first = None if self._learns_accepted and not row.begins else row.computed
        slots = tuple(Slots(table) for table in row.tables)
        return Scheduled(self._clients[name].id, first, many, drafts, slots, samples=samples, begins=row.begins)

    def begun(self, *, later: bool) -> Iterator[SlotTransfer]:
        """Loads that begin with the step. `later`: they end beside the steps."""
        for load in self.loads:
            told = load.transfers(self._rules, self._width, self._clients[load.name].id, now=not later)
            if later and not told:
                self.arrived.add(load.name)
            elif later:
                self._under_way[load.name] = {one.id for one in told}
            yield from told
        self.loads.clear()

    def transferred(self, ids: Sequence[str]) -> None:
        """These transfers have ended."""
        for name, left in list(self._under_way.items()):
            left.difference_update(ids)
            if not left:
                del self._under_way[name]
                self.arrived.add(name)

    def heard(self) -> Any:
        """What the scheduler hears of loads; None if nothing."""
        arrived, self.arrived = self.arrived, set()
        return module("v1.outputs").KVConnectorOutput(finished_recving=arrived) if arrived else None

    def report(self, names: list[str], tokens: Mapping[str, Sequence[int]], heard: Any) -> Any:
        """The `ModelRunnerOutput` of a step of these requests. `tokens`: what was sampled, by the client's names;
        `heard`: of transfers."""
        return make(
            module("v1.outputs").ModelRunnerOutput,
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[list(tokens.get(self._clients[name].id, ())) for name in names],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=heard,
        )


def _table(ids: Sequence[int]) -> list[int | None]:
    """Block ids, None for the null block."""
    return [block or None for block in ids]
