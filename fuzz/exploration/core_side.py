"""Our core as one side of the pair: built from a shape, put into a state, moved by the operations of the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from ...model import ops
from ...model.attention import RULES, Mamba
from ...model.ops import Operation, Shape
from ..adapters.impl import bind_impl
from ..adapters.impl_package import module_of_impl
from .contents import Contents
from .packing import ARRIVING, Look

Answer = tuple[Any, ...]
"""An outcome as plain data: ("done", value), ("refused",) or ("failed", name of the built-in exception)."""
REFUSED: Answer = ("refused",)


class ExploredRequest:
    """A request as the scheduler's side remembers it."""

    __slots__ = ("hit", "hit_tokens", "number", "request", "scheduled")

    def __init__(self, request: Any, scheduled: int = 0, number: int = 0) -> None:
        self.request = request
        self.number = number
        """Of the token sequence that the request was given; 0 if it was submitted."""
        self.scheduled = scheduled
        """Tokens of the allocated step that has not run yet; ARRIVING while tokens are to come from outside."""
        self.hit: Any = None
        """Blocks of the last lookup's hit, as the core gave them."""
        self.hit_tokens = 0


class CoreSide:
    """A `KVCacheManager` and the requests it is called with."""

    def __init__(self, shape: Shape, contents: Contents) -> None:
        binding = bind_impl()
        self.manager = binding.manager(shape)
        self._request, self._low = binding.names("Request"), binding.around(shape)
        self._index = module_of_impl("pool.hash_map").BlockHashToBlockMap
        self.contents = contents
        self.pool = self.manager.block_pool
        self.managers = self.manager.coordinator.single_type_managers
        self.mamba = [group for group, spec in enumerate(shape.groups) if RULES[spec.kind] is Mamba]
        self.live: dict[str, ExploredRequest] = {}
        self._requests: dict[tuple[str, int], Any] = {}
        """Requests that have the tokens of a sequence, by name and the number of the sequence."""
        self._handlers: dict[type[Operation], Callable[[Any], Any]] = {
            ops.Submit: self._submit,
            ops.Lookup: self._lookup,
            ops.Allocate: self._allocate,
            ops.Advance: self._advance,
            ops.Arrive: self._arrive,
            ops.Free: self._free,
            ops.Preempt: self._preempt,
            ops.Evict: lambda op: self.manager.evict_blocks(op.blocks),
            ops.Reset: lambda op: self.manager.reset_prefix_cache(),
            ops.StepStart: lambda op: self.manager.new_step_starts(),
        }

    def step(self, op: Operation) -> Answer:
        """Carry an operation out. Whatever the core raises is an answer, too."""
        try:
            with self._low:
                value = self._handlers[type(op)](op)
        except Exception as error:
            return ("failed", ops.error_kind(error))
        return REFUSED if value is REFUSED else ("done", value)

    def _submit(self, op: ops.Submit) -> int:
        request = self._request(op.request, list(op.prompt), block_hasher=self.contents.hasher)
        self.live[op.request] = ExploredRequest(request)
        return len(request.block_hashes)

    def _lookup(self, op: ops.Lookup) -> object:
        live = self.live[op.request]
        live.hit, live.hit_tokens = self.manager.get_computed_blocks(live.request)
        return live.hit_tokens, ids(live.hit)

    def _allocate(self, op: ops.Allocate) -> object:
        live = self.live[op.request]
        hit, hit_tokens = (live.hit, live.hit_tokens) if op.hit else (None, 0)
        new = self.manager.allocate_slots(
            live.request,
            op.new_tokens,
            hit_tokens,
            hit,
            num_lookahead_tokens=op.lookahead,
            num_external_computed_tokens=op.external,
            delay_cache_blocks=op.delay,
            full_sequence_must_fit=op.gate,
            reserved_blocks=op.reserved,
        )
        if new is None:
            return REFUSED
        live.request.num_computed_tokens += hit_tokens + op.external
        live.scheduled = ARRIVING if op.delay else op.new_tokens
        return ids(new)

    def _advance(self, op: ops.Advance) -> int:
        live = self.live[op.request]
        live.request.num_computed_tokens += live.scheduled - op.rejected
        live.scheduled = 0
        if op.sampled:
            live.request.append_output_token_ids(list(op.sampled))
            self._requests.pop((op.request, live.number), None)
        return len(live.request.block_hashes)

    def _arrive(self, op: ops.Arrive) -> None:
        live = self.live[op.request]
        request = live.request
        request.num_computed_tokens -= op.missing
        self.manager.cache_blocks(request, request.num_computed_tokens)
        request.num_computed_tokens -= request.num_computed_tokens == request.num_tokens
        live.scheduled = 0

    def _free(self, op: ops.Free) -> None:
        live = self.live.pop(op.request, None)
        self.manager.free(live.request if live else self._request(op.request, [0]))

    def _preempt(self, op: ops.Preempt) -> None:
        live = self.live[op.request]
        self.manager.free(live.request)
        live.request.num_computed_tokens = live.scheduled = 0

    def new_block_ids(self) -> list[list[int]]:
        """Drain the ids of newly handed out blocks, per group."""
        return [manager.take_new_block_ids() for manager in self.managers]

    # Putting it into a state.

    def set_request(self, name: str, number: int, computed: int, scheduled: int) -> None:
        """The request of this name has the tokens of a sequence and is so far; for sequence 0 there is none."""
        for group in self.mamba:
            self._set_steps(self.managers[group], name, computed if scheduled == ARRIVING else None)
        if not number:
            self.live.pop(name, None)
            return
        request = self._requests.get((name, number))
        if request is None:
            tokens, prompt = self.contents.sequences[number]
            request = self._request(name, list(tokens[:prompt]), block_hasher=self.contents.hasher)
            request.append_output_token_ids(list(tokens[prompt:]))
            self._requests[name, number] = request
        request.num_computed_tokens = computed
        self.live[name] = ExploredRequest(request, scheduled, number)

    def _set_steps(self, manager: Any, name: str, arriving: int | None) -> None:
        """What the last step of a request left is asked about once more only while tokens arrive, so many as given.
        Else the next step tells all, but for drafts in other modes than align, which leave nothing."""
        manager.steps.pop(name, None)
        if arriving is not None:
            manager.note_load(name, arriving)
        elif not manager.moves_blocks:
            manager.note_step(name, 0, 1, 2)

    def set_hit(self, name: str, tokens: int, rows: Sequence[Sequence[int]]) -> None:
        """The last operation was a lookup of this request, which found these blocks."""
        live, own = self.live[name], self.pool.blocks
        live.hit_tokens = tokens
        live.hit = self.manager.create_kv_cache_blocks(tuple([[own[block] for block in row] for row in rows]))

    def set_contents(self, look: Look) -> None:
        """Which block is registered as what, in runs as long as can be: the earliest block of a content goes on in the
        run of the block before it, as if one request had registered both. In every third state none is in a run."""
        names: Sequence[Any] = self.contents.core_names
        places, blocks = self.contents.places, self.pool.blocks
        index = self.pool.cached_block_hash_to_block = self._index()
        again = {block for duplicates in look.duplicates.values() for block in duplicates[1:]}
        first: dict[int, int] = {}
        for number, (block, code) in enumerate(zip(blocks, look.codes, strict=True)):
            block.reset_hash()
            if code and number not in again:
                first[code] = number
        for code in sorted(first):
            (group, content), (place, before) = names[code], places[code]
            behind = (place, blocks[first[before]] if before in first else None)
            index.register(group, [content], [blocks[first[code]]], behind if len(first) % 3 else None)
        for code, duplicates in look.duplicates.items():
            for number in duplicates[1:]:
                group, content = names[code]
                index.register(group, [content], [blocks[number]], None)

    def set_tables(self, group: int, tables: Mapping[str, Sequence[int]]) -> None:
        """The tables of a group."""
        own = self.pool.blocks
        rows = {name: [own[block] for block in table] for name, table in tables.items()}
        held = self.managers[group].req_to_blocks
        held.clear()
        held.update(rows)
        if group in self.mamba:
            self.managers[group].num_leading_nulls = {}  # what is known of other tables

    def set_registered(self, group: int, registered: Mapping[str, int]) -> None:
        """How many leading entries of each table of a group count as registered."""
        counts = self.managers[group].num_cached_block
        counts.clear()
        counts.update(registered)

    def set_blocks(self, look: Look) -> None:
        """References, and the free queue: in batches of one to three blocks, of which the last one has lost some."""
        blocks, free = self.pool.blocks, self.pool.free_block_queue
        queued, held = [blocks[number] for number in look.queue], []
        for block, count in zip(blocks, look.counts, strict=True):
            block.ref_cnt = count
            if count:
                held.append((block, count))
        size = 1 + look.queue[0] % 3 if queued else 1
        cut = len(queued) // size * size
        free.__init__([*queued[cut:], *(block for block, _ in held)])
        for block, count in held:
            free.remove(block)
            block.ref_cnt = count
        for end in range(cut, 0, -size):
            free.prepend_n(queued[end - size : end])
        self.pool._num_shared = sum([count > 1 for count in look.counts])

    def set_horizons(self) -> None:
        """The horizon of every request with a table: as far as it can be, from what its tables show."""
        steps = self.manager.coordinator.steps
        for name in [*steps.horizons, *getattr(steps, "due", ())]:
            steps.forget(name)
        for name, live in self.live.items():
            tables = [manager.req_to_blocks.get(name, ()) for manager in self.managers]
            if any(tables):
                settled = max(0, min(live.request.num_computed_tokens, live.request.num_tokens - 1))
                while settled and any(map(_skips_more, self.managers, tables, repeat(settled))):
                    settled -= 1
                steps.note(name, settled)

    def set_step(self, group: int, this_step: Iterable[int]) -> None:
        """Which states of a mamba group were registered in this step."""
        names = [self.contents.core_names[code] for code in this_step]
        self.managers[group].cached_blocks_this_step = {name[1] for name in names if name and name[0] == group}


def _skips_more(manager: Any, table: Sequence[Any], settled: int) -> bool:
    """Whether an entry that is there would have been given up, had so many tokens been settled."""
    skipped = min(manager.get_num_skipped_tokens(settled) // manager.block_size, len(table)) if manager.may_skip else 0
    return skipped > 0 and not table[skipped - 1].is_null


def ids(blocks: Any) -> tuple[tuple[int, ...], ...]:
    """Block ids per group."""
    return tuple([tuple([block.block_id for block in row]) for row in blocks.blocks])
