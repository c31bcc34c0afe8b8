"""A prompt that another engine has computed is loaded whole, and its last token is computed without the beginning of
its window.

Prefill and decode in two engines (NixlConnector), full attention and a sliding window. The decoding engine asks for all
N tokens of the prompt, and the scheduler allocates as if N tokens were computed: of the window it keeps what the token
at position N will read. When the load is in, the scheduler goes back to N - 1 computed tokens, and the token at
position N - 1 reads one position further back. If that position is the last one of a block, the block is the null
block. With chunked local attention, and a prompt that ends with its chunk, the whole chunk is null blocks.

Only the engine's own scheduler, start-up and connector run here; the other engine is a set of block ids.
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

import runpy

from vllm.config import KVTransferConfig


class Loads(NoDevice):
    """A worker whose loads end with the step that asks for them."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """The step, and the loads that its metadata ask for."""
        metadata = scheduler_output.kv_connector_metadata
        self.arrived.update(getattr(metadata, "reqs_to_recv", ()))
        return super().execute_model(scheduler_output, non_block)


def unread(spec: Any, span: int, lengths: Sequence[int], loaded: bool) -> dict[int, int]:
    """For prompts of these lengths, the positions among the last `span` ones that the block table maps to the null
    block in the step that computes the last token; only where there are any. `loaded`: the prompt comes from another
    engine; else this engine computes it, and the last token in a step of its own (one length only)."""
    layers = {"full": layer("FullAttentionSpec"), "other": spec}
    options: dict[str, Any] = {"device": Loads, "scheduling": {"disable_hybrid_kv_cache_manager": False}}
    if loaded:
        options["kv_transfer_config"] = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_both")
    engine = start(layers, 4096, 2 * max(lengths), max(lengths) - 1, **options)
    lost = {length: missing(engine, span, length, loaded) for length in lengths}
    engine.scheduler.shutdown()
    return {length: count for length, count in lost.items() if count}


def missing(engine: Any, span: int, length: int, loaded: bool) -> int:
    """The same for one prompt."""
    theirs = [list(range(1, -(-length // 16) + 1)) for _ in range(2)]
    sent = {"remote_engine_id": "other", "remote_request_id": "r", "remote_host": "localhost", "remote_port": 1}
    sent |= {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": theirs, "tp_size": 1}
    more = {"extra_args": {"kv_transfer_params": sent}} if loaded else {}
    submit(engine, f"r{length}", range(length, 2 * length), answer=2, **more)
    name = next(iter(engine.scheduler.requests))
    for _ in range(20):
        engine.post_step(engine.step_fn()[1])
        step = engine.model_executor.steps[-1]
        begun = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        begun |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        if begun.get(name) == length - 1:
            table = tables(engine, name)[1]
            run(engine)
            return sum(table[position // 16] == 0 for position in range(length - span, length - 1))
    raise RuntimeError("the last token was never computed by itself")


def case() -> tuple[str, str, bool]:
    """A window of 128 tokens as in gpt-oss, for 16 lengths in a row; a chunk of 8192 tokens as in Llama 4."""
    window = layer("SlidingWindowSpec", sliding_window=128)
    chunk = layer("ChunkedLocalAttentionSpec", attention_chunk_size=8192)
    lost = unread(window, 128, range(1000, 1016), True)
    here = {length: unread(window, 128, [length], False).get(length, 0) for length in lost}
    whole = unread(chunk, 8192, [8192], True)
    told = [f"{count} of 127 at {length} tokens ({here[length]} if computed here)" for length, count in lost.items()]
    return (
        "the positions before it that the last token of a prompt reads are in blocks of the request",
        f"so many are in the null block: with a window of 128 and prompts of 1000 to 1015 tokens "
        f"{', '.join(told) or 0}; with a chunk of 8192 and a prompt of as many {whole.get(8192, 0)} of 8191",
        bool(lost or whole),
    )


def fix() -> None:
    """The change that fix.py has beside this script."""
    runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fix.py"))["fix"]()


main(case, fix)
