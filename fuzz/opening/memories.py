"""Chooses the storage of the shadow memory from the value of `--tensors`."""

import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...model.ops import Group, Shape
from ..faults import Part, fault_named
from ..oracles.shadow import ListMemory, Memory
from ..targets.base import TargetUnavailableError

if TYPE_CHECKING:
    from ..oracles.shadow.tensors import TensorMemory


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|npu|xla|mtia|musa)(:\d{1,4})?")
"""The devices of torch; whether there is one is asked of torch."""


def memory_named(tensors: str | None) -> Callable[[Shape], Memory]:
    """Makes the storage for a run: lists for None, else tensors on the named device. Errors as `open_tensor_memory`."""
    if tensors is None:
        return ListMemory
    return open_tensor_memory(tensors)


def open_tensor_memory(where: str) -> "Callable[[Shape], TensorMemory]":
    """Makes the storage for a run on a device: `cpu`, `cuda`, ...; with `auto` on CUDA if there is one, else on the
    CPU.

    `fault:NAME` is `auto` with a fault planted in the tensors. ValueError for an unknown fault, or a name that no
    device has, TargetUnavailableError without torch, or for a device that cannot be used.
    """
    fault = fault_named(where, Part.TENSORS)
    if fault is None and where != "auto" and not _DEVICE.fullmatch(where):
        raise ValueError(f"{where!r} is no device; write auto, cpu, cuda, cuda:1, or fault:NAME")
    device = None if where == "auto" or fault is not None else where
    try:
        importlib.import_module("torch")
    except ImportError:
        raise TargetUnavailableError("tensors need torch: pip install '/path/to/blockproof[tensors]'") from None
    from ..oracles.shadow.tensors import TensorMemory  # costs a tenth of a second, which other runs need not pay

    try:
        TensorMemory(Shape((Group("full", 1),), 2, 1, 1, 1, 1), device)
    except ValueError as error:
        raise TargetUnavailableError(str(error)) from None

    def new_memory(shape: Shape) -> "TensorMemory":
        memory = TensorMemory(shape, device)
        if fault is not None and shape.groups:
            fault.plant(memory)
        return memory

    return new_memory
