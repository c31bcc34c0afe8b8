"""The adapter of nano-vllm: the block manager of a checkout, at any commit of its history.

nano-vllm has no releases to install. `--target blockproof.fuzz.adapters.nano_vllm:make_target` takes the `nanovllm`
that Python finds, as `bisect --git` and `verify --git` arrange it, else the checkout that NANO_VLLM names.
"""

from ...targets.base import Target


def make_target() -> Target:
    """A target over the block manager. ImportError, with what to do, if there is no `nanovllm` to import."""
    from .engine import load
    from .target import NanoVllmTarget

    return NanoVllmTarget(load())
