"""Imports the block manager of nano-vllm, and says which generation of its interface a commit has.

`nanovllm/__init__.py` imports the whole engine, with torch, triton and flash-attn. The block manager needs none of
them, so the package is entered without running that file; what is needed are numpy and xxhash.
"""

import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

CHECKOUT = "NANO_VLLM"
"""Environment variable that names a checkout, for where Python finds no `nanovllm` by itself."""


@dataclass(frozen=True)
class NanoEngine:
    """The classes of one commit, and how its scheduler uses them."""

    manager: Any
    """`BlockManager`."""
    sequence: Any
    """`Sequence`, whose class attribute `block_size` counts in tokens."""
    sampling: Any
    """`SamplingParams`."""
    registers_after_step: bool
    """True if blocks are registered by `hash_blocks` once their step has run (since f64d821); else while they are
    allocated. Since then `can_allocate` also returns the number of cached blocks, and -1 if there is no room."""
    chunks_prompts: bool
    """True if the scheduler computes a prompt in pieces (since 8d63a98)."""

    def new_sequence(self, tokens: tuple[int, ...]) -> Any:
        """A request with these tokens, as the engine makes one of a prompt."""
        return self.sequence(list(tokens), self.sampling())


@cache
def load() -> NanoEngine:
    """The engine of this interpreter. ImportError, with what to do, if it or what it needs cannot be imported."""
    _enter_package()
    try:
        manager = import_module("nanovllm.engine.block_manager").BlockManager
    except ModuleNotFoundError as error:
        raise ImportError(f"nano-vllm's block manager needs {error.name}; install numpy and xxhash") from error
    sequence = import_module("nanovllm.engine.sequence").Sequence
    sampling = import_module("nanovllm.sampling_params").SamplingParams
    chunks_prompts = hasattr(sequence([0], sampling()), "num_scheduled_tokens")
    return NanoEngine(manager, sequence, sampling, hasattr(manager, "hash_blocks"), chunks_prompts)


def _enter_package() -> None:
    """Make `nanovllm` a package whose own file has not run."""
    if "nanovllm" in sys.modules:
        return
    found = PathFinder.find_spec("nanovllm")
    if found is None and CHECKOUT in os.environ:
        found = PathFinder.find_spec("nanovllm", [os.environ[CHECKOUT]])
    if found is None or found.submodule_search_locations is None:
        raise ImportError(f"there is no nanovllm to import; name a checkout of nano-vllm in {CHECKOUT}")
    package = ModuleType("nanovllm")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["nanovllm"] = package
