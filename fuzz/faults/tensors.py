"""Planted faults of the data plane: what an engine can get wrong between right block ids and right bytes.

The core is right, so only the shadow memory can see them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...model.ops import NULL
from ..findings.finding import CORRUPTION
from .registry import Part, fault, wrap

if TYPE_CHECKING:
    from ..oracles.shadow.tensors import TensorMemory


def _change_slots(memory: "TensorMemory", change: Callable[[Any, int], Any]) -> None:
    """Change every group's slots of positions: `change` gets them and the block size."""
    wrap(memory, "slots", lambda slots, group, *args: change(slots(group, *args), memory.sizes[group]))


@fault("slots are one too high, so the last token of a block lands in the next one", CORRUPTION, part=Part.TENSORS)
def _slot_off_by_one(memory: "TensorMemory") -> None:
    last = memory.config.num_blocks
    _change_slots(memory, lambda slots, size: (slots + 1) % (last * size))


@fault(
    "the offset in the block is lost: all its tokens go to its first slot, the last one stays",
    CORRUPTION,
    part=Part.TENSORS,
)
def _offset_lost(memory: "TensorMemory") -> None:
    def first_only(slots: Any, size: int) -> Any:
        return slots if len(slots) > 1 else slots - slots % size

    _change_slots(memory, first_only)


@fault("a layer's view goes one page beyond its buffer, into the next one", CORRUPTION, part=Part.TENSORS)
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


@fault("two layers of one group are given the same buffer", CORRUPTION, part=Part.TENSORS)
def _layers_share_a_buffer(memory: "TensorMemory") -> None:
    first, second = memory.tensors.of_group(0)
    memory.tensors.layers[second.name] = first


@fault("values are stored where the keys are", CORRUPTION, part=Part.TENSORS)
def _values_on_keys(memory: "TensorMemory") -> None:
    for layer in memory.tensors.layers.values():
        keys = layer.parts["keys"] if "values" in layer.parts else None
        if keys is not None:  # one token on: that both are the very same, torch would notice
            first = keys.storage_offset() + keys.stride(1)
            layer.parts["values"] = memory.torch.as_strided(keys, keys.shape, keys.stride(), first)


@fault("the blocks of a request that has ended are written once more", CORRUPTION, part=Part.TENSORS)
def _freed_block_still_written(memory: "TensorMemory") -> None:
    before: dict[str, list[int]] = {}

    def follow(original: Callable[..., None], snapshot: Any) -> None:
        nonlocal before
        ended = {name: table for name, table in before.items() if name not in snapshot.tables[0]}
        before = {name: list(table) for name, table in snapshot.tables[0].items()}
        original(snapshot)
        for table in ended.values():
            for block in table:
                if block != NULL:
                    memory.tensors.of_group(0)[0].pages[block, 0] ^= 1

    wrap(memory, "follow", follow)


@fault("an entry that has become null keeps its block on the device", CORRUPTION, part=Part.TENSORS)
def _stale_entry_on_the_device(memory: "TensorMemory") -> None:
    memory.tables.null = lambda group, rows, entries: None


@fault("the table on the device is not brought up to date", CORRUPTION, part=Part.TENSORS)
def _table_not_committed(memory: "TensorMemory") -> None:
    wrap(
        memory.on_device.kernels,
        "write_entries",
        lambda write, table, staged, most: write(table.clone(), staged, most),
    )


@fault("new blocks are zeroed, and the one before each as well", CORRUPTION, part=Part.TENSORS)
def _zeroes_a_neighbour(memory: "TensorMemory") -> None:
    known: set[int] = set()

    def follow(original: Callable[..., None], snapshot: Any) -> None:
        held = {block for tables in snapshot.tables for table in tables.values() for block in table if block != NULL}
        memory.tensors.zero_blocks([block - 1 for block in held - known if block - 1 not in held - known])
        known.clear()
        known.update(held)
        original(snapshot)

    wrap(memory, "follow", follow)
