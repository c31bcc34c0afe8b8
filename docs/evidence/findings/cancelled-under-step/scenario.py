"""Asynchronous batching: a cancel while a step is in flight ends the generation loop, and with it all requests.

A cancel takes effect when the next step is prepared: the request's block table goes. Then the results of the step in
flight come, and the blocks that it completed are looked for in that table.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """Two requests; the client of one goes away while its prompt of two blocks is computed."""
    engine = Engine(asynchronous=True, num_blocks=32, max_batch_tokens=32)

    def two() -> None:
        engine.submit("stays", range(1, 9), 8)
        engine.submit("goes", range(11, 19), 8)

    error = engine.run({0: two, 1: lambda: engine.cancel("goes")})
    answers = engine.answers()
    return "stays gets 8 tokens", f"{told(answers)}\nexception: {error}" if error else told(answers), bool(error)


main(case, fix)
