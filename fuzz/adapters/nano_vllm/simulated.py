"""nano-vllm under simulation: its own scheduler and block manager run, at the commit of a checkout.

`--target blockproof.fuzz.adapters.nano_vllm.simulated:make_engine`. What is pretended: its `Config` reads a model and
is a plain record here; the package `transformers`, which its file imports for that, is stood in for where it is
missing; `ModelRunner` is the device, and slots are computed as its `prepare_prefill` and `prepare_decode` do.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from ...simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    StepResults,
)
from .engine import NanoEngine, load
from .target import BLOCK_SIZES

NEVER = -1
"""A token that is never sampled: the engine knows one token that ends all requests."""


class NanoVllmEngine:
    """An engine without its device. It has no cancel, and stop tokens only one for all."""

    name = "nano-vllm"
    lacks = frozenset({"cancel", "stops", "uncached"})
    block_sizes = tuple(sorted(BLOCK_SIZES))

    def __init__(self, engine: NanoEngine, scheduler: Any, *, checks_length: bool = False) -> None:
        """`checks_length`: requests that can never be served are refused before the engine sees them."""
        self._engine, self._make, self._checks_length = engine, scheduler, checks_length
        self.remedies = {} if checks_length else {"too-large-ends-all": lambda: self._repaired()}

    def _repaired(self) -> "NanoVllmEngine":
        return NanoVllmEngine(self._engine, self._make, checks_length=True)

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._size, self._shape = shape.groups[0].block_size, shape
        self._engine.sequence.block_size = self._size
        config = SimpleNamespace(
            max_num_seqs=shape.max_requests,
            max_num_batched_tokens=shape.max_tokens,
            eos=NEVER,
            kvcache_block_size=self._size,
            num_kvcache_blocks=shape.num_blocks,
        )
        self._scheduler = self._make(config)
        self._names: dict[int, str] = {}
        self._preempted: list[str] = []
        preempt = self._scheduler.preempt

        def noted(sequence: Any) -> None:
            self._preempted.append(self._names[sequence.seq_id])
            preempt(sequence)

        self._scheduler.preempt = noted

    def add(self, request: ClientRequest) -> tuple[Delivered, ...]:
        """See `Engine`; as `LLMEngine.add_request`."""
        longest = len(request.prompt) + request.max_tokens
        if self._checks_length and -(-longest // self._size) > self._shape.num_blocks:
            return (Delivered(request.id, ended="refused", why="it never fits"),)
        sampling = self._engine.sampling(max_tokens=request.max_tokens, ignore_eos=True)
        sequence = self._engine.sequence(list(request.prompt), sampling)
        self._names[sequence.seq_id] = request.id
        self._scheduler.add(sequence)
        return ()

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`; the first half of `LLMEngine.step`."""
        if self._scheduler.is_finished():
            return None
        self._preempted.clear()
        sequences, is_prefill = self._scheduler.schedule()
        parts = tuple(self._part(sequence, is_prefill) for sequence in sequences)
        return ScheduledBatch(parts, preempted=tuple(self._preempted), own=(sequences, is_prefill))

    def _part(self, sequence: Any, is_prefill: bool) -> Scheduled:
        first = sequence.num_cached_tokens if is_prefill else len(sequence) - 1
        count = sequence.num_scheduled_tokens if is_prefill else 1
        table, written = tuple(sequence.block_table), None
        if not is_prefill:
            written = {first: table[-1] * self._size + sequence.last_block_num_tokens - 1}
        return Scheduled(
            self._names[sequence.seq_id],
            first,
            count,
            slots=(Slots(table, written=written),),
            tokens=tuple(sequence[first : first + count]) if is_prefill else (sequence.last_token,),
            samples=first + count == len(sequence),
        )

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        """See `Engine`; the second half of `LLMEngine.step`."""
        assert batch is not None
        sequences, is_prefill = batch.own
        before = [len(sequence) for sequence in sequences]
        sampled = [results.tokens[part.request] for part in batch.parts]
        self._scheduler.postprocess(sequences, [tokens[0] if tokens else 0 for tokens in sampled], is_prefill)
        return [
            Delivered(part.request, tuple(sequence[known:]), "length" if sequence.is_finished else "")
            for part, sequence, known in zip(batch.parts, sequences, before, strict=True)
            if len(sequence) > known
        ]

    def idle(self) -> bool:
        """See `Engine`."""
        return bool(self._scheduler.is_finished())

    def look(self) -> EngineView:
        """See `Engine`."""
        return EngineView(free=len(self._scheduler.block_manager.free_block_ids))


def make_engine() -> NanoVllmEngine:
    """The engine of the checkout. ImportError, with what to do, if there is none, or it is too old: its scheduler
    computes prompts in pieces since 8d63a98."""
    engine = load()
    if not (engine.registers_after_step and engine.chunks_prompts):
        raise ImportError("this commit's scheduler is not driven; name a checkout of f64d821 or a later one")
    if find_spec("transformers") is None:
        stand_in: Any = ModuleType("transformers")
        stand_in.AutoConfig = object
        sys.modules["transformers"] = stand_in
    return NanoVllmEngine(engine, import_module("nanovllm.engine.scheduler").Scheduler)


def make_repaired() -> NanoVllmEngine:
    """The same, with what can never be served refused."""
    return make_engine()._repaired()
