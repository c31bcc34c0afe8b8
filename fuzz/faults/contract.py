"""Planted faults of the contract: for every property a mistake in our own core that it is the first to report.

Each has a story, a short sequence of operations at whose end the property must report it. On the clean core nothing is
to be reported in the same story.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...model.ops import (
    Advance,
    Allocate,
    Evict,
    Free,
    Group,
    Lookup,
    Operation,
    RemoveSkipped,
    Shape,
    Submit,
)
from ..adapters.impl import open_changed_impl
from ..targets.base import Target
from .core import FAULTS

Plant: TypeAlias = Callable[[Any], None]
"""Changes a newly built KVCacheManager."""


@dataclass(frozen=True)
class ContractFault:
    """One planted mistake; its story ends with the operation at which it is reported."""

    name: str
    describe: str
    property: str
    plant: Plant
    shape: Shape
    story: Sequence[Operation]


def open_contract_fault(name: str) -> Target:
    """Our core with this fault. KeyError for an unknown name."""
    return open_changed_impl(f"fault:{name}", CONTRACT_FAULTS[name].plant)


# Mistakes that `faults` does not have, since lockstep sees them in the one field that others break, too.


def _wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of one object: `change` gets the original and the call's arguments."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **more: change(original, *args, **more))


def _one_block_leaks(manager: Any) -> None:
    def free(original: Any, blocks: Any, prepend: bool = False) -> None:
        original(list(blocks)[1:], prepend=prepend)

    _wrap(manager.block_pool, "free_blocks", free)


def _held_block_handed_out(manager: Any) -> None:
    pool = manager.block_pool

    def get_new_blocks(original: Any, count: int) -> Any:
        held = next((block for block in pool.blocks if block.ref_cnt and not block.is_null), None)
        if held is None or not count:
            return original(count)
        held.ref_cnt += 1
        return [*original(count - 1), held]

    _wrap(pool, "get_new_blocks", get_new_blocks)


def _null_block_freed(manager: Any) -> None:
    def free(original: Any, request: Any) -> None:
        original(request)
        manager.block_pool.free_block_queue.append(manager.block_pool.null_block)

    _wrap(manager, "free", free)


def _old_entries_swapped(manager: Any) -> None:
    single = manager.coordinator.single_type_managers[0]

    def allocate(original: Any, request: str, *rest: Any) -> Any:
        table = single.req_to_blocks[request]
        if len(table) > 1:
            table[0], table[1] = table[1], table[0]
        return original(request, *rest)

    _wrap(single, "allocate_new_blocks", allocate)


def _taken_from_the_back(manager: Any) -> None:
    queue = manager.block_pool.free_block_queue

    def popleft_n(original: Any, count: int) -> Any:
        last = queue.get_all_free_blocks()[::-1][:count]
        for block in last:
            queue.remove(block)
        return last

    _wrap(queue, "popleft_n", popleft_n)


def _identity_lost_when_freed(manager: Any) -> None:
    pool = manager.block_pool

    def free(original: Any, blocks: Any, prepend: bool = False) -> None:
        freed = list(blocks)
        original(freed, prepend=prepend)
        pool.evict_blocks({block.block_id for block in freed if block.block_hash is not None})

    _wrap(pool, "free_blocks", free)


def _eviction_does_nothing(manager: Any) -> None:
    manager.block_pool.evict_blocks = lambda blocks: None


def _unknown_free_moves_the_queue(manager: Any) -> None:
    queue, tables = manager.block_pool.free_block_queue, manager.coordinator.single_type_managers[0].req_to_blocks

    def free(original: Any, request: Any) -> None:
        known = request.request_id in tables
        original(request)
        if not known:
            queue.append(queue.popleft())

    _wrap(manager, "free", free)


def _last_group_not_freed(manager: Any) -> None:
    manager.coordinator.single_type_managers[-1].free = lambda request: None


def _window_cut_ahead_of_the_step(manager: Any) -> None:
    scheduled: dict[str, int] = {}

    def allocate(original: Any, request: Any, tokens: int, **more: Any) -> Any:
        scheduled[request.request_id] = tokens
        return original(request, tokens, **more)

    _wrap(manager, "allocate_slots", allocate)
    _wrap(manager, "remove_skipped_blocks", lambda cut, name, computed: cut(name, computed + scheduled.get(name, 0)))


def _hit_row_of_another_prefix(manager: Any) -> None:
    def find(original: Any, hashes: Any, length: int) -> Any:
        rows, tokens = original(hashes, length)
        return tuple(list(row)[::-1] for row in rows), tokens

    _wrap(manager.coordinator, "find_longest_cache_hit", find)


# Stories.


def _shape(*groups: Group, num_blocks: int = 12, **more: Any) -> Shape:
    size = max(group.block_size for group in groups)
    return Shape(groups, num_blocks, 16, groups[0].block_size, size, 16, **more)


_FULL = Group("full", 2)
_BY_TOKEN = Group("full", 1)
_WINDOW = Group("sliding", 1, window=2)
_STATES = Group("mamba", 1, mamba_mode="all")


def _computed(name: str, *prompt: int) -> tuple[Operation, ...]:
    """A request whose prompt is computed in one step."""
    return (Submit(name, prompt), Allocate(name, len(prompt)), Advance(name))


def _known(name: str, property: str, shape: Shape, story: Sequence[Operation]) -> ContractFault:
    """One of `faults.FAULTS`, which lockstep sees, too."""
    return ContractFault(name, FAULTS[name].describe, property, FAULTS[name].plant, shape, story)


_TIGHT_HIT = (*_computed("a", 0, 0), Free("a"), Submit("b", (0, 0, 0, 0)), Lookup("b"), Allocate("b", 2, hit=True))
_REPLAY = (*_computed("a", 0, 0, 0, 0), Submit("b", (0, 0, 0, 0)), Lookup("b"))

_FAULTS: Sequence[ContractFault] = (
    ContractFault(
        "one-block-leaks",
        "the first of the blocks that are freed stays behind",
        "S1",
        _one_block_leaks,
        _shape(_FULL),
        (*_computed("a", 0, 1, 2, 3), Free("a")),
    ),
    _known(
        "free-count-drifts",
        "S1",
        _shape(_BY_TOKEN),
        (*_computed("a", 0, 0), Free("a"), Submit("b", (0, 0)), Lookup("b"), Allocate("b", 1, hit=True)),
    ),
    ContractFault(
        "held-block-handed-out",
        "the last of the new blocks is one that somebody holds",
        "S2",
        _held_block_handed_out,
        _shape(_FULL),
        (Submit("a", (0, 0)), Allocate("a", 2), Submit("b", (1,)), Allocate("b", 1)),
    ),
    ContractFault(
        "null-block-freed",
        "the null block is put into the free queue when a request ends",
        "S4",
        _null_block_freed,
        _shape(_FULL),
        (*_computed("a", 0, 1), Submit("b", (1,)), Free("b")),
    ),
    ContractFault(
        "old-entries-swapped",
        "the first two entries of a table change places when it grows",
        "S5",
        _old_entries_swapped,
        _shape(_FULL),
        (*_computed("a", 0, 1, 2, 3), Allocate("a", 1)),
    ),
    _known(
        "skipped-off-by-one",
        "S6",
        _shape(_WINDOW),
        (Submit("a", (0, 1, 2)), Allocate("a", 2), Advance("a"), Allocate("a", 1)),
    ),
    _known(
        "last-token-hit",
        "S7",
        _shape(_FULL),
        _REPLAY,
    ),
    ContractFault(
        "hit-in-wrong-order",
        "the blocks of a hit come last first",
        "S7",
        _hit_row_of_another_prefix,
        _shape(_BY_TOKEN),
        _REPLAY,
    ),
    _known(
        "same-step-rule-dropped",
        "S7",
        _shape(_BY_TOKEN, _STATES),
        (Submit("a", (0, 0)), Allocate("a", 2), Submit("b", (0, 0)), Lookup("b"), Allocate("b", 1, hit=True)),
    ),
    _known(
        "evictable-hits-uncounted",
        "S8",
        _shape(_BY_TOKEN, num_blocks=4),
        _TIGHT_HIT,
    ),
    _known(
        "refusal-pins-hits",
        "S8",
        _shape(_BY_TOKEN, num_blocks=4),
        _TIGHT_HIT,
    ),
    ContractFault(
        "taken-from-the-back",
        "new blocks are taken from the back of the free queue",
        "S9",
        _taken_from_the_back,
        _shape(_FULL),
        (Submit("a", (0, 1)), Allocate("a", 2)),
    ),
    ContractFault(
        "identity-lost-when-freed",
        "a block loses its identity when its request ends",
        "S10",
        _identity_lost_when_freed,
        _shape(_FULL),
        (*_computed("a", 0, 1), Free("a")),
    ),
    ContractFault(
        "eviction-does-nothing",
        "evicting a block leaves its identity",
        "S10",
        _eviction_does_nothing,
        _shape(_FULL),
        (*_computed("a", 0, 1), Evict((1,))),
    ),
    _known(
        "delay-ignored",
        "S10",
        _shape(_FULL),
        (Submit("a", (0, 1, 2)), Allocate("a", 0, external=2, delay=True)),
    ),
    _known(
        "removed-event-missing",
        "S11",
        _shape(_BY_TOKEN, num_blocks=3, events=True),
        (*_computed("a", 0, 0), Free("a"), Submit("b", (1,)), Allocate("b", 1)),
    ),
    ContractFault(
        "unknown-free-moves-the-queue",
        "freeing an unknown request moves the free queue on by one",
        "S12",
        _unknown_free_moves_the_queue,
        _shape(_FULL),
        (Free("a"),),
    ),
    ContractFault(
        "last-group-not-freed",
        "a request that ends keeps its table in the last group",
        "S12",
        _last_group_not_freed,
        _shape(_BY_TOKEN, _WINDOW),
        (*_computed("a", 0, 1), Free("a")),
    ),
    ContractFault(
        "window-cut-ahead-of-the-step",
        "entries are given up for the tokens of a step that is still running",
        "S13",
        _window_cut_ahead_of_the_step,
        _shape(_WINDOW),
        (Submit("a", (0, 1, 2)), Allocate("a", 2), RemoveSkipped("a")),
    ),
    _known(
        "eagle-drop-twice",
        "S14",
        _shape(_BY_TOKEN, eagle=True),
        _REPLAY,
    ),
    _known(
        "replay-boundary-lost",
        "S14",
        _shape(_WINDOW, retention_interval=0),
        _REPLAY,
    ),
    _known(
        "lookahead-ignored",
        "S15",
        _shape(_FULL),
        (Submit("a", (0, 1)), Allocate("a", 2, lookahead=1)),
    ),
)

CONTRACT_FAULTS: Mapping[str, ContractFault] = {fault.name: fault for fault in _FAULTS}
"""All of them by name."""
