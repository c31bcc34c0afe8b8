"""The limits from which on our core does something in bulk: low in cores that cannot come to them.

Eight blocks have to be registered, found or given back at once before our core does so together. A core whose tables
are shorter than two such rows runs with limits of two blocks, so that what is short comes to the same code; a larger
one runs as it is. This follows from the shape: a trace says it, and a finding keeps its limits while it is shrunk.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from weakref import WeakKeyDictionary

from ...model.ops import Shape

LIMITS: Mapping[str, Mapping[str, int]] = {
    "pool.block_pool": {"_BULK": 2},
    "pool.hash_map": {"_WORTH_A_RUN": 2},
    "pool.free_queue": {"_SMALL": 2, "MANY": 1},
    "pool.block": {"MANY": 1, "SPARSE": 1},
}
"""Low limits in blocks, by module of our core and name in it."""
_usual: WeakKeyDictionary[ModuleType, Mapping[str, int]] = WeakKeyDictionary()
"""What the limits of a module were before they were low."""
SHORT = 16
"""Tables of fewer entries are short: twice the limit of the core as it is."""


def is_short(shape: Shape) -> bool:
    """True if the longest request has a short table in every group."""
    sizes = [group.block_size * shape.parallel for group in shape.groups]
    return -(-shape.max_model_len // min(sizes, default=1)) < SHORT


def set_limits(shape: Shape, package: str) -> None:
    """Set the limits of one of our cores for a shape. They stay until another shape has its core built."""
    for name, low in LIMITS.items():
        module = import_module(f"{package}.{name}")
        if is_short(shape):
            _usual.setdefault(module, {limit: vars(module)[limit] for limit in low})
            vars(module).update(low)
        else:
            vars(module).update(_usual.pop(module, {}))
