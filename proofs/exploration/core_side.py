"""Our core as one side of the pair: built from a shape, moved by the operations of the model's language."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from ... import impl
from ...impl import Request
from ...model import ops
from ...model.ops import Group, Kind, Operation, Shape

_SPECS: Mapping[Kind, Callable[[Group], tuple[Any, dict[str, object]]]] = {
    "full": lambda group: (impl.FullAttentionSpec, {}),
    "mla": lambda group: (impl.MLAAttentionSpec, {}),
    "sink": lambda group: (impl.SinkFullAttentionSpec, {"sink_len": group.sink_len}),
    "sliding": lambda group: (impl.SlidingWindowSpec, {"sliding_window": group.window}),
    "chunked": lambda group: (impl.ChunkedLocalAttentionSpec, {"attention_chunk_size": group.chunk}),
}
KINDS: tuple[Kind, ...] = (*_SPECS, "mamba")
"""Attention types that can be explored."""
Answer = tuple[Any, ...]
"""An outcome as plain data: ("done", value), ("refused",) or ("failed", name of the built-in exception)."""
REFUSED: Answer = ("refused",)


class Live:
    """A request as the scheduler's side remembers it."""

    __slots__ = ("hit", "hit_tokens", "request", "scheduled")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.scheduled = 0
        """Tokens of the allocated step that has not run yet."""
        self.hit: Any = None
        """Blocks of the last lookup's hit, as the core gave them."""
        self.hit_tokens = 0


class CoreSide:
    """A `KVCacheManager` and the requests it is called with."""

    def __init__(self, shape: Shape, hasher: Any) -> None:
        self.manager = manager_of(shape)
        self.hasher = hasher
        self.live: dict[str, Live] = {}
        self._handlers: dict[type[Operation], Callable[[Any], Any]] = {
            ops.Submit: self._submit,
            ops.Lookup: self._lookup,
            ops.Allocate: self._allocate,
            ops.Advance: self._advance,
            ops.Free: self._free,
            ops.Preempt: self._preempt,
            ops.Evict: lambda op: self.manager.evict_blocks(op.blocks),
            ops.Reset: lambda op: self.manager.reset_prefix_cache(),
            ops.StepStart: lambda op: self.manager.new_step_starts(),
        }

    def step(self, op: Operation) -> Answer:
        """Carry an operation out. Whatever the core raises is an answer, too."""
        try:
            value = self._handlers[type(op)](op)
        except Exception as error:
            return ("failed", ops.error_kind(error))
        return REFUSED if value is REFUSED else ("done", value)

    def _submit(self, op: ops.Submit) -> int:
        request = Request(op.request, list(op.prompt), block_hasher=self.hasher)
        self.live[op.request] = Live(request)
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
            full_sequence_must_fit=op.gate,
        )
        if new is None:
            return REFUSED
        live.request.num_computed_tokens += hit_tokens
        live.scheduled = op.new_tokens
        return ids(new)

    def _advance(self, op: ops.Advance) -> int:
        live = self.live[op.request]
        live.request.num_computed_tokens += live.scheduled - op.rejected
        live.scheduled = 0
        if op.sampled:
            live.request.append_output_token_ids(list(op.sampled))
        return len(live.request.block_hashes)

    def _free(self, op: ops.Free) -> None:
        live = self.live.pop(op.request, None)
        self.manager.free(live.request if live else Request(op.request, [0]))

    def _preempt(self, op: ops.Preempt) -> None:
        live = self.live[op.request]
        self.manager.free(live.request)
        live.request.num_computed_tokens = live.scheduled = 0


def ids(blocks: Any) -> tuple[tuple[int, ...], ...]:
    """Block ids per group."""
    return tuple([tuple([block.block_id for block in row]) for row in blocks.blocks])


def manager_of(shape: Shape) -> Any:
    """Our core in this shape."""
    groups = [
        impl.KVCacheGroupSpec([f"layer.{index}"], _spec(group), is_eagle_group=group.eagle)
        for index, group in enumerate(shape.groups)
    ]
    return impl.KVCacheManager(
        impl.KVCacheConfig(num_blocks=shape.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=shape.max_model_len,
        scheduler_block_size=shape.scheduler_block_size,
        hash_block_size=shape.hash_block_size,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        enable_caching=shape.caching,
        use_eagle=shape.eagle,
        enable_kv_cache_events=shape.events,
        retention_interval=shape.retention_interval,
    )


def _spec(group: Group) -> Any:
    dtype = numpy.dtype("float32")
    if group.kind == "mamba":
        return impl.MambaSpec(
            block_size=group.block_size,
            shapes=((group.num_heads,),),
            dtypes=(dtype,),
            mamba_cache_mode=group.mamba_mode,
            num_speculative_blocks=group.speculative_blocks,
        )
    kind, fields = _SPECS[group.kind](group)
    return kind(block_size=group.block_size, num_kv_heads=group.num_heads, head_size=1, dtype=dtype, **fields)
