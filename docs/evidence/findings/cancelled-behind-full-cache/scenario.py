"""The running request is cancelled while another waits for room: nothing runs any more, also nothing that comes later.

Two requests fit into the cache at first and not when they grow. The younger one is set back, and a flag keeps new
requests out until one finishes. The client of the older one goes away. Nothing is left that could finish.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """A cache of 8 blocks, two requests that need 6 each."""
    engine = Engine(num_blocks=8, max_batch_tokens=16)

    def two() -> None:
        engine.submit("older", range(1, 9), 16)
        engine.submit("younger", range(11, 19), 16)

    error = engine.run({0: two, 12: lambda: engine.cancel("older"), 30: lambda: engine.submit("later", (1, 2), 4)}, 200)
    scheduler, cache = engine.processor.scheduler, engine.processor.cache
    answers = {name: answer for name, answer in engine.answers().items() if not answer[1]}
    stuck = f"{scheduler.block_new_requests=}".removeprefix("scheduler.")
    return (
        "younger gets 16 tokens and later gets 4: the cache is empty behind the cancel",
        f"after 200 passes {told(answers)}; {stuck}, {cache.compute_free_capacity():.0%} of the cache is free{error}",
        len(answers) < 2,
    )


main(case, fix)
