"""What a release would have to do to be without a known finding: changed in the running engine, for experiments.

Each takes away one cause and leaves everything else as it is (`known_causes`). An engine has its `scheduler`, its
`pool` and its `setup`.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from .....model.arith import cdiv
from .....model.attention import NO_STEP, Mamba, Step, Written, rule_for
from .....model.config_json import NARROW
from ....kinds import STATE_SPECS
from ....simulation.protocol import PoolTooSmallError


def _managers(engine: Any) -> list[Any]:
    return list(engine.scheduler.kv_cache_manager.coordinator.single_type_managers)


def _with_states(engine: Any) -> list[Any]:
    return [manager for manager in _managers(engine) if hasattr(manager, "mamba_cache_mode")]


def wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
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

    wrap(core, "allocate_slots", allocate)
    for single in _with_states(engine):
        single.cache_blocks = partial(cache, single, single.cache_blocks)


def search_states_without_margin(engine: Any) -> None:
    """States are not looked for one block behind the hit of the other groups."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    for index, group in enumerate(getattr(coordinator, "attention_groups", ())):
        if type(group.spec).__name__ in STATE_SPECS and hasattr(group, "use_eagle"):
            coordinator.attention_groups[index] = group._replace(use_eagle=False)


def register_all_states(engine: Any) -> None:
    """No state that is written is left out for being none that a replay can use."""
    for manager in _with_states(engine):
        if hasattr(manager, "reachable_block_mask"):
            manager.reachable_block_mask = lambda *given, **named: None


def cut_every_hit(engine: Any) -> None:
    """The blocks of a hit end where the hit ends, in every group."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    sizes = [manager.block_size for manager in _managers(engine)]

    def find(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        rows, length, *rest = original(*given, **named)
        cut = tuple(list(row)[: cdiv(length, size)] for row, size in zip(rows, sizes, strict=True))
        return (cut, length, *rest)

    wrap(coordinator, "find_longest_cache_hit", find)


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

    wrap(coordinator, "allocate_new_computed_blocks", begin)


def cut_windows_by_known_tokens(engine: Any) -> None:
    """What is given up behind windows and chunks goes by tokens that are known: the others may be rejected."""
    requests = engine.scheduler.requests

    def skip(original: Callable[..., Any], name: str, computed: int, *given: Any) -> None:
        original(name, min(computed, requests[name].num_tokens) if name in requests else computed, *given)

    for manager in _managers(engine):
        if type(manager.kv_cache_spec).__name__ in NARROW:
            wrap(manager, "remove_skipped_blocks", skip)


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

        wrap(manager, "get_num_blocks_to_allocate", count)


def count_no_states_below_zero(engine: Any) -> None:
    """No group counts on fewer than no blocks."""
    for manager in _with_states(engine):
        wrap(manager, "get_num_blocks_to_allocate", lambda original, *given, **named: max(0, original(*given, **named)))


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

        wrap(manager, "get_num_blocks_to_allocate", count)


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

        wrap(manager, "remove_skipped_blocks", skip)


def look_up_whole_blocks_on_the_host(engine: Any) -> None:
    """No hit in a store of single blocks ends within a block."""
    for worker in engine.connected():
        manager: Any = getattr(worker.scene.connector, "scheduler_manager", None)
        if hasattr(manager, "cpu_coordinator"):
            manager.cpu_coordinator.enable_partial_hash_hits = False


def look_up_whole_blocks(engine: Any) -> None:
    """No hit ends within a block, on the host neither, and nothing is registered for one that would."""
    look_up_whole_blocks_on_the_host(engine)
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    if not getattr(coordinator, "enable_partial_hash_hits", False):
        return
    coordinator.enable_partial_hash_hits = False
    for manager in _managers(engine):
        if hasattr(manager, "cache_hit_alignment_tokens"):  # where hits may end: so it knows what is worth keeping
            manager.cache_hit_alignment_tokens = coordinator._cache_hit_alignment_tokens
        if hasattr(manager, "_cache_partial_tail_block"):
            manager._cache_partial_tail_block = lambda *given, **named: None


def keep_padded_steps_whole(engine: Any) -> None:
    """A step of one token that is filled up with drafts is not cut where states are kept."""

    def split(original: Callable[..., int], request: Any, tokens: int, *more: int) -> int:
        begins = request.num_computed_tokens + sum(more)
        return tokens if begins == request.num_tokens - 1 else original(request, tokens, *more)

    wrap(engine.scheduler, "_mamba_block_aligned_split", split)


def pad_no_step_up_to_the_end(engine: Any) -> None:
    """Who begins is filled up with drafts only as far as a token behind them has room."""
    scheduler = engine.scheduler
    longest = scheduler.max_model_len

    def schedule(original: Callable[..., Any], *given: Any) -> Any:
        scheduler.max_model_len = longest
        return original(*given)

    def select(original: Callable[..., Any], *given: Any) -> Any:  # asked for each who begins, behind those who run
        scheduler.max_model_len = longest - 1
        return original(*given)

    wrap(scheduler, "schedule", schedule)
    wrap(scheduler, "_select_waiting_queue_for_scheduling", select)


def free_who_is_set_back_at_once(engine: Any) -> None:
    """Who is set back gives his blocks to the step for which he is: it runs behind that which still writes them, and
    nobody is loaded before it."""

    def preempt(original: Callable[..., Any], request: Any, *given: Any, **named: Any) -> Any:
        request.last_sched_seq = 0
        return original(request, *given, **named)

    wrap(engine.scheduler, "_preempt_request", preempt)


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

    wrap(asked, "get_num_new_matched_tokens", matched)


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

    if engine.setup.policy == "priority":  # in a queue by arrival it would be put behind all others
        wrap(scheduler, "schedule", schedule)


def look_up_all_groups_at_once(engine: Any) -> None:
    """With a connector, too, a hit ends where it ends in every group."""
    coordinator = engine.scheduler.kv_cache_manager.coordinator

    def find(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        rows, length, *_ = coordinator.find_longest_cache_hit(*given, **named)
        return rows, [length] * len(rows)

    if hasattr(coordinator, "find_longest_cache_hit_per_group"):
        wrap(coordinator, "find_longest_cache_hit_per_group", find)


def reset_only_when_idle(engine: Any) -> None:
    """The prefix cache is not reset while requests run."""
    engine.resets_running = False
