"""Planted faults after real bugs: steps and states, admission, and requests that wait (`real_bugs/steps.toml`)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from sys import maxsize
from typing import Any

from .registry import crash, fault, the_long_way, wrap, wrap_each

_STATES = "mamba_cache_mode"
"""What only managers of states have."""


def predict_otherwise(manager: Any, change: Callable[..., int]) -> None:
    """Change what each group says that an allocation takes, in every step.

    `change` gets the group's manager, the number, and the arguments of `get_num_blocks_to_allocate`.
    """
    _asking_all(manager)
    wrap_each(manager, "get_num_blocks_to_allocate", lambda single, ask, *asked: change(single, ask(*asked), *asked))


def _asking_all(manager: Any) -> None:
    """Every allocation asks each group what it takes."""
    the_long_way(manager)
    manager.coordinator.most_blocks_to_allocate = lambda tokens, hit: maxsize


# States of Mamba layers.


@contextmanager
def _having(single: Any, **changed: Any) -> Iterator[None]:
    """For the time being a manager has these values for its attributes."""
    before = {name: getattr(single, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(single, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(single, name, value)


def _aligned(manager: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of every manager of states in mode "align"; `change` gets the manager first."""
    the_long_way(manager)
    for single in manager.coordinator.single_type_managers:
        if getattr(single, _STATES, "") == "align":
            wrap(single, name, lambda original, *asked, single=single: change(single, original, *asked))


@fault("a table of states must not need fewer entries than it has", "outcome")
def _states_never_fewer(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], request: str, slots: int, tokens: int, *rest: Any) -> Any:
        needed = -(-tokens // single.block_size) + single.num_speculative_blocks
        held = len(single.req_to_blocks.get(request, ()))
        if needed < held:
            crash(f"{needed} entries are needed, {held} are held")
        return original(request, slots, tokens, *rest)

    _aligned(manager, "allocate_new_blocks", allocate)


@fault("states of drafts get no block", "outcome", "tables", "free")
def _states_of_drafts_left_out(manager: Any) -> None:
    def arrange(single: Any, original: Callable[..., Any], *asked: Any) -> Any:
        with _having(single, num_speculative_blocks=0):
            return original(*asked)

    _aligned(manager, "_to_arrange", arrange)


@fault(
    "the running state stands where lookahead ends, not where the step does",
    "outcome",
    "tables",
    "free",
)
def _running_state_behind_lookahead(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], request: str, slots: int, tokens: int, *rest: Any) -> Any:
        return original(request, slots, slots, *rest)

    def predict(single: Any, original: Callable[..., int], request: str, slots: int, *asked: Any) -> int:
        hit, computed, _, *rest = asked
        return original(request, slots, hit, computed, slots, *rest)

    _aligned(manager, "allocate_new_blocks", allocate)
    _aligned(manager, "get_num_blocks_to_allocate", predict)


@fault(
    "states are counted in the least block size of all groups",
    "outcome",
    "tables",
    "free",
    "ref_cnt",
)
def _states_in_least_block_size(manager: Any) -> None:
    least = min([single.block_size for single in manager.coordinator.single_type_managers], default=1)

    def count(single: Any, original: Callable[..., Any], *asked: Any) -> Any:
        with _having(single, block_size=least):
            return original(*asked)

    for name in ("_to_arrange", "_num_skipped_blocks"):
        _aligned(manager, name, count)


@fault("new blocks are listed for plain full attention only", "new_block_ids")
def _new_blocks_of_one_kind_listed(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single.collects_new_block_ids &= type(single.kv_cache_spec).__name__ == "FullAttentionSpec"


def _comes_from_outside(single: Any, request: str, hit: Sequence[Any], computed: int) -> bool:
    """Whether a request of states is about to begin with more tokens than its hit has."""
    begins = hasattr(single, _STATES) and request not in single.num_cached_block
    return begins and computed > len(hit) * single.block_size


@fault("a state that comes from outside counts as one block more", "outcome")
def _outside_state_counted_twice(manager: Any) -> None:
    def predict(single: Any, count: int, request: str, slots: int, hit: Any, computed: int, *rest: Any) -> int:
        return count + _comes_from_outside(single, request, hit, computed)

    predict_otherwise(manager, predict)


@fault("a state that comes from outside counts as no block", "outcome")
def _outside_state_not_counted(manager: Any) -> None:
    def predict(single: Any, count: int, request: str, slots: int, hit: Any, computed: int, *rest: Any) -> int:
        return max(0, count - _comes_from_outside(single, request, hit, computed))

    predict_otherwise(manager, predict)


@fault("a step that ends at a hash boundary inside a state's block counts one too few", "outcome")
def _block_at_hash_boundary_not_counted(manager: Any) -> None:
    unit = manager.block_pool.hash_block_size

    def predict(
        single: Any, count: int, request: str, slots: int, hit: Any, computed: int, tokens: int, *rest: Any
    ) -> int:
        inside = hasattr(single, _STATES) and not tokens % unit and tokens % single.block_size
        return max(0, count - 1) if inside else count

    predict_otherwise(manager, predict)


# Lookahead, drafts and what is registered.


@fault("a first step behind a hit gets no room for lookahead", "outcome", "tables")
def _no_lookahead_behind_a_hit(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *asked: Any, num_lookahead_tokens: int = 0, **more: Any) -> Any:
        hit = more.get("new_computed_blocks")
        lookahead = 0 if hit is not None and any(hit.blocks) else num_lookahead_tokens
        return original(*asked, num_lookahead_tokens=lookahead, **more)

    wrap(manager, "allocate_slots", allocate)


@fault("a list of blocks that is longer than the hit is cut at its front", "outcome")
def _hit_cut_at_the_front(manager: Any) -> None:
    coordinator = manager.coordinator
    if not hasattr(coordinator, "attention_groups"):
        return

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        hit, tokens = original(hashes, length)
        first = coordinator.attention_groups[0]
        if not tokens or "Full" not in first.manager_cls.__name__:
            return hit, tokens
        search = coordinator.search(first, hashes)
        longer = search.blocks(search.longest(length))
        rows = {group: row[-len(hit[group]) :] for group, row in zip(first.group_ids, longer, strict=True)}
        return tuple([rows.get(group, row) for group, row in enumerate(hit)]), tokens

    wrap(coordinator, "find_longest_cache_hit", find)


def _registering(manager: Any, change: Callable[[int, int, int], int]) -> None:
    """Change up to which token an allocation registers: `change` gets it, the end of the step, and the lookahead."""
    the_long_way(manager)
    step = [0, 0]

    def allocate(original: Callable[..., Any], request: Any, new: int, **more: Any) -> Any:
        names = ("num_new_computed_tokens", "num_external_computed_tokens")
        step[:] = (
            request.num_computed_tokens + new + sum(more.get(name, 0) for name in names),
            more.get("num_lookahead_tokens", 0),
        )
        try:
            return original(request, new, **more)
        finally:
            step[:] = 0, 0

    def cache(original: Callable[..., Any], request: Any, tokens: int) -> None:
        original(request, max(0, change(tokens, *step)) if step[0] else tokens)

    wrap(manager, "allocate_slots", allocate)
    wrap(manager.coordinator, "cache_blocks", cache)


@fault("as many tokens are not registered as there could be drafts", "registered", "labels")
def _all_drafts_left_unregistered(manager: Any) -> None:
    _registering(manager, lambda tokens, end, lookahead: min(tokens, end - lookahead))


@fault("drafts that may be rejected are registered", "outcome", "registered")
def _drafts_registered(manager: Any) -> None:
    _registering(manager, lambda tokens, end, lookahead: end)


@fault("registering asks the block before for its name, which has left its chunk", "outcome")
def _parent_asked_of_its_block(manager: Any) -> None:
    the_long_way(manager)

    def cache(single: Any, original: Callable[..., Any], request: Any, tokens: int, *rest: Any) -> None:
        first = single.num_cached_block.get(request.request_id, 0)
        if 0 < first < tokens // single.block_size and single.req_to_blocks[request.request_id][first - 1].is_null:
            crash(f"block {first - 1} of request {request.request_id} is gone")
        original(request, tokens, *rest)

    wrap_each(manager, "cache_blocks", cache, having="attention_chunk_size")


@fault("the block in which a chunk begins is not kept", "labels", "outcome")
def _first_block_of_a_chunk_not_kept(manager: Any) -> None:
    def keep(single: Any, original: Callable[..., Any], start: int, end: int, alignment: Any, *rest: Any) -> Any:
        mask = original(start, end, alignment, *rest)
        unit, chunk, size = alignment, single.attention_chunk_size, single.block_size
        begins = [-(-(i + 1) * size // unit) * unit // chunk * chunk for i in range(start, end)]
        inside = [i * size < at < (i + 1) * size for i, at in zip(range(start, end), begins, strict=True)]
        return [kept and not begun for kept, begun in zip(mask, inside, strict=True)]

    wrap_each(manager, "reachable_block_mask", keep, having="attention_chunk_size")


# Admission.


@fault("where a table has empty entries, a step counts at most the cap less all of its entries", "outcome")
def _cap_less_nulls(manager: Any) -> None:
    null = manager.block_pool.null_block

    def predict(single: Any, count: int, request: str, *asked: Any) -> int:
        cap, table = single._max_admission_blocks_per_request, single.req_to_blocks.get(request, ())
        return count if cap is None or null not in table else min(count, max(0, cap - len(table)))

    predict_otherwise(manager, predict)


@fault("the gate counts the whole sequence for a window that drafts read", "outcome")
def _gate_uncapped_for_drafts(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        if single.use_eagle:
            single._max_admission_blocks_per_request = None


@fault("a request whose tokens arrive later is not asked at the gate", "outcome")
def _no_gate_for_what_arrives_later(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *asked: Any, **more: Any) -> Any:
        if more.get("delay_cache_blocks"):
            more["full_sequence_must_fit"] = False
        return original(*asked, **more)

    wrap(manager, "allocate_slots", allocate)


@fault("a table for an encoder has room for the longest input there is", "outcome")
def _encoder_budget_for_each(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *asked: Any, num_encoder_tokens: int = 0, **more: Any) -> Any:
        return original(*asked, num_encoder_tokens=num_encoder_tokens and manager.max_model_len, **more)

    wrap(manager, "allocate_slots", allocate)


# Requests that give way, wait and come back.


@fault("what is planned for a request that gives way stays planned", "outcome", "tables")
def _steps_outlive_preemption(manager: Any) -> None:
    manager.coordinator.steps.forget = lambda request: None


@fault("a request that has computed its prompt keeps its blocks while it waits", "free", "ref_cnt")
def _waiting_request_keeps_its_blocks(manager: Any) -> None:
    waiting: set[str] = set()

    def free(original: Callable[..., Any], request: Any) -> None:
        if request.num_computed_tokens < request.num_prompt_tokens:
            original(request)
        else:
            waiting.add(request.request_id)

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        if request.request_id in waiting:
            waiting.discard(request.request_id)
            manager.coordinator.free(request.request_id)
        return original(request, *asked, **more)

    wrap(manager, "free", free)
    wrap(manager, "allocate_slots", allocate)


@fault("a request that comes back still has its count of registered blocks", "outcome", "registered", "labels")
def _count_outlives_preemption(manager: Any) -> None:
    the_long_way(manager)
    counts: dict[tuple[int, str], int] = {}

    def free(single: Any, original: Callable[..., Any], request: str) -> None:
        if request in single.num_cached_block:
            counts[single.kv_cache_group_id, request] = single.num_cached_block[request]
        original(request)

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        for single in manager.coordinator.single_type_managers:
            if counted := counts.pop((single.kv_cache_group_id, request.request_id), 0):
                single.num_cached_block[request.request_id] = counted
        return original(request, *asked, **more)

    wrap_each(manager, "free", free)
    wrap(manager, "allocate_slots", allocate)


@fault("tokens from outside are forgotten when there was no room for them", "outcome")
def _outside_tokens_forgotten(manager: Any) -> None:
    forgotten: set[str] = set()

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        name = request.request_id
        outside = more.get("num_external_computed_tokens", 0)
        if outside and name in forgotten:
            more["num_external_computed_tokens"] = 0
        blocks = original(request, *asked, **more)
        if blocks is None and outside:
            forgotten.add(name)
        return blocks

    wrap(manager, "allocate_slots", allocate)


@fault("what has arrived is registered although caching is off", "outcome")
def _arrivals_registered_without_caching(manager: Any) -> None:
    manager.cache_blocks = lambda request, tokens: manager.coordinator.cache_blocks(request, tokens)


@fault("only blocks of the first group can be declared invalid", "labels", "outcome")
def _first_group_invalid_only(manager: Any) -> None:
    def evict(original: Callable[..., Any], ids: Any) -> None:
        blocks = manager.block_pool.blocks
        original({i for i in ids if not 0 <= i < len(blocks) or blocks[i].run is None or not blocks[i].run.group})

    wrap(manager, "evict_blocks", evict)


@fault("invalid blocks that several requests hold can be found on", "labels", "outcome")
def _shared_blocks_stay_valid(manager: Any) -> None:
    def evict(original: Callable[..., Any], ids: Any) -> None:
        blocks = manager.block_pool.blocks
        original({i for i in ids if not 0 <= i < len(blocks) or blocks[i].ref_cnt < 2})

    wrap(manager, "evict_blocks", evict)


@fault(
    "a group takes blocks for tokens from outside before the others hold their hits",
    "outcome",
    "tables",
    "ref_cnt",
    "labels",
    "free",
)
def _hits_held_one_after_the_other(manager: Any) -> None:
    def begin(original: Callable[..., Any], request: str, hits: Any, *lengths: Any) -> None:
        for single, hit in zip(manager.coordinator.single_type_managers, hits, strict=True):
            single.allocate_new_computed_blocks(request, hit, *lengths)

    wrap(manager.coordinator, "allocate_new_computed_blocks", begin)


@fault("blocks that are filled from outside are held once more, for ever", "ref_cnt")
def _outside_references_kept(manager: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        blocks = original(request, *asked, **more)
        if blocks is not None and more.get("num_external_computed_tokens"):
            for table in manager.coordinator.get_blocks(request.request_id):
                manager.block_pool.touch([block for block in table if not block.is_null])
        return blocks

    wrap(manager, "allocate_slots", allocate)


@fault("all that wait are looked up first, and allocated afterwards", "outcome")
def _hit_of_an_earlier_lookup(manager: Any) -> None:
    found: dict[str, Any] = {}

    def look_up(original: Callable[..., Any], request: Any) -> Any:
        return found.setdefault(request.request_id, original(request))

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        blocks = original(request, *asked, **more)
        if blocks is not None:
            found.pop(request.request_id, None)
        return blocks

    wrap(manager, "get_computed_blocks", look_up)
    wrap(manager, "allocate_slots", allocate)
