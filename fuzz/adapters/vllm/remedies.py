"""What a release would have to do to be without a known finding: changed in the running engine, for experiments.

Each takes away one cause and leaves everything else as it is (`known_causes`). An engine has its `scheduler`, its
`pool` and its `setup`.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from ....model.arith import cdiv
from ....model.attention import NO_STEP, Mamba, Step, Written, rule_for
from ....model.config_json import NARROW
from ....model.ops import NULL
from ...kinds import STATE_SPECS
from ...simulation.protocol import PoolTooSmallError
from .scheduler_config import module


def _managers(engine: Any) -> list[Any]:
    return list(engine.scheduler.kv_cache_manager.coordinator.single_type_managers)


def _with_states(engine: Any) -> list[Any]:
    return [manager for manager in _managers(engine) if hasattr(manager, "mamba_cache_mode")]


def _wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of one object: `change` gets the original and the call's arguments."""
    setattr(owner, name, partial(change, getattr(owner, name)))


def register_written_states_only(engine: Any) -> None:
    """A state is registered only where a step wrote it (`model.attention.Written`)."""
    steps: dict[str, Written] = {}
    shape, core = engine.setup.shape, engine.scheduler.kv_cache_manager

    def allocate(original: Callable[..., Any], request: Any, num_new_tokens: int, *given: Any, **named: Any) -> Any:
        hit = given[0] if given else named.get("num_new_computed_tokens", 0)
        external = named.get("num_external_computed_tokens", 0)
        if not request.num_computed_tokens:
            steps.pop(request.request_id, None)
        start = min(request.num_computed_tokens + hit + external, shape.max_model_len)
        end = start + num_new_tokens
        known = request.num_tokens + min(1, request.num_output_placeholders)  # of drafts in flight nobody knows
        drafts = max(0, end - max(start + 1, known))
        before = steps.get(request.request_id, NO_STEP)
        steps[request.request_id] = before.then(Step(start, end, drafts), loaded=external > 0)
        result = original(request, num_new_tokens, *given, **named)
        if result is None:
            steps[request.request_id] = before
        return result

    def cache(single: Any, original: Callable[..., Any], request: Any, *given: Any, **named: Any) -> Any:
        name = request.request_id
        before = {block.block_id: block.block_hash for block in single.req_to_blocks[name]}
        first, result = single.num_cached_block.get(name, 0), original(request, *given, **named)
        rule = rule_for(shape.groups[single.kv_cache_group_id], shape)
        assert isinstance(rule, Mamba)
        table, written = single.req_to_blocks[name], steps.get(name, NO_STEP)
        for i in range(first, single.num_cached_block.get(name, 0)):
            block = table[i]
            if not block.is_null and not written.stands(rule, i) and block.block_hash != before.get(block.block_id):
                engine.pool.evict_blocks({block.block_id})
        return result

    _wrap(core, "allocate_slots", allocate)
    for single in _with_states(engine):
        single.cache_blocks = partial(cache, single, single.cache_blocks)


def search_states_without_margin(engine: Any) -> None:
    """States are not looked for one block behind the hit of the other groups."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    for index, group in enumerate(getattr(coordinator, "attention_groups", ())):
        if type(group.spec).__name__ in STATE_SPECS and hasattr(group, "use_eagle"):
            coordinator.attention_groups[index] = group._replace(use_eagle=False)


def cut_every_hit(engine: Any) -> None:
    """The blocks of a hit end where the hit ends, in every group."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    sizes = [manager.block_size for manager in _managers(engine)]

    def find(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        rows, length, *rest = original(*given, **named)
        cut = tuple(list(row)[: cdiv(length, size)] for row, size in zip(rows, sizes, strict=True))
        return (cut, length, *rest)

    _wrap(coordinator, "find_longest_cache_hit", find)


def hold_hits_first(engine: Any) -> None:
    """All groups hold their hits before any takes blocks for external tokens."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator

    def begin(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        hits = named["new_computed_blocks"] if "new_computed_blocks" in named else given[1]
        blocks = [block for row in hits for block in row if not block.is_null]
        engine.pool.touch(blocks)
        result = original(*given, **named)
        engine.pool.free_blocks(blocks[::-1])
        return result

    _wrap(coordinator, "allocate_new_computed_blocks", begin)


def cut_windows_by_known_tokens(engine: Any) -> None:
    """What is given up behind windows and chunks goes by tokens that are known: the others may be rejected."""
    requests = engine.scheduler.requests

    def skip(original: Callable[..., Any], name: str, computed: int, *given: Any) -> None:
        original(name, min(computed, requests[name].num_tokens) if name in requests else computed, *given)

    for manager in _managers(engine):
        if type(manager.kv_cache_spec).__name__ in NARROW:
            _wrap(manager, "remove_skipped_blocks", skip)


def count_no_tokens_between_chunks(engine: Any) -> None:
    """Blocks before a chunk count as found only if the hit reaches the chunk; else its end is the limit of another
    search."""
    core = engine.scheduler.kv_cache_manager.coordinator
    for manager in _managers(engine):
        if not hasattr(manager, "attention_chunk_size"):
            continue
        kind = type(manager)
        reaching = _reaching_its_chunk(kind)
        manager.find_longest_cache_hit = reaching.find_longest_cache_hit
        for index, group in enumerate(getattr(core, "attention_groups", ())):
            parts = [reaching if part is kind else part for part in group]
            core.attention_groups[index] = type(group)(*parts) if hasattr(group, "_fields") else tuple(parts)


def refuse_pools_without_room_for_chunks(engine: Any) -> None:
    """The start-up check counts the block in which a chunk begins with others before it (theorem T6)."""
    more = sum(bool(group.chunk % group.block_size) for group in engine.setup.shape.groups)
    if engine.built.room < more:
        raise PoolTooSmallError("the start-up check refuses the pool")


def _reaching_its_chunk(kind: Any) -> Any:
    """The manager of chunks, with another search."""

    def find(cls: Any, *given: Any, **named: Any) -> Any:
        told = signature(kind.find_longest_cache_hit).bind(*given, **named)
        spec = told.arguments["kv_cache_spec"]
        while True:
            answer = kind.find_longest_cache_hit(*told.args, **told.kwargs)
            rows = answer[0] if isinstance(answer[-1], int) else answer
            length = len(rows[0]) * spec.block_size
            if length >= told.arguments["max_length"] // spec.attention_chunk_size * spec.attention_chunk_size:
                return answer
            told.arguments["max_length"] = length

    return type(kind.__name__, (kind,), {"find_longest_cache_hit": classmethod(find)})


def count_one_state_more(engine: Any) -> None:
    """An allocation of a request that holds no state yet counts on one more, where something comes from outside."""
    for manager in _with_states(engine) if engine.setup.connector else ():

        def count(original: Callable[..., Any], name: str, *given: Any, single: Any = manager, **named: Any) -> Any:
            return original(name, *given, **named) + (not single.req_to_blocks.get(name))

        _wrap(manager, "get_num_blocks_to_allocate", count)


def count_no_states_below_zero(engine: Any) -> None:
    """No group counts on fewer than no blocks."""
    for manager in _with_states(engine):
        _wrap(
            manager, "get_num_blocks_to_allocate", lambda original, *given, **named: max(0, original(*given, **named))
        )


def count_copied_states_once(engine: Any) -> None:
    """A state that is copied, since the request goes on within its block, counts as one block if nothing else grows."""
    for manager in _with_states(engine):
        if not hasattr(manager, "_partial_hit_reqs"):
            continue

        def count(original: Callable[..., int], name: str, *given: Any, single: Any = manager, **named: Any) -> int:
            many: int = original(name, *given, **named)
            _, hit, _, local, main = given[:5]
            copied = name in single._partial_hit_reqs or single._has_partial_local_hit(hit, local)
            held = len(hit) + len(single.req_to_blocks.get(name, ()))
            if not copied or cdiv(main, single.block_size) + single.num_speculative_blocks > held:
                return many
            return many - (1 if name in single._allocated_block_reqs else 1 + single.num_speculative_blocks)

        _wrap(manager, "get_num_blocks_to_allocate", count)


def give_up_states_behind_gaps(engine: Any) -> None:
    """States behind the last computed token are given up wherever they are in the table."""
    for manager in _with_states(engine):

        def skip(original: Callable[..., Any], name: str, computed: int, *given: Any, single: Any = manager) -> None:
            original(name, computed, *given)
            table = single.req_to_blocks.get(name, [])
            for entry in range(min(max(0, computed - 1) // single.block_size, len(table))):
                if not table[entry].is_null:
                    engine.pool.free_blocks([table[entry]])
                    table[entry] = engine.pool.null_block

        _wrap(manager, "remove_skipped_blocks", skip)


def look_up_whole_blocks(engine: Any) -> None:
    """No hit ends within a block, and nothing is registered for one that would."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    if not getattr(coordinator, "enable_partial_hash_hits", False):
        return
    coordinator.enable_partial_hash_hits = False
    for manager in _managers(engine):
        if hasattr(manager, "cache_hit_alignment_tokens"):  # where hits may end: so it knows what is worth keeping
            manager.cache_hit_alignment_tokens = coordinator._cache_hit_alignment_tokens
        if hasattr(manager, "_cache_partial_tail_block"):
            manager._cache_partial_tail_block = lambda *given, **named: None


def wait_for_stores_of_copied_blocks(engine: Any) -> None:
    """A store from a block has ended before another block is copied over it."""
    for worker in engine.connected():
        half: Any = getattr(worker.scene.connector, "connector_scheduler", None)
        if not hasattr(half, "_current_batch_allocated_block_ids"):
            continue

        def build(original: Callable[..., Any], output: Any, *, half: Any = half) -> Any:
            half._current_batch_allocated_block_ids.update(
                copy.dst_block_id for copy in output.kv_cache_block_copies or ()
            )
            return original(output)

        _wrap(half, "build_connector_meta", build)


def store_nothing_of_who_never_ran(engine: Any) -> None:
    """Of a request that was cancelled no more is stored than was computed."""
    for worker in engine.connected():
        half: Any = getattr(worker.scene.connector, "connector_scheduler", None)
        if not hasattr(half, "_calc_num_offloadable_tokens"):
            continue

        def offloadable(original: Callable[..., int], status: Any, tokens: int) -> int:
            cancelled = status.req.status.name == "FINISHED_ABORTED"
            return original(status, min(tokens, status.req.num_computed_tokens) if cancelled else tokens)

        _wrap(half, "_calc_num_offloadable_tokens", offloadable)


def store_what_has_blocks(engine: Any) -> None:
    """No more of a request is stored than it has blocks for."""
    for worker in engine.connected():
        half: Any = getattr(worker.scene.connector, "connector_scheduler", None)
        if not hasattr(half, "_calc_num_offloadable_tokens"):
            continue

        def offloadable(original: Callable[..., int], status: Any, tokens: int, half: Any = half) -> int:
            many = half.config.blocks_per_chunk
            covered = (
                len(state.block_ids) // many * group.tokens_per_chunk
                for group, state in zip(half.config.kv_group_configs, status.group_states, strict=True)
            )
            return int(min(original(status, tokens), *covered))

        _wrap(half, "_calc_num_offloadable_tokens", offloadable)


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

        _wrap(manager, "_select_eager_blocks_to_store", select)


def wait_for_stores_of_loaded_blocks(engine: Any) -> None:
    """A store from a block has ended before another connector loads into it."""
    for worker in engine.connected():
        half: Any = getattr(worker.scene.connector, "connector_scheduler", None)
        if not hasattr(half, "_current_batch_allocated_block_ids"):
            continue

        def allocated(original: Callable[..., Any], request: Any, blocks: Any, tokens: int, half: Any = half) -> Any:
            ids = {block.block_id for row in blocks.blocks for block in row if not block.is_null}
            half._current_batch_allocated_block_ids.update(ids)
            return original(request, blocks, tokens)

        _wrap(half, "update_state_after_alloc", allocated)


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


def admit_without_room_for_all(engine: Any) -> None:
    """A request begins where its first step has room: no room is asked for all its tokens."""
    engine.scheduler.scheduler_reserve_full_isl = False


def load_beside_no_drafts(engine: Any) -> None:
    """A load may begin where the request itself fits, without room for a step of drafts besides."""
    scheduler = engine.scheduler
    is_asked = callable(getattr(scheduler, "_spec_decode_step_blocks", None))  # of 0.31; a number since
    scheduler._spec_decode_step_blocks = (lambda: 0) if is_asked else 0


def load_one_by_one(engine: Any, connector: Any = None) -> None:
    """Nobody is loaded while somebody who was holds blocks and does not run. `connector`: who is asked for loads, else
    the scheduler's."""
    scheduler = engine.scheduler
    if (asked := connector or scheduler.connector) is None:
        return

    def matched(original: Callable[..., Any], request: Any, *given: Any, **named: Any) -> Any:
        tokens, later = original(request, *given, **named)
        own, running = scheduler.kv_cache_manager.get_block_ids, scheduler.running
        others = [one for one in scheduler.requests.values() if one is not request and one not in running]
        if later and any(any(own(one.request_id)) for one in others):
            return None, False
        return tokens, later

    _wrap(asked, "get_num_new_matched_tokens", matched)


def serve_who_holds_blocks_first(engine: Any) -> None:
    """Where nothing runs, who waits and holds blocks comes before all others, whatever their priorities."""
    scheduler = engine.scheduler
    asked: dict[str, int] = {}

    def schedule(original: Callable[..., Any], *given: Any) -> Any:
        own = scheduler.kv_cache_manager.get_block_ids
        for queue in (scheduler.waiting, scheduler.skipped_waiting):
            for request in list(queue):
                before = asked.setdefault(request.request_id, request.priority)
                now = min(-1, before) if not scheduler.running and any(own(request.request_id)) else before
                if request.priority != now:
                    queue.remove_request(request)
                    request.priority = now
                    queue.add_request(request)
        return original(*given)

    _wrap(scheduler, "schedule", schedule)


def look_up_all_groups_at_once(engine: Any) -> None:
    """With a connector, too, a hit ends where it ends in every group."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator

    def find(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        rows, length, *_ = coordinator.find_longest_cache_hit(*given, **named)
        return rows, [length] * len(rows)

    if hasattr(coordinator, "find_longest_cache_hit_per_group"):
        _wrap(coordinator, "find_longest_cache_hit_per_group", find)


def reset_only_when_idle(engine: Any) -> None:
    """The prefix cache is not reset while requests run."""
    engine.resets_running = False
