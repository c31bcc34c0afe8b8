"""Judges each call of a release's scheduler on its core by the contract, while the engine is simulated."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .....model.ops import NULL, Operation, Outcome, Submit
from .....model.snapshot import Snapshot
from ....findings.oracle_names import PASSABLE
from ....targets.block_ids import STRAY_ID, stray_id, without_hidden
from ....targets.declarations import hidden_without_model
from ....workload.bounds import keeps_states
from ..releases import release_of
from .scheduler_config import RETENTION_FIELD
from .watched_calls import NOT_LOOKED_AT, ManagerWatch


@dataclass
class _Scene:
    """What the contract asks of a scene: who holds blocks besides the requests."""

    outside: Sequence[int] = ()

    @property
    def state(self) -> "_Scene":
        """The holders."""
        return self


class ContractJudge:
    """Follows one engine."""

    def __init__(self, engine: Any, contract: Callable[..., Any]) -> None:
        """`engine` has its `built` scheduler, `clients` by name, and `version`; `contract` makes the oracle
        (`oracles.contract.Contract`)."""
        release, built = release_of(engine.version), engine.built
        shape, manager = built.setup.shape, built.scheduler.kv_cache_manager
        hidden = hidden_without_model(release.hides(manager))
        self.shape = replace(
            shape,
            hash_block_size=built.hash_block_size,
            scheduler_block_size=max(built.scheduler_block_size, shape.scheduler_block_size),
            retention_interval=getattr(built.config.cache_config, RETENTION_FIELD, shape.retention_interval),
        )
        self._hides = hidden | NOT_LOOKED_AT
        loses = release.loses_with(manager) - {"states-by-scheduler"}  # here is the scheduler, and it has to
        copies = keeps_states(shape) and hasattr(built.scheduler, "_free_cow_retained_blocks")
        holds = bool(built.setup.connector) or copies
        self._clients, self._holds, self._lines, self._broken = engine.clients, holds, list[str](), False
        self._contract = contract(self.shape, self._hides, loses, PASSABLE)
        self._watch = ManagerWatch(manager, self._submitted, hidden, self._judge, self._contract.cut_hit)
        self._contract.start(self._watch.shown)
        self._scene: Any = _Scene()
        self._requests = built.scheduler.requests
        self._failed: Exception | None = None

    def _submitted(self, name: str) -> Submit:
        client = self._clients[name]
        version = "" if client.adapter is None else str(client.adapter_version)
        return Submit(name, client.prompt, client.adapter, version, client.salt, client.items)

    def rest(self) -> None:
        """Judge nothing from now on: what happens now, the contract has no word for. The report counts it."""
        if not self._broken:
            self._contract.reached["contract: engines of which it judges no more"] += 1
        self._broken = True

    @property
    def reached(self) -> Counter[str]:
        """How often each property was checked."""
        reached: Counter[str] = self._contract.reached
        return reached

    def look(self) -> None:
        """The scheduler has learnt something of its requests."""
        self._watch.all_learnt(self._requests.values())

    def taken(self) -> list[str]:
        """What was violated since the last call, each line with the property's id before its colon. Whatever the
        contract itself has raised is raised here: within the engine's call it would look like the engine's."""
        if self._failed is not None:
            raise self._failed
        lines, self._lines = self._lines, []
        return [*lines, *(f"{one.id}: {one.what}" for one in self._contract.passed())]

    def _judge(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot) -> None:
        if self._broken:  # what follows from it says nothing
            return
        try:
            line = self._judged(operation, outcome, before, after)
        except Exception as error:
            self._failed, line = error, "failed"
        if line:
            self._lines.append(line)
            self._broken = True

    def _judged(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot) -> str:
        size, hides = self.shape.num_blocks, self._hides
        self._scene.outside = self._outside(after)
        if stray := stray_id(operation, outcome, after, size, hides):
            return f"{STRAY_ID}: {stray}"
        was, now = without_hidden(before, size, hides), without_hidden(after, size, hides)
        violation = self._contract.step(operation, outcome, was, now, self._scene)
        return "" if violation is None else f"{violation.id}: {violation.what}"

    def _outside(self, shown: Snapshot) -> list[int]:
        """Blocks that a connector holds, or that are freed once a running step has ended; once for each reference that
        no table has. Only where a release does so, for copies or a connector: its references are believed."""
        if not self._holds:
            return []
        held = Counter(block for tables in shown.tables for table in tables.values() for block in table)
        counts = enumerate(shown.ref_cnt)
        return [block for block, many in counts for _ in range(many - held[block]) if block != NULL]
