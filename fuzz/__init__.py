"""The harness: workloads, targets, oracles, traces, shrinking, reports and the command line.

For tests of your own: `from blockproof.fuzz import lockstep_machine`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import lockstep_machine

__all__ = ["lockstep_machine"]


def __getattr__(name: str) -> object:
    """Loaded when asked for: the child process of a target imports this package, but has no Hypothesis."""
    if name == "lockstep_machine":
        from .machine import lockstep_machine

        return lockstep_machine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
