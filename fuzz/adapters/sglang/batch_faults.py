"""Mistakes that are planted into SGLang's batches and states, to check who judges them."""

from collections.abc import Callable, Mapping
from typing import Any

from .batches import BatchScheduler
from .engine import Cache, SglangEngine

Plant = Callable[[SglangEngine, Cache, BatchScheduler], None]


def _state_too_early(engine: SglangEngine, cache: Cache, scheduler: BatchScheduler) -> None:
    """The state of a running request is given back when its prompt is published."""
    if not cache.states:
        return
    publish = scheduler._calls.publish
    replaced: Any = _With(
        scheduler._calls,
        publish=lambda request, tree, chunked=False: (
            publish(request, tree, chunked=chunked),
            cache.rows.mamba_allocator.free(request.kv.mamba_pool_idx.view(1)),
        ),
    )
    scheduler._calls = replaced


def _state_of_another(engine: SglangEngine, cache: Cache, scheduler: BatchScheduler) -> None:
    """A hit gets the state of the node that was evicted or kept last, not of the one it ends at."""
    if not cache.states:
        return
    copy = cache.rows.mamba_pool.copy_from

    def copied(sources: Any, targets: Any) -> None:
        kept = cache.tree.all_mamba_values_flatten()
        copy(kept[-1:].expand_as(sources) if len(kept) else sources, targets)

    cache.rows.mamba_pool.copy_from = copied


def _never_admitted(engine: SglangEngine, cache: Cache, scheduler: BatchScheduler) -> None:
    """A request that may need more than half of the pool finds no room, whatever is free."""
    new_adder = scheduler._new_adder

    def adder_of() -> Any:
        adder = new_adder()
        add = adder.add_one_req

        def added(request: Any, **how: Any) -> Any:
            most = len(request.origin_input_ids) + request.sampling_params.max_new_tokens
            refused = most > cache.full_pages * cache.page // 2
            return engine.policy.AddReqResult.NO_TOKEN if refused else add(request, **how)

        adder.add_one_req = added
        return adder

    scheduler._new_adder = adder_of  # type: ignore[method-assign]


def _batch_shares_pages(engine: SglangEngine, cache: Cache, scheduler: BatchScheduler) -> None:
    """The second request of a batch is given the slots of the first one."""
    new_batch = scheduler._new_batch

    def batch_of(requests: list[Any]) -> Any:
        batch = new_batch(requests)
        prepare = batch.prepare_for_extend

        def prepared() -> None:
            prepare()
            if len(requests) > 1:
                first, second = (request.kv for request in requests[:2])
                last = min(first.kv_allocated_len, second.kv_allocated_len) - 1
                table = cache.rows.req_to_token
                table[second.req_pool_idx, last] = table[first.req_pool_idx, last]

        batch.prepare_for_extend = prepared
        return batch

    scheduler._new_batch = batch_of  # type: ignore[method-assign]


def _retracted_keeps(engine: SglangEngine, cache: Cache, scheduler: BatchScheduler) -> None:
    """A page of the pool is lost with every retraction."""
    left = scheduler._listener.left

    def leaves(request: Any, *, preempted: bool) -> None:
        if preempted and cache.allocator.available_size() >= cache.page:
            cache.allocator.alloc(cache.page)
        left(request, preempted=preempted)

    scheduler._listener.left = leaves  # type: ignore[method-assign]


class _With:
    """An object with some methods replaced."""

    def __init__(self, whole: Any, **replaced: Any) -> None:
        self._whole = whole
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


FAULTS: Mapping[str, Plant] = {
    "state-too-early": _state_too_early,
    "state-of-another": _state_of_another,
    "never-admitted": _never_admitted,
    "batch-shares-pages": _batch_shares_pages,
    "retraction-loses-page": _retracted_keeps,
}
"""By name; the docstring of each says what it does."""
