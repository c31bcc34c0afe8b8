"""The shadow memory on tensors: tags are written through slot mappings and read through block tables on the device.

This uses every part of the core's data plane that a serving engine uses: the configuration of the groups, the buffers
that groups share, the typed views of the layers, the block tables and their copy on the device. Next to the buffers it
keeps a *mirror*: what every byte must be, computed by plain arithmetic from the definitions (core.md §11). A byte that
differs from the mirror is damage.
"""

import importlib
from collections.abc import Callable, Sequence
from math import lcm
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....model.arith import cdiv
from ....model.attention import RULES, Mamba
from ....model.ops import NULL, Group, Shape
from ....model.shown.snapshot import Snapshot
from ...adapters.impl import bind_impl
from ...kinds import KINDS
from . import GARBAGE, Corruption

POISON_BYTE = 0xA5
OUTSIDE_BYTE = 0x5A
MAX_REQUESTS = 256
SPARE_ENTRIES = 8
"""Table entries beyond what a request of the greatest length needs: tables of a faulty core may be too long."""
INT32 = np.dtype(np.int32)
FACTOR = 7919
INVERSE = pow(FACTOR, -1, 1 << 32)


class TensorMemory:
    """Tags in the KV-cache tensors of a core of this shape, with one or two layers in each group.

    ValueError for a device that cannot be used. Groups share buffers as in a hybrid model, so all pages have one size.
    """

    def __init__(self, shape: Shape, device: str | None = None) -> None:
        self.torch = importlib.import_module("torch")
        names = bind_impl().names
        self._shape = shape
        self.sizes = [group.block_size * shape.parallel for group in shape.groups]
        self.page_bytes = _page_bytes(self.sizes)
        specs = [
            _spec(names, group, size, self.page_bytes) for group, size in zip(shape.groups, self.sizes, strict=True)
        ]
        layers = [[f"group{index}.layer{layer}" for layer in range(2 - index % 2)] for index in range(len(specs))]
        groups = [names("KVCacheGroupSpec")(of, spec) for of, spec in zip(layers, specs, strict=True)]
        depth = max((len(of) for of in layers), default=0)
        self.config = names("get_kv_cache_config_from_groups")(
            SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks_override=None)),
            groups,
            shape.num_blocks * self.page_bytes * depth,
        )
        self.tensors = names("allocate_kv_cache")(self.config, device)
        self.tensors.fill(POISON_BYTE)
        self.device = self.tensors.buffers[0].device if shape.groups else self.torch.device("cpu")
        self._to_device = names("to_device")
        self.tables = [
            names("BlockTables")(
                size,
                MAX_REQUESTS,
                cdiv(shape.max_model_len, size) + group.speculative_blocks + SPARE_ENTRIES,
                num_blocks=shape.num_blocks,
                name=f"group {index}",
            )
            for index, (group, size) in enumerate(zip(shape.groups, self.sizes, strict=True))
        ]
        self._rows: dict[str, int] = {}
        self._known_tables: list[dict[str, list[int]]] = [{} for _ in shape.groups]
        self._mirror = [np.full(tensor.size, POISON_BYTE, np.uint8) for tensor in self.config.kv_cache_tensors]

    # The block tables.

    def follow(self, snapshot: Snapshot) -> None:
        """Bring the block tables up to date as a worker does: append, null, replace, clear."""
        for group, tables in enumerate(snapshot.tables):
            known = self._known_tables[group]
            for name in known.keys() - tables.keys():
                self.tables[group].clear([self._rows[name]])
                del known[name]
            for name, table in tables.items():
                if known.get(name) != table:
                    try:
                        self._update_row(group, self._row(name), known.get(name, []), table)
                    except ValueError as refused:
                        what = f"the block tables refuse what it holds: {refused}"
                        raise Corruption(name, group, 0, what, "tables refuse") from refused
                    known[name] = table.copy()
        for name in self._rows.keys() - set().union(*self._known_tables):
            del self._rows[name]

    def _row(self, name: str) -> int:
        if name not in self._rows:
            used = set(self._rows.values())
            free = (row for row in range(MAX_REQUESTS) if row not in used)
            if (row := next(free, None)) is None:
                what = f"more than {MAX_REQUESTS} requests at once: the tables end there"
                raise Corruption(name, 0, 0, what, "too many requests")
            self._rows[name] = row
        return self._rows[name]

    def _update_row(self, group: int, row: int, old: list[int], new: list[int]) -> None:
        tables, nulled = self.tables[group], [i for i, block in enumerate(old) if block != NULL]
        nulled = [i for i in nulled if i < len(new) and new[i] == NULL]
        kept = [NULL if i in nulled else block for i, block in enumerate(old)]
        if kept != new[: len(old)]:
            tables.replace([row], [new])
            return
        if nulled:
            tables.null([row] * len(nulled), nulled)
        if new[len(old) :]:
            tables.append([row], [new[len(old) :]])

    # Tags.

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Write every layer of the group, at the slots to which the tables map the positions."""
        positions = np.arange(start, start + len(tags))
        try:
            slots = self.tables[group].slot_mapping(np.full(len(tags), self._rows[request]), positions)
            on_device = self._to_device(slots, self.device)
            for number, layer in enumerate(self.tensors.of_group(group)):
                for index, part in enumerate(layer.layout.parts):
                    width = part.nbytes // layer.layout.entries // INT32.itemsize
                    values = self._to_device(_encoded(tags, number, index, width), self.device)
                    layer.write(part.name, on_device, values.view(len(tags), *part.shape[1:]))
        except ValueError as refused:
            what = f"the tensors refuse the write: {refused}"
            raise Corruption(request, group, start, what, "tensors refuse") from refused
        table, size = self._known_tables[group][request], self.sizes[group]
        for position, tag in zip(positions.tolist(), tags, strict=True):
            self._mirror_token(group, table[position // size], position % size, tag)

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """Read through the tables on the device; `GARBAGE` where layers, or keys and values, do not agree."""
        size = self.sizes[group]
        if start >= end:
            return []
        positions = self.torch.arange(start, end, device=self.device)
        table = self.tables[group].commit(self.device)[self._rows[request]].to(self.torch.int64)
        slots = table[positions // size] * size + positions % size
        return self._decoded(group, slots, end - start)

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Write every state of every layer of the group."""
        for number, layer in enumerate(self.tensors.of_group(group)):
            for index, part in enumerate(layer.layout.parts):
                values = self._to_device(_encoded([tag], number, index, part.nbytes // INT32.itemsize), self.device)
                layer.write(part.name, [block], values.view(1, *part.shape))
                page = self._mirror_page(number, block)
                page[part.offset : part.offset + part.nbytes] = _encoded([tag], number, index, values.shape[1]).view(
                    np.uint8
                )[0]

    def read_block(self, group: int, block: int) -> int:
        """The tag of all states in the block, or `GARBAGE` if they do not agree."""
        return self._decoded(group, self.torch.tensor([block], device=self.device), 1)[0]

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """Overwrite the blocks in all buffers."""
        for buffer in self.tensors.buffers:
            buffer.view(self._shape.num_blocks, -1)[list(blocks)] = OUTSIDE_BYTE
        for mirror in self._mirror:
            mirror.reshape(self._shape.num_blocks, -1)[list(blocks)] = OUTSIDE_BYTE

    def copy(self, source: int, destination: int) -> None:
        """Copy the block in all buffers."""
        for buffer in self.tensors.buffers:
            pages = buffer.view(self._shape.num_blocks, -1)
            pages[destination] = pages[source]
        for mirror in self._mirror:
            rows = mirror.reshape(self._shape.num_blocks, -1)
            rows[destination] = rows[source]

    def _decoded(self, group: int, places: Any, count: int) -> list[int]:
        """The tags at these slots, or in these blocks."""
        tags: np.ndarray[Any, np.dtype[np.int64]] | None = None
        whole = np.ones(count, np.bool_)
        for number, layer in enumerate(self.tensors.of_group(group)):
            for index, part in enumerate(layer.layout.parts):
                rows = layer.read(part.name, places).reshape(count, -1).cpu().numpy()
                if tags is None:
                    tags = _tags_of(rows[:, 0])
                whole &= (rows == _encoded(tags, number, index, rows.shape[1])).all(axis=1)
        assert tags is not None, "every group has a layer, and every layer a part"
        return [tag if right else GARBAGE for tag, right in zip(tags.tolist(), whole.tolist(), strict=True)]

    # Comparison with the mirror.

    def damage(self) -> str | None:
        """A view that is too long, a table entry on the device that differs from the core's, or a byte that changed
        without a write."""
        return self._wrong_view() or self._wrong_entry() or self._wrong_byte()

    def _wrong_view(self) -> str | None:
        for layer in self.tensors.layers.values():
            buffer = self.tensors.buffers[layer.tensor]
            for name, view in layer.parts.items():
                reach = sum((length - 1) * stride for length, stride in zip(view.shape, view.stride(), strict=True))
                end = (view.storage_offset() + reach + 1) * view.element_size()
                limit = (buffer.storage_offset() + buffer.numel()) * buffer.element_size()
                if end > limit or view.shape[0] != self._shape.num_blocks:
                    pages = f"{view.shape[0]} pages in a pool of {self._shape.num_blocks} blocks"
                    return (
                        f"layer {layer.name!r}: the view of its {name} has {pages} and ends {end - limit} bytes behind"
                    )
        return None

    def _wrong_entry(self) -> str | None:
        for group, known in enumerate(self._known_tables):
            rows = self.tables[group].commit(self.device).cpu().numpy()
            for name, table in known.items():
                row = rows[self._rows[name]]
                if row[: len(table)].tolist() != table or row[len(table) :].any():
                    return f"group {group}: {name} has the blocks {table}, on the device {row.tolist()}"
        return None

    def _wrong_byte(self) -> str | None:
        for index, (buffer, mirror) in enumerate(zip(self.tensors.buffers, self._mirror, strict=True)):
            found = buffer.cpu().numpy()
            if not np.array_equal(found, mirror):
                at = int(np.flatnonzero(found != mirror)[0])
                block, byte = divmod(at, self.page_bytes)
                layers = ", ".join(self.config.kv_cache_tensors[index].shared_by)
                return f"block {block}, byte {byte} of the buffer of {layers} has changed though nobody wrote it"
        return None

    def _mirror_page(self, number: int, block: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The page of a block in the mirror of the buffer that the layers of this number share, one in each group."""
        start = block * self.page_bytes
        return self._mirror[number][start : start + self.page_bytes]

    def _mirror_token(self, group: int, block: int, offset: int, tag: int) -> None:
        """Write a token to the mirror. A page has the keys of the whole block, then its values; or one vector a
        token."""
        planes = 1 if KINDS[self._shape.groups[group].kind].latent else 2
        width = self.page_bytes // (planes * self.sizes[group] * INT32.itemsize)
        for number in range(2 - group % 2):
            page = self._mirror_page(number, block).view(INT32).reshape(planes, self.sizes[group], width)
            for plane in range(planes):
                page[plane, offset] = _encoded([tag], number, plane, width)[0]


def _encoded(tags: Any, layer: int, part: int, width: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Elements (tags, width) that depend on the tag, the layer, the part and their own position."""
    first = np.asarray(tags, np.int64) * FACTOR + layer * 1009 + part * 104729
    elements: np.ndarray[Any, np.dtype[np.int32]] = (first[:, None] + np.arange(width)).astype(np.uint32).view(np.int32)
    return elements


def _tags_of(elements: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The tags, from the first element of the first part of the first layer: the inverse of `_encoded`."""
    wide = (elements.astype(np.int64) & 0xFFFFFFFF).astype(np.uint64) * np.uint64(INVERSE)
    tags: np.ndarray[Any, np.dtype[np.int64]] = (
        (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32).astype(np.int64)
    )
    return tags


def _page_bytes(sizes: Sequence[int]) -> int:
    """Bytes of a page that blocks of each of these sizes fill exactly, and that is large enough for Mamba states."""
    unit = 2 * INT32.itemsize * lcm(*sizes)
    return unit * cdiv(64, unit)


def _spec(names: Callable[[str], Any], group: Group, size: int, page: int) -> Any:
    """The spec of a group whose blocks are `size` tokens and whose pages are `page` bytes."""
    if RULES[group.kind] is Mamba:
        return names(KINDS[group.kind].spec)(
            block_size=size,
            shapes=((3,), (2, 2)),
            dtypes=(INT32, INT32),
            page_size_padded=page,
            mamba_cache_mode=group.mamba_mode,
            num_speculative_blocks=group.speculative_blocks,
        )
    planes = 1 if KINDS[group.kind].latent else 2
    width = page // (planes * size * INT32.itemsize)
    heads = 2 if width % 2 == 0 else 1
    return bind_impl().attention_spec(group, size, heads, width // heads, INT32)
