"""The kinds of workloads by name, as a child process is asked for them."""

from collections.abc import Mapping

from ..targets.driver import Driver
from .making import Construction, Creation
from .prompts import Prompts
from .running import Decode, Short, Tables
from .traffic import Traffic
from .workload import Params, Workload

KINDS: Mapping[str, type[Workload]] = {
    "prompts": Prompts,
    "decode": Decode,
    "tables": Tables,
    "short": Short,
    "creation": Creation,
    "construction": Construction,
    "traffic": Traffic,
}


def workload(kind: str, driver: Driver, params: Params) -> Workload:
    """A workload of this kind, not prepared yet."""
    return KINDS[kind](driver, params)
