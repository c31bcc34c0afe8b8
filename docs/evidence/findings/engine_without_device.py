"""The engine without a device, the same in every script: the engine's own configuration, input processing, start-up and
step loop (EngineCore), over an executor that computes nothing and answers each request with token 7.

It says how vLLM is to be imported, so it comes before anything else of vLLM.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from inspect import signature
from typing import Any, ClassVar

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm.platforms
from verdict import tell
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.version import __version__ as release

type(vllm.platforms.current_platform).support_hybrid_kv_cache = classmethod(lambda platform: True)  # as GPUs do


def make(kind: Any, **options: Any) -> Any:
    """Calls `kind` with those of the options that this release has."""
    return kind(**{name: value for name, value in options.items() if name in signature(kind).parameters})


def answered(names: Iterable[str], sampled: Sequence[Sequence[int]], **more: Any) -> Any:
    """What a worker answers to a step: the tokens that it has sampled for each of these requests."""
    places = {name: place for place, name in enumerate(names)}
    nothing = {"logprobs": None, "prompt_logprobs_dict": {}, "pooler_output": []}
    return make(
        ModelRunnerOutput,
        req_ids=list(places),
        req_id_to_index=places,
        sampled_token_ids=sampled,
        **nothing,
        **more,
    )


class NoDevice(Executor):
    """Stands in for the workers. `layers`: the cache spec of each layer; `memory`: bytes for the cache;
    `arrived`: requests whose loads have ended since the last step, for a connector to fill."""

    layers: Mapping[str, Any]
    memory: int
    arrived: ClassVar[set[str]] = set()

    def _init_executor(self) -> None:
        self.known: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.steps: list[Any] = []

    def collective_rpc(self, method: Any, timeout: Any = None, args: Any = (), *rest: Any, **more: Any) -> Any:
        """What each worker answers, and here there is one."""
        answer = [getattr(self, f"_{method}", lambda *given: None)(*args)]
        if more.get("non_block"):
            done: Future[Any] = Future()
            done.set_result(answer)
            return done
        return answer

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """A token for each request whose known tokens are computed at the end of the step."""
        self.steps.append(scheduler_output)
        begun = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        self.served = {**begun, **self.served}
        self.known |= {new.req_id: len(new.prompt_token_ids) for new in scheduler_output.scheduled_new_reqs}
        cached = scheduler_output.scheduled_cached_reqs
        begun |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        sampled = []
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            ends = begun[name] + tokens >= self.known[name]
            self.known[name] += ends
            sampled.append([7] if ends else [])
        arrived = KVConnectorOutput(finished_recving=set(self.arrived)) if self.arrived else None
        answer = answered(scheduler_output.num_scheduled_tokens, sampled, kv_connector_output=arrived)
        self.arrived.clear()
        if non_block:
            done: Future[Any] = Future()
            done.set_result(answer)
            return done
        return answer

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """There is no memory to prepare."""

    def compile_or_warm_up_model(self) -> None:
        """There is no model."""

    def check_health(self) -> None:
        """Nothing can break."""

    def _get_kv_cache_spec(self) -> Any:
        return self.layers

    def _determine_available_memory(self) -> int:
        return self.memory

    def _take_draft_token_ids(self) -> Any:
        """Drafts for the requests of the last step, all of them wrong: no answer has token 0."""
        names = list(self.steps[-1].num_scheduled_tokens)
        return DraftTokenIds(names, [[0] * self.vllm_config.num_speculative_tokens for _ in names])

    def _get_supported_kv_cache_layouts(self) -> list[str]:
        return ["NHD"]


def layer(kind: str, block_size: int = 16, **more: Any) -> Any:
    """The cache spec of an attention layer: 4096 bytes for a block of 16 tokens, unless there are more heads."""
    small = {"num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}
    return getattr(specs, kind)(block_size=block_size, **(small | more))


def mamba(block_size: int = 16, **more: Any) -> Any:
    """The cache spec of a Mamba layer in mode align: 4096 bytes for a state, however many tokens it stands for."""
    align = {"mamba_cache_mode": "align", **more}
    return specs.MambaSpec(block_size=block_size, shapes=((2048,),), dtypes=(torch.float16,), **align)


def model_in(folder: str) -> str:
    """The folder, with the configuration of a small text model in it."""
    text = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100_000, **text}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**model, "max_position_embeddings": 1 << 20}, file)
    return folder


def start(layers: Mapping[str, Any], blocks: int, length: int, batch: int, **options: Any) -> Any:
    """The engine with these layers, in a pool of so many blocks; `length` and `batch` are max_model_len and
    max_num_batched_tokens, `drafts` the draft tokens of an Eagle head, `device` another stand-in for the workers."""
    model = ModelConfig(
        model=model_in(tempfile.mkdtemp()),
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=length,
        generation_config="vllm",
    )
    if drafts := options.pop("drafts", 0):
        options["speculative_config"] = SpeculativeConfig(
            method="eagle",
            model=model_in(tempfile.mkdtemp()),
            num_speculative_tokens=drafts,
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
        )
    stand_in = options.pop("device", NoDevice)
    cache = {"block_size": 16, "enable_prefix_caching": True}
    config = make(
        VllmConfig,
        model_config=model,
        cache_config=CacheConfig(**(cache | options.pop("cache", {}))),
        scheduler_config=SchedulerConfig(
            max_num_seqs=64,
            max_num_batched_tokens=batch,
            max_model_len=length,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            **({"async_scheduling": False} | options.pop("scheduling", {})),
        ),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig(device="cpu"),
        **options,
    )
    page = max(spec.page_size_bytes for spec in layers.values())
    device = type("Device", (stand_in,), {"layers": layers, "memory": blocks * page})
    engine = EngineCore(config, device, log_stats=False)
    engine.inputs = InputProcessor(config)
    return engine


def connected(connector: str | None, **more: Any) -> dict[str, Any]:
    """Options of `start` for an engine with this connector, and with groups of several kinds beside it: these it has
    only if it is asked for them."""
    config = KVTransferConfig(kv_connector=connector, kv_role="kv_both", **more) if connector else None
    return {"kv_transfer_config": config, "scheduling": {"disable_hybrid_kv_cache_manager": False}}


def submit(engine: Any, name: str, tokens: Sequence[int], answer: int = 4, **more: Any) -> None:
    """A request comes in, through the engine's own input processing. `prompt`: more fields of the prompt."""
    prompt = {"type": "token", "prompt_token_ids": list(tokens), **more.pop("prompt", {})}
    params = SamplingParams(max_tokens=answer, ignore_eos=True, extra_args=more.pop("extra_args", None))
    request = engine.inputs.process_inputs(name, prompt, params, supported_tasks=("generate",), **more)
    engine.add_request(*engine.preprocess_add_request(request))


def run(engine: Any, steps: int = 1000) -> None:
    """Runs the step loop until nothing is left to do, for at most so many steps."""
    while engine.scheduler.has_unfinished_requests() and steps:
        _, executed = engine.step_fn()
        engine.post_step(executed)
        steps -= 1


def tables(engine: Any, name: str) -> list[list[int]]:
    """The block table of a request in each group, as the workers were told so far."""
    told: list[list[int]] = []
    for step in engine.model_executor.steps:
        begun = [new.block_ids for new in step.scheduled_new_reqs if new.req_id == name]
        told = [list(ids) for ids in begun[0]] if begun else told
        cached = step.scheduled_cached_reqs
        for request, new in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request == name and new is not None:
                resumed = name in cached.resumed_req_ids
                told = [[*(() if resumed else old), *ids] for old, ids in zip(told, new, strict=True)]
    return told


def served(engine: Any, name: str) -> int:
    """Leading tokens of the request that were taken from the cache, or from a connector, when it first ran."""
    return engine.model_executor.served[name]


def repeated(engine: Any, length: int) -> int:
    """Tokens of a prompt of this length that are served from the cache when it comes a second time."""
    for name in ("first", "second"):
        submit(engine, name, range(1, length + 1))
        run(engine)
    return served(engine, "second")


def with_eagle(hit: Callable[[int], int], length: int, block: int) -> tuple[str, str, bool]:
    """A case: an Eagle head of 2 draft tokens may cost a repeated prompt of this length one block. `hit`: tokens that
    are served from the cache with so many draft tokens."""
    without, eagle = hit(0), hit(2)
    return (
        f"with Eagle a repeated prompt hits at most one block of {block} less than without",
        f"of {length} tokens {eagle} are hit with Eagle, {without} without",
        eagle + block < without,
    )


def group(engine: Any, kind: str) -> int:
    """Which of the groups is that of the layers of this kind."""
    kinds = [type(group.kv_cache_spec).__name__ for group in engine.scheduler.kv_cache_config.kv_cache_groups]
    return kinds.index(kind)


def take_items(engine: Any) -> None:
    """The model is a text model, so that no files are needed; give it the room for items that a model with images or
    sound has."""
    engine.scheduler.max_num_encoder_input_tokens = engine.inputs.mm_encoder_cache_size = 1 << 20
    engine.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=1 << 20)


def death(engine: Any, wanted: str) -> str:
    """Runs the step loop. Type and text of the exception that ends it, which must be the wanted one; empty if none."""
    try:
        run(engine)
    except Exception as error:
        if (how := f"{type(error).__name__}: {error}") != wanted:
            raise RuntimeError(f"the engine ends with another exception: {how}") from error
        return how
    return ""


def main(case: Callable[[], tuple[str, str, bool]], fix: Callable[[], None] = lambda: None) -> None:
    """Tells what `case` expects, what happens, and whether the defect shows; see `tell`."""
    tell(lambda: f"vLLM {release}", case, fix)
