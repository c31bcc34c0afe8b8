"""Planted faults after real bugs: how long a hit is, what is kept for one, and what leaves a window
(`real_bugs/hits.toml`, `real_bugs/windows.toml`)."""

from collections.abc import Callable
from math import lcm
from typing import Any

from .configuration import Inputs, answer_fault
from .registry import crash, fault, the_long_way, wrap, wrap_each


def _terms_of(manager: Any) -> list[tuple[Any, Any]]:
    """What hits need, and the manager they are for, of each group or groups of one spec; empty without caching."""
    coordinator = manager.coordinator
    singles = coordinator.single_type_managers
    if hasattr(coordinator, "attention_groups"):
        return [(group.terms, singles[group.group_ids[0]]) for group in coordinator.attention_groups]
    return [(coordinator._terms, singles[0])] if hasattr(coordinator, "_terms") else []


@fault("a window looks for as many blocks as without drafts, and drops one", "outcome")
def _window_hit_dropped_after_the_lookup(manager: Any) -> None:
    for terms, single in _terms_of(manager):
        if hasattr(single, "sliding_window"):
            terms.need -= terms.behind


@fault("a window with drafts and blocks below the alignment cannot be looked up", "outcome")
def _window_asserts_the_alignment(manager: Any) -> None:
    coordinator = manager.coordinator

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        for terms, single in _terms_of(manager):
            if hasattr(single, "sliding_window") and terms.behind and terms.per > 1:
                crash(f"{single.block_size} is not the alignment {coordinator.scheduler_block_size}")
        return original(hashes, length)

    wrap(coordinator, "find_longest_cache_hit", find)


@fault("each further round over the groups drops a block again", "outcome")
def _drop_in_every_round(manager: Any) -> None:
    coordinator = manager.coordinator

    def find(original: Callable[..., Any], hashes: Any, bound: int) -> Any:
        groups = coordinator.attention_groups
        one_round = len(groups) == 2 and groups[0].terms.need is None
        if one_round or not any(group.use_eagle for group in groups):
            return original(hashes, bound)
        length, before, rounds = bound, -1, 0
        while length and length != before:
            before, rounds = length, rounds + 1
            for group in groups:
                again = group.terms.block_size if rounds > 1 and group.use_eagle else 0
                length = coordinator.search(group, hashes).longest(max(0, length - again))
        return original(hashes, length)

    if hasattr(coordinator, "attention_groups"):
        wrap(coordinator, "find_longest_cache_hit", find)


@fault("with drafts states are asked for a block behind the candidate, and extend it", "outcome")
def _state_hit_past_the_candidate(manager: Any) -> None:
    coordinator = manager.coordinator

    def find(original: Callable[..., Any], hashes: Any, bound: int) -> Any:
        rows, tokens = original(hashes, bound)
        if not tokens or not coordinator.eagle_group_ids:
            return rows, tokens
        hit = list(rows)
        for group in coordinator.attention_groups:
            if hasattr(group.spec, "mamba_cache_mode"):
                search = coordinator.search(group, hashes)
                length = search.longest(tokens + coordinator.scheduler_block_size)
                if length > tokens:
                    tokens = length
                    for i, row in zip(group.group_ids, search.blocks(length), strict=True):
                        hit[i] = row
        return tuple(hit), tokens

    if hasattr(coordinator, "attention_groups"):
        wrap(coordinator, "find_longest_cache_hit", find)


@fault("a hit counts as long as the group says that finds most", "outcome")
def _tokens_of_the_longest_group(manager: Any) -> None:
    coordinator = manager.coordinator

    def find(original: Callable[..., Any], hashes: Any, bound: int) -> Any:
        rows, tokens = original(hashes, bound)
        searches = [coordinator.search(group, hashes) for group in coordinator.attention_groups]
        return rows, max([tokens, *(search.longest(bound) for search in searches)]) if tokens else 0

    if hasattr(coordinator, "attention_groups"):
        wrap(coordinator, "find_longest_cache_hit", find)


# What is kept for later hits. The mask's arguments: first and last block, alignment, spec, drafts, retention interval,
# prompt, and, where the managers are ours, tokens behind a hit and the block size.


@fault("the block that drafts read behind a boundary is not kept", "labels")
def _block_behind_not_kept(manager: Any) -> None:
    wrap_each(manager, "reachable_block_mask", lambda _, mask, *args: mask(*args[:4], False, *args[5:]))


@fault("the block that drafts read behind a replay is not kept, at other boundaries it is", "labels")
def _block_behind_a_replay_not_kept(manager: Any) -> None:
    def change(single: Any, mask: Callable[..., Any], *args: Any) -> Any:
        regular, replay = mask(*args[:6], None, *args[7:]), mask(*args[:4], False, *args[5:])
        if regular is None or replay is None:
            return None
        return [a or b for a, b in zip(regular, replay, strict=True)]

    wrap_each(manager, "reachable_block_mask", change)


@fault("a replay is kept where it would end without the drop for drafts", "labels")
def _replay_kept_without_the_drop(manager: Any) -> None:
    def change(single: Any, mask: Callable[..., Any], *args: Any) -> Any:
        return mask(*args[:7], *([1] if len(args) > 7 else []), *args[8:])

    wrap_each(manager, "reachable_block_mask", change)


@fault("what is kept is aligned to half of what hits are aligned to", "labels")
def _mask_in_another_unit(manager: Any) -> None:
    def change(single: Any, mask: Callable[..., Any], first: int, end: int, alignment: int, *rest: Any) -> Any:
        half = max(alignment // 2 // single.block_size, 1) * single.block_size
        return mask(first, end, half, *rest)

    wrap_each(manager, "reachable_block_mask", change)


@answer_fault("resolve_block_sizes", "a hash has as many tokens as a common multiple of the groups' blocks", "I11")
def _hash_of_the_common_multiple(inputs: Inputs, output: Any) -> Any:
    output[1] = lcm(*(spec["block_size"] for spec in inputs["groups"])) if inputs["groups"] else output[1]
    return output


# Windows.


@fault("blocks leave a window by what is scheduled, not by what is settled", "free", "tables")
def _window_cut_at_unsettled_tokens(manager: Any) -> None:
    the_long_way(manager)
    coordinator = manager.coordinator
    computed = [0]

    def allocate(original: Callable[..., Any], request: Any, new: int, **more: Any) -> Any:
        hit = more.get("num_new_computed_tokens", 0) + more.get("num_external_computed_tokens", 0)
        computed[0] = request.num_computed_tokens + hit
        return original(request, new, **more)

    def remove(original: Callable[..., Any], request: str, settled: int) -> None:
        original(request, max(settled, computed[0]))

    wrap(coordinator, "remove_skipped_blocks", remove)
    wrap(manager, "allocate_slots", allocate)
