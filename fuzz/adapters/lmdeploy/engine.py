"""Imports an installed LMDeploy and builds its scheduler, as its PyTorch engine does.

Everything that runs is LMDeploy's own code. Two things are arranged. The package's own `__init__` is not executed: it
imports the HTTP client and the pipelines, which the scheduler does not need. And the clock by which blocks age is a
counter: LMDeploy stores the time of the last use in whole seconds (`LogicalMemory.access_time` holds integers), so
which of the blocks used within one second is evicted first would depend on where Python put its objects.
"""

import importlib
import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

from ....model.ops import Group, Shape

MAX_REQUESTS = 64
"""Requests that may run at once; more than a workload ever needs."""
MOST_PREALLOCATED = 16
"""Tokens for which room is made ahead, at most: LMDeploy's default (`prefill_interval`)."""


@dataclass(frozen=True)
class Core:
    """One scheduler, and what is read of it all the time."""

    scheduler: Any
    block_size: int
    """Tokens in a block."""
    preallocated: int
    """Tokens for which a step that ends a prefill, or a decode, makes room ahead."""
    window: int
    """Tokens before a query that it attends to; 0 if there is no window."""


class LmdeployEngine:
    """The modules of an installed LMDeploy that the adapter uses, and how to build a scheduler from them."""

    def __init__(self) -> None:
        """ImportError, or whatever else a failing import raises, if LMDeploy cannot be imported here."""
        self.version = version("lmdeploy")
        with without_noise():
            _leave_out_init_of("lmdeploy")
            pytorch = "lmdeploy.pytorch"
            self.config = _module(f"{pytorch}.config")
            self.messages = _module(f"{pytorch}.messages")
            self.responses = _module("lmdeploy.messages").ResponseType
            self.admission = _module(f"{pytorch}.paging.prefill_scheduler")
            self._scheduler = _module(f"{pytorch}.paging.scheduler")
            self._sequences = _module(f"{pytorch}.strategies.ar.sequence")
            self._timed = _module(f"{pytorch}.paging.block_manager.base_block_manager")

    def build(self, shape: Shape, max_requests: int = MAX_REQUESTS, **limits: int) -> Core:
        """A scheduler for this shape. `limits`: more of its `CacheConfig`. NotImplementedError, with the reason, if
        LMDeploy has none."""
        group = _require_buildable(shape)
        ahead = _preallocated(shape)
        window = group.window - 1 if group.window else 0
        self._timed.time = SimpleNamespace(perf_counter=_ticking())
        with without_noise():
            cache_config = self.config.CacheConfig(
                max_batches=max_requests,
                block_size=group.block_size,
                num_cpu_blocks=0,
                num_gpu_blocks=shape.num_blocks,
                num_reserved_gpu_blocks=1,  # block 0: what padding is written to
                window_size=window or -1,
                enable_prefix_caching=shape.caching,
                **limits,
            )
            scheduler_config = self.config.SchedulerConfig(
                max_batches=max_requests, max_session_len=shape.max_model_len, prefill_interval=ahead
            )
            meta = self.messages.SequenceMeta(group.block_size, strategy=self._sequences.ARSequenceStrategy())
            scheduler = self._scheduler.Scheduler(scheduler_config, cache_config, meta)
        return Core(scheduler, group.block_size, ahead, window)


@cache
def load() -> LmdeployEngine:
    """The LMDeploy of this interpreter; errors as for `LmdeployEngine`."""
    return LmdeployEngine()


def _require_buildable(shape: Shape) -> Group:
    """The only group. NotImplementedError if LMDeploy has no scheduler for this shape."""
    kinds = "+".join(group.kind for group in shape.groups)
    if kinds not in ("full", "mla", "sliding"):
        raise NotImplementedError(f"attention {kinds}: there is full, mla and sliding")
    if shape.parallel > 1:
        raise NotImplementedError(f"{shape.parallel} context-parallel ranks: there is one")
    (group,) = shape.groups
    if group.kind == "sliding" and group.window < 2:
        raise NotImplementedError("a window of 1 token: a sliding window has a token before the query")
    if group.kind == "sliding" and shape.caching:
        raise NotImplementedError("prefix caching with a sliding window: LMDeploy turns it off")
    if group.kind == "sliding" and group.block_size < 2:
        raise NotImplementedError("blocks of 1 token with a sliding window: LMDeploy's blocks have 16 tokens or more")
    longest = (shape.num_blocks - 1) * group.block_size - max(group.block_size, _preallocated(shape))
    if shape.max_model_len > longest:
        raise NotImplementedError(
            f"{shape.max_model_len} tokens in {shape.num_blocks} blocks: LMDeploy takes requests of at most {longest}"
        )
    return group


def _preallocated(shape: Shape) -> int:
    """Tokens for which room is made ahead (`prefill_interval`)."""
    return max(1, min(shape.max_num_batched_tokens, MOST_PREALLOCATED))


def _ticking() -> Callable[[], int]:
    """A clock that is one later each time it is read."""
    return itertools.count(1).__next__


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _leave_out_init_of(package: str) -> None:
    """Enter a package into `sys.modules` with its place, but without executing its `__init__`."""
    if package in sys.modules:
        return
    spec = PathFinder.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    module = ModuleType(package)
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = module


@contextmanager
def without_noise() -> Iterator[None]:
    """No log lines while LMDeploy is imported and built."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
