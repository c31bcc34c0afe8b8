"""What transformers shows of a step: where its kernels read and write, and what it copies and moves before."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from ...simulation.protocol import Scheduled, SlotCopy, Slots, SlotTransfer
from .binding import Built

_STARTED = -2
"""In place of a token: the worker would be given the placeholder of one that nothing fills in."""


def rows(allocator: Any, block: int) -> range:
    """The slots of a block: rows of the cache tensor for the keys of its first layer."""
    start = block * allocator.block_physical_stride
    return range(start, start + allocator.tokens_per_page)


@dataclass
class MemoryMoves:
    """What happens to memory beside the kernels, in the order in which it is put on the device's queue."""

    copies: list[SlotCopy] = field(default_factory=list)
    transfers: list[SlotTransfer] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    """Requests that were set back, also those whose keys and values were dropped."""

    def taken(self) -> "MemoryMoves":
        """What there was, which is forgotten here."""
        taken = MemoryMoves(self.copies, self.transfers, self.preempted)
        self.copies, self.transfers, self.preempted = [], [], []
        return taken


def moves_of(built: Built) -> MemoryMoves:
    """Notes the moves of this engine from now on."""
    moves, cache, offloading = MemoryMoves(), built.processor.cache, built.processor.offloading_manager
    allocators = cache.cache_allocators
    copied, restored = cache.perform_cache_copy, offloading.restore_scheduled_requests
    stored, numbers = offloading._offload_to_cpu, count(1)

    def transfer(kind: Literal["load", "store"], tables: Any, swapped: Any) -> None:
        for number, (name, allocator) in enumerate(allocators.items()):
            pairs = list(zip(tables[name], swapped.get(name, ()), strict=False))
            device = tuple(slot for block, _ in pairs for slot in rows(allocator, block))
            other = tuple(slot for _, block in pairs for slot in rows(allocator, block))
            told = SlotTransfer(f"{kind} {next(numbers)}", kind, number, device, "CPU", other, now=True)
            moves.transfers.append(told)

    def copy(pairs: dict[str, tuple[list[int], list[int]]]) -> None:
        for number, (name, allocator) in enumerate(allocators.items()):
            for source, target in zip(*pairs[name], strict=True):
                slots = zip(rows(allocator, source), rows(allocator, target), strict=True)
                moves.copies += [SlotCopy(number, *pair) for pair in slots]
        copied(pairs)

    def store(victims: list[Any], tables: dict[str, dict[str, list[int]]]) -> Any:
        names = stored(victims, tables)
        for state in victims:
            moves.preempted.append(state.request_id)
            if state.request_id in names:
                swapped = offloading._request_id_to_cpu_blocks[state.request_id]
                transfer("store", tables[state.request_id], swapped)
        return names

    def restore(batch: list[Any]) -> None:
        swapped = dict(offloading._request_id_to_cpu_blocks)
        states = [one.state.request_id for one in batch if one.state.is_cpu_offloaded]
        restored(batch)
        for name in states:
            tables = {group: allocator.block_table.get(name, []) for group, allocator in allocators.items()}
            transfer("load", tables, swapped[name])

    cache.perform_cache_copy, offloading._offload_to_cpu = copy, store
    offloading.restore_scheduled_requests = restore
    return moves


class StepIndices:
    """Where the kernels read and write one group in a step, request by request as they stand in the batch."""

    def __init__(self, io: Any, allocator: Any) -> None:
        """`io`: the tensors of the step."""
        self._allocator, self._row = allocator, 0
        self._read_until = self._written_until = 0
        index = allocator.index
        self._blocks = io.block_table[index].tolist() if io.use_block_table else None
        if self._blocks is None:
            self._written = io.write_index_storage[index, : io.true_write_sizes[index]].tolist()
            self._read = io.read_index_storage[index, : io.true_read_sizes[index]].tolist()

    def next(self, first: int, length: int) -> Slots:
        """The slots of the next request, of which so many tokens from `first` on are computed."""
        self._row += 1
        allocator, end = self._allocator, first + length
        if self._blocks is not None:
            page, row = allocator.tokens_per_page, self._blocks[self._row - 1]
            return Slots(at={position: row[position // page] * page + position % page for position in range(end)})
        places = self._written[self._written_until : self._written_until + length]
        self._written_until += length
        written = {first + i: slot for i, slot in enumerate(places) if slot != allocator.write_trash_index}
        if not self._read:
            return Slots(at=written)
        many = allocator.get_seqlen_k(first, length)
        read = self._read[self._read_until : self._read_until + many]
        self._read_until += many
        at = {end - many + i: slot for i, slot in enumerate(read) if slot != allocator.sentinel_index}
        return Slots(at=at, written=written)


@dataclass
class IssuedStep:
    """A step that was launched."""

    io: Any
    """The tensors of the host for it."""
    wanted: list[str]
    """Requests that get a token, in the order of the results."""
    tokens: list[int] | None = None
    """What was sampled; None while it computes."""


def parts_of(
    built: Built, step: IssuedStep, before: IssuedStep | None, called: Callable[[str], str]
) -> tuple[Scheduled, ...]:
    """What the kernels would get for each request of the step. `before`: the one launched before it, of which it may
    take tokens on the device; `called`: the client's name of a request."""
    io = step.io
    groups = [StepIndices(io, allocator) for allocator in built.allocators]
    ids, parts, at = io.input_ids[: io.total_seqlen_q].tolist(), list[Scheduled](), 0
    is_asynchronous = built.processor.use_async_batching
    carried = io.carry_over_ids[: io.total_seqlen_q].tolist() if is_asynchronous else [-1] * len(ids)
    for one in io.requests_in_batch:
        inside, length = one.state.request_id, one.query_length
        first = one.state.position_offset - length
        slots = tuple(group.next(first, length) for group in groups)
        given = tuple(_given(ids[i], carried[i], inside, before) for i in range(at, at + length))
        at += length
        if length:
            samples = bool(one.has_new_token)
            parts.append(Scheduled(called(inside), first, length, slots=slots, tokens=given, samples=samples))
    return tuple(parts)


def _given(token: int, carried: int, name: str, before: IssuedStep | None) -> int:
    """What the worker would be given at a place: the token itself, or what the step before has sampled there."""
    if carried < 0:
        return token if token >= 0 else _STARTED
    if before is None:
        return _STARTED
    if before.tokens is not None:
        return before.tokens[carried]
    return -1 if before.wanted[carried] == name else _STARTED
