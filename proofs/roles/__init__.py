"""Which function of a core plays which role in the theorems.

The model's rules are bound by name; every core with vLLM's API, ours among them, through one table over the names of
that API. A core without a function for a role is *unavailable* to the theorems about it, which is not proved.
"""

import importlib
from collections.abc import Callable, Mapping
from pkgutil import iter_modules
from typing import Any, TypeAlias

from ..theorem import Subject, UnavailableError

Names: TypeAlias = Callable[[str], Any]
"""The class or function that a core calls so. UnavailableError if it has none."""

_MODULES = [importlib.import_module(f".{module.name}", __name__) for module in iter_modules(__path__)]
FAMILIES = tuple(module for module in _MODULES if hasattr(module, "API"))
"""The modules with tables of roles, `API` for cores and `MODEL` for the model."""
OF_TODAY: Mapping[str, str] = {
    "nulled_open": "states stay for drafts whose outcome is open: T3.nulled.mamba",
    "last_covered": "a coarser block has a hash of all its hashes: T22.cover",
}
"""What is said of the rule of today alone: why it is not about an older core."""
OLDER: Mapping[str, str] = {
    "nulled_mamba": "drafts whose outcome is open hold no state: T3.nulled.open",
    **dict.fromkeys(("covered", "joined"), "the last hash of a coarser block names it: T22.last"),
}
"""... and of the older rule alone."""
_SIGN_OF_TODAY = "replay_boundaries"
"""A function that a release by the rule of today has."""
_VLLM_MODULES = (
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.block_pool",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.worker.block_table",
    "vllm.utils.math_utils",
)
"""Where a release keeps its names; the first module that has one counts."""


def subject(name: str) -> Subject:
    """The core of this name: `model`, `impl`, a user's own, or the vLLM that can be imported here, however called."""
    if name in OURS:
        return OURS[name]()
    return own(name) if ":" in name else vllm(name)


def model() -> Subject:
    """The model's own functions."""
    table: Mapping[str, Callable[..., Any]] = {role: f for family in FAMILIES for role, f in family.MODEL.items()}

    def find(role: str) -> Callable[..., Any]:
        if role not in table:
            raise UnavailableError(f"the model has no function for the role {role}")
        return table[role]

    return Subject("model", find, ("blockproof.model",))


def impl() -> Subject:
    """Our core's functions."""
    # A run of blocks with nothing in it, for each group: made when it is first asked for, and never changed.
    memos = frozenset({"blockproof.impl.pool.block._LOOSE"})
    return Subject("impl", _api(_names_of_impl), ("blockproof.impl",), memos)


def _names_of_impl(name: str) -> Any:
    from ... import impl as core
    from ...impl.specs import base as spec_base

    for module in (core, spec_base):
        if hasattr(module, name):
            return getattr(module, name)
    raise UnavailableError(f"our core has no {name}")


def impl_today() -> Subject:
    """Those of our core by the rule of today: its own classes where it has any, and those under them."""
    from ...impl.today import asleep, block_pool, coordinator, hashing, hybrid, kv_cache_manager, managers, request
    from ...impl.today.names import SeveralNames

    mine: Mapping[str, Any] = {
        **{older.__name__: kind for older, kind in managers.OF_TODAY.items()},
        "BlockHashListWithBlockSize": hashing.LastHashes,
        "BlockHashToBlockMap": SeveralNames,
        "BlockPool": block_pool.TodayPool,
        "FreeKVCacheBlockQueue": asleep.SleepyQueue,
        "HybridKVCacheCoordinator": hybrid.HybridToday,
        "KVCacheManager": kv_cache_manager.TodayManager,
        "Request": request.TodayRequest,
        "UnitaryKVCacheCoordinator": coordinator.UnitaryToday,
    }
    rest = impl()

    def names(name: str) -> Any:
        return mine[name] if name in mine else _names_of_impl(name)

    return Subject("impl-today", _api(names, OLDER), rest.packages, rest.memos)


def own(name: str) -> Subject:
    """The functions of a user's own core with vLLM's API: `package.module:name`.

    The classes and functions are those of the object with this name, or else of the module.
    """
    place, _, inside = name.partition(":")
    module = importlib.import_module(place)
    spaces = (getattr(module, inside), module)

    def names(wanted: str) -> Any:
        for space in spaces:
            if hasattr(space, wanted):
                return getattr(space, wanted)
        raise UnavailableError(f"{name} has no {wanted}")

    return Subject(name, _api(names), (place.partition(".")[0],))


def vllm(name: str) -> Subject:
    """The functions of the vLLM that can be imported here. UnavailableError for what it lacks."""
    modules = []
    for module in _VLLM_MODULES:
        try:
            modules.append(importlib.import_module(module))
        except ModuleNotFoundError:
            continue

    def names(wanted: str) -> Any:
        for module in modules:
            if hasattr(module, wanted):
                return getattr(module, wanted)
        raise UnavailableError(f"{name} has no {wanted}")

    others = OLDER if any(hasattr(module, _SIGN_OF_TODAY) for module in modules) else OF_TODAY
    return Subject(name, _api(names, others), tuple(module.__name__ for module in modules))


def _api(names: Names, others: Mapping[str, str] = OF_TODAY) -> Callable[[str], Callable[..., Any]]:
    """Roles of a core with vLLM's API; `others`: those of another rule than its own, and why."""
    bound: dict[str, Callable[..., Any]] = {}
    table: Mapping[str, Callable[[Names], Callable[..., Any]]]
    table = {role: bind for family in FAMILIES for role, bind in family.API.items()}

    def find(role: str) -> Callable[..., Any]:
        if role in others:
            raise UnavailableError(others[role])
        if role not in bound:
            if role not in table:
                raise UnavailableError(f"no function of the API plays the role {role}")
            bound[role] = table[role](names)
        return bound[role]

    return find


OURS: Mapping[str, Callable[[], Subject]] = {"model": model, "impl": impl, "impl-today": impl_today}
"""The subjects that are in this checkout, by name."""
