"""A prompt that another engine has computed is loaded whole, and its last token is computed without the beginning of
its window.

Prefill and decode in two engines (NixlConnector), full attention and a sliding window. The decoding engine asks for all
N tokens of the prompt, and the scheduler allocates as if N tokens were computed: of the window it keeps what the token
at position N will read. When the load is in, the scheduler goes back to N - 1 computed tokens, and the token at
position N - 1 reads one position further back. If that position is the last one of a block, the block is the null
block. With chunked local attention, and a prompt that ends with its chunk, the whole chunk is null blocks.

Only the engine's own scheduler, start-up and connector run here; the other engine is a set of block ids.
"""

from collections.abc import Sequence
from typing import Any

from engine_without_device import NoDevice, connected, layer, main, run, start, submit, tables
from fix import fix


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
    options = connected("NixlConnector" if loaded else None)
    engine = start(layers, 4096, 2 * max(lengths), max(lengths) - 1, device=Loads, **options)
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


main(case, fix)
