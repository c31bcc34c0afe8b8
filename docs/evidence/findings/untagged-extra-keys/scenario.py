"""A request without an adapter goes on from keys and values that were computed with somebody's LoRA adapter.

Its `cache_salt` is the adapter's name. A block's hash takes the salt and the adapter's name as bare texts, so the two
look alike in the first block of a prompt. The salt stands in the first block only, so that block alone is shared.
"""

from engine_without_device import layer, main, run, served, start, submit
from vllm.config import LoRAConfig
from vllm.lora.request import LoRARequest


def case() -> tuple[str, str, bool]:
    """One prompt, with an adapter and then with its name as the salt."""
    lora = LoRAConfig(max_lora_rank=16, max_loras=4)
    engine = start({"full": layer("FullAttentionSpec")}, blocks=64, length=256, batch=128, lora_config=lora)
    submit(engine, "adapter", range(1, 41), lora_request=LoRARequest("tenant", 1, "/adapters/tenant"))
    run(engine)
    submit(engine, "salt", range(1, 41), prompt={"cache_salt": "tenant"})
    run(engine)
    tokens = served(engine, "salt")
    return (
        "the request without an adapter finds nothing in the cache",
        f"{tokens} of its 40 tokens are served from blocks computed with the adapter",
        tokens > 0,
    )


main(case)
