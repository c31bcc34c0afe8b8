"""What a release's connectors that store blocks would have to do to be without a known finding (`remedies`)."""

from collections.abc import Callable
from typing import Any

from .....model.ops import NULL
from .remedies import wrap
from .scheduler_config import module


def _halves(engine: Any, attribute: str) -> list[Any]:
    """The halves of its connectors in the scheduler that have this attribute."""
    halves = [getattr(worker.scene.connector, "connector_scheduler", None) for worker in engine.connected()]
    return [half for half in halves if hasattr(half, attribute)]


def wait_for_stores_of_copied_blocks(engine: Any) -> None:
    """A store from a block has ended before another block is copied over it."""
    for half in _halves(engine, "_current_batch_allocated_block_ids"):

        def build(original: Callable[..., Any], output: Any, *, half: Any = half) -> Any:
            half._current_batch_allocated_block_ids.update(
                copy.dst_block_id for copy in output.kv_cache_block_copies or ()
            )
            return original(output)

        wrap(half, "build_connector_meta", build)


def store_nothing_of_who_never_ran(engine: Any) -> None:
    """Of a request that was cancelled no more is stored than was computed."""
    for half in _halves(engine, "_calc_num_offloadable_tokens"):

        def offloadable(original: Callable[..., int], status: Any, tokens: int) -> int:
            cancelled = status.req.status.name == "FINISHED_ABORTED"
            return original(status, min(tokens, status.req.num_computed_tokens) if cancelled else tokens)

        wrap(half, "_calc_num_offloadable_tokens", offloadable)


def store_what_has_blocks(engine: Any) -> None:
    """No more of a request is stored than it has blocks for."""
    for half in _halves(engine, "_calc_num_offloadable_tokens"):

        def offloadable(original: Callable[..., int], status: Any, tokens: int, half: Any = half) -> int:
            many = half.config.blocks_per_chunk
            covered = (
                len(state.block_ids) // many * group.tokens_per_chunk
                for group, state in zip(half.config.kv_group_configs, status.group_states, strict=True)
            )
            return int(min(original(status, tokens), *covered))

        wrap(half, "_calc_num_offloadable_tokens", offloadable)


def store_behind_the_last_hole(engine: Any) -> None:
    """Of a window nothing is stored that lies before a block that it has given up."""
    windows = [number for number, group in enumerate(engine.setup.shape.groups) if group.window]
    for half in _halves(engine, "_build_store_jobs"):

        def build(original: Callable[..., Any], output: Any, half: Any = half) -> Any:
            for status in half._req_status.values():
                for ids in (status.group_states[number].block_ids for number in windows):
                    end = next((at for at in reversed(range(len(ids))) if ids[at] == NULL), 0)
                    ids[:end] = [NULL] * end
            return original(output)

        wrap(half, "_build_store_jobs", build)


def store_own_blocks_only(engine: Any) -> None:
    """A group's blocks are stored, and none that another group has got since."""
    group_of = module("v1.core.kv_cache_utils").get_group_id
    for worker in engine.connected():
        manager: Any = getattr(worker.scene.connector, "scheduler_manager", None)
        if not hasattr(manager, "_select_eager_blocks_to_store"):
            continue

        def own(block: int, group: int) -> int:
            label = engine.pool.blocks[block].block_hash
            return block if label is None or group_of(label) == group else NULL

        def select(original: Callable[..., Any], state: Any, tables: Any) -> Any:
            return original(state, tuple([own(block, group) for block in ids] for group, ids in enumerate(tables)))

        wrap(manager, "_select_eager_blocks_to_store", select)


def wait_for_stores_of_loaded_blocks(engine: Any) -> None:
    """A store from a block has ended before another connector loads into it."""
    for half in _halves(engine, "_current_batch_allocated_block_ids"):

        def allocated(original: Callable[..., Any], request: Any, blocks: Any, tokens: int, half: Any = half) -> Any:
            ids = {block.block_id for row in blocks.blocks for block in row if not block.is_null}
            half._current_batch_allocated_block_ids.update(ids)
            return original(request, blocks, tokens)

        wrap(half, "update_state_after_alloc", allocated)


def rest_without_requests(engine: Any) -> None:
    """A connector keeps no engine going."""
    if engine.scheduler.connector is not None:
        engine.scheduler.connector.has_pending_push_work = lambda: False


def leave_last_token_out(engine: Any) -> None:
    """Two engines with a connector between them both leave the last token of a prompt out."""
    for worker in engine.connected():
        half: Any = getattr(worker.scene.connector, "connector_scheduler", None)
        if hasattr(half, "_get_remote_prefill_token_count"):
            worker.leaves_last = True
            half._get_remote_prefill_token_count = lambda tokens: max(1, tokens - 1)
