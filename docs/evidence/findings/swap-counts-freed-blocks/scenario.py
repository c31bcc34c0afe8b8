"""Offloading to the CPU: what was counted as free is given back before it is taken, and all requests are lost.

The CPU's memory has been used once and is free again, its sectors still assigned. A request is set back that is larger
than this memory. Its free blocks are counted; then a sector more is asked for, whole free sectors are given back to
find one, and more blocks are taken than are left.
"""

from fix import fix
from transformers_without_device import Engine, main, told


def case() -> tuple[str, str, bool]:
    """A cache of 12 blocks and 4 on the CPU: first requests of up to 4 blocks in turns, then of more."""
    engine = Engine(swap=4, num_blocks=12, max_batch_tokens=16)

    def small() -> None:
        for name in ("a", "b", "c", "d"):
            engine.submit(name, [ord(name) - 90, 2, 3, 4, 5, 6, 7, 8], 8)

    def large() -> None:
        for name in ("e", "f"):
            engine.submit(name, [ord(name) - 90, 3, 4, 5, 6, 7, 8, 9], 30)

    error = engine.run({0: small, 40: large}, 150)
    answers = engine.answers()
    ends = f"{told(answers)}\nexception: {error}" if error else told(answers)
    return "all six get their tokens; what does not fit on the CPU is computed again", ends, bool(error)


main(case, fix)
