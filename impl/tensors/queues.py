"""Where work for a device is queued: done at once on a CPU, on the current stream of a GPU."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


class HostQueue:
    """Work that a device does in order, while the host goes on. Here that is the CPU: all is done at once."""

    def memory(self, count: int) -> torch.Tensor:
        """So many int32 zeros of the host that the device reads and writes by itself."""
        import torch

        return zeros((count,), torch.int32, torch.device("cpu"))

    def keeps(self, owner: object) -> None:
        """The memory of this object is given back once the device is done with it: it reads and writes it by itself."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queue a copy from memory of the host, or to it."""
        target.copy_(source)

    def call(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Queue a kernel."""
        kernel(*arguments)

    def wait(self, done: Callable[[], bool]) -> None:
        """Return when this holds, which work that is queued makes true."""
        if not done():
            raise RuntimeError("nothing reads what was sent: launch kernels, or replay them, once for each `upload`")

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Queue nothing now; return what queues this work as a whole, each time it is called."""
        return work

    def beside(self) -> HostQueue:
        """Another queue of the device, whose work may overlap with that of this one."""
        return self

    def after(self, other: HostQueue) -> None:
        """What is queued here from now on begins when all has ended that is queued there now."""


class CudaQueue(HostQueue):
    """A stream, the current one unless given; copies come from pinned memory and do not wait."""

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self._stream = stream

    def memory(self, count: int) -> torch.Tensor:
        """As of `HostQueue`."""
        import torch

        return zeros((count,), torch.int32, torch.device("cpu"), pinned=True)

    def keeps(self, owner: object) -> None:
        """As of `HostQueue`. torch knows of copies from pinned memory, and of no kernels that use it."""
        weakref.finalize(owner, _finished).atexit = False

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """As of `HostQueue`."""
        target.copy_(source, non_blocking=True)

    def call(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """As of `HostQueue`."""
        if self._stream is None:
            kernel(*arguments)
            return
        import torch

        with torch.cuda.stream(self._stream):
            kernel(*arguments)

    def wait(self, done: Callable[[], bool]) -> None:
        """As of `HostQueue`. An error of the device is raised here."""
        import torch

        for _ in range(1000):
            if done():
                return
        torch.cuda.synchronize()
        super().wait(done)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """As of `HostQueue`. The kernels have to be compiled before."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        replay: Callable[[], None] = graph.replay
        return _launcher(graph) or replay

    def beside(self) -> CudaQueue:
        """As of `HostQueue`."""
        import torch

        return CudaQueue(torch.cuda.Stream())

    def after(self, other: HostQueue) -> None:
        """As of `HostQueue`."""
        import torch

        here, there = (getattr(queue, "_stream", None) or torch.cuda.current_stream() for queue in (self, other))
        here.wait_stream(there)


def _finished() -> None:
    import torch

    if not torch.cuda.is_current_stream_capturing():  # where nobody may wait
        torch.cuda.synchronize()


def _launcher(graph: torch.cuda.CUDAGraph) -> Callable[[], None] | None:
    """Launches it on the current stream by the driver, a microsecond sooner than `replay`; None where that cannot be.

    RuntimeError, when called, for an error of the device.
    """
    import torch

    stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    try:
        launch, captured = ctypes.CDLL("libcuda.so.1").cuGraphLaunch, graph.raw_cuda_graph_exec()
    except (OSError, AttributeError):
        return None
    if stream_of is None:
        return None
    launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    device = torch.cuda.current_device()

    def replay(kept: torch.cuda.CUDAGraph = graph) -> None:
        if error := launch(captured, stream_of(device)):
            raise RuntimeError(f"the device cannot launch a graph: CUDA error {error}")

    return replay


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, pinned: bool = False) -> torch.Tensor:
    """Zeros that may be written in and outside of torch's inference mode, wherever they are made."""
    import torch

    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)


def queue_of(device: torch.device) -> HostQueue:
    """The queue of a device."""
    return CudaQueue() if device.type == "cuda" else HostQueue()


def sent(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """A copy on a device; on a GPU from pinned memory, so that nobody waits."""
    import torch

    source = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return source.pin_memory().to(device, non_blocking=True)
    return source.to(device, copy=True)
