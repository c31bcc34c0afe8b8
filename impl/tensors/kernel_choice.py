"""Which device is used, and which kernels it gets: Triton's, or torch's."""

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


def usable_device(device: str | torch.device | None) -> torch.device:
    """Which device this is; "cuda" where there is one, else "cpu", unless given. ValueError if it cannot be used."""
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {str(device)!r} cannot be used here ({reason}): give one that can") from error
