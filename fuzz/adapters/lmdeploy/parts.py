"""LMDeploy's PyTorch engine around its scheduler, without a device: what its loop is made of, and what stands in for
the model agent.

Its own are the callbacks of `Engine`, `EngineLoop.main_loop`, `InputsMakerAsync`, `ARStepInputs` and the criteria for
stopping. The loop is a coroutine that we step: it pauses where it has sent a step, waits for results, or has nothing to
do. The agent keeps the batch of requests that decode as LMDeploy's does, and computes nothing.
"""

import importlib
from asyncio import Queue
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from ...simulation.protocol import EngineShape
from .engine import load, without_noise

HELD = -1000
"""Tokens below this stand for what will be sampled: HELD - n for that of sequence n."""


class Pause:
    """Awaited, it gives the loop's turn back to whoever steps it; `why` says at what."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __await__(self) -> Generator[str, None, None]:
        yield self._why


class _SteppedEvent:
    """An event whose waiting pauses the loop."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        while not self._is_set:
            await Pause("idle")


async def _sleep(seconds: float) -> None:
    await Pause("sleeps")


@dataclass
class SentStep:
    """A step that the loop has sent."""

    payload: dict[str, Any]
    running: list[Any]
    inputs: Any
    """What the kernels get, a row for each request."""

    @property
    def is_middle(self) -> bool:
        """True for a piece of a prompt behind which nothing is sampled."""
        return bool(self.inputs.is_chunk and not self.inputs.is_last_chunk)


@dataclass
class SteppedExecutor:
    """In place of the executor and its model agent."""

    agent: Any
    device_type: str = "cuda"
    model_config: Any = None
    sent: deque[SentStep] = field(default_factory=deque)
    outputs: deque[Any] = field(default_factory=deque)

    async def forward_async(self, payload: dict[str, Any]) -> None:
        """The step is on the device's queue."""
        with self.agent.inference():
            self.sent.append(self.agent.launch(payload))
        await Pause("sent")

    async def get_output_async(self) -> Any:
        """The results of the oldest step."""
        while not self.outputs:
            await Pause("waits")
        return self.outputs.popleft()


class SteppedAgent:
    """The model agent: prepares rows as `_async_step` does, and samples what it is told."""

    def __init__(self) -> None:
        self._torch, self._outputs = importlib.import_module("torch"), module("engine.model_agent").BatchedOutputs
        self._rows = module("strategies.ar.step_inputs").ARStepInputs()
        self._criteria: Any = None
        self.inference = self._torch.inference_mode

    def launch(self, payload: dict[str, Any]) -> SentStep:
        """What the kernels get."""
        inputs, delta, rows = payload["inputs"], payload["delta"], self._rows
        running = list(payload["running"])
        sampling, extra = payload["sampling_inputs"], payload["extra_inputs"]
        if delta is not None:
            delta.fill_tensors()
            rows.reindex(delta)
        is_decode = inputs is None
        if is_decode:
            inputs, extra = rows.model_inputs, rows.extra_inputs
            sampling.update_delta(rows.sampling_delta)
        held = self._torch.tensor([HELD - sequence.seq_id for sequence in running])
        step = SentStep(payload, running, inputs)
        criteria = rows.stopping_criteria if is_decode else payload["stopping_criteria"]
        given = (extra, criteria, sampling.get_delta(), held, None, None)
        if is_decode:
            rows.step_decode(inputs, *given)
        elif not step.is_middle:
            rows.merge_prefill(inputs, *given)
        return step

    def land(self, step: SentStep, tokens: Sequence[int]) -> Any:
        """The results of a step in which these tokens were sampled, row by row."""
        inputs, delta, sampled = step.payload["inputs"], step.payload["delta"], self._torch.tensor(tokens)
        if delta is not None:
            self._criteria = self._criteria.update(delta)
        criteria = self._criteria if inputs is None else step.payload["stopping_criteria"]
        words = step.payload["sampling_inputs"].stop_words
        stopped, _, after = criteria.step(sampled, words)
        if inputs is None:
            self._criteria = after
        elif not step.is_middle:
            self._criteria = after if self._criteria is None else self._criteria.merge(after)
        return self._outputs(sampled, stopped)


class SteppedLoop:
    """An engine with its loop, which goes on when it is told to."""

    def __init__(self, shape: EngineShape) -> None:
        """NotImplementedError, with the reason, if LMDeploy has none of this shape."""
        options, self.agent = shape.options, SteppedAgent()
        self.core = core = load().build(shape.core, shape.max_requests, max_prefill_token_num=shape.max_tokens)
        engine_class, engine_loop = module("engine.engine").Engine, module("engine.engine_loop")
        cache_config, scheduler_config = core.scheduler.cache_config, core.scheduler.scheduler_config
        self.executor = SteppedExecutor(self.agent)
        self.engine: Any = engine_class.__new__(engine_class)  # its own __init__ loads a model
        vars(self.engine).update(
            scheduler=core.scheduler,
            cache_config=cache_config,
            scheduler_config=scheduler_config,
            engine_config=SimpleNamespace(
                role=cache_config.role,
                prefill_interval=core.preallocated,
                enable_transfer_obj_ref=False,
                enable_metrics=False,
            ),
            executor=self.executor,
            specdecode_config=None,
            dist_config=SimpleNamespace(dp=1),
            misc_config=SimpleNamespace(enable_chunked_prefill=options["chunked"]),
            adapter_manager=SimpleNamespace(num_adapters=lambda: 1),
            engine_strategy=module("strategies.ar.engine").AREngineStrategy(scheduler_config, cache_config),
            sampling_strategy=module("strategies.ar.sampling").ARSamplingStrategy(0),
            model_agent_strategy=module("strategies.ar.model_agent").ARModelAgentStrategy(),
            seq_strategy=module("strategies.ar.sequence").ARSequenceStrategy(),
            input_processor=None,
            engine_conn=None,
        )
        self.executor.model_config = SimpleNamespace(use_mrope=False)
        self.engine.max_session_len = self.engine._get_max_session_len()
        self.engine.req_manager = self.engine._bind_request_manager()
        engine_loop.asyncio = SimpleNamespace(Event=_SteppedEvent, Queue=Queue, sleep=_sleep)
        self.loop = engine_loop.build_engine_loop(self.engine)
        _keep_running(self.loop.inputs_maker)
        self._coroutine = self.loop.main_loop()

    def mend_pieces(self) -> None:
        """A piece of a prompt never joins those that decode, whatever has become of its request."""
        maker = self.loop.inputs_maker
        update = maker.update_running_seqs

        def updated(running: list[Any], inputs: Any) -> None:
            is_piece = inputs is not None and inputs.is_chunk and not inputs.is_last_chunk
            if not is_piece or maker.long_context_chunker.enabled():
                update(running, inputs)

        maker.update_running_seqs = updated

    def go_on(self) -> str:
        """Step the loop to its next pause; returns at what."""
        with without_noise():
            return str(self._coroutine.send(None))


def _keep_running(maker: Any) -> None:
    """The loop takes the list of requests out of what it sends; the agent is to know it."""
    make = maker._make_forward_inputs

    def made(*given: Any, **named: Any) -> Any:
        payload = make(*given, **named)
        return None if payload is None else _Payload(payload)

    maker._make_forward_inputs = made


class _Payload(dict[str, Any]):
    def pop(self, name: str, *default: Any) -> Any:
        """The value, which stays."""
        return self.get(name, *default)


def match_anew(as_it_is: bool) -> None:
    """Whether requests that wait with blocks are matched with the prefix trie, as LMDeploy does, or never are."""
    attempt = module("paging.prefill_scheduler")._PrefillAdmissionAttempt
    own = _own_rule()
    attempt._has_private_local_tail = own if as_it_is else (lambda self: self.seq.num_blocks > 0)


@cache
def _own_rule() -> Any:
    return module("paging.prefill_scheduler")._PrefillAdmissionAttempt._has_private_local_tail


@cache
def module(name: str) -> Any:
    """A module of LMDeploy's PyTorch engine."""
    with without_noise():
        return importlib.import_module(f"lmdeploy.pytorch.{name}")
