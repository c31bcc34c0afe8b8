"""A LoRA adapter that was trained further and loaded again is answered from blocks of the old weights.

Twice: loaded in place (`load_inplace`, same name, number and path), and unloaded and loaded again under the same name
and path, which gives it a new number and no warning anywhere.
"""

from typing import Any

from engine_without_device import layer, main, run, served, start, submit
from fix import fix
from vllm.config import LoRAConfig
from vllm.lora.request import LoRARequest


def reused(**again: Any) -> int:
    """Tokens of a prompt of 40 that are served from the cache after the adapter was loaded again."""
    lora = LoRAConfig(max_lora_rank=16, max_loras=4)
    engine = start({"full": layer("FullAttentionSpec")}, blocks=64, length=256, batch=128, lora_config=lora)
    before: dict[str, Any] = {"lora_name": "tenant", "lora_int_id": 1, "lora_path": "/adapters/tenant"}
    for name, adapter in (("before", before), ("after", before | again)):
        engine.add_lora(LoRARequest(**adapter))  # as load_lora_adapter does
        submit(engine, name, range(1, 41), lora_request=LoRARequest(**(adapter | {"load_inplace": False})))
        run(engine)
    return served(engine, "after")


def case() -> tuple[str, str, bool]:
    """The adapter's file has changed between the two requests."""
    in_place, anew = reused(load_inplace=True), reused(lora_int_id=2)
    return (
        "no block computed with the old weights is used for the new ones",
        f"{in_place} of 40 tokens are reused after loading in place, {anew} of 40 after unloading and loading",
        in_place > 0 or anew > 0,
    )


main(case, fix)
