"""Planted faults that only scopes of a certain kind can show.

They need tokens from outside, reserved blocks behind the gate, a core without a prefix cache, or three groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .expansion import Expansion
from .planting import FAULTS, core_of, decide, fault, without_short_steps, wrap
from .scopes import SCOPES

_BEFORE = frozenset(FAULTS)


@fault(
    "S15", "room for tokens from outside is taken before all groups hold their hits", SCOPES["full+sliding-external"]
)
def _external_before_hits(expansion: Expansion) -> None:
    coordinator = core_of(expansion).coordinator

    def attach(core: Any, plan: Any) -> None:
        for group in range(len(core.rules)):
            if count := core.attach(group, plan):
                core.grow(group, core.state.tables[group][plan.op.request], count)

    def allocate(original: Callable[..., None], request: str, hits: Sequence[Any], *tokens: int) -> None:
        for manager, hit in zip(coordinator.single_type_managers, hits, strict=True):
            manager.allocate_new_computed_blocks(request, hit, *tokens)

    decide(expansion, attach=attach)
    wrap(coordinator, "allocate_new_computed_blocks", allocate)


@fault("S6", "both sides cut windows as if no loaded token were computed again", SCOPES["sliding-external"])
def _loaded_tokens_cut(expansion: Expansion) -> None:
    coordinator = core_of(expansion).coordinator

    def predict(original: Callable[..., int], *args: Any, num_settled_tokens: int = 0, **more: Any) -> int:
        return original(*args[:7], **more)  # the eighth is what is settled, too

    def allocate(
        original: Callable[..., None], request: str, hits: Sequence[Any], local: int, external: int, settled: int
    ) -> None:
        original(request, hits, local, external)

    decide(expansion, settled=lambda request, computed: computed)
    wrap(coordinator, "get_num_blocks_to_allocate", predict)
    wrap(coordinator, "allocate_new_computed_blocks", allocate)


@fault("arrival", "what comes from outside later is registered at once", SCOPES["full-external"])
def _registered_before_arrival(expansion: Expansion) -> None:
    def allocate(original: Callable[..., Any], *args: Any, delay_cache_blocks: bool, **more: Any) -> Any:
        return original(*args, delay_cache_blocks=False, **more)

    wrap(core_of(expansion), "allocate_slots", allocate)


@fault("gate", "both sides' gates let in who needs what others have reserved", SCOPES["full-reserved"])
def _gate_ignores_reserved(expansion: Expansion) -> None:
    manager = core_of(expansion)
    admits = expansion.pair.model.policy.admits
    reserved = 0

    def allocate(original: Callable[..., Any], *args: Any, reserved_blocks: int, **more: Any) -> Any:
        nonlocal reserved
        reserved = reserved_blocks
        return original(*args, reserved_blocks=reserved_blocks, **more)

    def predict(original: Callable[..., int], *args: Any, **more: Any) -> int:
        return original(*args, **more) - (reserved if more.get("apply_admission_cap") else 0)

    decide(expansion, admits=lambda core, plan: admits(core, plan._replace(op=replace(plan.op, reserved=0))))
    wrap(manager, "allocate_slots", allocate)
    wrap(manager.coordinator, "get_num_blocks_to_allocate", predict)


@fault("S8", "without a prefix cache blocks are registered all the same", SCOPES["full-uncached"])
def _registers_without_cache(expansion: Expansion) -> None:
    without_short_steps(expansion)
    core_of(expansion).enable_caching = True


@fault("S7", "of a third group a hit brings null entries only", SCOPES["full+sliding+chunked"])
def _third_group_forgotten(expansion: Expansion) -> None:
    manager = core_of(expansion)

    def find(original: Callable[..., Any], *asked: Any) -> Any:
        hits, length = original(*asked)
        return (*hits[:2], *([manager.block_pool.null_block] * len(hit) for hit in hits[2:])), length

    wrap(manager.coordinator, "find_longest_cache_hit", find)


NAMES = frozenset(FAULTS) - _BEFORE
"""Their names."""
