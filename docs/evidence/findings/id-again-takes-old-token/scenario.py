"""Asynchronous batching: a request whose name was used before gets the old one's last token in place of its own.

A step that is prepared before the last one has come back takes tokens over from it, on the device, for requests of the
same name. The last step of a request is always one too many, so its name is still there when the next one of that name
comes: the last token of the new prompt is replaced, and the answer is to another prompt. Nothing is raised.
"""

from fix import fix
from transformers_without_device import Engine, main

FIRST, SECOND = (5, 6, 7, 8, 9), (11, 12, 13)


def case() -> tuple[str, str, bool]:
    """One request, and when it has long ended another one of its name."""
    engine = Engine(asynchronous=True, num_blocks=32, max_batch_tokens=32)
    engine.run({0: lambda: engine.submit("again", FIRST, 4), 20: lambda: engine.submit("again", SECOND, 6)})
    (got, _), right = engine.answers()["again"], engine.alone(SECOND, 6)
    return f"the second answer is {right}, as the model gives it alone", f"the second answer is {got}", got != right


main(case, fix)
