"""Two requests of one name end the generation loop, and with it all requests.

`transformers serve` takes the name of a request from its client, the header X-Request-ID. Requests that wait are kept
by name, and in a list of names: the second replaces the first, and then stands in the list twice.
"""

from collections.abc import Callable

from fix import fix
from transformers_without_device import Engine, main, told


def at_once(engine: Engine) -> dict[int, Callable[[], None]]:
    """Two of one name arrive together."""

    def arrive() -> None:
        for prompt in ((5, 6, 7), (8, 9, 10)):
            engine.submit("same", prompt, 4)
        engine.submit("other", (1, 2), 4)

    return {0: arrive}


def behind_cancel(engine: Engine) -> dict[int, Callable[[], None]]:
    """One waits behind a long prompt; its client goes away and asks again."""

    def again() -> None:
        engine.cancel("same")
        engine.submit("same", (8, 9, 10), 4)

    return {0: lambda: engine.submit("other", range(1, 40), 4), 1: lambda: engine.submit("same", (5, 6), 4), 2: again}


def case() -> tuple[str, str, bool]:
    """Both, in step."""
    lines, errors = [], []
    for name, events in (("at once", at_once), ("asked again behind a cancel", behind_cancel)):
        engine = Engine(num_blocks=32, max_batch_tokens=4)
        errors.append(engine.run(events(engine)))
        lines.append(f"{name}: {told(engine.answers())}" + (f"\nexception: {errors[-1]}" if errors[-1] else ""))
    expected = "other gets its 4 tokens; of those of one name, one may fail by itself"
    return expected, "\n".join(lines), any(errors)


main(case, fix)
