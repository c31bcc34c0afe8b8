"""Planted faults of liveness: mistakes in admission, allocation and preemption that let requests wait for ever.

Each is one small change of our own core, most of them after a report. Judged by liveness alone, each must be found as
one of its own properties, and first of all as the one that stands in front: there is a script for which it is the only
thing that is wrong.
"""

from collections.abc import Callable
from typing import Any

from ..adapters.impl import open_changed_impl
from ..targets.base import Target
from .core import Fault, Plant

LIVENESS_FAULTS: dict[str, Fault] = {}
"""All of them by name; `observables` are properties, the one that the fault is meant for in front."""


def open_liveness_fault(name: str) -> Target:
    """Our core with this fault. KeyError for an unknown name."""
    return open_changed_impl(f"fault:{name}", LIVENESS_FAULTS[name].plant)


def _fault(describe: str, *observables: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        name = plant.__name__.strip("_").replace("_", "-")
        LIVENESS_FAULTS[name] = Fault(name, describe, plant, observables)
        return plant

    return add


def _predicting(manager: Any, change: Callable[[int, bool, str], int]) -> None:
    """Change what is predicted to leave the free queue: `change` gets the number, whether the admission gate asks, and
    the request."""
    original = manager.coordinator.get_num_blocks_to_allocate

    def predict(request: str, *args: Any, apply_admission_cap: bool = False) -> Any:
        count = original(request, *args, apply_admission_cap=apply_admission_cap)
        return change(count, apply_admission_cap, request)

    manager.coordinator.get_num_blocks_to_allocate = predict


@_fault("the admission gate counts the whole sequence for a window (report 39734)", "L1")
def _gate_counts_whole_sequence(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._max_admission_blocks_per_request = None


@_fault("every refusal takes a block out of the pool for good (report 11562)", "L1", "L2", "L4")
def _refusal_leaks_block(manager: Any) -> None:
    original, pool = manager.allocate_slots, manager.block_pool

    def allocate(*args: Any, **more: Any) -> Any:
        blocks = original(*args, **more)
        if blocks is None and pool.get_num_free_blocks():
            pool.get_new_blocks(1)
        return blocks

    manager.allocate_slots = allocate


@_fault("the admission gate counts nothing", "L2", "L4")
def _gate_counts_nothing(manager: Any) -> None:
    _predicting(manager, lambda count, gate, request: 0 if gate else count)


@_fault("the admission gate counts one block for a window, however long", "L2", "L4")
def _gate_counts_one_window_block(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        if single._max_admission_blocks_per_request is not None:
            single._max_admission_blocks_per_request = 1


@_fault("states registered in one step are out of reach in all later ones", "L3")
def _same_step_rule_never_forgets(manager: Any) -> None:
    manager.coordinator.new_step_starts = lambda: None


@_fault("the admission gate counts the null block as free (reports 35541, 47272)", "L4", "L2")
def _gate_counts_null_block(manager: Any) -> None:
    _predicting(manager, lambda count, gate, request: count - gate)


@_fault("who gives way keeps its blocks (report 49674)", "L4")
def _preempted_keeps_blocks(manager: Any) -> None:
    original, free = manager.allocate_slots, manager.free
    refused: list[bool] = []

    def allocate(*args: Any, full_sequence_must_fit: bool = False, **more: Any) -> Any:
        blocks = original(*args, full_sequence_must_fit=full_sequence_must_fit, **more)
        refused[:] = [True] if blocks is None and not full_sequence_must_fit else []
        return blocks

    def give_back(request: Any) -> None:
        if not refused:
            free(request)

    manager.allocate_slots, manager.free = allocate, give_back


@_fault("a running request is refused its step while one block fewer than needed would be left", "L4", "L2")
def _running_step_wants_spare_block(manager: Any) -> None:
    running = manager.coordinator.single_type_managers[0].num_cached_block
    _predicting(manager, lambda count, gate, request: count + (request in running))
