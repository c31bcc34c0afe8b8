"""nano-vllm under simulation: its own scheduler, block manager and model runner run, at the commit of a checkout.

`--target blockproof.fuzz.adapters.nano_vllm.simulated:make_engine`. What is pretended: its `Config` reads a model and
is a plain record here; what lies under the runner (`worker`); and the three lines of `LLMEngine.step`, which are played
here, since the tokens come from our device.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from ....model.arith import cdiv
from ...simulation.protocol import ClientRequest, Delivered, EngineShape, EngineView, ScheduledBatch, StepResults
from .engine import NanoEngine, load
from .target import BLOCK_SIZES
from .worker import NanoWorker, classes

NEVER = -1
"""A token that is never sampled."""


def _never_fits(request: ClientRequest, shape: EngineShape) -> bool:
    computed = len(request.prompt) + request.max_tokens - 1
    return cdiv(computed, shape.groups[0].block_size) > shape.num_blocks


def _too_long(request: ClientRequest, shape: EngineShape) -> bool:
    return len(request.prompt) + request.max_tokens > shape.max_length


TAKEN: Mapping[str, Callable[[ClientRequest, EngineShape], bool]] = {
    "too-large-ends-all": _never_fits,
    "longer-than-the-model-ends-all": _too_long,
}
"""Known defects, each that such a request is taken; without it, it is refused before the engine sees it."""


class NanoVllmEngine:
    """An engine without its device. It has no cancel."""

    name = "nano-vllm"
    lacks = frozenset({"cancel", "uncached"})
    block_sizes = tuple(sorted(BLOCK_SIZES))
    options: Mapping[str, tuple[bool, ...]] = {"graphs": (False, True)}
    """With captured graphs or `enforce_eager`."""

    def __init__(self, engine: NanoEngine, mended: tuple[str, ...] = ()) -> None:
        """`mended`: of `TAKEN`, what it refuses."""
        self._engine, self._mended = engine, mended
        left = [name for name in TAKEN if name not in mended]
        self.remedies = {name: partial(NanoVllmEngine, engine, (*mended, name)) for name in left}

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._size, self._shape = shape.groups[0].block_size, shape
        self._engine.sequence.block_size = self._size
        config = SimpleNamespace(
            max_num_seqs=shape.max_requests,
            max_num_batched_tokens=shape.max_tokens,
            max_model_len=shape.max_length,
            enforce_eager=not shape.options["graphs"],
            eos=NEVER,
            kvcache_block_size=self._size,
            num_kvcache_blocks=shape.num_blocks,
        )
        self._scheduler = classes().scheduler(config)
        self._worker = NanoWorker(config)
        self._requests: dict[int, ClientRequest] = {}
        self._preempted: list[str] = []
        preempt = self._scheduler.preempt

        def noted(sequence: Any) -> None:
            self._preempted.append(self._requests[sequence.seq_id].id)
            preempt(sequence)

        self._scheduler.preempt = noted

    def add(self, request: ClientRequest) -> tuple[Delivered, ...]:
        """See `Engine`; as `LLMEngine.add_request`."""
        if why := next((name for name in self._mended if TAKEN[name](request, self._shape)), ""):
            return (Delivered(request.id, ended="refused", why=why),)
        sampling = self._engine.sampling(max_tokens=request.max_tokens, ignore_eos=not request.stop)
        sequence = self._engine.sequence(list(request.prompt), sampling)
        self._requests[sequence.seq_id] = request
        self._scheduler.add(sequence)
        return ()

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`; the first half of `LLMEngine.step`."""
        if self._scheduler.is_finished():
            return None
        self._preempted.clear()
        sequences, is_prefill = self._scheduler.schedule()
        names = [self._requests[sequence.seq_id].id for sequence in sequences]
        parts = self._worker.parts(sequences, is_prefill, names)
        return ScheduledBatch(parts, preempted=tuple(self._preempted), own=(sequences, is_prefill))

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        """See `Engine`; the second half of `LLMEngine.step`. `postprocess` takes one sequence after the other: between
        them the one end token that the engine knows becomes that of the next client."""
        assert batch is not None
        told, (sequences, is_prefill) = [], batch.own
        phase = (is_prefill,) if self._engine.chunks_prompts else ()
        for part, sequence in zip(batch.parts, sequences, strict=True):
            request, known = self._requests[sequence.seq_id], len(sequence)
            token = next(iter(results.tokens[part.request]), 0)
            ends = token in request.stop
            self._scheduler.eos = token if ends else NEVER
            self._scheduler.postprocess([sequence], [token], *phase)
            if len(sequence) > known:
                ended = ("stop" if ends else "length") if sequence.is_finished else ""
                told.append(Delivered(part.request, tuple(sequence[known:]), ended))  # type: ignore[arg-type]
        return told

    def idle(self) -> bool:
        """See `Engine`."""
        return bool(self._scheduler.is_finished())

    def look(self) -> EngineView:
        """See `Engine`."""
        return EngineView(len(self._scheduler.block_manager.free_block_ids), self._shape.num_blocks)


def make_engine() -> NanoVllmEngine:
    """The engine of the checkout. ImportError, with what to do, if there is none."""
    engine = load()
    classes()
    return NanoVllmEngine(engine)


def make_repaired() -> NanoVllmEngine:
    """The same, with what can never be served refused."""
    return NanoVllmEngine(make_engine()._engine, tuple(TAKEN))
