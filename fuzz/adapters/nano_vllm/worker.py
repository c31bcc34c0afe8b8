"""nano-vllm's model runner without a device: it prepares each step as it does on a GPU, and what its kernels would get
is read off.

`ModelRunner` runs unchanged, captured graphs included: of a step it makes token ids, positions, slots and block tables.
Under it, torch is arrays of numpy; the model and the sampler compute nothing; a graph that is replayed shows the
buffers with which it was captured.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ...simulation.protocol import Scheduled, Slots

STOOD_IN = (
    *("torch", "torch.distributed", "torch.multiprocessing"),
    *("nanovllm.config", "nanovllm.models.qwen3", "nanovllm.layers.sampler", "nanovllm.utils.loader"),
)
"""Modules that the scheduler and the runner import, and of which no more than names are needed."""


class HostArray(np.ndarray):
    """A tensor, as far as the runner uses one."""

    def cuda(self, non_blocking: bool = False) -> "HostArray":
        """Itself: there is one memory."""
        return self

    def size(self, axis: int) -> int:  # type: ignore[override]  # as tensors have it
        """Its length along an axis."""
        return int(self.shape[axis])

    def fill_(self, value: int) -> None:
        """Every element is `value`."""
        self.fill(value)

    def zero_(self) -> None:
        """Every element is 0."""
        self.fill(0)


def _array(values: Any, dtype: Any = None, pin_memory: bool = False) -> HostArray:
    return np.array(values, dtype).view(HostArray)


def _zeros(*shape: int, dtype: Any = np.float32) -> HostArray:
    return np.zeros(shape, dtype).view(HostArray)


class _Names(ModuleType):
    """A module of which only names are used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _torch() -> ModuleType:
    torch: Any = _Names("torch")
    torch.Tensor, torch.tensor, torch.zeros = HostArray, _array, _zeros
    torch.int32, torch.int64, torch.float32 = np.int32, np.int64, np.float32
    torch.inference_mode = lambda: lambda function: function
    return torch  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NanoClasses:
    """What a step of the engine is made with."""

    scheduler: Any
    """`Scheduler`."""
    runner: Any
    """`ModelRunner`."""
    context: Any
    """The module in which the runner leaves what attention needs."""
    torch: Any
    """What stands in for torch there."""


@cache
def classes() -> NanoClasses:
    """Those of the checkout; `nanovllm` is entered already."""
    torch = _torch()
    with _modules({name: torch if name == "torch" else _Names(name) for name in STOOD_IN}):
        scheduler = import_module("nanovllm.engine.scheduler").Scheduler
        runner = import_module("nanovllm.engine.model_runner").ModelRunner
        return NanoClasses(scheduler, runner, import_module("nanovllm.utils.context"), torch)


@contextmanager
def _modules(others: dict[str, ModuleType]) -> Iterator[None]:
    """These modules are imported instead of real ones; as before behind it."""
    before = {name: sys.modules.get(name) for name in others}
    sys.modules |= others
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class _Graph:
    """A captured graph: replayed, it runs over the buffers that the model saw at its capture."""

    def __init__(self, worker: "NanoWorker") -> None:
        self._worker = worker
        self.captured: Any = None

    def pool(self) -> None:
        """There is no pool of memory."""

    def replay(self) -> None:
        """The kernels get what lies in the buffers now."""
        self._worker.seen = self.captured


class NanoWorker:
    """The runner of one engine; it is its model and its sampler, too."""

    def __init__(self, config: Any) -> None:
        """`config`: as the engine's, with `enforce_eager`, without which graphs are captured."""
        nano = classes()
        runner, self._context, self._torch = nano.runner, nano.context, nano.torch
        self._size: int = config.kvcache_block_size
        self.seen: Any = None
        self._runner = runner.__new__(runner)  # its own __init__ begins with a GPU
        vars(self._runner).update(
            config=SimpleNamespace(**vars(config), hf_config=SimpleNamespace(hidden_size=1)),
            block_size=self._size,
            enforce_eager=config.enforce_eager,
            world_size=1,
            rank=0,
            model=self,
            sampler=lambda logits, temperatures: np.zeros(len(temperatures), int),
        )
        if not config.enforce_eager:
            self._capture()

    def _capture(self) -> None:
        @contextmanager
        def captured(graph: _Graph, pool: None) -> Iterator[None]:
            yield
            graph.captured = self.seen

        self._torch.cuda = SimpleNamespace(CUDAGraph=lambda: _Graph(self), graph=captured, synchronize=lambda: None)
        self._runner.capture_cudagraph()

    def __call__(self, input_ids: HostArray, positions: HostArray) -> HostArray:
        """The model: notes what its kernels get, and computes nothing."""
        self.seen = (input_ids, positions, self._context.get_context())
        return _zeros(len(input_ids), 1)

    def compute_logits(self, hidden: HostArray) -> HostArray:
        """They are as they are."""
        return hidden

    def parts(self, sequences: Sequence[Any], is_prefill: bool, names: Sequence[str]) -> tuple[Scheduled, ...]:
        """Has the runner run a step; returns what its kernels would get for each of these sequences."""
        self._runner.run(sequences, is_prefill)
        input_ids, positions, context = self.seen
        rows = [1] * len(names)
        seen = context.context_lens
        if is_prefill:
            rows, seen = list(np.diff(context.cu_seqlens_q)), np.diff(context.cu_seqlens_k)
        parts, at = [], 0
        for number, (name, many) in enumerate(zip(names, map(int, rows), strict=True)):
            first = int(positions[at]) if many else int(seen[number])
            written = {first + i: slot for i, slot in enumerate(context.slot_mapping[at : at + many].tolist())}
            tokens = tuple(input_ids[at : at + many].tolist())
            table = None if context.block_tables is None else context.block_tables[number].tolist()
            slots = self._read(table, int(seen[number]), first + many, written)
            parts.append(Scheduled(name, first, many, slots=(slots,), tokens=tokens))
            at += many
        return tuple(parts)

    def _read(self, table: list[int] | None, keys: int, end: int, written: dict[int, int]) -> Slots:
        """Where the queries up to position `end - 1` read so many keys: the last query sees the last key, and so on
        down; without a table, they read what the step itself computes."""
        written = {position: slot for position, slot in written.items() if slot >= 0}
        if table is None:
            return Slots(at=written, written=written)
        if keys == end:
            return Slots(tuple(None if block < 0 else block for block in table), written=written)
        size, moved = self._size, end - keys
        at = {key + moved: table[key // size] * size + key % size for key in range(keys) if key < len(table) * size}
        return Slots(at={position: slot for position, slot in at.items() if position >= 0}, written=written)
