"""Requests that load from outside are admitted together and then wait for each other's blocks for ever.

Full attention and a sliding window, and a connector that loads while the request waits. Both requests are admitted
because, for a window, the scheduler takes the blocks that are still needed to be the blocks that are needed at most
less the length of the block table; that length includes the null blocks which the loaded prefix left behind. When the
loads are in, each request needs more than is free, and neither can be preempted, since neither runs.

First a small engine, then one like gpt-oss: windows of 128, 2 requests of 60,000 loaded and 6,000 new tokens, steps of
8192 tokens. With `--sweep` also more pools, and engines like Gemma 3: five windows of 1024, 8 requests of 12,000 loaded
and a few hundred to 2,800 new tokens, steps of 2048 tokens.
"""

# The engine without a device. This part is the same in every script: the engine's own configuration, input processing,
# start-up and step loop (EngineCore), over an executor that computes nothing and answers each request with token 7.

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from inspect import signature
from typing import Any, ClassVar

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm.platforms
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.version import __version__ as release

type(vllm.platforms.current_platform).support_hybrid_kv_cache = classmethod(lambda platform: True)  # as GPUs do


def make(kind: Any, **options: Any) -> Any:
    """Calls `kind` with those of the options that this release has."""
    return kind(**{name: value for name, value in options.items() if name in signature(kind).parameters})


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
        names = list(scheduler_output.num_scheduled_tokens)
        places = {name: place for place, name in enumerate(names)}
        answer = make(
            ModelRunnerOutput,
            req_ids=names,
            req_id_to_index=places,
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=KVConnectorOutput(finished_recving=set(self.arrived)) if self.arrived else None,
        )
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
    """The cache spec of an attention layer: 4096 bytes for a block of 16 tokens."""
    return getattr(specs, kind)(block_size=block_size, num_kv_heads=1, head_size=64, dtype=torch.float16, **more)


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


def main(case: Callable[[], tuple[str, str, bool]], fix: Callable[[], None] = lambda: None) -> None:
    """Tells what `case` expects, what happens, and whether the defect shows; exits with 1 if it does, 0 if it does not,
    and 3 if the case could not be tried. With `--fixed`, `fix` changes the engine before."""
    fixed = "--fixed" in sys.argv
    print(f"vLLM {release}{', with the change' if fixed else ''}", flush=True)
    try:
        if fixed:
            fix()
        expected, happened, shows = case()
    except Exception as error:
        print(f"could not be tried: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        sys.exit(3)
    print(f"expected: {expected}\nhappened: {happened}")
    print("the defect shows" if shows else "the defect does not show", flush=True)
    sys.exit(int(shows))


# The case.

import random
import runpy

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA


class Store(KVConnectorBase_V1, SupportsHMA):
    """Has as many first tokens of a prompt as its `kv_transfer_params` say, and loads them within one step."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens that can be loaded, asynchronously."""
        more = (request.kv_transfer_params or {}).get("stored", 0) - num_computed_tokens
        return max(0, more), more > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The load begins; it has ended at the end of the step."""
        if num_external_tokens:
            NoDevice.arrived.add(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing to tell a worker."""
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """The blocks can be freed at once."""
        return False, None

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        """For workers."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """For workers."""

    def save_kv_layer(self, *given: Any, **more: Any) -> None:
        """For workers."""

    def wait_for_save(self) -> None:
        """For workers."""


Mix = tuple[Sequence[int], tuple[int, int], tuple[int, int], Sequence[tuple[int, int]]]
"""Pools in blocks; window and number of window layers; max_model_len and max_num_batched_tokens; the requests, each
with its tokens (loaded, new)."""


def left(mix: Mix, blocks: int, requests: Sequence[tuple[int, int]]) -> list[str]:
    """The requests that have not ended after 400 steps, in a pool of so many blocks."""
    _, (window, count), (length, batch), _ = mix
    layers = {"full": layer("FullAttentionSpec")}
    layers |= {f"window {number}": layer("SlidingWindowSpec", sliding_window=window) for number in range(count)}
    connector = KVTransferConfig(kv_connector="Store", kv_connector_module_path="__main__", kv_role="kv_both")
    hybrid = {"disable_hybrid_kv_cache_manager": False}
    engine = start(layers, blocks, length, batch, kv_transfer_config=connector, scheduling=hybrid)
    for number, (stored, new) in enumerate(requests):
        first = 1 + 10_000 * (number % 8)
        more = {"kv_transfer_params": {"stored": stored}}
        submit(engine, f"request {number}", range(first, first + stored + new), extra_args=more)
    run(engine, 400)
    return [f"{name} ({request.status.name})" for name, request in engine.scheduler.requests.items()]


def starve(mix: Mix, blocks: int) -> list[str]:
    """The requests that block each other for ever, though each of them ends if it is alone. Else nothing."""
    names = left(mix, blocks, mix[3])
    alone = names and [name for request in dict.fromkeys(mix[3]) for name in left(mix, blocks, [request])]
    return names if not alone else []


def mixes() -> dict[str, Mix]:
    """What is tried; with `--sweep` more of it."""
    tried: dict[str, Mix] = {
        "small": (range(48, 80, 2), (64, 1), (512, 128), [(256, 144), (320, 180)]),
        "like gpt-oss": (range(7700, 8301, 40), (128, 1), (67_000, 8192), 2 * [(60_000, 6_000)]),
    }
    if "--sweep" not in sys.argv:
        return tried
    tried["like gpt-oss, more pools"] = (range(5000, 8901, 300), *tried["like gpt-oss"][1:])
    gemma = (range(4000, 8801, 400), (1024, 5), (20_000, 2048))
    for seed in range(5):
        new = [random.Random(f"{seed}/{number}").randrange(200, 2800) for number in range(8)]
        tried[f"like Gemma 3, new text of {new}"] = (*gemma, [(12_000, tokens) for tokens in new])
    return tried


def case() -> tuple[str, str, bool]:
    """Requests at a time, in pools of many sizes."""
    found = []
    for name, mix in mixes().items():
        stuck = {blocks: names for blocks in mix[0] if (names := starve(mix, blocks))}
        told = f": {[*stuck]}, for ever: {', '.join(next(iter(stuck.values())))}" if stuck else ""
        found.append((len(stuck), f"{name}: nothing moves any more in {len(stuck)} of {len(mix[0])} pools{told}"))
        if "--sweep" in sys.argv:
            print(found[-1][1], flush=True)
    return (
        "the requests end, in every pool in which each of them does",
        "; ".join(text for _, text in found),
        any(count for count, _ in found),
    )


def fix() -> None:
    """The change that fix.py has beside this script."""
    runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fix.py"))["fix"]()


main(case, fix)
