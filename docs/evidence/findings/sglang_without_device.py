"""SGLang's own scheduler without a device, a model or a socket: its constructor, queue, tree and pools on a CPU.

What loads a model, opens a socket or measures is left out; the worker samples token 7 and says what it computes.
"""

import importlib
import logging
import sys
from array import array
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from verdict import tell

PAGE, TOKENS, PIECE = 4, 64, 8
"""Tokens of a page, of the pool, and of a prompt in a step."""


class Nothing:
    """Metrics and the like, switched off."""

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **named: object) -> "Nothing":
        """Nothing happens."""
        return self

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *raised: object) -> None: ...

    def __add__(self, other: object) -> "Nothing":
        return self

    __mod__ = __add__

    def __get_pydantic_core_schema__(self, *arguments: object) -> Any:
        return importlib.import_module("pydantic_core").core_schema.any_schema()


OFF = Nothing()


class Missing:
    """Packages that the server imports and that play no part here."""

    names = tuple(name for name in ("setproctitle", "uvicorn", "torchvision", "xgrammar") if find_spec(name) is None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A package with anything in it."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Each name in it is switched off."""
        module = ModuleType(spec.name)
        vars(module).update(__version__="99.0", __getattr__=OFF.__getattr__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do."""


def srt(name: str) -> Any:
    """A module of SGLang's runtime."""
    return importlib.import_module(f"sglang.srt.{name}")


def settings() -> Any:
    """Those of a server on a CPU."""
    context = srt("runtime_context")
    fields = {"page_size": PAGE, "chunked_prefill_size": PIECE, "disable_overlap_schedule": True}
    given = context.get_context().override_server_args(
        device="cpu", attention_backend="torch_native", skip_tokenizer_init=True, **fields
    )
    ranks = dict.fromkeys(("pp_rank", "tp_rank", "dp_rank", "attn_tp_rank", "attn_cp_rank"), 0)
    context.get_parallel().override_permanently(pp_max_micro_batch_size=4, **ranks)
    return given.install()


def pools() -> SimpleNamespace:
    """What SGLang's builder of caches returns for layers of full attention."""
    torch: Any = importlib.import_module("torch")
    rows = srt("mem_cache.memory_pool").ReqToTokenPool(
        size=4, max_context_len=128, device="cpu", enable_memory_saver=False
    )
    allocator = srt("mem_cache.allocator").PagedTokenToKVPoolAllocator(TOKENS, PAGE, torch.float16, "cpu", None, False)
    kinds = (srt("mem_cache.unified_cache.component_type").ComponentType.FULL,)
    given = srt("mem_cache.cache_init_params").CacheInitParams(
        disable=False,
        req_to_token_pool=rows,
        token_to_kv_pool_allocator=allocator,
        page_size=PAGE,
        tree_components=kinds,
    )
    tree = srt("mem_cache.unified_radix_cache").UnifiedRadixCache(given)
    none = {"is_hybrid_swa": False, "is_hybrid_ssm": False, "sliding_window_size": None, "swa_tokens_per_layer": 0}
    found = {"req_to_token_pool": rows, "token_to_kv_pool_allocator": allocator, "tree_cache": tree}
    return SimpleNamespace(full_tokens_per_layer=TOKENS, disable_radix_cache=False, **none, **found)


def skipped(self: Any, *arguments: object) -> None:
    """For what needs a model or a socket."""


class Placed:
    """What replaces methods of SGLang's `Scheduler`."""

    scheduler_stage_metrics = metrics_reporter = metrics_collector = metrics_collector_context = OFF
    weight_updater = kv_events_publisher = load_publisher = profiler_manager = OFF
    enable_fpm = require_mlp_sync = False
    init_startup_timing_begin = init_startup_timing_summary = init_soft_watchdog = init_zbal_on_npu = skipped
    init_metrics_collector = init_metrics_reporter = init_moe_gemm_config = init_mamba_backend = skipped
    init_profiler = init_weight_updater = init_kv_events_publisher = init_load_publisher = skipped
    init_watch_dog_memory_saver_input_blocker = init_request_receiver = init_rank_consensus_checker = skipped
    maybe_init_rust_server = emit_metrics_constants = skipped

    def init_model_config(self) -> None:
        """No model: full attention."""
        self.dllm_config = None
        fields = dict.fromkeys(("is_encoder_decoder", "is_multimodal", "use_ngram_embedding"), False)
        none = dict.fromkeys(("hf_eos_token_id", "self_opened_think_start_ids"))
        config = SimpleNamespace(architectures=[""])
        self.model_config = SimpleNamespace(vocab_size=1000, hf_config=config, **fields, **none)

    def init_tokenizer(self) -> None:
        """Tokens come as numbers."""
        self.tokenizer, self.is_generation = None, True

    def init_ipc_channels(self, port_args: object) -> None:
        """What is sent is kept."""
        self.told: list[Any] = []
        client = SimpleNamespace(send_output=lambda message, request=None: self.told.append(message))
        self.load_snapshot_writer = self.rust_server = None
        names = ("send_to_tokenizer", "send_to_detokenizer", "recv_from_tokenizer", "recv_from_rpc")
        self.ipc_channels = SimpleNamespace(**dict.fromkeys(names, client))

    def init_model_worker(self) -> None:
        """The limits are those that a worker computes from its pools."""
        self.computed: list[tuple[str, int, int]] = []
        manager = SimpleNamespace(prepare_for_forward=lambda batch, chunked_req=None: batch)
        runner = SimpleNamespace(canary_manager=None, prefill_aware_swa=False, ngram_embedding_manager=manager)
        runner.attn_backend = SimpleNamespace(needs_cpu_seq_lens=True)
        self.tp_worker = self.model_worker = SimpleNamespace(model_runner=runner, model_config=self.model_config)
        self.tp_worker.forward_batch_generation = self.compute
        self.draft_worker = self.external_corpus_manager = self.min_free_slots_delayer = self.max_queued_requests = None
        self.max_total_num_tokens, self.max_prefill_tokens, self.max_running_requests = TOKENS, PIECE, 4
        self.max_req_len, self.max_req_input_len, self.device = TOKENS - 1, TOKENS - 6, "cpu"
        self.forward_stream = self.schedule_stream = srt("managers.scheduler").torch.cpu.Stream()
        alone = SimpleNamespace(world_size=1, first_rank=0, is_first_rank=True, is_last_rank=True, rank_in_group=0)
        for group in ("tp", "attn_tp", "attn_cp", "pp", "world", "dp_tp"):
            vars(self).update({f"{group}_group": alone, f"{group}_cpu_group": None})

    def compute(self, batch: Any, **named: object) -> Any:
        """Say what is computed: request, first position, number of tokens."""
        counts = list(batch.extend_lens) if batch.forward_mode.is_extend() else [1] * len(batch.reqs)
        for request, end, count in zip(batch.reqs, batch.seq_lens.tolist(), counts, strict=True):
            self.computed.append((request.rid, end - count, count))
        return srt("managers.utils").GenerationBatchResult(
            next_token_ids=srt("managers.scheduler").torch.tensor([7] * len(counts))
        )

    def step(self) -> None:
        """A pass of `event_loop_normal`."""
        plan = self.get_next_batch_to_run(running_batch=self.running_batch, last_batch=self.last_batch)
        self.running_batch, batch = plan.running_batch, plan.batch_to_run
        if batch:
            self.process_batch_result(batch, self.run_batch(batch))
        else:
            self.on_idle()
        self.last_batch = batch


def request(name: str, prompt: Sequence[int], tokens: int) -> Any:
    """What the tokenizer sends."""
    sampling = srt("sampling.sampling_params").SamplingParams(max_new_tokens=tokens)
    sampling.normalize(None)
    none = dict.fromkeys(("input_text", "input_embeds", "mm_inputs", "token_type_ids", "token_ids_logprob"))
    fields = {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "stream": True}
    ids = array("q", prompt)
    return srt("managers.io_struct").TokenizedGenerateReqInput(
        rid=name, input_ids=ids, sampling_params=sampling, **fields, **none
    )


def scheduler() -> Any:
    """A scheduler, its loop not begun."""
    server = srt("managers.scheduler")
    server.bootstrap, server.get_resolved_model_impl = OFF, lambda config: None
    server.kv_cache_builder = SimpleNamespace(build_kv_cache=lambda **named: pools())
    given = settings()
    return type("Scheduler", (Placed, server.Scheduler), {})(given, SimpleNamespace(nccl_port=0))


def started() -> str:
    """The engine's name and release."""
    srt("managers.scheduler")
    return f"SGLang {version('sglang')}"


def main(case: Callable[[], tuple[str, str, bool]], fix: Callable[[], None] = lambda: None) -> None:
    """Tells what `case` expects, what happens, and whether the defect shows; see `tell`."""
    logging.disable(logging.CRITICAL)
    sys.meta_path.append(Missing())
    tell(started, case, fix)
