"""Imports an installed SGLang and builds a cache from its classes, as its server would on a CPU.

The classes run on CPU tensors unchanged: where the platform has no Triton, SGLang itself uses its torch code. Two
things are replaced. Packages that SGLang imports and that are never called here get an empty module where they are
missing (`standing_in`). And speculative decoding writes slots into a request's row with a Triton kernel for which
SGLang has no torch version: `kernels` does the same. What differs between releases is in `releases`.
"""

import atexit
import importlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from ....model.arith import cdiv
from ....model.ops import Group, Shape
from .host_remedies import evicts_only_what_is_enough, waits_for_copies
from .host_settings import HostSettings
from .kernels import Launched, enter_slots, slots_for_decode, slots_for_extend
from .releases import CacheCalls, release_for
from .standing_in import allow_registering_twice, stand_in_for, without_noise

MAX_REQUESTS = 32
"""Rows, one for each request that holds memory; more than a workload ever needs at once."""
ROW_SLACK = 64
"""Slots of a row beyond the longest sequence: slots for drafts are reserved in whole pages."""
STATE_CHUNK = 64
"""Tokens between the positions of a prefill at which Mamba layers can keep a state; SGLang's own chunk."""
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
    states: int = 0
    """Slots of the pool for states of Mamba layers, 0 if there are none; ids 1 .. states."""


class SplitRole(NamedTuple):
    """Which of two engines it is, and how many requests run there at once."""

    role: str
    requests: int


class SglangEngine:
    """The modules of an installed SGLang that the adapter uses, and how to build a cache from them."""

    def __init__(self) -> None:
        """ImportError, or whatever else a failing import raises, if SGLang cannot be imported here."""
        self.version = version("sglang")
        release = release_for(self.version)
        if release.tree == "python":
            os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"
        with without_noise():
            for package in ("torchvision", *release.stand_ins):
                stand_in_for(package)
            if release.registers_twice:
                allow_registering_twice()
            self.torch: Any = importlib.import_module("torch")
            self._import()
        if release.kernels:
            paged: Any = imported("sglang.srt.mem_cache.allocator.paged")
            paged.alloc_extend_kernel = Launched(slots_for_extend)
            paged.alloc_decode_kernel = Launched(slots_for_decode)
        self.calls = CacheCalls(release, self.common, self.policy)
        self.torch.set_num_threads(1)
        self.environ.envs.SGLANG_SWA_EVICTION_INTERVAL.set(1)  # windows slide at once, not after hundreds of tokens
        self.allocation.assign_req_to_token_pool_func = enter_slots
        # So a request may hold more slots than it has tokens, as with speculative decoding.
        self.configure(speculative_algorithm="NGRAM")

    def _import(self) -> None:
        srt = "sglang.srt"
        self.batch = imported(f"{srt}.managers.schedule_batch")
        self.policy = imported(f"{srt}.managers.schedule_policy")
        self.allocation = imported(f"{srt}.mem_cache.allocation")
        self.sizing = imported(f"{srt}.mem_cache.allocation_sizing")
        self.common = imported(f"{srt}.mem_cache.common")
        self.environ = imported(f"{srt}.environ")
        self.modes = imported(f"{srt}.model_executor.forward_batch_info")
        self.sampling = imported(f"{srt}.sampling.sampling_params")
        self.speculative = imported(f"{srt}.speculative.spec_info")
        self._context = imported(f"{srt}.runtime_context")
        self._allocators = imported(f"{srt}.mem_cache.allocator")
        self._swa_allocator = imported(f"{srt}.mem_cache.allocator.swa")
        self._swa_pool = imported(f"{srt}.mem_cache.swa_memory_pool")
        self._pools = imported(f"{srt}.mem_cache.memory_pool")
        self._params = imported(f"{srt}.mem_cache.cache_init_params")
        self._tree = imported(f"{srt}.mem_cache.unified_radix_cache")
        self._linear = imported(f"{srt}.configs.mamba_utils")
        self._component = imported(f"{srt}.mem_cache.unified_cache.component_type").ComponentType

    def configure(self, **settings: object) -> None:
        """The settings of a server, without those that need a model; these and the release's own."""
        context = self._context.get_context()
        context.override_server_args(device="cpu", attention_backend="torch_native", **settings).install()
        self._context.get_server_args()._mamba_cache_chunk_size = STATE_CHUNK  # else it is read from a model

    def build(
        self, shape: Shape, step: int = 0, host: HostSettings | None = None, shared: "SplitRole | None" = None
    ) -> Cache:
        """A cache for this shape. With `step`, the window's pool holds two windows beside a step of so many tokens, as
        one that is set up well does. `host`: its memory on the host; `shared`: it is one of two engines'.
        NotImplementedError, with the reason, if there is no such cache."""
        page = _require_buildable(shape)
        window = max((group.window - 1 for group in shape.groups if group.kind == "sliding"), default=0)
        pages = shape.num_blocks - 1
        swa_pages = max(1, round(pages * SWA_SHARE)) if window else 0
        full_pages = pages - swa_pages
        if window and step:
            swa_pages = max(swa_pages, cdiv(2 * window + step, page) + 2)
        with without_noise():
            allocator = self._allocator(page, full_pages, swa_pages, bool(host or shared))
            rows = self._rows(shape.max_model_len + ROW_SLACK, shared)
            components = (self._component.FULL, self._component.SWA) if window else (self._component.FULL,)
            parameters = self._params.CacheInitParams(
                disable=not shape.caching,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=allocator,
                page_size=page,
                is_eagle=shape.eagle,
                sliding_window_size=window or None,
                tree_components=components,
                **({"tree_core_backend": "python"} if host and host.enough else {}),
            )
            tree = self._tree.UnifiedRadixCache(parameters)
            if host:
                self._attach_host(tree, parameters, page, host)
        return Cache(tree, allocator, rows, page, full_pages, swa_pages, window)

    def _rows(self, width: int, shared: "SplitRole | None") -> Any:
        """Rows of requests; the second of two engines has more than run at once, for those that are loaded."""
        made: dict[str, Any] = {"max_context_len": width, "device": "cpu", "enable_memory_saver": False}
        if shared is None or shared.role == "prefill":
            return self._pools.ReqToTokenPool(size=MAX_REQUESTS, **made)
        pool = imported("sglang.srt.disaggregation.decode").DecodeReqToTokenPool
        return pool(size=shared.requests, pre_alloc_size=2 * shared.requests, **made)

    def _attach_host(self, tree: Any, parameters: Any, page: int, host: HostSettings) -> None:
        """Give it memory on the host, which is not pinned: no device reads it."""
        self.configure(page_size=page, **host.arguments)
        imported("sglang.srt.mem_cache.pool_host.common").ALLOC_MEMORY_FUNCS["cpu"] = self._plain_memory
        tree.init_hicache(self._context.get_server_args(), parameters)
        atexit.unregister(tree.shutdown)  # it would be kept to the end of the process
        tree.load_back_threshold = host.least
        if host.enough:
            evicts_only_what_is_enough(tree)
        if host.waits:
            waits_for_copies(tree, parameters.token_to_kv_pool_allocator)

    def _plain_memory(self, dims: tuple[int, ...], *, dtype: Any, device: str, **rest: object) -> Any:
        return self.torch.empty(dims, dtype=dtype, device=device)

    def build_with_states(self, tokens: int, states: int, longest: int) -> Cache:
        """A cache for full attention beside Mamba layers: slots for `tokens` tokens in pages of one token, and `states`
        states. SGLang's default, in which a state is kept where a prefill or a request ended."""
        params = self._linear.Mamba2CacheParams(
            shape=self._linear.Mamba2StateShape.create(
                tp_world_size=1, intermediate_size=1, n_groups=1, num_heads=1, head_dim=1, state_size=1, conv_kernel=2
            ),
            layers=[0],
        )
        with without_noise():
            allocator = self._allocator(1, tokens, 0)
            rows = self._pools.HybridReqToTokenPool(
                size=MAX_REQUESTS,
                mamba_size=states,
                mamba_spec_state_size=MAX_REQUESTS,
                max_context_len=longest + ROW_SLACK,
                device="cpu",
                enable_memory_saver=False,
                cache_params=params,
                mamba_layer_ids=[0],
                enable_mamba_extra_buffer=False,
                enable_overlap_schedule=False,
            )
            parameters = self._params.CacheInitParams(
                disable=False,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=allocator,
                page_size=1,
                tree_components=(self._component.FULL, self._component.MAMBA),
            )
            tree = self._tree.UnifiedRadixCache(parameters)
        return Cache(tree, allocator, rows, 1, tokens, 0, 0, states)

    def _allocator(self, page: int, full_pages: int, swa_pages: int, copied: bool = False) -> Any:
        size, dtype = full_pages * page, self.torch.float16
        pool = self._pools.MHATokenToKVPool(size, page, dtype, 1, 1, 1, "cpu", False) if copied else None
        if swa_pages:
            swa_size = swa_pages * page
            pool = self._swa_pool.SWAKVPool(size, swa_size, page, dtype, 1, 1, [1], [0], "cpu")
            return self._swa_allocator.SWATokenToKVPoolAllocator(size, swa_size, page, dtype, "cpu", pool, False)
        if page == 1:
            return self._allocators.TokenToKVPoolAllocator(size, dtype, "cpu", pool, False)
        return self._allocators.PagedTokenToKVPoolAllocator(size, page, dtype, "cpu", pool, False)


@cache
def load() -> SglangEngine:
    """The SGLang of this interpreter; errors as for `SglangEngine`."""
    return SglangEngine()


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


def imported(name: str) -> Any:
    """A module of the release; whatever a failing import raises."""
    return importlib.import_module(name)
