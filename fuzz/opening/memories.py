"""From the text of `--tensors` to what the shadow memory keeps its tags in."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...model.ops import Group, Shape
from ..faults.tensors import DATA_PLANE_FAULTS
from ..oracles.shadow import ListMemory, Memory
from ..targets.base import TargetUnavailableError

if TYPE_CHECKING:
    from ..oracles.shadow.tensors import TensorMemory


def memory_named(tensors: str | None) -> Callable[[Shape], Memory]:
    """What makes the shadow memory of a run: lists for None, else tensors there.

    ValueError for an unknown place, TargetUnavailableError without torch or without the device.
    """
    if tensors is None:
        return ListMemory
    return open_tensor_memory(tensors)


def open_tensor_memory(where: str) -> "Callable[[Shape], TensorMemory]":
    """What makes the memory of a run on a device: `cpu`, `cuda`, ...; with `auto` CUDA where present, else the host.

    `fault:NAME` is `auto` with a planted fault of `faults.tensors`. ValueError for an unknown fault,
    TargetUnavailableError without torch, or for a device that cannot be used.
    """
    name = where.removeprefix("fault:") if where.startswith("fault:") else None
    if name is not None and name not in DATA_PLANE_FAULTS:
        raise ValueError(f"unknown fault {name!r}; write fault: and one of {', '.join(DATA_PLANE_FAULTS)}")
    device = None if where == "auto" or name is not None else where
    try:
        importlib.import_module("torch")
    except ImportError:
        raise TargetUnavailableError("tensors need torch: pip install 'blockproof[tensors]'") from None
    from ..oracles.shadow.tensors import TensorMemory  # costs a tenth of a second, which other runs need not pay

    try:
        TensorMemory(Shape((Group("full", 1),), 2, 1, 1, 1, 1), device)
    except ValueError as error:
        raise TargetUnavailableError(str(error)) from None

    def new_memory(shape: Shape) -> "TensorMemory":
        memory = TensorMemory(shape, device)
        if name is not None and shape.groups:
            DATA_PLANE_FAULTS[name].plant(memory)
        return memory

    return new_memory
