"""With several sequences of a prompt a step of no tokens is run, and the generation loop ends.

Of a prompt that is to be forked one token is held back until the fork is made. If only one is left, as of a prompt of
one token, the step has none. Asynchronously the first step is not looked at before the second is prepared: its fork has
not been made, one token is left, and the second step of any prompt has none.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """Two sequences of a prompt of one token, and asynchronously of one of nine."""
    lines, errors = [], []
    for asynchronous, length in ((False, 1), (True, 9)):
        engine = Engine(asynchronous=asynchronous, sequences=2, num_blocks=32, max_batch_tokens=32)
        prompt = range(1, length + 1)
        errors.append(engine.run({0: lambda engine=engine, prompt=prompt: engine.submit("two", prompt, 4)}))
        how = f"{'asynchronously' if asynchronous else 'in step'}, {length} token(s): "
        lines.append(how + told(engine.answers()) + (f"\nexception: {errors[-1]}" if errors[-1] else ""))
    return "two and two__child#0 get 4 tokens each", "\n".join(lines), any(errors)


main(case, fix)
