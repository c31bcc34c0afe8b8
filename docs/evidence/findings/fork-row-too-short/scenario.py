"""A prompt of one token more than fits into a row of the kernel's block table ends the loop if it is to be forked.

Room is made for the last two tokens of the prompt, then one is held back for the fork. The step computes one token, so
it is taken for a decode that the kernel with block tables can do; but the request has one block more than a row.

Pretended: that there is such a kernel (`max_blocks_per_request`, 4 here, 32 by default), which wants a GPU. The step
is not run.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """Two sequences of a prompt of 17 tokens, rows for 16, steps of 15 and 1."""
    engine = Engine(sequences=2, num_blocks=32, max_batch_tokens=15)
    engine.manager.continuous_batching_config.max_blocks_per_request = 4
    steps: list[bool] = []

    def remember() -> None:
        steps.append(engine.processor.inputs_and_outputs.use_block_table)
        engine.manager._generation_step = lambda: None

    error = engine.run({0: lambda: engine.submit("two", range(1, 18), 4), 1: remember}, 2)
    happened = f"{told(engine.answers())}\nexception: {error}" if "tensor" in error else "both steps are prepared"
    return "the second step is prepared, with or without block tables", happened, "tensor" in error


main(case, fix)
