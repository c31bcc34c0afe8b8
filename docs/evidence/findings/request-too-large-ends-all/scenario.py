"""A request that is larger than the cache ends the generation loop, and all other requests with it.

It is let in, takes what there is, and when it alone is left the loop ends with an error. With asynchronous batching a
request that fits exactly does the same: room is wanted for the token behind its last one, before it is known to end.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """A cache of 32 tokens, and requests that come to 40, or, asynchronously, to 32."""
    lines = []
    for asynchronous, tokens in ((False, 32), (True, 25)):
        engine = Engine(asynchronous=asynchronous, num_blocks=8, max_batch_tokens=16)

        def both(engine: Engine = engine, tokens: int = tokens) -> None:
            engine.submit("large", range(1, 9), tokens)
            engine.submit("small", range(11, 15), 4)

        later = {0: both, 60: lambda engine=engine: engine.submit("later", (1, 2, 3), 4)}
        error = engine.run(later, 100)
        how = f"{'asynchronously' if asynchronous else 'in step'}, 8 and {tokens} tokens in 32: "
        lines.append((how + told(engine.answers()) + (f"\nexception: {error}" if error else ""), bool(error)))
    expected = "small and later get 4 tokens; in step, large fails by itself; asynchronously it gets its 25 tokens"
    return expected, "\n".join(line for line, _ in lines), any(shows for _, shows in lines)


main(case, fix)
