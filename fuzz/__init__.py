"""The harness: workloads, targets, oracles, traces, reports and the command line.

For tests of your own: `from blockproof.fuzz import lockstep_machine`; the test files that a finding leaves behind use
`replay_text`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engines.machine import lockstep_machine
    from .traces.reproduction import replay_text

__all__ = ["lockstep_machine", "replay_text"]


def __getattr__(name: str) -> object:
    """Loaded when asked for: the child process of a target imports this package, but has no Hypothesis."""
    if name == "lockstep_machine":
        from .engines.machine import lockstep_machine

        return lockstep_machine
    if name == "replay_text":
        from .traces.reproduction import replay_text

        return replay_text
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
