"""Imports an installed SGLang and builds a cache from its classes, as its server would on a CPU.

The classes run on CPU tensors unchanged: where the platform has no Triton, SGLang itself uses its torch code. Two
things are replaced. `torchvision` is imported by SGLang but never called here, and does not exist for every CPU build
of torch: if it is missing, an empty module takes its place. And speculative decoding writes slots into a request's row
with a Triton kernel for which SGLang has no torch version: `_enter_slots` does the same.
"""

import importlib
import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ....model.ops import Group, Shape

MAX_REQUESTS = 32
"""Rows, one for each request that holds memory; more than a workload ever needs at once."""
ROW_SLACK = 64
"""Slots of a row beyond the longest sequence: slots for drafts are reserved in whole pages."""
SWA_SHARE = 4 / 9
"""Share of the pages in the sliding window's pool: 0.8 pages for each page of the other pool, SGLang's default."""


@dataclass(frozen=True)
class Cache:
    """One cache with its pools."""

    tree: Any
    allocator: Any
    rows: Any
    """Request rows: the slot of every token (`ReqToTokenPool`)."""
    page: int
    """Tokens in a page."""
    full_pages: int
    """Pages of the pool for full attention; ids 1 .. full_pages."""
    swa_pages: int
    """Pages of the pool for the sliding window, 0 if there is none."""
    window: int
    """Tokens before a query that it attends to; 0 if there is no window."""


class Engine:
    """The modules of an installed SGLang that the adapter uses, and how to build a cache from them."""

    def __init__(self) -> None:
        """ImportError, or whatever else a failing import raises, if SGLang cannot be imported here."""
        self.version = version("sglang")
        with _without_noise():
            _stand_in_for("torchvision")
            self.torch: Any = importlib.import_module("torch")
            self._import()
        self._configure()

    def _import(self) -> None:
        srt = "sglang.srt"
        self.batch = _module(f"{srt}.managers.schedule_batch")
        self.allocation = _module(f"{srt}.mem_cache.allocation")
        self.sizing = _module(f"{srt}.mem_cache.allocation_sizing")
        self.common = _module(f"{srt}.mem_cache.common")
        self.environ = _module(f"{srt}.environ")
        self.modes = _module(f"{srt}.model_executor.forward_batch_info")
        self.sampling = _module(f"{srt}.sampling.sampling_params")
        self.speculative = _module(f"{srt}.speculative.spec_info")
        self._context = _module(f"{srt}.runtime_context")
        self._allocators = _module(f"{srt}.mem_cache.allocator")
        self._swa_allocator = _module(f"{srt}.mem_cache.allocator.swa")
        self._swa_pool = _module(f"{srt}.mem_cache.swa_memory_pool")
        self._pools = _module(f"{srt}.mem_cache.memory_pool")
        self._params = _module(f"{srt}.mem_cache.cache_init_params")
        self._tree = _module(f"{srt}.mem_cache.unified_radix_cache")
        self._component = _module(f"{srt}.mem_cache.unified_cache.component_type").ComponentType

    def _configure(self) -> None:
        """The settings of a server, without those that need a model. An algorithm for speculative decoding is set so
        that a request may hold more slots than it has tokens."""
        self.torch.set_num_threads(1)
        context = self._context.get_context()
        context.override_server_args(
            device="cpu", attention_backend="torch_native", speculative_algorithm="NGRAM"
        ).install()
        self.environ.envs.SGLANG_SWA_EVICTION_INTERVAL.set(1)  # windows slide at once, not after hundreds of tokens
        self.allocation.assign_req_to_token_pool_func = _enter_slots

    def build(self, shape: Shape) -> Cache:
        """A cache for this shape. NotImplementedError, with the reason, if SGLang has no such cache."""
        page = _require_buildable(shape)
        window = max((group.window - 1 for group in shape.groups if group.kind == "sliding"), default=0)
        pages = shape.num_blocks - 1
        swa_pages = max(1, round(pages * SWA_SHARE)) if window else 0
        full_pages = pages - swa_pages
        with _without_noise():
            allocator = self._allocator(page, full_pages, swa_pages)
            width = shape.max_model_len + ROW_SLACK
            rows = self._pools.ReqToTokenPool(
                size=MAX_REQUESTS, max_context_len=width, device="cpu", enable_memory_saver=False
            )
            components = (self._component.FULL, self._component.SWA) if window else (self._component.FULL,)
            parameters = self._params.CacheInitParams(
                disable=not shape.caching,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=allocator,
                page_size=page,
                is_eagle=shape.eagle,
                sliding_window_size=window or None,
                tree_components=components,
            )
            tree = self._tree.UnifiedRadixCache(parameters)
        return Cache(tree, allocator, rows, page, full_pages, swa_pages, window)

    def _allocator(self, page: int, full_pages: int, swa_pages: int) -> Any:
        size, dtype = full_pages * page, self.torch.float16
        if swa_pages:
            swa_size = swa_pages * page
            pool = self._swa_pool.SWAKVPool(size, swa_size, page, dtype, 1, 1, [1], [0], "cpu")
            return self._swa_allocator.SWATokenToKVPoolAllocator(size, swa_size, page, dtype, "cpu", pool, False)
        if page == 1:
            return self._allocators.TokenToKVPoolAllocator(size, dtype, "cpu", None, False)
        return self._allocators.PagedTokenToKVPoolAllocator(size, page, dtype, "cpu", None, False)


@cache
def load() -> Engine:
    """The SGLang of this interpreter; errors as for `Engine`."""
    return Engine()


def _require_buildable(shape: Shape) -> int:
    """The page size, in tokens. NotImplementedError if SGLang has no cache for this shape."""
    kinds = tuple(group.kind for group in shape.groups)
    if kinds not in (("full",), ("mla",), ("full", "sliding")):
        raise NotImplementedError(f"attention {'+'.join(kinds)}: there is full, mla and full+sliding")
    sizes = {group.block_size for group in shape.groups}
    if len(sizes) > 1 or shape.parallel > 1:
        raise NotImplementedError(f"block sizes {sorted(sizes)} on {shape.parallel} ranks: there is one page size")
    if any(_is_too_narrow(group) for group in shape.groups):
        raise NotImplementedError("a window of 1 token: a sliding window has a token before the query")
    if shape.num_blocks < 2 * len(kinds) + 1:
        raise NotImplementedError(f"{shape.num_blocks} blocks: each pool has at least two pages")
    return shape.groups[0].block_size


def _is_too_narrow(group: Group) -> bool:
    return group.kind == "sliding" and group.window < 2


def _enter_slots(
    indices: Any, table: Any, starts: Any, ends: Any, slots: Any, count: int, *_rest: object, **_named: object
) -> None:
    """Write new slots into the rows of their requests, one range after the other."""
    at = 0
    for row, start, end in zip(indices.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start


def _module(name: str) -> Any:
    return importlib.import_module(name)


class _without_noise:
    """No warnings and no log lines while SGLang is imported and built."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        logging.disable(logging.CRITICAL)

    def __exit__(self, *raised: object) -> None:
        logging.disable(logging.NOTSET)
        self._warnings.__exit__(None, None, None)


class _Empty:
    """An object that has every attribute and can be called; nothing happens."""

    def __getattr__(self, name: str) -> "_Empty":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty()

    def __call__(self, *_arguments: object, **_named: object) -> "_Empty":
        return _Empty()


class _EmptyModule(ModuleType):
    """A module in which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty()


class _EmptyPackageFinder:
    """Import hook: empty modules in place of one missing package and everything in it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """A spec for the package and its modules; None for anything else."""
        if name.partition(".")[0] != self._package:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module, with a version that is recent enough for every check."""
        module = _EmptyModule(spec.name)
        module.__dict__["__version__"] = "99.0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do: the module stays empty."""


def _stand_in_for(package: str) -> None:
    """Replaces a package by empty modules if it cannot be imported here."""
    if find_spec(package) is None:
        sys.meta_path.append(_EmptyPackageFinder(package))
