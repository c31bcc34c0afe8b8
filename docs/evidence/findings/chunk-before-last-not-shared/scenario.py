"""Asynchronous batching: blocks of the chunk before a prompt's last one are not found again.

What a chunk completes is registered when its results are looked at, if the request is still in its prompt. The next
step has been prepared by then; if that was the last chunk, the request counts as decoding, and nothing is registered.
"""

from fix import fix
from transformers_without_device import Engine, main

PROMPT = tuple(range(1, 34))


def found(asynchronous: bool) -> int:
    """Tokens of a prompt of 33 that are found when it comes again; it was computed in chunks of 16, 16 and 1."""
    engine = Engine(asynchronous=asynchronous, num_blocks=64, max_batch_tokens=16)
    again: list[int] = []

    def ask() -> None:
        again.append(engine.processor.cache.search_prefix_match("again", list(PROMPT)))

    engine.run({0: lambda: engine.submit("first", PROMPT, 2), 20: ask}, 30)
    return again[0]


def case() -> tuple[str, str, bool]:
    """The same prompt in step and asynchronously."""
    right, got = found(False), found(True)
    return f"{right} of 33 tokens are found again, as in step", f"{got} are", got < right


main(case, fix)
