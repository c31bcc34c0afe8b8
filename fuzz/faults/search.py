"""Planted faults of the search for the hit that all groups of a hybrid can serve (core.md §9)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .registry import fault, wrap


@fault("the hybrid search ends after one round over the groups", "outcome")
def _second_round_left_out(manager: Any) -> None:
    coordinator = manager.coordinator
    if not hasattr(coordinator, "attention_groups"):
        return

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        searches = [coordinator.search(group, hashes) for group in coordinator.attention_groups]
        for search in searches:
            length = search.longest(length)
            if not length:
                return original(hashes, 0)
        rows: list[Any] = [[] for _ in coordinator.single_type_managers]
        for group, search in zip(coordinator.attention_groups, searches, strict=True):
            for index, row in zip(group.group_ids, search.blocks(length), strict=True):
                rows[index] = row
        return tuple(rows), length

    wrap(coordinator, "find_longest_cache_hit", find)


@fault("where another group shortens a hit, the block behind it is not asked for again", "outcome")
def _eagle_drop_never_renewed(manager: Any) -> None:
    coordinator = manager.coordinator
    if not hasattr(coordinator, "attention_groups"):
        return

    def search(original: Callable[..., Any], group: Any, hashes: Any) -> Any:
        made = original(group, hashes)
        terms = group.terms

        def longest(ask: Callable[[int], int], bound: int) -> int:
            found = ask(bound)
            if terms.behind:
                need = None if terms.need is None else max(0, terms.need - terms.behind)
                made._terms = replace(terms, behind=0, need=need)
            return found

        wrap(made, "longest", longest)
        return made

    wrap(coordinator, "search", search)
