"""Planted faults of block tables: which entries they get, keep and give up."""

from collections.abc import Callable
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, the_long_way, wrap, wrap_each


@fault("one token too many is skipped", "outcome", "free", "ref_cnt")
def _skipped_off_by_one(manager: Any) -> None:
    wrap_each(manager, "get_num_skipped_tokens", lambda _, skipped, computed: skipped(computed + 1))


@fault("nothing is skipped while a request runs", "free", "outcome")
def _window_never_slides(manager: Any) -> None:
    manager.coordinator.remove_skipped_blocks = lambda request, computed: None


@fault("lookahead tokens get no block", "outcome")
def _lookahead_ignored(manager: Any) -> None:
    the_long_way(manager)
    wrap_each(
        manager,
        "allocate_new_blocks",
        lambda _, allocate, request, tokens, main, *rest: allocate(request, main, main, *rest),
    )


@fault("the last two of the new blocks change places in the table", "tables")
def _table_entries_swapped(manager: Any) -> None:
    the_long_way(manager)

    def allocate(single: Any, original: Callable[..., Any], request: str, *rest: Any) -> Any:
        new = list(original(request, *rest))
        if len(new) > 1:
            table = single.req_to_blocks[request]
            table[-1], table[-2] = table[-2], table[-1]
        return new

    wrap_each(manager, "allocate_new_blocks", allocate)


@fault("a table may grow beyond the model length", "outcome")
def _model_length_ignored(manager: Any) -> None:
    manager.coordinator.steps._max_model_len *= 2
    manager.max_model_len *= 2


@fault("the block of the last computed token serves for new states, too", "free", "outcome", "ref_cnt", "tables")
def _last_state_not_kept(manager: Any) -> None:
    def arrange(single: Any, original: Callable[..., Any], request: str, table: Any, computed: int, tokens: int) -> Any:
        return original(request, table, 0, tokens)

    wrap_each(manager, "_to_arrange", arrange, having="_to_arrange")


@fault("states move away from where rejected drafts lead back to", "free", "outcome", "ref_cnt", "tables")
def _drafts_lead_nowhere(manager: Any) -> None:
    def arrange(single: Any, original: Callable[..., Any], request: str, table: Any, computed: int, tokens: int) -> Any:
        empty, rest = original(request, table, computed, tokens)
        running, stays = (-(-end // single.block_size) - 1 for end in (tokens, computed))
        behind = [i for i in range(stays + 1, min(running, len(table))) if empty and not table[i].is_null]
        return [i for i in empty if i >= running], sorted({*rest, *behind})

    wrap_each(manager, "_to_arrange", arrange, having="_to_arrange")


@fault("states behind an entry that is null already are never given back", "free", "outcome", "ref_cnt")
def _states_leak(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., Any], request: str, computed: int) -> None:
        table = single.req_to_blocks.get(request, ())
        end = min(single._num_skipped_blocks(computed), len(table))
        if end and not table[end - 1].is_null:
            original(request, computed)

    wrap_each(manager, "remove_skipped_blocks", remove, having="mamba_cache_mode")


@fault("the first two entries of a table change places when it grows", "S5", oracles=(CONTRACT,))
def _old_entries_swapped(manager: Any) -> None:
    tables = manager.coordinator.single_type_managers[0].req_to_blocks

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **more: Any) -> Any:
        before = len(tables.get(request.request_id, ()))
        new = original(request, *args, **more)
        table = tables.get(request.request_id, [])
        if len(table) > before > 1:
            table[0], table[1] = table[1], table[0]
        return new

    wrap(manager, "allocate_slots", allocate)


@fault("a request that ends keeps its table in the last group", "S12", oracles=(CONTRACT,))
def _last_group_not_freed(manager: Any) -> None:
    manager.coordinator.single_type_managers[-1].free = lambda request: None


@fault("entries are given up for the tokens of a step that is still running", "S13", oracles=(CONTRACT,))
def _window_cut_ahead_of_the_step(manager: Any) -> None:
    scheduled: dict[str, int] = {}

    def allocate(original: Callable[..., Any], request: Any, tokens: int, **more: Any) -> Any:
        scheduled[request.request_id] = tokens
        return original(request, tokens, **more)

    wrap(manager, "allocate_slots", allocate)
    wrap(manager, "remove_skipped_blocks", lambda cut, name, computed: cut(name, computed + scheduled.get(name, 0)))
