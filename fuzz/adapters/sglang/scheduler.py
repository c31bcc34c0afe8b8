"""SGLang's own scheduler, made without a process, a model or a socket.

It is the release's class with its own constructor. What loads a model, opens a socket or measures is replaced by what
a server without these features has.
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

from .engine import Cache, SglangEngine, imported
from .host_settings import HostSettings
from .refused import is_refused
from .standing_in import stand_in_for

SPARE = 5
"""Tokens by which the longest prompt that the server takes is shorter than the longest sequence."""
VOCABULARY = 1 << 20
"""Tokens of the model; prompts and answers have smaller ones."""
PREFIX = "abort-takes-longer-names"
"""A known defect: a cancel ends every request whose name begins with that name."""
FORGOTTEN = "abort-forgotten-by-a-pause"
"""A request that is cancelled in the midst of its prompt is served all the same, if a pause for new weights sets it
back before its next step."""
AGAIN = "aborted-is-prefilled-again"
"""A request that is cancelled when a pause sets it back is prefilled again as a whole before it ends."""
PINNED = "hit-pins-the-window"
"""A hit keeps so much of the window's pool that its own request is never admitted."""
UNWEIGHED = "chunk-not-weighed"
"""A later chunk of a prompt is let in though there is no room for it, and the server ends."""
UNHEARD = "copies-unheard-in-a-pause"
"""While it is paused it does not hear of the end of copies to and from the host, and refuses to flush the cache."""
IN_VAIN = "evicts-from-host-in-vain"
"""To make room on the host it gives up what it may, and only then sees that it is not enough."""
LOCKED = "copies-fail-who-decodes"
"""Who decodes alone and lacks room is failed, while pages that nobody needs are locked for their copy to the host."""
DEFECTS = (PREFIX, FORGOTTEN, AGAIN, PINNED, UNWEIGHED, UNHEARD, IN_VAIN, LOCKED)


@dataclass(frozen=True)
class ServerSettings:
    """What a server was started with."""

    longest: int
    """Tokens of the longest sequence."""
    chunk: int
    """The most tokens of a prompt in a step, a multiple of the page."""
    requests: int
    """The most that run at once."""
    overlap: bool = False
    mixed: bool = False
    """Steps have prompts beside decoding requests."""
    policy: str = "fcfs"
    priority: bool = False
    conservative: float = 1.0
    """How much of the room is kept for answers that may become long (`schedule_conservativeness`)."""
    mended: tuple[str, ...] = ()
    """Known defects that it does not have."""
    host: HostSettings | None = None
    """Of its memory on the host, if it has any."""
    role: str = ""
    """`prefill` or `decode`, of two engines that share the work."""
    reserved: int = 0
    """Tokens for which the second one keeps room for each request (`num_reserved_decode_tokens`)."""
    keeps_prefixes: bool = False
    """The second one has a prefix cache (`disaggregation_decode_enable_radix_cache`)."""

    @property
    def of_its_role(self) -> dict[str, Any]:
        """What a server of two is started with besides."""
        if not self.role:
            return {}
        return {
            "disaggregation_mode": self.role,
            "disaggregation_transfer_backend": "mooncake",
            "disaggregation_decode_retraction_backup": "cpu_tensor",
            "num_reserved_decode_tokens": self.reserved,
            "disaggregation_decode_enable_radix_cache": self.keeps_prefixes and self.role == "decode",
            "disable_radix_cache": self.role == "decode" and not self.keeps_prefixes,
        }


_RANKS = ("pp_rank", "tp_rank", "dp_rank", "attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "attn_dcp_rank")
ALONE = SimpleNamespace(
    world_size=1, first_rank=0, is_first_rank=True, is_last_rank=True, rank_in_group=0, cpu_group=None
)
"""A group of one rank."""


class _Off:
    """A feature that is off: it is false, and whatever is called on it does nothing."""

    def __getattr__(self, name: str) -> "_Off":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **named: object) -> "_Off":
        return self

    def __bool__(self) -> bool:
        return False

    def __add__(self, counted: object) -> "_Off":
        return self

    __mod__ = __add__

    def __enter__(self) -> "_Off":
        return self

    def __exit__(self, *raised: object) -> None: ...


_OFF = _Off()
_LEFT_OUT = (
    "init_startup_timing_begin",
    "init_startup_timing_summary",
    "init_soft_watchdog",
    "init_zbal_on_npu",
    "init_moe_gemm_config",
    "init_mamba_backend",
    "init_profiler",
    "init_watch_dog_memory_saver_input_blocker",
    "init_weight_updater",
    "init_kv_events_publisher",
    "init_load_publisher",
    "init_request_receiver",
    "init_rank_consensus_checker",
    "maybe_init_rust_server",
    "emit_metrics_constants",
)
"""Parts of the constructor: devices, weights, metrics, sockets."""
_FEATURES_OFF = (
    "weight_updater",
    "kv_events_publisher",
    "load_publisher",
    "profiler_manager",
    "metrics_collector",
    "metrics_collector_context",
)


class SchedulerHost(Protocol):
    """Who has a scheduler, and what it asks of them."""

    outbox: list[Any]
    retracted: list[str]
    """Requests that were set back."""

    def receive(self, local_reqs: list[Any]) -> list[Any]:
        """The messages to it."""
        ...

    def launch(self, batch: Any, **named: object) -> Any:
        """The worker's forward pass."""
        ...

    def new_event(self) -> Any:
        """An event behind that."""
        ...


def new_scheduler(loop: SchedulerHost, engine: SglangEngine, cache: Cache, settings: ServerSettings) -> Any:
    """A scheduler over this cache, whose messages and steps go to the loop. Whatever its constructor raises."""
    engine.configure(
        page_size=cache.page,
        chunked_prefill_size=settings.chunk,
        enable_mixed_chunk=settings.mixed,
        disable_overlap_schedule=not settings.overlap,
        schedule_policy=settings.policy,
        schedule_conservativeness=settings.conservative,
        enable_priority_scheduling=settings.priority,
        schedule_low_priority_values_first=True,
        skip_tokenizer_init=True,
        **(settings.host.arguments if settings.host else {}),
        **settings.of_its_role,
    )
    context = imported("sglang.srt.runtime_context")
    ranks = dict.fromkeys(_RANKS, 0)
    groups = dict.fromkeys(("tp_group", "attn_tp_group", "attn_cp_group", "pp_group", "world_group"), ALONE)
    context.get_parallel().override_permanently(pp_max_micro_batch_size=settings.requests, **ranks, **groups)
    made = _scheduler_class()
    return made(context.get_server_args(), SimpleNamespace(nccl_port=0, loop=loop, cache=cache, settings=settings))


@cache
def _scheduler_class() -> type[Any]:
    for package in ("setproctitle", "uvicorn"):
        stand_in_for(package)
    module = imported("sglang.srt.managers.scheduler")
    module.bootstrap = _OFF
    module.get_resolved_model_impl = lambda model_config: None
    module.kv_cache_builder = SimpleNamespace(build_kv_cache=lambda tp_worker, **named: tp_worker.pools)
    left_out = dict.fromkeys(_LEFT_OUT, lambda self: None)
    return type("PlacedScheduler", (_Placed, module.Scheduler), left_out)


class _Placed:
    """What replaces methods of the release's scheduler."""

    chunked_req: Any
    abort_request: Any
    waiting_queue: list[Any]
    _pending_chunked_abort_req: Any
    scheduler_stage_metrics = _OFF
    enable_fpm = _war_barrier_enabled = False

    def __init__(self, server_args: Any, place: SimpleNamespace) -> None:
        self._place = place
        vars(self).update(dict.fromkeys(_FEATURES_OFF, _OFF))
        super().__init__(server_args, place)  # type: ignore[call-arg]  # the release's

    def init_model_config(self) -> None:
        self.dllm_config = None
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False,
            is_multimodal=False,
            vocab_size=VOCABULARY,
            hf_eos_token_id=None,
            use_ngram_embedding=False,
            self_opened_think_start_ids=None,
            hf_config=SimpleNamespace(architectures=[""]),
            hf_text_config=SimpleNamespace(),
            num_hidden_layers=1,
            num_key_value_heads=1,
            get_total_num_kv_heads=lambda: 1,
        )

    def init_tokenizer(self) -> None:
        self.tokenizer, self.is_generation = None, True

    def init_metrics_collector(self) -> None: ...

    def init_metrics_reporter(self) -> None:
        self.metrics_reporter = _OFF

    def init_ipc_channels(self, port_args: SimpleNamespace) -> None:
        told = port_args.loop.outbox
        client = SimpleNamespace(send_output=lambda message, request=None: told.append(message))
        self.load_snapshot_writer = self.rust_server = None
        self.ipc_channels = SimpleNamespace(
            send_to_tokenizer=client, send_to_detokenizer=client, recv_from_tokenizer=None, recv_from_rpc=None
        )
        self.request_receiver = SimpleNamespace(recv_requests=port_args.loop.receive)

    def init_model_worker(self) -> None:
        """The limits are those that a worker computes from its pools."""
        place = self._place
        cache, settings = place.cache, place.settings
        stream = imported("torch").cpu.Stream()
        runner = SimpleNamespace(
            effective_logical_max_total_num_tokens=cache.full_pages * cache.page,
            swa_max_total_num_tokens=cache.swa_pages * cache.page,
            kv_cache_dtype_str="float16",
            canary_manager=None,
            forward_stream=stream,
            prefill_aware_swa=False,
            attn_backend=SimpleNamespace(needs_cpu_seq_lens=True),
            ngram_embedding_manager=SimpleNamespace(prepare_for_forward=lambda batch, chunked_req=None: batch),
        )
        self.tp_worker = self.model_worker = SimpleNamespace(
            model_runner=runner,
            model_config=self.model_config,
            forward_batch_generation=place.loop.launch,
            pools=_pools_of(cache),
            is_hybrid_swa=cache.swa_pages > 0,
        )
        self.draft_worker = self.external_corpus_manager = self.min_free_slots_delayer = None
        self.require_mlp_sync = False
        self.max_total_num_tokens = cache.full_pages * cache.page
        self.max_prefill_tokens, self.max_running_requests = settings.chunk, settings.requests
        self.max_queued_requests = None
        self.max_req_len = min(settings.longest + 1, self.max_total_num_tokens - 1)
        self.max_req_input_len = self.max_req_len - SPARE
        self.device, self.random_seed = "cpu", 0
        self.forward_stream = self.schedule_stream = stream
        for group in ("tp", "attn_tp", "attn_cp", "pp", "world", "dp_tp"):
            setattr(self, f"{group}_group", ALONE)
            setattr(self, f"{group}_cpu_group", None)

    def init_overlap(self) -> None:
        super().init_overlap()  # type: ignore[misc]
        self.device_module = SimpleNamespace(Event=self._place.loop.new_event)

    def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
        if is_retracted:
            self._place.loop.retracted.append(req.rid)
        super()._add_request_to_queue(req, is_retracted)  # type: ignore[misc]

    def get_prefill_adder_class(self) -> Any:
        chosen: Any = super().get_prefill_adder_class()  # type: ignore[misc]
        return _weighing(chosen) if UNWEIGHED in self._place.settings.mended else chosen

    def process_pending_chunked_abort(self) -> None:
        mended, left = self._place.settings.mended, list[Any]()
        request = self._pending_chunked_abort_req
        if FORGOTTEN in mended and request not in (None, self.chunked_req) and not request.finished():
            self._pending_chunked_abort_req = None
            left.append(request)
        if AGAIN in mended:
            left += [waits for waits in self.waiting_queue if waits.to_finish is not None and not is_refused(waits)]
        for request in left:
            self.abort_request(imported("sglang.srt.managers.io_struct").AbortReq(rid=request.rid))
        super().process_pending_chunked_abort()  # type: ignore[misc]


@cache
def _weighing(adder: Any) -> Any:
    """One that gives a later chunk of a prompt no more tokens than are free: none, if there are none."""

    def add_chunked_req(self: Any, request: Any) -> Any:
        room = int(self.cur_rem_tokens) // self.page_size * self.page_size
        if room <= 0:
            return request
        limit = self.chunked_req_limit
        self.chunked_req_limit = room if limit is None else min(limit, room)
        return adder.add_chunked_req(self, request)

    return type(f"Weighing{adder.__name__}", (adder,), {"add_chunked_req": add_chunked_req})


def _pools_of(cache: Cache) -> SimpleNamespace:
    """What the release's builder of caches returns."""
    return SimpleNamespace(
        is_hybrid_swa=cache.swa_pages > 0,
        is_hybrid_ssm=cache.states > 0,
        sliding_window_size=cache.window or None,
        full_tokens_per_layer=cache.full_pages * cache.page,
        swa_tokens_per_layer=cache.swa_pages * cache.page,
        req_to_token_pool=cache.rows,
        token_to_kv_pool_allocator=cache.allocator,
        disable_radix_cache=False,
        tree_cache=cache.tree,
    )
