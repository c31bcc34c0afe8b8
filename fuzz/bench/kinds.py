"""The kinds of workloads by name, as a child process is asked for them."""

from collections.abc import Mapping

from ..targets.driver import Driver
from .making import Construction, Creation
from .patterns import Patterns
from .prompts import BenchPrompts
from .running import Decode, Short, Tables
from .traffic import Traffic
from .workload import BenchWorkload, Params

KINDS: Mapping[str, type[BenchWorkload]] = {
    "prompts": BenchPrompts,
    "patterns": Patterns,
    "decode": Decode,
    "tables": Tables,
    "short": Short,
    "creation": Creation,
    "construction": Construction,
    "traffic": Traffic,
}


def workload(kind: str, driver: Driver, params: Params) -> BenchWorkload:
    """A workload of this kind, not prepared yet."""
    return KINDS[kind](driver, params)
