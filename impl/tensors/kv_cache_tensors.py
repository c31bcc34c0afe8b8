"""The memory that block ids index: a byte buffer per tensor of a configuration, and typed views of it for every layer.

core.md §11. Needs the extra `tensors`; torch is imported when something is allocated, not before. Page i of every layer
that shares a buffer is the same bytes: strides step over whole pages, whatever is padding in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..specs.interface import KVCacheConfig
from .arrays import Places, pairs_of, whole_numbers
from .kernel_choice import kernel_module, usable_device
from .layer_cache import NULL_BLOCK, LayerCache, import_torch
from .layout import plan_tensors
from .queues import sent, zeros

if TYPE_CHECKING:
    import torch

    Allocator: TypeAlias = Callable[[int, torch.device], torch.Tensor]
    """Returns so many zeroed bytes, one-dimensional uint8, on a device."""

ADDRESSABLE = 2**63 - 1


class KVCacheOutOfMemoryError(MemoryError):
    """The device has no room for all tensors; nothing stays allocated.

    `tensor` is the index of the one that did not fit, `requested` its bytes, `allocated` the bytes before it, `needed`
    those of all tensors together.
    """

    def __init__(self, message: str, *, tensor: int, requested: int, allocated: int, needed: int) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.requested = requested
        self.allocated = allocated
        self.needed = needed


class KVCacheTensors:
    """The buffers of a configuration and the views of its layers."""

    def __init__(self, config: KVCacheConfig, buffers: Sequence[torch.Tensor]) -> None:
        """Views over given buffers, one flat uint8 tensor for each of `config.kv_cache_tensors`.

        ValueError for a configuration that does not hold together (see `plan_tensors`), or for buffers of other sizes.
        """
        plans = plan_tensors(config)
        sizes = [tensor.size for tensor in config.kv_cache_tensors]
        given = [buffer.numel() * buffer.element_size() for buffer in buffers]
        if given != sizes:
            raise ValueError(f"the buffers have {given} bytes, the tensors of the configuration {sizes}")
        self.config = config
        self.num_blocks = config.num_blocks
        self.buffers = list(buffers)
        self._asleep = False
        self.layers = {name: LayerCache(plan, buffers[plan.tensor], config.num_blocks) for name, plan in plans.items()}
        """By name; by group, in the order of each group."""

    @property
    def device(self) -> torch.device:
        """Where the buffers are; there is at least one."""
        return self.buffers[0].device

    @cached_property
    def _kernels(self) -> Any:
        return kernel_module(self.device)

    def of_group(self, group: int) -> list[LayerCache]:
        """The layers of a group, in order. ValueError for a group that does not exist."""
        if not 0 <= group < len(self.config.kv_cache_groups):
            raise ValueError(f"there is no group {group}: groups are 0 to {len(self.config.kv_cache_groups) - 1}")
        return [self.layers[name] for name in self.config.kv_cache_groups[group].layer_names]

    def zero_blocks(self, block_ids: Iterable[int], group: int | None = None) -> None:
        """Zero whole pages of these blocks, padding included, in all buffers or in those of one group, by one kernel.

        The null block, which skipped entries of a block table name, is left as it is. ValueError for an id that does
        not exist; nothing is changed then.
        """
        ids = self._existing(whole_numbers(block_ids if isinstance(block_ids, np.ndarray) else list(block_ids)), "zero")
        ids = ids[ids != NULL_BLOCK]
        for pages in self.pages_by_size(group) if ids.size else ():
            self._kernels.zero_pages(pages, sent(ids, self.device))

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, from the first of each pair to the second, in all buffers by one kernel.

        As for a hit that ends inside a block. ValueError for an id that does not exist, and for a block that is written
        twice, or both read and written: the order is not defined.
        """
        ids = self._existing(pairs_of(pairs), "copy")
        written = ids[:, 1].tolist()
        if len(set(written)) < len(written) or set(written) & {NULL_BLOCK, *ids[:, 0].tolist()}:
            raise ValueError(
                f"cannot copy blocks {ids.tolist()}: write every block once, none that is read, and not the null block"
            )
        for pages in self.pages_by_size() if written else ():
            self._kernels.copy_pages(pages, pages, sent(ids, self.device))

    def pages_by_size(self, group: int | None = None) -> list[list[torch.Tensor]]:
        """The buffers, or those of a group, as (blocks, bytes of a page), those of one page size together.

        ValueError while they sleep.
        """
        if self._asleep:
            raise ValueError("the buffers have no memory: call `wake` first")
        of_group = {layer.tensor for layer in self.of_group(group)} if group is not None else range(len(self.buffers))
        found: dict[int, list[torch.Tensor]] = {}
        for index in of_group:
            pages = self.buffers[index].view(self.num_blocks, -1)
            found.setdefault(pages.shape[1], []).append(pages)
        return list(found.values())

    def sleep(self) -> None:
        """Give the memory of all buffers back, once nothing uses it; views stay, and must not be used until `wake`.

        ValueError for buffers that are parts of larger memory, and if they sleep.
        """
        if self._asleep:
            raise ValueError("the buffers have given their memory back already: call `wake` first")
        sizes = [buffer.untyped_storage().nbytes() for buffer in self.buffers]
        if sizes != [tensor.size for tensor in self.config.kv_cache_tensors]:
            raise ValueError("a buffer is a part of larger memory, which is not ours to give back")
        self._asleep = True
        self._give_back()

    def wake(self) -> None:
        """Allocate all buffers anew, zeroed, under the same views. Addresses change: graphs are captured anew.

        ValueError unless they sleep: what they hold would be lost. `KVCacheOutOfMemoryError` where memory runs out, and
        they sleep on.
        """
        if not self._asleep:
            raise ValueError("the buffers have their memory: call `sleep` first")
        _refuse_what_cannot_fit(self.config, self.device)
        sizes = [tensor.size for tensor in self.config.kv_cache_tensors]
        for index, buffer in enumerate(self.buffers):
            try:
                buffer.untyped_storage().resize_(sizes[index])
                continue
            except (MemoryError, RuntimeError) as error:
                self._give_back()
                if not _is_out_of_memory(error):
                    raise
            raise _out_of_memory(self.config, self.device, index, sum(sizes[:index]))
        for buffer in self.buffers:
            buffer.zero_()
        self._asleep = False

    def _give_back(self) -> None:
        import torch

        for buffer in self.buffers:
            buffer.untyped_storage().resize_(0)
        if self.buffers and self.device.type == "cuda":
            torch.cuda.empty_cache()  # to the device, not only to the allocator

    def _existing(self, ids: Places, verb: str) -> Places:
        wrong = ids[(ids < 0) | (ids >= self.num_blocks)]
        if wrong.size:
            raise ValueError(f"cannot {verb} block {wrong[0]}: blocks are 0 to {self.num_blocks - 1}")
        return ids

    def fill(self, byte: int) -> None:
        """Set every byte of every buffer, the null block's too: poison for tests."""
        for buffer in self.buffers:
            buffer.fill_(byte)


def allocate_kv_cache(
    config: KVCacheConfig, device: str | torch.device | None = None, allocator: Allocator | None = None
) -> KVCacheTensors:
    """Allocate the tensors of a configuration, zeroed, and give every layer its views.

    `device` is "cuda" where there is one and "cpu" elsewhere unless given; on "meta" nothing is allocated, shapes and
    strides are all there is. `allocator` replaces `torch.zeros`. ImportError without torch. ValueError for a device
    that cannot be used and for a configuration that does not hold together. `KVCacheOutOfMemoryError` where memory runs
    out.
    """
    import_torch()
    import torch

    plan_tensors(config)
    where = usable_device(device)
    _refuse_what_cannot_fit(config, where)
    buffers: list[torch.Tensor] = []
    for index, tensor in enumerate(config.kv_cache_tensors):
        try:
            buffers.append((allocator or _zeros)(tensor.size, where))
            continue
        except (MemoryError, RuntimeError) as error:
            allocated = sum(buffer.numel() for buffer in buffers)
            buffers.clear()
            if where.type == "cuda":
                torch.cuda.empty_cache()  # what was just released goes back to the device, not only to the allocator
            if not _is_out_of_memory(error):
                raise
        # Raised outside of the handler: the allocator's error would keep its frames and what they hold.
        raise _out_of_memory(config, where, index, allocated)
    return KVCacheTensors(config, buffers)


def _zeros(size: int, device: torch.device) -> torch.Tensor:
    import torch

    return zeros((size,), torch.uint8, device)


def _is_out_of_memory(error: Exception) -> bool:
    """torch's allocator for the host has no error class of its own, only a text."""
    import torch

    texts = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in texts)


def _out_of_memory(config: KVCacheConfig, device: torch.device, index: int, allocated: int) -> KVCacheOutOfMemoryError:
    tensor = config.kv_cache_tensors[index]
    needed = sum(tensor.size for tensor in config.kv_cache_tensors)
    first, *others = tensor.shared_by
    layers = f"layer {first!r}" + (f" and {len(others)} more" if others else "")
    return KVCacheOutOfMemoryError(
        f"out of memory on {device}: {tensor.size:,} bytes asked for tensor {index} ({layers}), with {allocated:,} of "
        f"{needed:,} bytes allocated; nothing stays allocated: use fewer blocks, or device 'meta' for a dry run",
        tensor=index,
        requested=tensor.size,
        allocated=allocated,
        needed=needed,
    )


def _refuse_what_cannot_fit(config: KVCacheConfig, device: torch.device) -> None:
    """Nothing is allocated yet. Linux would grant the host's memory page by page and then kill the process."""
    available = _host_memory_available() if device.type == "cpu" else ADDRESSABLE
    needed = 0
    for index, tensor in enumerate(config.kv_cache_tensors):
        needed += tensor.size
        if needed > available:
            raise _out_of_memory(config, device, index, 0)


def _host_memory_available() -> int:
    """Bytes that the machine and its control group leave, where Linux says; without bound elsewhere."""
    bounds = [ADDRESSABLE]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            bounds.append(int(Path(limit).read_text()) - int(Path(usage).read_text()))
        except (OSError, ValueError):  # another version of control groups, or "max"
            continue
    return min(bounds)
