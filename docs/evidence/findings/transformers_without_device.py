"""transformers' continuous batching without a GPU: its own manager, loop, scheduler and cache around a tiny model.

The model has random weights and runs on the CPU, in double precision, so that how requests are batched changes no
token. Only where a script asks for it something is pretended. `asynchronous`: streams that do everything at once, in
the order of the calls (`ContinuousBatchingAsyncIOs` wants a GPU). `swap`: memory for offloading that is not pinned.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from verdict import tell


class Stream:
    """A stream whose work is done as soon as it is given."""

    def synchronize(self) -> None:
        """Nothing is under way."""

    def record_event(self, event: Any) -> None:
        """What came before is done."""

    def wait_event(self, event: Any) -> None:
        """What is waited for is done."""


class Engine:
    """A manager whose loop runs in this thread: `events` happen before its passes, in place of clients."""

    def __init__(self, asynchronous: bool = False, swap: int = 0, sequences: int = 1, **config: Any) -> None:
        """`swap` is the size of the CPU's memory in blocks; `config` goes to ContinuousBatchingConfig."""
        import torch
        from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        torch.manual_seed(0)
        llama = LlamaConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            attn_implementation="sdpa",
        )
        self.model = LlamaForCausalLM(llama).eval().to(torch.float64)
        self.page = int(config.setdefault("page_size", 4))
        block = 2 * llama.num_hidden_layers * llama.num_key_value_heads * 8 * 8 * self.page
        self.manager = self.model.init_continuous_batching(
            GenerationConfig(do_sample=sequences > 1, eos_token_id=-1, pad_token_id=0, num_return_sequences=sequences),
            ContinuousBatchingConfig(use_async_batching=asynchronous, cpu_offload_space=swap * block / 2**30, **config),
        )
        if asynchronous:
            _pretend_streams()
        if swap:
            _pretend_pinned()

    @property
    def processor(self) -> Any:
        """The ContinuousBatchProcessor of the loop."""
        return self.manager.batch_processor

    def submit(self, name: str, prompt: Sequence[int], tokens: int) -> None:
        """A request for so many tokens."""
        self.manager.add_request(list(prompt), request_id=name, max_new_tokens=tokens)

    def cancel(self, name: str) -> None:
        """Its client goes away."""
        self.manager.cancel_request(name)

    def run(self, events: Mapping[int, Callable[[], None]], passes: int = 60) -> str:
        """Runs the loop for so many passes, the event of a pass before it. The error that ended it, or nothing."""
        left = iter(range(passes))
        body, status = self.manager._generation_loop_body, self.manager.background_thread_status

        def one_pass(processor: Any, bootstrapping: bool) -> bool:
            number = next(left, None)
            if number is None:
                status.request_stop(status.HARD_STOP, 0)
            elif number in events:
                events[number]()
            return bool(body(processor, bootstrapping))

        self.manager._generation_loop_body = one_pass
        self.manager._wake_up_loop.set = lambda: None
        self.manager._wake_up_loop.wait = lambda timeout: None
        status.clear()
        self.manager._run_generation_loop(False)
        error = status.fatal_error
        return f"{type(error).__name__}: {error}" if error is not None else ""

    def answers(self) -> dict[str, tuple[list[int], str]]:
        """What clients got: for each request its tokens and, if it failed, why."""
        queue, found = self.manager.output_router.output_queue, {}
        while not queue.empty():
            output = queue.get()
            found[output.request_id] = (output.generated_tokens, output.error or "")
        return found

    def alone(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """What the model answers by itself."""
        import torch
        from transformers import GenerationConfig

        config = GenerationConfig(do_sample=False, max_new_tokens=tokens, eos_token_id=None, pad_token_id=0)
        return self.model.generate(torch.tensor([list(prompt)]), generation_config=config)[0, len(prompt) :].tolist()


def _pretend_streams() -> None:
    from transformers.generation.continuous_batching import continuous_api, input_outputs, model_runner
    from transformers.generation.continuous_batching import offloading_manager as offloading

    input_outputs.ContinuousBatchingAsyncIOs._supported_device_types = ("cpu",)
    input_outputs.create_device_stream = lambda device: Stream()
    for module in (continuous_api, input_outputs, model_runner, offloading):
        module.stream_context = lambda stream: nullcontext()


def _pretend_pinned() -> None:
    import torch

    made = torch.empty
    torch.empty = lambda *size, pin_memory=False, **rest: made(*size, **rest)


def told(answers: Mapping[str, tuple[list[int], str]]) -> str:
    """What clients got, in words."""
    parts = [f"{name} {'failed' if why else f'got {len(tokens)} tokens'}" for name, (tokens, why) in answers.items()]
    return ", ".join(parts) or "no client got anything"


def started() -> str:
    """The engine's name and release."""
    import logging

    import transformers

    logging.disable(logging.CRITICAL)
    return f"transformers {transformers.__version__}"


def main(case: Callable[[], tuple[str, str, bool]], fix: Callable[[], None] = lambda: None) -> None:
    """Tells what `case` expects, what happens, and whether the defect shows; see `tell`."""
    tell(started, case, fix)
