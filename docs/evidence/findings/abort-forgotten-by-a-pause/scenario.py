"""A request that is cancelled in the midst of its prompt is computed to the end of it behind a pause for new weights.

SGLang with chunked prefill. A long prompt is computed in pieces. Behind the first piece its client goes away, and
before the next one `pause_generation` comes with mode "retract", as it does when new weights are loaded.
"""

from fix import fix
from sglang_without_device import main, request, scheduler, srt


def case() -> tuple[str, str, bool]:
    """A prompt of 20 tokens, 8 in a step."""
    engine, inputs = scheduler(), srt("managers.io_struct")
    engine.process_input_requests([request("a", range(1, 21), 4)])
    engine.step()
    engine.computed.clear()
    messages = (inputs.AbortReq(rid="a"), inputs.PauseGenerationReqInput(mode="retract"))
    engine.process_input_requests([*messages, inputs.ContinueGenerationReqInput(torch_empty_cache=False)])
    for _ in range(8):
        engine.step()
    tokens = sum(count for _, _, count in engine.computed)
    return "nothing of it is computed any more", f"{tokens} of its 20 tokens are computed behind the abort", tokens > 0


main(case, fix)
