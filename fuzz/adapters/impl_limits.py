"""The limits from which on our core does something in bulk: low in cores that cannot come to them.

Eight blocks have to be registered, found or given back at once before our core does so together. A core whose tables
are shorter than two such rows runs with limits of two blocks, so that what is short comes to the same code; a larger
one runs as it is. This follows from the shape: a trace says it, and a finding keeps its limits while it is shrunk.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from ...model.ops import Shape
from .vllm.surroundings import BLOCKS_MOVE, Changed, Surroundings

LIMITS: Mapping[str, Mapping[str, int]] = {
    "pool.block_pool": {"_BULK": 2},
    "pool.hash_map": {"_WORTH_A_RUN": 2},
    "pool.free_queue": {"SMALL": 2, "MANY": 1},
    "pool.block": {"MANY": 1, "SPARSE": 1},
    "today.asleep": {"AWAKE": 2},
    "today.block_pool": {"FEW": 1},
}
"""Low limits in blocks, by module of our core and name in it."""
SHORT = 16
"""Tables of fewer entries are short: twice the limit of the core as it is."""


def is_short(shape: Shape) -> bool:
    """True if the longest request has a short table in every group."""
    sizes = [group.block_size * shape.parallel for group in shape.groups]
    return -(-shape.max_model_len // min(sizes, default=1)) < SHORT


@cache
def limits_of(package: str) -> list[Changed]:
    """The limits with their places, low and as they are. Looked up once, before any are low: a core may be made while
    another one is in a call, in a thread of its own. To be forgotten where these modules are read again."""
    modules = [(import_module(f"{package}.{module}").__dict__, low) for module, low in LIMITS.items()]
    return [(names, name, limit, names[name]) for names, low in modules for name, limit in low.items()]


class LowLimits(Surroundings):
    """A context manager around each call on one of our cores that may come to a limit. The limits are low during a call
    only: other cores may live in this process, and whatever else uses our core."""

    def __init__(self, shape: Shape, package: str) -> None:
        super().__init__(shape)
        if is_short(shape):
            self.operations |= BLOCKS_MOVE  # no other operation comes to a limit
            self._changed += limits_of(package)
