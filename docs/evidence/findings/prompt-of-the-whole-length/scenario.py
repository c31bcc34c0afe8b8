"""A prompt of the whole session length shifts the rows of the batch: another request is given its tokens.

LMDeploy's PyTorch engine. Nothing is left for an answer to the first prompt, so the engine leaves it out of those that
decode; the model agent has a row for it in its batch. From then on the rows that the engine names are those of others.

Needs the Python files of LMDeploy and what these import, torch on a CPU; no GPU.
"""

import asyncio

from fix import fix
from lmdeploy_loop_without_device import LENGTH, Served
from lmdeploy_without_device import main


def case() -> tuple[str, str, bool]:
    """A prompt of the whole session length, and another request beside it."""
    served = Served(step=2 * LENGTH)
    served.add(1, LENGTH, 4)
    served.add(2, 4, 8)
    said = asyncio.run(served.run())
    return (
        "each sequence is given its own tokens",
        said[0] if said else "each sequence is given its own tokens",
        bool(said),
    )


main(case, fix)
