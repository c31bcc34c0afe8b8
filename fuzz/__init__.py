"""The harness: workloads, targets, oracles, traces, reports and the command line.

For tests of your own: `kv_cache_machine`, a Hypothesis state machine for a core, and `shapes`, the strategy of its
shapes. The test files that a finding leaves behind use `replay_text`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testing.stateful import kv_cache_machine
    from .testing.stateful_strategies import shapes
    from .traces.reproduction import replay_text

__all__ = ["kv_cache_machine", "replay_text", "shapes"]

_PLACES = {
    "kv_cache_machine": "testing.stateful",
    "replay_text": "traces.reproduction",
    "shapes": "testing.stateful_strategies",
}


def __getattr__(name: str) -> object:
    """Loaded when asked for: the child process of a target imports this package, but has no Hypothesis."""
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    if name == "lockstep_machine":  # for one version; an AttributeError would lose the words where it is imported
        raise ImportError("lockstep_machine has gone: kv_cache_machine of blockproof.fuzz takes the same target")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
