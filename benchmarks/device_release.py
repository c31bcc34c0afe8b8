"""The block tables of an installed release of vLLM (0.33.0), called as its engine calls them.

Only the files with its kernels are loaded, from the folder of packages in which it is installed, so that neither its
compiled parts nor its other needs have to be there. What they import of it besides is stood in for below.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch


class _OnDevice:
    """Pinned memory of the host as the device addresses it."""

    def __init__(self, pinned: torch.Tensor) -> None:
        kind = {torch.int32: "<i4", torch.int64: "<i8", torch.float32: "<f4"}[pinned.dtype]
        place = {"shape": tuple(pinned.shape), "typestr": kind, "data": (pinned.data_ptr(), False), "version": 3}
        self.__cuda_array_interface__ = place
        self.pinned = pinned


def _view(pinned: torch.Tensor) -> Any:
    return torch.as_tensor(_OnDevice(pinned), device="cuda")


def to_device(data: Any, device: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """A copy from pinned memory that does not wait."""
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(data)
    source = torch.as_tensor(data, dtype=dtype or (None if out is None else out.dtype))
    if torch.cuda.is_available():
        source = source.pin_memory()
    return source.to(device, non_blocking=True) if out is None else out.copy_(source, non_blocking=True)


def release_tables(packages: Path) -> Any:
    """The class of the release's tables. ImportError where the release has no such files."""
    import triton
    import triton.language as tl

    cuda = torch.cuda.is_available()
    stand_ins: dict[str, dict[str, Any]] = {
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.v1.attention.backends.utils": {"PAD_SLOT_ID": -1},
        "vllm.logger": {"init_logger": lambda name: SimpleNamespace(warning_once=print)},
        "vllm.utils.platform_utils": {"is_uva_available": lambda: cuda},
        "vllm.utils.torch_utils": {"async_tensor_h2d": to_device, "get_accelerator_view_from_cpu_tensor": _view},
        "vllm.platforms": {"current_platform": SimpleNamespace(device_type="cuda" if cuda else "cpu")},
    }
    for name in ("vllm", "vllm.utils", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends", "vllm.v1.worker"):
        package = ModuleType(name)
        package.__path__ = [str(packages / name.replace(".", "/"))]
        sys.modules[name] = package
    sys.modules["vllm.v1.worker.gpu"] = package = ModuleType("vllm.v1.worker.gpu")
    package.__path__ = [str(packages / "vllm/v1/worker/gpu")]
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        sys.modules[name] = module
    return import_module("vllm.v1.worker.gpu.block_table").BlockTables
