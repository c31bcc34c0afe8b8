"""Planted faults of the data plane: what an engine can get wrong between right block ids and right bytes.

Each is planted into the tensors or block tables of a run. The core is right, so only the shadow memory can see it.
`blockproof fuzz --tensors fault:NAME` runs with one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ...model.ops import NULL

if TYPE_CHECKING:
    from ..oracles.shadow.tensors import TensorMemory

Plant: TypeAlias = "Callable[[TensorMemory], None]"
"""Changes the memory of a run that is about to begin."""


@dataclass(frozen=True)
class DataPlaneFault:
    """One planted mistake."""

    name: str
    describe: str
    plant: Plant
    observables: tuple[str, ...] = ("corruption",)
    """Where it shows."""


DATA_PLANE_FAULTS: dict[str, DataPlaneFault] = {}
"""All of them by name."""


def _fault(describe: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        name = plant.__name__.strip("_").replace("_", "-")
        DATA_PLANE_FAULTS[name] = DataPlaneFault(name, describe, plant)
        return plant

    return add


def _slots_wrapped(memory: "TensorMemory", change: Callable[[Any, int], Any]) -> None:
    for tables, size in zip(memory.tables, memory.sizes, strict=True):

        def mapped(
            rows: Any, positions: Any, original: Callable[..., Any] = tables.slot_mapping, size: int = size
        ) -> Any:
            return change(original(rows, positions), size)

        tables.slot_mapping = mapped


@_fault("slots are one too high, so the last token of a block lands in the next one")
def _slot_off_by_one(memory: "TensorMemory") -> None:
    last = memory.config.num_blocks
    _slots_wrapped(memory, lambda slots, size: (slots + 1) % (last * size))


@_fault("the offset in the block is lost: all its tokens go to its first slot, the last one stays")
def _offset_lost(memory: "TensorMemory") -> None:
    def first_only(slots: Any, size: int) -> Any:
        return slots if len(slots) > 1 else slots - slots % size

    _slots_wrapped(memory, first_only)


@_fault("a layer's view goes one page beyond its buffer, into the next one")
def _view_one_page_too_long(memory: "TensorMemory") -> None:
    torch, buffers = memory.torch, memory.tensors.buffers
    together = torch.cat([*buffers, buffers[-1][: memory.page_bytes]])
    start = 0
    for buffer in buffers:
        buffer.set_(together.untyped_storage(), start, buffer.shape)
        start += buffer.numel()
    layer = memory.tensors.of_group(0)[0]
    for name, view in layer.parts.items():
        whole = together.view(view.dtype)
        layer.parts[name] = torch.as_strided(whole, (view.shape[0] + 1, *view.shape[1:]), view.stride())


@_fault("two layers of one group are given the same buffer")
def _layers_share_a_buffer(memory: "TensorMemory") -> None:
    first, second = memory.tensors.of_group(0)
    memory.tensors.layers[second.name] = first


@_fault("values are stored where the keys are")
def _values_on_keys(memory: "TensorMemory") -> None:
    for layer in memory.tensors.layers.values():
        rows = layer._rows
        if "values" in rows:
            rows["values"] = rows["keys"]


@_fault("the blocks of a request that has ended are written once more")
def _freed_block_still_written(memory: "TensorMemory") -> None:
    follow, before = memory.follow, [{}]  # type: ignore[var-annotated]

    def late(snapshot: Any) -> None:
        ended = {name: table for name, table in before[0].items() if name not in snapshot.tables[0]}
        before[0] = {name: list(table) for name, table in snapshot.tables[0].items()}
        follow(snapshot)
        for table in ended.values():
            for block in table:
                if block != NULL:
                    memory.tensors.of_group(0)[0].pages[block, 0] ^= 1

    memory.follow = late  # type: ignore[method-assign]


@_fault("an entry that has become null keeps its block on the device")
def _stale_entry_on_the_device(memory: "TensorMemory") -> None:
    for tables in memory.tables:
        tables.null = lambda rows, entries: None


@_fault("the table on the device is not brought up to date")
def _table_not_committed(memory: "TensorMemory") -> None:
    for tables in memory.tables:
        first = tables.commit(memory.device).clone()
        tables.commit = lambda device, first=first: first


@_fault("new blocks are zeroed, and the one before each as well")
def _zeroes_a_neighbour(memory: "TensorMemory") -> None:
    follow, known = memory.follow, set[int]()

    def zeroing(snapshot: Any) -> None:
        held = {block for tables in snapshot.tables for table in tables.values() for block in table if block != NULL}
        memory.tensors.zero_blocks([block - 1 for block in held - known if block - 1 not in held - known])
        known.clear()
        known.update(held)
        follow(snapshot)

    memory.follow = zeroing  # type: ignore[method-assign]
