"""Planted faults of liveness: mistakes in admission, allocation and preemption that let requests wait for ever.

Most of them were made after a report. Judged by liveness alone, each must be found as one of its observables, and first
of all as the one that stands in front: there is a script for which it is the only thing that is wrong.
"""

from collections.abc import Callable
from functools import partial
from sys import maxsize
from typing import Any

from ..findings.oracle_names import LIVENESS
from .registry import fault, the_long_way, wrap

_starving = partial(fault, oracles=(LIVENESS,))
"""A fault for which only liveness is asked."""


def _predicting(manager: Any, change: Callable[[int, bool, str], int]) -> None:
    """Change what is predicted to leave the free queue: `change` gets the number, whether the admission gate asks, and
    the request. Steps go the long way then, on which it is asked."""
    the_long_way(manager)
    manager.coordinator.most_blocks_to_allocate = lambda tokens, hit: maxsize

    def predict(original: Callable[..., int], request: str, *args: Any, **more: Any) -> int:
        return change(original(request, *args, **more), more.get("apply_admission_cap", False), request)

    wrap(manager.coordinator, "get_num_blocks_to_allocate", predict)


@_starving("the admission gate counts the whole sequence for a window (vllm-project/vllm#39734)", "L1")
def _gate_counts_whole_sequence(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._max_admission_blocks_per_request = None


@_starving("every refusal takes a block out of the pool for good (vllm-project/vllm#11562)", "L1", "L2", "L4")
def _refusal_leaks_block(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
        blocks = original(*args, **more)
        if blocks is None and manager.block_pool.get_num_free_blocks():
            manager.block_pool.get_new_blocks(1)
        return blocks

    wrap(manager, "allocate_slots", allocate)


@_starving("the admission gate counts nothing", "L2", "L4")
def _gate_counts_nothing(manager: Any) -> None:
    _predicting(manager, lambda count, gate, request: 0 if gate else count)


@_starving("the admission gate counts one block for a window, however long", "L2", "L4")
def _gate_counts_one_window_block(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        if single._max_admission_blocks_per_request is not None:
            single._max_admission_blocks_per_request = 1


@_starving("states registered in one step are out of reach in all later ones", "L3")
def _same_step_rule_never_forgets(manager: Any) -> None:
    manager.coordinator.new_step_starts = lambda: None


@_starving(
    "the admission gate counts the null block as free (vllm-project/vllm#35541, vllm-project/vllm#47272)", "L4", "L2"
)
def _gate_counts_null_block(manager: Any) -> None:
    _predicting(manager, lambda count, gate, request: count - gate)


@_starving("who gives way keeps its blocks (vllm-project/vllm#49674)", "L4")
def _preempted_keeps_blocks(manager: Any) -> None:
    refused = False

    def allocate(original: Callable[..., Any], *args: Any, full_sequence_must_fit: bool = False, **more: Any) -> Any:
        nonlocal refused
        blocks = original(*args, full_sequence_must_fit=full_sequence_must_fit, **more)
        refused = blocks is None and not full_sequence_must_fit
        return blocks

    wrap(manager, "allocate_slots", allocate)
    wrap(manager, "free", lambda free, request: None if refused else free(request))


@_starving("a running request is refused its step while one block fewer than needed would be left", "L4", "L2")
def _running_step_wants_spare_block(manager: Any) -> None:
    running = manager.coordinator.single_type_managers[0].num_cached_block
    _predicting(manager, lambda count, gate, request: count + (request in running))


@_starving("the admission gate does not count lookahead (vLLM 0.23.0)", "L2")
def _gate_counts_no_lookahead(manager: Any) -> None:
    def predict(original: Callable[..., int], *args: Any, num_lookahead_tokens: int = 0, **more: Any) -> int:
        request, tokens, *others = args
        return original(request, tokens - num_lookahead_tokens, *others, **more)

    wrap(manager.coordinator, "get_num_blocks_to_allocate", predict)


@_starving("the admission gate counts the states of the first step only (vLLM 0.23.0)", "L2")
def _gate_counts_first_states(manager: Any) -> None:
    def predict(single: Any, original: Callable[..., int], request: str, tokens: int, *args: Any) -> int:
        is_gate = len(args) > 3 and args[3]
        return original(request, min(tokens, single.block_size) if is_gate else tokens, *args)

    for single in manager.coordinator.single_type_managers:
        if getattr(single, "mamba_cache_mode", "") == "align":
            wrap(single, "get_num_blocks_to_allocate", partial(predict, single))


@_starving("states that are registered stay for as many tokens as there can be drafts", "L4", "L2")
def _registered_states_stay(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., None], request: str, computed: int) -> None:
        original(request, max(0, computed - single.num_speculative_blocks))

    for single in manager.coordinator.single_type_managers:
        if getattr(single, "mamba_cache_mode", "") == "align":
            wrap(single, "remove_skipped_blocks", partial(remove, single))
