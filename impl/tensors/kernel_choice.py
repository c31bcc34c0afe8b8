"""Which kernels a device gets: Triton's, or torch's."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def kernel_module(device: torch.device, name: str | None = None) -> Any:
    """The module with the kernels: "triton" or "torch"; by default Triton's on a GPU that has it."""
    if name is None:
        name = "triton" if device.type == "cuda" and find_spec("triton") else "torch"
    return import_module(f".{name}_kernels", __package__)
