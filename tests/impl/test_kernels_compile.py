"""The kernels in Triton compile for GPUs that are not here, as they would be launched: the interpreter takes more.

A driver is pretended that says which GPU there is; what is called in place of a kernel compiles it to the machine's
code for these very arguments, and launches nothing.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from blockproof.impl import BlockTables, DeviceTables, GroupTable, PagedKeys
from blockproof.impl.tensors.queues import HostQueue

from .devices import needs_triton, torch

pytestmark = needs_triton
KERNELS = ("_write_entries", "_map_tokens", "_zero_pages", "_copy_pages", "_decode")
SHARED = {89: 99, 90: 227, 100: 227}
"""KiB of shared memory that a program may have, of an L4, an H100 and a B200."""


class NeverDone(HostQueue):
    """Of a device that computes nothing, and is not waited for."""

    def wait(self, done):
        pass


class Compiled:
    """A kernel that is compiled where it would be launched."""

    def __init__(self, kernel, found):
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid):
        def compile_it(*arguments, **constants):
            self.found.append((grid, self.kernel.warmup(*arguments, grid=grid, **constants)))

        return compile_it


@pytest.fixture(params=SHARED)
def module(request, monkeypatch, tmp_path):
    """The module of kernels, and what is compiled of it: grids and kernels."""
    triton = pytest.importorskip("triton")
    from blockproof.impl.tensors import triton_kernels
    from triton.backends.compiler import GPUTarget

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # as unset today, but silent
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", request.param, 32),
        get_current_device=lambda: f"sm_{request.param}",
        get_current_stream=lambda device: 0,
    )
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    found: list[tuple[tuple[int, ...], Any]] = []
    for name in KERNELS:
        monkeypatch.setattr(triton_kernels, name, Compiled(getattr(triton_kernels, name), found))
    yield triton_kernels, found
    assert found
    for grid, kernel in found:
        assert "cubin" in kernel.asm
        assert kernel.metadata.shared <= SHARED[request.param] * 1024, kernel.name
        assert all(1 <= size < 2**31 for size in grid[:1])
        assert all(1 <= size < 2**16 for size in grid[1:])


GROUPS = {
    "plain": [GroupTable(16, 64)] * 3,
    "all there is": [
        GroupTable(16, 64, kernel_block_size=4, parallel=4),
        GroupTable(48, 7, ring=True),
        GroupTable(1024, 3, state=True),
    ],
}


@pytest.mark.parametrize("requests", [1, 256, 2048, 2049, 100_000])
@pytest.mark.parametrize("groups", GROUPS)
def test_tables_and_slots_once_for_all_steps(module, groups, requests):
    kernels, found = module
    host = BlockTables(GROUPS[groups], requests, rank=0, interleave=2 if groups != "plain" else 1)
    device = DeviceTables(host, "cpu", 5000, kernels=kernels.TritonKernels, queue=NeverDone())
    for tokens in (1, 7, 16, 255, 256, 257, 1000, 4096):
        count = min(tokens, requests)
        host.replace(None, range(count), np.arange(count * len(GROUPS[groups])))
        device.commit(tokens)
    names = [kernel.name for _, kernel in found]
    # Of slots there is one kernel for steps of one program, and one for those of more.
    assert [len({kernel.hash for _, kernel in found if kernel.name == name}) for name in sorted({*names})] == [2, 1]


def test_whole_pages(module):
    kernels, found = module
    pairs = torch.tensor([[1, 2], [3, 4]])
    for page in (1, 35, 96, 5000, 1 << 21):
        pages = [torch.zeros(5, page, dtype=torch.uint8)] * 3
        kernels.zero_pages(pages, pairs[:, 0].contiguous())
        kernels.copy_pages(pages, pages, pairs)
    assert [grid for grid, _ in found[-2:]] == [(2, 3, 128)] * 2


OTHERS = [
    ("float32", 8, 1, 256, 64),
    ("float16", 32, 8, 128, 16),
    ("float32", 32, 8, 128, 16),
    ("bfloat16", 8, 8, 96, 1),
]


@pytest.mark.parametrize(
    ("dtype", "heads", "of_keys", "width", "block"),
    [
        ("bfloat16", 32, 8, 128, 16),
        ("float32", 6, 2, 24, 4),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS),
    ],
)
def test_attention(module, dtype, heads, of_keys, width, block):
    kernels, _ = module
    keys = torch.zeros(9, block, of_keys, width, dtype=getattr(torch, dtype))
    query = torch.zeros(3, heads, width, dtype=keys.dtype)
    table = torch.zeros(4, 2, dtype=torch.int32)
    at = torch.zeros(3, dtype=torch.int64)
    kernels.attention(query, PagedKeys(keys, keys, table, 0.1, 33), at, at)
