"""The engine dies when a model with Mamba layers is given fewer drafts in a step than in the one before.

Full attention and Mamba (mode align), with drafts that are looked up in the prompt (method ngram, 4 tokens), so that
there are some in one step and none in the next. The blocks of a step with 4 drafts are allocated; all 4 are rejected,
and the next step, without drafts, ends before the block that the last one began in. It needs fewer blocks than the
request holds, and the Mamba group asserts that it never does.
"""

from typing import Any

from engine_without_device import NoDevice, death, layer, main, mamba, start, submit
from vllm.config import SpeculativeConfig
from vllm.v1.outputs import DraftTokenIds

WANTED = "AssertionError: num_required_blocks 6 < len(req_blocks) 7"


class Sometimes(NoDevice):
    """Finds drafts in every second step only."""

    found = False

    def _take_draft_token_ids(self) -> Any:
        drafts = super()._take_draft_token_ids()
        self.found = not self.found
        return drafts if self.found else DraftTokenIds(drafts.req_ids, [[] for _ in drafts.req_ids])


def case() -> tuple[str, str, bool]:
    """One request, with an answer that goes over several blocks."""
    engine = start(
        {"full": layer("FullAttentionSpec"), "mamba": mamba(num_speculative_blocks=4)},
        blocks=64,
        length=256,
        batch=256,
        cache={"mamba_cache_mode": "align"},
        speculative_config=SpeculativeConfig(method="ngram", num_speculative_tokens=4, prompt_lookup_max=3),
        device=Sometimes,
    )
    submit(engine, "only", range(1, 21), answer=40)
    if how := death(engine, WANTED):
        print(f"exception: {how}")
    steps = engine.model_executor.steps
    drafted = sum(bool(step.scheduled_spec_decode_tokens) for step in steps)
    return (
        "the request gets its answer of 40 tokens",
        f"{how or 'it ends'}, after {len(steps)} steps, {drafted} of them with drafts",
        bool(how),
    )


main(case)
