"""Another LoRA adapter under an old name is answered from blocks of the old one.

The adapter is unloaded, and one from another path is loaded under the same name. Blocks are named by the adapter's name
alone.
"""

from engine_without_device import layer, main, run, served, start, submit
from vllm.config import LoRAConfig
from vllm.lora.request import LoRARequest


def case() -> tuple[str, str, bool]:
    """One prompt, before and after."""
    lora = LoRAConfig(max_lora_rank=16, max_loras=4)
    engine = start({"full": layer("FullAttentionSpec")}, blocks=64, length=256, batch=128, lora_config=lora)
    for number, name in ((1, "before"), (2, "after")):
        adapter = LoRARequest("tenant", number, f"/adapters/version-{number}")
        submit(engine, name, range(1, 41), lora_request=adapter)
        run(engine)
    tokens = served(engine, "after")
    return (
        "no block computed with the old adapter is used for the new one",
        f"{tokens} of 40 tokens are served from blocks of the old adapter",
        tokens > 0,
    )


main(case)
