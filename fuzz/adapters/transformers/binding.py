"""Imports an installed transformers and builds the manager and batch processor of its continuous batching on a CPU.

Scheduler, paged cache, allocators, offloading, input and output tensors, and the order of a pass are the release's own.
Pretended, since there is no GPU:

* streams and events: whatever is given to a stream is done at once, in the order of the calls;
* pinned memory is plain memory, and the CPU's memory for offloading is as large as is asked for;
* flash attention is named in the configuration, so that no attention masks are built; kernels that take block tables
  are there if `fast` is drawn;
* the model: no forward pass runs, our device samples. With a `worker`, a tiny random Llama runs as it is, on
  `scaled_dot_product_attention` and in double precision, so that how requests are batched changes no token.

Left out: the thread, and `__del__` of the processor, which collects garbage.
"""

import importlib
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from ...simulation.protocol import EngineShape
from .remedies import Mending

_PACKAGE = "transformers.generation.continuous_batching"
_HEADS, _HEAD_SIZE, VOCABULARY = 1, 8, 128


class _Stream:
    """A stream whose work is done as soon as it is given."""

    def synchronize(self) -> None: ...

    def record_event(self, event: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...


@dataclass(frozen=True)
class Built:
    """One manager with its batch processor."""

    manager: Any
    processor: Any

    @property
    def allocators(self) -> list[Any]:
        """One for each group of the shape, in its order."""
        return list(self.processor.cache.cache_allocators.values())


class TransformersRelease:
    """The modules of an installed transformers that the adapter uses, and how an engine is built from them."""

    def __init__(self) -> None:
        """ImportError, or whatever else a failing import raises, if transformers cannot be imported here."""
        logging.disable(logging.CRITICAL)
        self.version = version("transformers")
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(1)
        self.own: Any = importlib.import_module("transformers")
        self._api = _module("continuous_api")
        self.statuses = _module("requests").RequestStatus
        self._settings = importlib.import_module("transformers.generation.configuration_utils")
        self._pretend()
        self.mending = Mending(
            (
                self._api.ContinuousBatchingManager,
                self._api.ContinuousBatchProcessor,
                self._api.OutputRouter,
                _module("cache").PagedAttentionCache,
                _module("input_outputs").ContinuousBatchingAsyncIOs,
                _module("offloading_manager").OffloadingManager,
                _module("scheduler").Scheduler,
            )
        )

    def _pretend(self) -> None:
        ios, offloading = _module("input_outputs"), _module("offloading_manager")
        ios.ContinuousBatchingAsyncIOs._supported_device_types = ("cpu",)
        ios.create_device_stream = lambda device: _Stream()
        for module in (self._api, ios, offloading, _module("model_runner")):
            module.stream_context = lambda stream: nullcontext()
        plain = SimpleNamespace(**vars(self.torch))
        plain.empty = lambda *size, pin_memory=False, **rest: self.torch.empty(*size, **rest)
        offloading.torch = plain
        offloading.is_psutil_available = lambda: False
        del self._api.ContinuousBatchProcessor.__del__

    def build(self, shape: EngineShape, worker: bool) -> Built:
        """A manager and its processor for this shape. NotImplementedError, with the reason, if there are none."""
        _require_buildable(shape)
        options, page = dict[str, Any](shape.options), shape.groups[0].block_size
        layers = tuple(1 if number == 0 else options.get("ratio", 1) for number in range(len(shape.groups)))
        model = self._model(shape, layers, worker)
        block = 2 * sum(layers) * _HEADS * _HEAD_SIZE * model.dtype.itemsize * page
        config = self._settings.ContinuousBatchingConfig(
            page_size=page,
            num_blocks=shape.num_blocks,
            max_batch_tokens=shape.max_tokens,
            max_requests_per_batch=shape.max_requests,
            allow_block_sharing=shape.core.caching,
            use_async_batching=bool(options.get("asynchronous")),
            scheduler_type=options.get("scheduler", "fifo"),
            safety_margin=(None, 0.0, 0.3)[options.get("margin", 0)],
            cpu_offload_space=options.get("swap", 0) * block / 2**30,
            max_blocks_per_request=0,
            seed=0,
        )
        sampling = self._settings.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        manager = self._api.ContinuousBatchingManager(model, sampling, config)
        if options.get("fast") and not worker and all(group.kind == "full" for group in shape.groups):
            manager.continuous_batching_config.max_blocks_per_request = -(-shape.max_length // page) // 2 + 1
        processor = manager.batch_processor = manager._create_batch_processor()
        return Built(manager, processor)

    def _model(self, shape: EngineShape, layers: tuple[int, ...], worker: bool) -> Any:
        """The model with the shape's groups of layers; without a worker its configuration alone."""
        kinds = [
            f"{group.kind}_attention" for group, count in zip(shape.groups, layers, strict=True) for _ in range(count)
        ]
        window = next((group.window for group in shape.groups if group.window), None)
        config = self.own.Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=2 * _HEAD_SIZE,
            intermediate_size=16,
            num_hidden_layers=len(kinds),
            num_attention_heads=2,
            num_key_value_heads=_HEADS,
            max_position_embeddings=4096,
            layer_types=kinds,
            use_sliding_window=window is not None,
            sliding_window=window,
            attn_implementation="sdpa" if worker else "flash_attention_2",
        )
        if worker:
            self.torch.manual_seed(0)
            return self.own.Qwen2ForCausalLM(config).eval().to(self.torch.float64)
        return _stub(self.torch, config)


def _stub(torch: Any, config: Any) -> Any:
    """What the manager asks of a model that never runs."""
    config._attn_implementation = "flash_attention_2"
    stub = SimpleNamespace(config=config, dtype=torch.float16, device=torch.device("cpu"))
    stub.eval = lambda: stub
    stub._get_logits_processor = lambda generation: []
    return stub


@cache
def load() -> TransformersRelease:
    """The transformers of this interpreter; errors as for `TransformersRelease`."""
    return TransformersRelease()


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _require_buildable(shape: EngineShape) -> None:
    kinds = "+".join(group.kind for group in shape.groups)
    if kinds not in ("full", "sliding", "full+sliding"):
        raise NotImplementedError(f"attention {kinds}: there is full, sliding and full+sliding")
    if len({group.block_size for group in shape.groups}) > 1:
        raise NotImplementedError("groups with different block sizes: there is one page size")
    if shape.groups[0].block_size < 4:
        raise NotImplementedError(f"pages of {shape.groups[0].block_size} tokens: 4 is the least")
