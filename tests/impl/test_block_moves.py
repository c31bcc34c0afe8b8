"""Blocks zeroed, copied, saved to memory of the host and loaded from there; sleep and wake."""

import os
import subprocess
import sys
from importlib import import_module
from random import Random
from typing import Any

import pytest
from blockproof.impl import HostPool, KVCacheOutOfMemoryError, KVCacheTensors, allocate_kv_cache
from blockproof.impl.tensors import host_pool, kv_cache_tensors

from .devices import ROOT, needs_triton, torch
from .small_layers import config, full, mamba, mla

sys.path.append(str(ROOT / "benchmarks"))
device_steps = import_module("device_steps")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
A, B = full(), full(page_size_padded=104)


def filled(device: str = "cpu", *groups, num_blocks: int = 6) -> KVCacheTensors:
    """Every byte of block i of buffer j is 40 * j + i + 1; pages of two sizes, one of them no multiple of a word."""
    made = allocate_kv_cache(config(*(groups or ({"a": A, "b": B, "c": A},)), num_blocks=num_blocks), device)
    for number, buffer in enumerate(made.buffers):
        numbers = torch.arange(1, num_blocks + 1, dtype=torch.uint8, device=device) + 40 * number
        buffer.view(num_blocks, -1)[:] = numbers[:, None]
    return made


def shown(tensors: KVCacheTensors) -> list[list[int]]:
    """The byte of each block of each buffer; -1 where they differ within one."""
    pages = [buffer.view(tensors.num_blocks, -1).cpu() for buffer in tensors.buffers]
    return [[int(page[0]) if (page == page[0]).all() else -1 for page in buffer] for buffer in pages]


@pytest.mark.parametrize("device", DEVICES)
def test_listed_blocks_are_zeroed_in_all_layers_or_in_those_of_a_group(device):
    made = filled(device)
    made.zero_blocks([2, 4, 0, 2])
    assert shown(made) == [[1, 2, 0, 4, 0, 6], [41, 42, 0, 44, 0, 46], [81, 82, 0, 84, 0, 86]]
    two = filled(device, {"a": A, "b": A}, {"c": A})
    two.zero_blocks([3], group=1)
    assert shown(two) == [[1, 2, 3, 0, 5, 6], [41, 42, 43, 44, 45, 46]]
    two.zero_blocks([])
    with pytest.raises(ValueError, match="cannot zero block 6"):
        two.zero_blocks([1, 6])
    assert shown(two)[0][1] == 2


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_are_copied_in_all_layers(device):
    made = filled(device)
    made.copy_blocks([(1, 4), (1, 5), (2, 3)])
    assert shown(made) == [[1, 2, 3, 3, 2, 2], [41, 42, 43, 43, 42, 42], [81, 82, 83, 83, 82, 82]]
    made.copy_blocks([])
    for wrong in ([(1, 2), (3, 2)], [(1, 2), (2, 3)], [(1, 1)], [(1, 0)]):
        with pytest.raises(ValueError, match="write every block once"):
            made.copy_blocks(wrong)
    with pytest.raises(ValueError, match="cannot copy block 6"):
        made.copy_blocks([(1, 2), (6, 3)])


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_go_to_the_host_and_come_back(device):
    made = filled(device)
    pool = HostPool(made, 3)
    pool.save([(5, 0), (2, 2)])
    pool.wait()
    made.fill(9)
    pool.load([(0, 1), (2, 3), (1, 4)])
    pool.wait()
    assert shown(made) == [[9, 6, 9, 3, 0, 9], [9, 46, 9, 43, 0, 9], [9, 86, 9, 83, 0, 9]]
    pool.save([])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda pool: pool.save([(6, 0)]), "there is no block 6: blocks are 0 to 5"),
        (lambda pool: pool.save([(1, 3)]), "there is no block 3: blocks are 0 to 2"),
        (lambda pool: pool.load([(3, 1)]), "there is no block 3: blocks are 0 to 2"),
        (lambda pool: pool.load([(-1, 1)]), "there is no block -1"),
        (lambda pool: pool.load([(1, 0)]), "not the null block"),
        (lambda pool: pool.save([(1, 1), (2, 1)]), "write every block once"),
        (lambda pool: HostPool(pool.tensors, 0), "num_blocks is 0"),
        (lambda pool: pool.save([(1, 1, 2), (2, 0, 3)]), "give pairs"),
        (lambda pool: pool.save([(1.5, 1)]), "float64 where whole numbers are meant"),
        (lambda pool: pool.tensors.copy_blocks([(1, 2, 3, 4)]), "give pairs"),
        (lambda pool: pool.tensors.zero_blocks([1, 2.5]), "float64 where whole numbers are meant"),
        (lambda pool: pool.tensors.zero_blocks([1], group=1), "there is no group 1"),
    ],
)
def test_copies_that_make_no_sense_are_refused(call, says):
    pool = HostPool(filled(), 3)
    with pytest.raises(ValueError, match=says):
        call(pool)


@pytest.mark.parametrize("device", DEVICES)
def test_who_sleeps_gives_memory_back_and_wakes_under_the_same_views(device):
    made = filled(device, {"a": mla(), "b": mla()}, {"c": mamba(page_size_padded=96)})
    views = [made.layers["a"].kv, *made.layers["c"].states]
    pool = HostPool(made, 1)
    pool.save([(3, 0)])
    pool.wait()
    if device == "cuda":
        torch.cuda.synchronize()
    made.sleep()
    assert [buffer.untyped_storage().nbytes() for buffer in made.buffers] == [0, 0]
    made.wake()
    assert shown(made) == [[0] * 6, [0] * 6]
    pool.load([(0, 2)])
    pool.wait()
    assert shown(made) == [[0, 0, 4, 0, 0, 0], [0, 0, 44, 0, 0, 0]]
    assert all(view[2].any() and not view[3].any() for view in views)


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_move_in_and_outside_of_inference_mode(device):
    with torch.inference_mode():
        made = allocate_kv_cache(config({"a": A}, num_blocks=4), device)
        pool = HostPool(made, 2)
        made.fill(7)
    made.zero_blocks([1])
    made.copy_blocks([(1, 2)])
    pool.save([(2, 0)])
    with torch.inference_mode():
        pool.load([(0, 3)])
        pool.wait()
        made.copy_blocks([(0, 1)])
    assert shown(made) == [[7, 7, 0, 0]]


def test_who_finds_no_memory_sleeps_on(monkeypatch):
    made = filled()
    made.sleep()
    with monkeypatch.context() as full:
        full.setattr(kv_cache_tensors, "_host_memory_available", lambda: 100)
        with pytest.raises(KVCacheOutOfMemoryError, match="out of memory on cpu"):
            made.wake()
    grow = torch.UntypedStorage.resize_

    def second_fails(storage, size):
        if size and made.buffers[0].untyped_storage().nbytes():
            raise RuntimeError("CUDA out of memory")
        return grow(storage, size)

    with monkeypatch.context() as full:
        full.setattr(torch.UntypedStorage, "resize_", second_fails)
        with pytest.raises(KVCacheOutOfMemoryError, match="asked for tensor 1") as refused:
            made.wake()
    assert refused.value.allocated == made.config.kv_cache_tensors[0].size
    assert [buffer.untyped_storage().nbytes() for buffer in made.buffers] == [0, 0, 0]
    made.wake()
    assert shown(made) == [[0] * 6] * 3


def test_memory_of_somebody_else_is_not_given_back():
    whole = torch.zeros(2 * 6 * 96, dtype=torch.uint8)
    made = KVCacheTensors(config({"a": A, "b": A}, num_blocks=6), whole.chunk(2))
    with pytest.raises(ValueError, match="not ours to give back"):
        made.sleep()
    made.layers["b"].parts["values"][5] = 1
    assert not whole[: 6 * 96].any()
    assert whole[6 * 96 :].any()


# Copies that overlap.


def late_copies(draw: Random, pool_module: Any) -> bool:
    """Blocks are computed, saved and loaded, on a device that does the work of its queues late, and in any order that
    they allow. Whether all is as if done in turn."""
    made, queue = filled(), device_steps.LateQueue()
    pool = pool_module.HostPool(made, 4, queue)
    blocks, saved = list(range(1, 7)), [0] * 4

    def compute(block: int, byte: int) -> None:
        for number, buffer in enumerate(made.buffers):
            buffer.view(6, -1)[block] = 40 * number + byte

    for _ in range(12):
        block, place, what = draw.randrange(1, 6), draw.randrange(4), draw.random()
        if what < 0.4:
            blocks[block] = draw.randrange(1, 40)
            queue.call(compute, block, blocks[block])
        elif what < 0.7 or not saved[place]:
            saved[place] = blocks[block]
            pool.save([(block, place)])
            pool.wait()
        else:
            blocks[block] = saved[place]
            pool.load([(place, block)])
            pool.wait()
        if draw.random() < 0.3:
            draw.choice((queue, pool._saves, pool._loads)).finish()
    queue.finish()
    return shown(made) == [[40 * number + byte for byte in blocks] for number in range(3)]


def test_a_copy_and_a_step_that_wait_for_each_other_are_never_in_each_others_way():
    draw = Random(1)
    assert all(late_copies(draw, host_pool) for _ in range(300))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            queue.after(self._queue)\n", ""),
        ("        self._queue.after(self._saves)\n", ""),
        ("        self._queue.after(self._loads)\n", ""),
        ("zip(pages, self._pages,", "zip(pages[:1], self._pages[:1],"),
    ],
    ids=["a copy before its step", "a step beside what is saved", "a step beside what is loaded", "pages of one size"],
)
def test_a_copy_that_overlaps_its_step_is_found(old, new, tmp_path):
    draw, broken = Random(1), device_steps.broken("host_pool", old, new, tmp_path)
    assert not all(late_copies(draw, broken) for _ in range(300))


def test_who_sleeps_is_asked_nothing():
    made = filled()
    pool = HostPool(made, 3)
    with pytest.raises(ValueError, match="the buffers have their memory: call `sleep` first"):
        made.wake()
    assert shown(made)[0] == [1, 2, 3, 4, 5, 6]
    made.sleep()
    calls = [lambda: made.zero_blocks([1]), lambda: made.copy_blocks([(1, 2)]), made.sleep]
    for call in (*calls, lambda: pool.save([(1, 0)]), lambda: pool.load([(0, 1)])):
        with pytest.raises(ValueError, match="call `wake` first"):
            call()
    made.wake()
    made.copy_blocks([(1, 2)])


SCRIPT = """
import torch
from blockproof.impl.tensors import torch_kernels, triton_kernels
torch.manual_seed(1)
for page in (96, 35, 5000):
    sources = [torch.randint(0, 99, (7, page), dtype=torch.uint8) for _ in range(3)]
    pairs = torch.tensor([[0, 1], [3, 4]])
    made = []
    for kernels in (torch_kernels, triton_kernels):
        targets = [torch.ones_like(source) for source in sources]
        kernels.copy_pages(sources, targets, pairs)
        kernels.copy_pages(targets, targets, torch.tensor([[1, 6]]))
        kernels.zero_pages(targets, torch.tensor([2, 3]))
        made.append(torch.stack(targets))
    assert torch.equal(*made), page
    assert torch.equal(made[0][2, 6], sources[2][0])
"""


@needs_triton
def test_the_interpreter_moves_the_same_bytes():
    words = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
