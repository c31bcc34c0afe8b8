"""Blocks of the cache in memory of the host: saved there and loaded from there while the device computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import pairs_of
from .kernel_choice import kernel_module
from .kv_cache_tensors import KVCacheTensors
from .queues import HostQueue, queue_of, sent, zeros

if TYPE_CHECKING:
    import torch


class HostPool:
    """Room for blocks of all layers in pinned memory. A block there has a number of its own, from 0.

    On a GPU each direction has a queue of its own, so that copies both ways and the computation overlap. What a copy
    reads must be complete in the queue when it is asked for; who uses what it writes, or overwrites what it reads,
    calls `wait` first, be it a step or a copy the other way.
    """

    def __init__(self, tensors: KVCacheTensors, num_blocks: int, queue: HostQueue | None = None) -> None:
        """`queue` replaces that of the device. ValueError for less than one block."""
        import torch

        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}: give at least 1")
        self.tensors = tensors
        self.num_blocks = num_blocks
        self._kernels = kernel_module(tensors.device)
        pinned = tensors.device.type == "cuda"
        self._pages: list[list[torch.Tensor]] = [
            [zeros((num_blocks, pages.shape[1]), torch.uint8, torch.device("cpu"), pinned=pinned) for pages in of_size]
            for of_size in tensors.pages_by_size()
        ]
        self._queue = queue or queue_of(tensors.device)
        self._queue.keeps(self)
        self._saves, self._loads = self._queue.beside(), self._queue.beside()

    def save(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks of the device to blocks of the host: pairs of both. ValueError for one that does not exist."""
        self._move(pairs, saves=True)

    def load(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks of the host to blocks of the device: pairs of both, in this order. Errors as of `save`."""
        self._move(pairs, saves=False)

    def wait(self) -> None:
        """What is queued from now on sees all that was saved and loaded; nothing waits on the host."""
        self._queue.after(self._saves)
        self._queue.after(self._loads)

    def _move(self, pairs: Sequence[tuple[int, int]], saves: bool) -> None:
        ids = pairs_of(pairs)
        there = self.tensors.num_blocks, self.num_blocks
        for column, most in zip(ids.T, there if saves else there[::-1], strict=True):
            if column.size and not 0 <= column.min() <= column.max() < most:
                wrong = column[(column < 0) | (column >= most)][0]
                raise ValueError(f"there is no block {wrong}: blocks are 0 to {most - 1}")
        written = ids[:, 1].tolist()
        if len(set(written)) < len(written) or (not saves and 0 in written):
            raise ValueError(f"cannot write blocks {written}: write every block once, and not the null block")
        pages = self.tensors.pages_by_size()
        if written:
            queue = self._saves if saves else self._loads
            queue.after(self._queue)
            queue.call(self._copy, ids, pages, saves)

    def _copy(self, ids: np.ndarray[Any, np.dtype[np.int64]], pages: list[list[torch.Tensor]], saves: bool) -> None:
        pairs = sent(ids, self.tensors.device)
        for device, host in zip(pages, self._pages, strict=True):
            self._kernels.copy_pages(*((device, host) if saves else (host, device)), pairs)
