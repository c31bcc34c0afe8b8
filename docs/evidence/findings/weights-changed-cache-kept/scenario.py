"""Prompts are answered from keys and values of the old weights after the model was trained.

With `persistent_manager=True` the manager of one `generate_batch` serves the next one, as a training loop wants it.
Its prefix cache is kept, whatever happened to the weights in between. Nothing is pretended here.
"""

from typing import Any

from fix import fix
from transformers_without_device import Engine, main

PROMPT = tuple(range(1, 18))


def generate(model: Any) -> list[int]:
    """Six tokens by `generate_batch`, whose manager stays."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    outputs = model.generate_batch(
        [list(PROMPT)],
        generation_config=GenerationConfig(do_sample=False, max_new_tokens=6, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(page_size=4, num_blocks=32, max_batch_tokens=32),
        persistent_manager=True,
    )
    return list(next(iter(outputs.values())).generated_tokens)


def case() -> tuple[str, str, bool]:
    """One prompt before and after the weights change."""
    import torch

    engine = Engine(num_blocks=32, max_batch_tokens=32)
    before = generate(engine.model) == engine.alone(PROMPT, 6)
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    got, right = generate(engine.model), engine.alone(PROMPT, 6)
    engine.model.destroy_cached_continuous_batching_manager()
    return f"with new weights the answer is {right}", f"it is {got}", before and got != right


main(case, fix)
