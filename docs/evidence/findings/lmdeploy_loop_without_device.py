"""LMDeploy's own engine loop on asyncio, without a device: no GPU, and of LMDeploy its Python files and their imports.

`Engine`'s callbacks, `EngineLoop`, `InputsMakerAsync`, the scheduler and `ARStepInputs`, the batch that decodes, are
LMDeploy's. The executor sends a step as `UniExecutor` does, and its model samples token 1000 + n for sequence n.
"""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

BLOCK, LENGTH = 16, 128
"""Tokens of a block, and of a session at most."""


class Executor:
    """Runs each step when it is sent."""

    device_type = "cuda"
    model_config = SimpleNamespace(use_mrope=False)

    def __init__(self) -> None:
        import torch
        from lmdeploy.pytorch.strategies.ar.step_inputs import ARStepInputs

        self.torch, self.rows, self.outputs = torch, ARStepInputs(), asyncio.Queue[Any]()
        self.sequences: Any = list
        self.said: list[str] = []
        self.steps = 0
        self.when_sent: Any = None

    async def forward_async(self, payload: dict[str, Any]) -> None:
        """As `UniExecutor`: the step is handed over, and other tasks have their turn."""
        try:
            with self.torch.inference_mode():
                self.outputs.put_nowait(self._forward(payload))
        except Exception as error:
            self.said.append(f"{type(error).__name__}: {error}")
            raise
        self.steps += 1
        if self.when_sent is not None:
            self.when_sent()
        await asyncio.sleep(0)

    def _forward(self, payload: dict[str, Any]) -> Any:
        """The parts of `ModelAgent._async_step` that keep the batch."""
        inputs, delta, running, rows = payload["inputs"], payload["delta"], payload["sequences"], self.rows
        if delta is not None:
            delta.fill_tensors()
            rows.reindex(delta)
        decodes, sampling = inputs is None, payload["sampling_inputs"]
        if decodes:
            inputs = rows.model_inputs
            sampling.update_delta(rows.sampling_delta)
            for fed, sequence in zip(inputs.input_ids[0].tolist(), running, strict=False):
                if fed != 1000 + sequence.seq_id:
                    self.said.append(f"sequence {sequence.seq_id} is given the token of sequence {fed - 1000}")
        tokens = self.torch.tensor([1000 + sequence.seq_id for sequence in running])
        criteria = rows.stopping_criteria if decodes else payload["stopping_criteria"]
        stopped, _, criteria = criteria.step(tokens, None)
        given = (
            inputs,
            payload["extra_inputs"] or rows.extra_inputs,
            criteria,
            sampling.get_delta(),
            tokens,
            None,
            None,
        )
        if decodes:
            rows.step_decode(*given)
        elif not inputs.is_chunk or inputs.is_last_chunk:
            rows.merge_prefill(*given)
        from lmdeploy.pytorch.engine.model_agent import BatchedOutputs

        return BatchedOutputs(tokens, stopped)

    async def get_output_async(self) -> Any:
        """The results of the oldest step."""
        return await self.outputs.get()


class Served:
    """An engine whose loop runs, and its clients."""

    def __init__(self, step: int) -> None:
        """`step`: the most tokens of a prefill (`max_prefill_token_num`)."""
        from lmdeploy.pytorch.config import CacheConfig, SchedulerConfig
        from lmdeploy.pytorch.engine.engine import Engine
        from lmdeploy.pytorch.engine.engine_loop import build_engine_loop
        from lmdeploy.pytorch.messages import SequenceMeta
        from lmdeploy.pytorch.paging import Scheduler
        from lmdeploy.pytorch.strategies.ar.engine import AREngineStrategy
        from lmdeploy.pytorch.strategies.ar.model_agent import ARModelAgentStrategy
        from lmdeploy.pytorch.strategies.ar.sampling import ARSamplingStrategy
        from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

        cache = CacheConfig(
            max_batches=8,
            block_size=BLOCK,
            num_cpu_blocks=0,
            num_gpu_blocks=64,
            num_reserved_gpu_blocks=1,
            max_prefill_token_num=step,
        )
        logging.disable(logging.CRITICAL)
        scheduling, self.executor = SchedulerConfig(max_batches=8, max_session_len=LENGTH), Executor()
        self.engine: Any = Engine.__new__(Engine)  # its own __init__ loads a model
        vars(self.engine).update(
            scheduler=Scheduler(scheduling, cache, SequenceMeta(BLOCK, strategy=ARSequenceStrategy())),
            cache_config=cache, scheduler_config=scheduling, executor=self.executor, specdecode_config=None,
            engine_config=SimpleNamespace(
                role=cache.role, prefill_interval=16, enable_transfer_obj_ref=False, enable_metrics=False
            ),
            dist_config=SimpleNamespace(dp=1), misc_config=SimpleNamespace(enable_chunked_prefill=False),
            adapter_manager=SimpleNamespace(num_adapters=lambda: 1), input_processor=None, engine_conn=None,
            engine_strategy=AREngineStrategy(scheduling, cache), sampling_strategy=ARSamplingStrategy(0),
            model_agent_strategy=ARModelAgentStrategy(), seq_strategy=ARSequenceStrategy(),
        )  # fmt: skip
        self.engine.max_session_len = self.engine._get_max_session_len()
        self.engine.req_manager = self.engine._bind_request_manager()
        self.engine.req_manager.requests = asyncio.Queue()
        self.loop = build_engine_loop(self.engine)
        make = self.loop.inputs_maker._make_forward_inputs

        def made(*given: Any, **named: Any) -> Any:  # the loop takes `running` out; the model wants to know its rows
            payload = make(*given, **named)
            return None if payload is None else {**payload, "sequences": list(payload["running"])}

        self.loop.inputs_maker._make_forward_inputs = made

    def ask(self, kind: str, **data: Any) -> None:
        """A client's request is in the queue."""
        from lmdeploy.pytorch.engine.request import Request, RequestType, Response

        response = Response(None, 0, asyncio.Event())
        self.engine.req_manager.requests.put_nowait(
            Request(RequestType[kind], 0, {"response": False, **data}, response)
        )

    def add(self, session: int, length: int, answer: int) -> None:
        """As `EngineInstance.async_stream_infer` does."""
        from lmdeploy.pytorch.messages import SamplingParam

        self.ask("ADD_SESSION", session_id=session)
        sampling = SamplingParam(max_new_tokens=answer)
        self.ask("ADD_MESSAGE", session_id=session, token_ids=[1] * length, sampling_param=sampling, adapter_name=None)

    def cancel(self, session: int) -> None:
        """As `EngineInstance.async_cancel`, and the end of the stream behind it."""
        self.ask("STOP_SESSION", session_id=session)
        self.ask("END_SESSION", session_id=session)

    async def run(self) -> list[str]:
        """Its loops, for a second. Returns what was seen."""
        tasks = [asyncio.create_task(run()) for run in (self.loop.preprocess_loop, self.loop.main_loop)]
        await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self.executor.said
