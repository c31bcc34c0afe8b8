"""Pages are zeroed and copied, and queries read, as numpy does it; each fault planted into the kernels is found."""

import sys
from importlib import import_module

import pytest
from blockproof.impl.tensors.kernel_choice import kernel_module

from .devices import KERNELS, ROOT, interpreted, needs_triton, torch

sys.path.append(str(ROOT / "benchmarks"))
device_pages = import_module("device_pages")


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
def test_random_pages_and_queries(kernels, device):
    module = kernel_module(torch.device(device), kernels)
    assert [wrong for wrong in device_pages.cases(200, 0, module, device) if wrong] == []


@pytest.mark.parametrize("fault", device_pages.FAULTS["torch_kernels"], ids=lambda fault: fault[0])
def test_a_planted_fault_is_found(fault):
    assert device_pages.found("torch_kernels", *fault[1:], "cpu")


@needs_triton
def test_the_interpreter_does_the_same_and_finds_every_fault():
    said = interpreted("--kernels", "triton", "--cases", "40", "--faults", script="benchmarks/device_pages.py")
    assert said.startswith("40 cases, triton on cpu: 0 differ")
    assert said.count("found at case") == len(device_pages.FAULTS["triton_kernels"])
