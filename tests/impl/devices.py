"""What tests of the device share: where kernels can run here. Without torch whoever imports this is skipped."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
HAS_GPU = torch.cuda.is_available()
INTERPRETS = find_spec("triton") is not None and tuple(map(int, version("triton").split(".")[:2])) >= (3, 9)
KERNELS = [
    pytest.param("torch", "cpu", id="torch"),
    pytest.param("triton", "cuda", id="gpu", marks=pytest.mark.skipif(not HAS_GPU, reason="no GPU")),
]
needs_triton = pytest.mark.skipif(not INTERPRETS, reason="make kernels")


def interpreted(*words: str, script: str = "benchmarks/device_steps.py") -> str:
    """What a script prints of Triton's kernels, interpreted."""
    command = [sys.executable, script, *words]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
