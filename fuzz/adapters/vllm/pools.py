"""A core with a pool of the host (`model.features.pools`) as its connector calls it: what a step writes back is sent
with the step, and has come when the next one begins."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ....model import ops
from ....model.attention import RULES
from ....model.kinds.pool_kinds import Source
from ....model.ops import Group, Operation, Outcome, Shape, Value


def said(names: Callable[[str], Any], group: Group) -> Mapping[str, Any]:
    """What the specification of a group says of its pool."""
    if RULES[group.kind] is not Source:
        return {}
    return {"host_resident": True, "role": names("KVCacheGroupRole").HISPARSE_SOURCE}


class HostPool:
    """What the connector of one core does."""

    def __init__(self, manager: Any) -> None:
        module = import_module("vllm.v1.hisparse.coordinator")
        self._core = module.get_hisparse_coordinator(manager)
        self._read: dict[tuple[int, str], list[int]] = {}
        """What a worker reads of the pages of a request, by what it was told."""
        self._labels: dict[object, int] = {}
        self._moves: dict[int, tuple[int, ...]] = {}
        """By number: a block of the host, whether it is the source, and blocks of the device."""

    def around(
        self, op: Operation, live: Any, statuses: Any, call: Callable[[Operation], Outcome]
    ) -> tuple[Outcome, tuple[Value, ...]]:
        """Carry an operation out, with what a connector does before and behind it. Returns what can be seen, too."""
        if isinstance(op, ops.Arrive):
            self._core.finish_host_import(op.request, failed=False)
            self._send()
        elif isinstance(op, ops.Free) and live:
            live.request.status = statuses.FINISHED_STOPPED
        outcome, scheduled = call(op), ""
        if isinstance(op, ops.Allocate) and isinstance(outcome, ops.Done) and op.new_tokens and live:
            end = min(live.request.num_computed_tokens + op.new_tokens, live.request.num_tokens)
            self._core.advance_scheduled([(op.request, end)])
            self._send()
            self._told(scheduled := op.request)
        elif isinstance(op, ops.StepStart):
            self._arrive()
        elif isinstance(op, ops.Free | ops.Preempt):
            for group in range(len(self._core.resident_managers)):
                self._read.pop((group, op.request), None)
        return outcome, self._shown(scheduled)

    def _send(self) -> None:
        """A worker is told what to copy."""
        command = self._core.build_offload_command()
        for one in command.page_transfers if command else ():
            self._moves[one.transfer_id] = one.host_block_id, one.restore, *one.resident_block_ids

    def _arrive(self) -> None:
        """What is under way has come, request by request."""
        moves = self._core.pending_spills
        for state in {id(move.request_state): None for move in moves.values()}:
            come = {number: 1 for number, move in moves.items() if id(move.request_state) == state}
            self._core.update_spills(come, come)

    def _told(self, name: str) -> None:
        """A worker is told of the pages of a request that is scheduled."""
        update = self._core.take_residency_updates([name]).get(name)
        for group, ids in enumerate(update.block_ids if update else ()):
            row = self._read.setdefault((group, name), [])
            for page, block in zip(update.pages, ids, strict=True):
                row += [0] * (page + 1 - len(row))
                row[page] = block

    def _shown(self, scheduled: str) -> tuple[Value, ...]:
        pool = self._core.get_host_block_pool()
        names = [block.block_hash for block in pool.blocks]
        labels = tuple([None if one is None else self._labels.setdefault(one, len(self._labels)) for one in names])
        counts = [block.ref_cnt for block in pool.blocks]
        counts[0] = 0
        rows: list[tuple[Value, ...]] = []
        for group, manager in enumerate(self._core.resident_managers):
            for name in sorted(manager.req_to_blocks):
                row = [block.block_id for block in manager.get_residency_row(name)]
                rows.append((group, name, *(self._read.get((group, name), row) if name == scheduled else row)))
        free = tuple([block.block_id for block in pool.free_block_queue.get_all_free_blocks()])
        moves = [self._moves[number] for number in self._core.pending_spills if number in self._moves]
        return free, tuple(counts), labels, tuple(rows), tuple(moves)


def host_pool(manager: Any, shape: Shape) -> HostPool | None:
    """That of a core of this shape, if it has one."""
    return HostPool(manager) if shape.host_blocks else None
