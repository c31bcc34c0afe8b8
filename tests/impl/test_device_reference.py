"""Tables and slots equal a reference of their own, in whole arrays, whatever is asked; what is wrong is refused."""

import sys
from importlib import import_module

import pytest

from .device_reference import tried
from .devices import KERNELS, ROOT, interpreted, needs_triton

sys.path.append(str(ROOT / "benchmarks"))
device_steps = import_module("device_steps")


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
def test_random_calls(kernels, device):
    counts = tried(kernels, range(150 if device == "cpu" else 20), 8, device)
    assert min(counts.changed, counts.refused, counts.scheduled, counts.schedules_refused) > 20
    assert counts.most_tokens > 512  # of several programs


@needs_triton
def test_random_calls_with_the_interpreter():
    assert "scheduled=" in interpreted("triton", "0", "12", "8", script="tests/impl/device_reference.py")


@pytest.mark.parametrize("fault", device_steps.FAULTS["torch_kernels"], ids=lambda fault: fault[0])
def test_a_planted_fault_is_found(fault, tmp_path):
    _, old, new = fault
    with pytest.raises(AssertionError, match="seed"):
        tried(device_steps.broken("torch_kernels", old, new, tmp_path), range(300), 8)
