"""The shadow memory on tensors: tags are written through slot mappings and read through block tables on the device.

This uses every part of the core's data plane that a serving engine uses: the configuration of the groups, the buffers
that groups share, the typed views of the layers, the block tables on the device and the slots that are made there. Next
to the buffers it keeps a *mirror*: what every byte must be, computed by plain arithmetic from the definitions (core.md
§11). A byte that differs from the mirror is damage. The mirror is on the device, too: pages that were written are sent
there, and one reduction compares all.
"""

import importlib
from collections.abc import Callable, Sequence
from math import lcm, prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....model.arith import cdiv
from ....model.attention import RULES, Mamba
from ....model.ops import NULL, Group, Shape
from ....model.snapshot import Snapshot
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
        buffers = len(self.config.kv_cache_tensors)
        self.memory: Any = None
        """All buffers, one behind the other: (buffers * blocks, bytes of a page)."""
        self.tensors = names("allocate_kv_cache")(self.config, device, self._allocator(buffers))
        self.tensors.fill(POISON_BYTE)
        self.device = self.tensors.buffers[0].device if shape.groups else self.torch.device("cpu")
        tables = [
            names("GroupTable")(size, cdiv(shape.max_model_len, size) + group.speculative_blocks + SPARE_ENTRIES)
            for group, size in zip(shape.groups, self.sizes, strict=True)
        ]
        self.tables = names("BlockTables")(tables, MAX_REQUESTS, num_blocks=shape.num_blocks)
        most_tokens = max((table.max_blocks * table.block_size for table in tables), default=1)
        self.on_device = names("DeviceTables")(self.tables, self.device, most_tokens, max_changes=1024)
        self._rows: dict[str, int] = {}
        self._entries_changed = True
        self._known_tables: list[dict[str, list[int]]] = [{} for _ in shape.groups]
        pages = buffers * shape.num_blocks, self.page_bytes
        self._mirror = np.full(pages, POISON_BYTE, np.uint8)
        self._mirror_there = self.torch.full(pages, POISON_BYTE, dtype=self.torch.uint8, device=self.device)
        self._pages_changed: set[int] = set()

    def _allocator(self, buffers: int) -> Callable[[int, Any], Any]:
        """Gives the buffers, all of one size, as parts of one."""
        given = iter(range(buffers))

        def allocate(size: int, device: Any) -> Any:
            if self.memory is None:
                whole = self.torch.zeros(buffers * size, dtype=self.torch.uint8, device=device)
                self.memory = whole.view(-1, self.page_bytes)
            return self.memory.view(-1)[size * (at := next(given)) : size * (at + 1)]

        return allocate

    def use_once(self) -> None:
        """Write and read a token: what a device loads and compiles at first takes seconds, which are not a run's."""
        self._rows["first"], self._known_tables[0]["first"] = 0, [1]
        self.tables.append(0, [0], [[1]])
        self.write(0, "first", 0, [1])
        self.read(0, "first", 0, 1)
        self.damage()

    # The block tables.

    def follow(self, snapshot: Snapshot) -> None:
        """Bring the block tables up to date as a worker does: append, null, replace, clear."""
        for group, tables in enumerate(snapshot.tables):
            known = self._known_tables[group]
            for name in known.keys() - tables.keys():
                self.tables.replace(group, [self._rows[name]], [[]])
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
        self._entries_changed |= self.tables.num_changed > 0

    def _commit(self) -> None:
        """What has changed in the tables goes to the device with the next write, or here."""
        if self.tables.num_changed:
            self.on_device.commit()

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
        nulled = [i for i, block in enumerate(old) if block != NULL]
        nulled = [i for i in nulled if i < len(new) and new[i] == NULL]
        kept = [NULL if i in nulled else block for i, block in enumerate(old)]
        if kept != new[: len(old)]:
            self.tables.replace(group, [row], [new])
            return
        if nulled:
            self.tables.null(group, [row] * len(nulled), nulled)
        if new[len(old) :]:
            self.tables.append(group, [row], [new[len(old) :]])

    # Tags.

    def slots(self, group: int, request: str, start: int, count: int) -> Any:
        """Where so many tokens from a position on are written, by the device; ValueError where one has no place."""
        self.tables.schedule([start], [count], [self._rows[request]], [group])
        return self.on_device.commit()[group]

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Write every layer of the group, at the slots to which the tables map the positions."""
        size, table = self.sizes[group], self._known_tables[group][request]
        try:
            slots = self.slots(group, request, start, len(tags))
        except ValueError as refused:
            what = f"the tensors refuse the write: {refused}"
            raise Corruption(request, group, start, what, "tensors refuse") from refused
        where = slice(None), slots // size, slots % size
        for view, values in self._values(group, tags):
            view[where] = values.view(-1, len(tags), *view.shape[3:])
        at = np.arange(start, start + len(tags))
        self._mirror_tokens(group, np.asarray(table)[at // size], at % size, tags)

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """Read through the tables on the device; `GARBAGE` where layers, or keys and values, do not agree."""
        if start >= end:
            return []
        entries, offsets = self._send(np.array(np.divmod(np.arange(start, end), self.sizes[group])))
        self._commit()
        blocks = self.on_device.table(group)[self._rows[request]][entries]
        return self._decoded(group, (slice(None), blocks, offsets), end - start)

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Write every state of every layer of the group."""
        for view, values in self._values(group, [tag]):
            view[:, block] = values.view(-1, *view.shape[2:])
        for number, layer in enumerate(self.tensors.of_group(group)):
            page = self._mirror_page(number, block)
            for index, part in enumerate(layer.layout.parts):
                values = _encoded([tag], number, index, part.nbytes // INT32.itemsize)
                page[part.offset : part.offset + part.nbytes] = values.view(np.uint8)[0]

    def read_block(self, group: int, block: int) -> int:
        """The tag of all states in the block, or `GARBAGE` if they do not agree."""
        return self._decoded(group, (slice(None), slice(block, block + 1)), 1)[0]

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """Overwrite the blocks in all buffers."""
        for buffer in self.tensors.buffers:
            buffer.view(self._shape.num_blocks, -1)[list(blocks)] = OUTSIDE_BYTE
        for number in range(len(self.tensors.buffers)):
            for block in blocks:
                self._mirror_page(number, block)[:] = OUTSIDE_BYTE

    def copy(self, source: int, destination: int) -> None:
        """Copy the block in all buffers."""
        for number, buffer in enumerate(self.tensors.buffers):
            pages = buffer.view(self._shape.num_blocks, -1)
            pages[destination] = pages[source]
            self._mirror_page(number, destination)[:] = self._mirror_page(number, source)

    def _views(self, group: int) -> list[tuple[int, int, Any, int]]:
        """What a kernel is given of each layer of the group, with an axis for keys and values in front.

        With the number of the layer, that of the first part, and the elements of a place in one part. Of a layer of
        states there is a view for each state.
        """
        views = []
        for number, layer in enumerate(self.tensors.of_group(group)):
            if layer.states:
                views += [(number, index, state[None], state[0].numel()) for index, state in enumerate(layer.states)]
            else:
                view = layer.kv if layer.kv.dim() == 5 else layer.kv[None]
                views.append((number, 0, view, prod(view.shape[3:])))
        return views

    def _values(self, group: int, tags: Sequence[int]) -> list[tuple[Any, Any]]:
        """Each view of the group, and the elements that stand for these tags there; sent at once."""
        views = self._views(group)
        elements = [
            _encoded(tags, number, first + part, width)
            for number, first, view, width in views
            for part in range(len(view))
        ]
        sizes = [len(view) * len(tags) * width for _, _, view, width in views]
        sent = self._send(np.concatenate([each.reshape(-1) for each in elements])).split(sizes)
        return [(view, values) for (_, _, view, _), values in zip(views, sent, strict=True)]

    def _send(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy on the device: so little is there before memory were pinned for it."""
        return self.torch.from_numpy(array).to(self.device)

    def _decoded(self, group: int, where: tuple[Any, ...], count: int) -> list[int]:
        """The tags in these blocks, at these offsets in them; fetched at once."""
        views = self._views(group)
        fetched = self.torch.cat([view[where].reshape(-1) for _, _, view, _ in views]).cpu().numpy()
        tags, whole, at = None, np.ones(count, np.bool_), 0
        for number, first, view, width in views:
            for part in range(len(view)):
                rows = fetched[at : at + count * width].reshape(count, width)
                at += count * width
                tags = _tags_of(rows[:, 0]) if tags is None else tags
                whole &= (rows == _encoded(tags, number, first + part, width)).all(axis=1)
        assert tags is not None, "every group has a layer, and every layer a part"
        return [tag if right else GARBAGE for tag, right in zip(tags.tolist(), whole.tolist(), strict=True)]

    # Comparison with the mirror.

    def damage(self) -> str | None:
        """A view that is too long, a table entry on the device that differs from the core's, or a byte that changed
        without a write. Looks where something was asked of the device since it was last called."""
        if not (self._entries_changed or self._pages_changed):
            return None
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
        if not self._entries_changed:
            return None
        self._entries_changed = False
        self._commit()
        for group, known in enumerate(self._known_tables):
            rows = self.on_device.table(group)
            held = rows[: max(map(self._rows.__getitem__, known), default=-1) + 1].cpu().numpy()
            for name, table in known.items():
                row = held[self._rows[name]]
                if row[: len(table)].tolist() != table or row[len(table) :].any():
                    return f"group {group}: {name} has the blocks {table}, on the device {row.tolist()}"
        return None

    def _wrong_byte(self) -> str | None:
        if self.memory is None:
            return None
        if self._pages_changed:
            pages = sorted(self._pages_changed)
            numbers = np.frombuffer(np.array(pages, np.int64).tobytes() + self._mirror[pages].tobytes(), np.uint8)
            sent = self._send(numbers.copy())
            index = sent[: 8 * len(pages)].view(self.torch.int64)
            self._mirror_there[index] = sent[8 * len(pages) :].view(len(pages), -1)
            self._pages_changed.clear()
        different = self.memory != self._mirror_there
        if not bool(different.any()):
            return None
        page, byte = (int(number) for number in different.nonzero()[0])
        buffer, block = divmod(page, self._shape.num_blocks)
        layers = ", ".join(self.config.kv_cache_tensors[buffer].shared_by)
        return f"block {block}, byte {byte} of the buffer of {layers} has changed though nobody wrote it"

    def _mirror_page(self, number: int, block: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The page of a block, to be written, in the mirror of the buffer that the layers of this number share, one in
        each group."""
        page = number * self._shape.num_blocks + block
        self._pages_changed.add(page)
        row: np.ndarray[Any, np.dtype[np.uint8]] = self._mirror[page]
        return row

    def _mirror_tokens(self, group: int, blocks: Any, offsets: Any, tags: Sequence[int]) -> None:
        """Write tokens to the mirror. A page has the keys of the block, then its values; or one vector a token."""
        planes = 1 if KINDS[self._shape.groups[group].kind].latent else 2
        width = self.page_bytes // (planes * self.sizes[group] * INT32.itemsize)
        for number in range(2 - group % 2):
            pages = blocks + number * self._shape.num_blocks
            there = self._mirror.view(INT32).reshape(-1, planes, self.sizes[group], width)
            for plane in range(planes):
                there[pages, plane, offsets] = _encoded(tags, number, plane, width)
            self._pages_changed.update(pages.tolist())


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
