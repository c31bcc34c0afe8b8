"""A long prompt that is cancelled while a piece of it is being sent ends the model agent's loop.

LMDeploy's PyTorch engine. The cancel is handled where the executor gives other tasks their turn; the piece is taken for
a whole prompt then, and its request for one that decodes. The next prefill tells the model agent to drop a row of it.

Needs the Python files of LMDeploy and what these import, torch on a CPU; no GPU.
"""

import asyncio

from fix import fix
from lmdeploy_loop_without_device import LENGTH, Served
from lmdeploy_without_device import main


def case() -> tuple[str, str, bool]:
    """The first request is a long prompt, and cancelled when its first piece has been sent; then somebody else asks."""
    served = Served(step=LENGTH // 4)
    served.add(1, LENGTH // 2, 4)

    def when_sent() -> None:
        served.executor.when_sent = None
        served.cancel(1)
        asyncio.get_running_loop().call_later(0.2, served.add, 2, 4, 8)

    served.executor.when_sent = when_sent
    said = asyncio.run(served.run())
    happened = f"the model agent ends\nexception: {said[0]}" if said else f"{served.executor.steps} steps are computed"
    return "the second request is computed", happened, bool(said)


main(case, fix)
