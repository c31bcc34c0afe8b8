"""Runs a release's own scheduler without a neural network and without a GPU, over a device that only tracks contents.

Works in the Python environment of the release.
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ....model.arith import cdiv
from ....model.ops import Item, Submit
from .binding import RETENTION_VARIABLE, environment
from .scheduler_config import (
    RETENTION_FIELD,
    Setup,
    configuration,
    make,
    module,
    spec_of,
)
from .scheduler_connectors import connectors
from .scheduler_device import Device, DeviceJob

_IDLE_STEPS = 25
"""Waiting requests count as starved after this number of steps in a row in which no token is scheduled."""


@dataclass
class Observed:
    """What was observed in a run; counts are in steps, tokens and blocks."""

    steps: int = 0
    tokens: int = 0
    corruption: list[str] = field(default_factory=list)
    error: str = ""
    starved: list[str] = field(default_factory=list)
    preemptions: int = 0
    room: int = 0
    """Blocks of the pool beyond those that the release's start-up check needs for one request of the greatest
    length."""
    missing_blocks: int = 0
    """Blocks that were free at the start but are not free after all requests have ended."""
    most_held: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    """Per request, tokens that counted as computed when it was first scheduled."""
    finished: list[str] = field(default_factory=list)


class SchedulerRun:
    """One engine and its requests."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.observed = Observed()
        self.jobs: dict[str, DeviceJob] = {}
        self.device = Device(setup.shape, self.jobs, setup.asynchronous)
        self._in_flight: deque[tuple[Any, Any]] = deque()
        self._adapters: dict[tuple[str, int], int] = {}
        self._preempted: dict[str, int] = {}
        self._idle = 0
        self._build()
        self._connect()
        self._free_at_start = self.pool.get_num_free_blocks()
        self.observed.room = self._free_at_start - self._start_up_blocks()

    # Construction.

    def _build(self) -> None:
        shape, interface = self.setup.shape, module("v1.kv_cache_interface")
        groups = [
            make(
                interface.KVCacheGroupSpec,
                layer_names=[f"layer.{index}"],
                kv_cache_spec=spec_of(group),
                is_eagle_group=group.eagle,
            )
            for index, group in enumerate(shape.groups)
        ]
        self.config = configuration(self.setup)
        self.cache_config = make(
            interface.KVCacheConfig,
            num_blocks=shape.num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=getattr(self.config.cache_config, RETENTION_FIELD, None),
        )
        self.build_scheduler()

    def build_scheduler(self) -> None:
        """Make the scheduler and its pool from `config` and `cache_config`; again if a connector has changed these."""
        if self.setup.asynchronous:
            kind = module("v1.core.sched.async_scheduler").AsyncScheduler
        else:
            kind = module("v1.core.sched.scheduler").Scheduler
        scheduler_block, hash_block = self._block_sizes()
        self.scheduler_block_size, self.hash_block_size = scheduler_block, hash_block
        text_only = SimpleNamespace(supports_multimodal_inputs=lambda model: False)
        with environment(RETENTION_VARIABLE, self.setup.retention):
            self.scheduler = make(
                kind,
                vllm_config=self.config,
                kv_cache_config=self.cache_config,
                structured_output_manager=_Unstructured(),
                block_size=scheduler_block,
                hash_block_size=hash_block,
                mm_registry=text_only,
            )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        encoders = module("v1.core.encoder_cache_manager")
        self.scheduler.max_num_encoder_input_tokens = 1 << 20
        self.scheduler.encoder_cache_manager = encoders.EncoderCacheManager(cache_size=1 << 20)
        utils, hashing = module("v1.core.kv_cache_utils"), module("utils.hashing")
        utils.init_none_hash(hashing.sha256)
        ahead = getattr(self.scheduler, "num_hash_lookahead_tokens", 0)
        self._hasher = utils.get_request_block_hasher(hash_block, hashing.sha256, *([ahead] if ahead else []))

    def _connect(self) -> None:
        """Give the scheduler its connector. NotImplementedError if the release cannot have it with this shape."""
        if self.setup.connector:
            self.scheduler.connector = connectors()[self.setup.connector](self)

    def _block_sizes(self) -> tuple[int, int]:
        """Scheduler and hash block size in tokens, as the release computes them; the cache's block size in releases
        without such a function."""
        resolve = getattr(module("v1.core.kv_cache_utils"), "resolve_kv_cache_block_sizes", None)
        if resolve is None:
            return self.config.cache_config.block_size, self.config.cache_config.block_size
        scheduler_block, hash_block = resolve(self.cache_config, self.config)
        return scheduler_block, hash_block

    def _start_up_blocks(self) -> int:
        """The most blocks that one request of the greatest length needs, by the release's own figures."""
        need = 0
        for group in self.scheduler.kv_cache_config.kv_cache_groups:
            spec = group.kv_cache_spec
            need += cdiv(spec.max_memory_usage_bytes(self.config), spec.page_size_bytes)
        return need

    # Requests.

    def add(self, job: DeviceJob) -> None:
        """A request arrives."""
        submit = job.submit
        self.jobs[submit.request] = job
        self.scheduler.add_request(self._request(job))

    def _adapter(self, job: DeviceJob) -> Any:
        """The engine gives an adapter a new number whenever it is loaded; each version has its own path unless it was
        changed in place."""
        name = job.submit.adapter
        if name is None:
            return None
        number = self._adapters.setdefault((name, job.adapter_version), len(self._adapters) + 1)
        place = "/adapter" if job.adapter_in_place else f"/adapter/{job.adapter_version}"
        return module("lora.request").LoRARequest(sys.intern(name), number, place)

    def _request(self, job: DeviceJob) -> Any:
        submit: Submit = job.submit
        torch = import_module("torch")
        embeds = submit.embeds
        return make(
            module("v1.request").Request,
            request_id=submit.request,
            prompt_token_ids=list(submit.prompt) if embeds is None else None,
            sampling_params=module("sampling_params").SamplingParams(max_tokens=job.max_tokens, ignore_eos=True),
            pooling_params=None,
            eos_token_id=None,
            prompt_embeds=None if embeds is None else torch.tensor(embeds, dtype=torch.float32).reshape(len(embeds), 1),
            mm_features=[self._feature(item) for item in submit.items] or None,
            lora_request=self._adapter(job),
            priority=job.priority,
            cache_salt=None if submit.salt is None else sys.intern(submit.salt),
            block_hasher=self._hasher,
        )

    def _feature(self, item: Item) -> Any:
        inputs = module("multimodal.inputs")
        return make(
            inputs.MultiModalFeatureSpec,
            data=None,
            modality="image",
            identifier=sys.intern(item.identifier),
            mm_position=inputs.PlaceholderRange(offset=item.offset, length=item.length),
            mm_hash=item.identifier,
        )

    # Steps.

    def run(self, limit: int = 10_000) -> Observed:
        """Run steps until all requests have ended, some are starved, or the engine dies; at most `limit` steps."""
        try:
            while (
                self.scheduler.has_unfinished_requests() and self.observed.steps < limit and not self.observed.starved
            ):
                self.step()
            self.drain()
        except Exception as error:
            place = _last_frame(error)
            self.observed.error = f"{type(error).__name__}: {str(error)[:160]} ({place})"
        return self.observed

    def drain(self) -> None:
        """Report all results that wait; if all requests have ended then, count the blocks that are not free again."""
        while self._in_flight:
            self._finish_oldest()
        if not self.scheduler.has_unfinished_requests():
            self.scheduler.schedule()
            self.observed.missing_blocks = self._free_at_start - self.pool.get_num_free_blocks()

    def step(self) -> None:
        """Schedule a step, run it on the device, and report the result to the scheduler (asynchronously: the result of
        the step before)."""
        self.end_step(self.begin_step())

    def end_step(self, output: Any) -> None:
        """Report the result of the step that was begun last (asynchronously: of the step before) to the scheduler."""
        depth = 1 if self.setup.asynchronous and output.total_num_scheduled_tokens else 0
        while len(self._in_flight) > depth:
            self._finish_oldest()

    def begin_step(self) -> Any:
        """Schedule a step and run it on the device; its result waits. Returns the scheduler's output."""
        observed = self.observed
        output = self.scheduler.schedule()
        observed.steps += 1
        begun = {data.req_id: data.num_computed_tokens for data in output.scheduled_new_reqs}
        observed.hits |= {name: tokens for name, tokens in begun.items() if name not in observed.hits}
        requests = self.scheduler.requests
        self._preempted |= {name: request.num_preemptions for name, request in requests.items()}
        observed.preemptions = sum(self._preempted.values())
        known = {name: requests[name].num_tokens for name in output.num_scheduled_tokens}
        ran = self.device.execute(output, known)
        observed.corruption += ran.wrong
        observed.tokens += output.total_num_scheduled_tokens
        observed.most_held = max(observed.most_held, self._free_at_start - self.pool.get_num_free_blocks())
        self._note_starved(output)
        self._in_flight.append((output, ran))
        return output

    def _note_starved(self, output: Any) -> None:
        """Count idle steps, and note starved requests."""
        loading = getattr(self.scheduler.connector, "arrived", None)
        moves = output.total_num_scheduled_tokens or loading or self._in_flight
        self._idle = 0 if moves else self._idle + 1
        if self._idle >= _IDLE_STEPS:
            self.observed.starved = sorted(self.scheduler.requests)

    def _finish_oldest(self) -> None:
        output, ran = self._in_flight.popleft()
        names = list(output.num_scheduled_tokens)
        outputs = module("v1.outputs")
        take = getattr(self.scheduler.connector, "take_arrived", None)  # others tell by themselves what has arrived
        arrived = set(take()) if take is not None else set()
        result = make(
            outputs.ModelRunnerOutput,
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[ran.sampled[name] for name in names],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=outputs.KVConnectorOutput(finished_recving=arrived) if arrived else None,
        )
        self.scheduler.update_from_output(output, result)
        ended = [name for name in names if name not in self.scheduler.requests]
        self.observed.finished += ended
        if self.setup.drafts and not self.setup.asynchronous:
            self._propose([name for name in names if name in self.scheduler.requests and ran.sampled[name]])

    def _propose(self, names: list[str]) -> None:
        """Give the scheduler the drafts of the next step; the device decides which of them are right."""
        drafts = module("v1.outputs").DraftTokenIds(
            req_ids=names, draft_token_ids=[[0] * self._proposed(name) for name in names]
        )
        self.scheduler.update_draft_token_ids(drafts)

    def _proposed(self, name: str) -> int:
        job = self.jobs[name]
        if not job.drafts:
            return 0
        return min(self.setup.drafts, job.drafts[self.device.decode_steps(name) % len(job.drafts)][0])


class _Unstructured:
    """Stand-in for the manager of structured output; no request here uses any."""

    def should_advance(self, request: Any, **_: object) -> bool:
        """Always False."""
        return False

    def accept_tokens(self, request: Any, *tokens: object) -> bool:
        """Always True."""
        return True

    def validate_tokens(self, request: Any, tokens: list[int], *_: object) -> list[int]:
        """All tokens are valid."""
        return tokens

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"the scheduler asks for {name!r} of structured output, which no request here uses")


def _last_frame(error: BaseException) -> str:
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    return f"{frame.tb_frame.f_code.co_name}, line {frame.tb_lineno}" if frame else "nowhere"
