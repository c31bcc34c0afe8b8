"""Attention through tables, slots and views is that over memory that was never paged; planted faults are seen."""

import sys
from importlib import import_module

import pytest
from blockproof.impl import PagedKeys
from blockproof.impl.tensors.paged_attention import attention
from blockproof.impl.tensors.torch_kernels import FULL

from .devices import KERNELS, ROOT, interpreted, needs_triton, torch

sys.path.append(str(ROOT / "benchmarks"))
traffic = import_module("device_attention")


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
def test_under_random_traffic_queries_get_what_they_would_get_of_memory_in_order(kernels, device):
    done = traffic.served(3, device, kernels, 600, None)
    assert done.worst < 1e-5
    assert min(done.hits, done.copied, done.preempted) > 0


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
@pytest.mark.parametrize("fault", traffic.FAULTS)
def test_a_fault_is_seen(fault, kernels, device):
    assert traffic.served(3, device, kernels, 5000, traffic.FAULTS[fault]).worst > traffic.WRONG


@needs_triton
def test_the_interpreted_kernel_gives_the_same():
    assert "worst difference" in interpreted(
        "--kernels", "triton", "--comparisons", "150", script="benchmarks/device_attention.py"
    )


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
@pytest.mark.parametrize(
    ("heads", "of_keys", "width", "block", "window"),
    [(4, 2, 16, 4, FULL), (8, 2, 24, 4, 7), (4, 4, 64, 16, FULL), (6, 2, 32, 8, 33)],
)
def test_heads_widths_and_windows(heads, of_keys, width, block, window, kernels, device):
    made = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(101, block, of_keys, width, generator=made) for _ in range(2))
    keys[0] = values[0] = float("nan")  # nobody may read the null block
    table = (torch.randperm(100, generator=made).view(5, 20) + 1).int()
    positions = torch.tensor([0, 3, 20, 20 * block - 1, 17])
    for row, position in enumerate(positions.tolist()):
        table[row, : max(0, position + 1 - window) // block] = 0
    query = torch.randn(5, heads, width, generator=made)
    cache = PagedKeys(keys.to(device), values.to(device), table.to(device), width**-0.5, window)
    rows = torch.arange(5, device=device)
    found = attention(query.to(device), cache, rows, positions.to(device), kernels).cpu()
    for row, position in enumerate(positions.tolist()):
        at = range(max(0, position + 1 - window), position + 1)
        slots = [int(table[row, each // block]) * block + each % block for each in at]
        of_row = [
            part.reshape(-1, of_keys, width)[slots].double().repeat_interleave(heads // of_keys, dim=1).transpose(0, 1)
            for part in (keys, values)
        ]
        wanted = torch.nn.functional.scaled_dot_product_attention(query[row].double()[:, None], *of_row)[:, 0]
        assert (found[row] - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 4, 6), (3, 4, 8)])
def test_shapes_that_do_not_fit_are_refused(shape):
    keys = torch.zeros(3, 4, 2, 8)
    cache = PagedKeys(keys, keys, torch.ones(1, 2, dtype=torch.int32), 1.0)
    two = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="give each token a row and a position"):
        attention(torch.zeros(shape), cache, two, two)
    assert attention(torch.zeros(2, 4, 8), cache, two, two).shape == (2, 4, 8)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"values": torch.zeros(3, 4, 2, 6)}, r"\[3, 4, 2, 8\], \[3, 4, 2, 6\]"),
        ({"table": torch.ones(2, dtype=torch.int32)}, r"table are .*, \[2\]: give tokens"),
        ({"keys": torch.zeros(3, 4, 2, 8).double()}, "torch.float32, torch.float64 and torch.float32: give one type"),
        ({"table": torch.ones(1, 2)}, "a table of torch.float32"),
        ({"window": 0}, "a window of 0: give block ids, and 1 at least"),
        ({"values": torch.zeros(3, 4, 8, 2).transpose(2, 3)}, "must lie side by side"),
        ({"table": torch.ones(1, 4, dtype=torch.int32)[:, ::2]}, "must lie side by side"),
    ],
)
def test_what_the_kernels_do_not_read_is_refused(wrong, says):
    given = {"keys": torch.zeros(3, 4, 2, 8), "values": torch.zeros(3, 4, 2, 8), "scale": 1.0}
    given["table"] = torch.ones(1, 2, dtype=torch.int32)
    two = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=says):
        attention(torch.zeros(2, 4, 8), PagedKeys(**{**given, **wrong}), two, two)
