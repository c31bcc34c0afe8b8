"""Puts this core in place of that of an installed vLLM 0.23 or 0.33: `install()`, before anything imports vLLM's own.

In 0.33 that is the core by the rule of today, and `today.under_vllm` says what is put where. In 0.23, vLLM's other
modules, its tests and programs built on it import eight modules by name. After `install()` these names lead to the
modules of this package:

* what one of the eight modules is asked for is ours, or, where vLLM's module merely imports it from elsewhere in vLLM
  (`Request`, `tensor_data`), vLLM's own;
* events, eviction samples, prefix-cache statistics and kinds of Mamba layers are objects of vLLM's classes, so that its
  publishers and loggers take them;
* whoever replaces a name in one of the eight modules (`logger`, a function) replaces it wherever ours uses it, and
  `NONE_HASH` is always the current one;
* what vLLM 0.23 reads from its environment is read there: VLLM_PREFIX_CACHE_RETENTION_INTERVAL when a core is made,
  VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES when an event is.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import wraps
from importlib import import_module, metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from inspect import signature
from types import ModuleType
from typing import Any

from . import (
    block_pool,
    kv_cache_coordinator,
    kv_cache_interface,
    kv_cache_manager,
    kv_cache_metrics,
    kv_cache_spec_registry,
    kv_cache_utils,
    single_type_kv_cache_manager,
)
from .hashing.hash_functions import RECIPES
from .managers import by_spec, stats
from .managers.coordinator import KVCacheCoordinator
from .pool import events, metrics
from .specs import base
from .specs.entries import ENTRIES
from .today import under_vllm

__all__ = ["REPLACED", "install"]

SERIES, TODAY = "0.23", "0.33"
"""The releases whose core this one can stand in for, the second by the rule of today."""
RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"

REPLACED: Mapping[str, ModuleType] = {
    "vllm.v1.core.block_pool": block_pool,
    "vllm.v1.core.kv_cache_coordinator": kv_cache_coordinator,
    "vllm.v1.core.kv_cache_manager": kv_cache_manager,
    "vllm.v1.core.kv_cache_metrics": kv_cache_metrics,
    "vllm.v1.core.kv_cache_utils": kv_cache_utils,
    "vllm.v1.core.single_type_kv_cache_manager": single_type_kv_cache_manager,
    "vllm.v1.kv_cache_interface": kv_cache_interface,
    "vllm.v1.kv_cache_spec_registry": kv_cache_spec_registry,
}
"""vLLM's modules, and those of this package that take their place."""

_KINDS_OF_MAMBA = "MambaAttentionBackendEnum"
_ADOPTED: Mapping[str, tuple[ModuleType, str, Sequence[str]]] = {
    "vllm.v1.core.block_pool": (
        events,
        "vllm.distributed.kv_events",
        ("KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared"),
    ),
    "vllm.v1.core.kv_cache_manager": (stats, "vllm.v1.metrics.stats", ("PrefixCacheStats",)),
    "vllm.v1.core.kv_cache_metrics": (metrics, "vllm.v1.metrics.stats", ("KVCacheEvictionEvent",)),
    "vllm.v1.kv_cache_interface": (base, "vllm.v1.attention.backends.registry", (_KINDS_OF_MAMBA,)),
}
"""For each module, the classes that it makes objects of: where ours are defined, and where vLLM's are, which we use."""

_PASSED_ON: Mapping[str, Mapping[str, str]] = {
    "vllm.v1.core.kv_cache_manager": {"Request": "vllm.v1.request"},
    "vllm.v1.core.kv_cache_utils": {"Request": "vllm.v1.request", "tensor_data": "vllm.v1.utils"},
}
"""For each module, names that others import from it although it imports them itself, and from where."""


def install() -> None:
    """Make the core of vLLM 0.23 or 0.33 be ours in this process. Doing it again changes nothing.

    RuntimeError if vLLM is not installed, is of another series, or has one of the modules loaded already. A process
    that is started by `spawn` has to do it as well: call it at the top of the program, outside of its `__main__` part.
    """
    if any(isinstance(finder, _Finder | _Amender) for finder in sys.meta_path):
        return
    try:
        version = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        raise RuntimeError(
            f"vllm is not installed here: install vllm {SERIES} or {TODAY}, whose core this one replaces"
        ) from None
    series = ".".join(version.split(".")[:2])
    if series not in (SERIES, TODAY):
        raise RuntimeError(
            f"vllm {version} is installed, but this core has the modules of {SERIES} and {TODAY}: install one of these"
        )
    if loaded := sorted(set(REPLACED if series == SERIES else under_vllm.SHOWN) & set(sys.modules)):
        raise RuntimeError(f"{loaded[0]} is imported already: call install() before anything imports vllm's core")
    if series == TODAY:
        sys.meta_path.insert(0, _Amender())
        return
    sys.meta_path.insert(0, _Finder())
    _read_retention_from_environment()


class _Finder(MetaPathFinder):
    """Finds the eight modules."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """How to load one of them; None for any other module."""
        return ModuleSpec(name, _Loader()) if name in REPLACED else None


class _Loader(Loader):
    """Makes one of the eight modules show ours."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one."""
        return _Shown(spec.name, REPLACED[spec.name].__doc__)

    def exec_module(self, module: ModuleType) -> None:
        """Fill it; again when it is reloaded."""
        name, shown = module.__name__, vars(module)
        if name in _ADOPTED:
            _adopt(*_ADOPTED[name])
        if name == "vllm.v1.kv_cache_interface":
            _by_default(base.MambaSpec, "mamba_type", getattr(base, _KINDS_OF_MAMBA).MAMBA2)
        shown.update({key: value for key, value in vars(REPLACED[name]).items() if not key.startswith("__")})
        shown.update(_LATE.get(name, {}))
        if name == "vllm.v1.core.kv_cache_utils":
            _enter_hash_functions()
        shown["logger"] = import_module("vllm.logger").init_logger(name)
        for home in {str(getattr(value, "__module__", "")) for value in shown.values()}:
            if _is_ours(home) and "logger" in vars(sys.modules[home]):
                vars(sys.modules[home])["logger"] = shown["logger"]


class _Amender(MetaPathFinder):
    """Finds the modules of vLLM 0.33 in which some names are to be ours."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """How vLLM's own is loaded, and then amended; None for any other module."""
        if name not in under_vllm.SHOWN:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if found is not None and found.loader is not None:
            found.loader = _Amended(found.loader)
        return found


class _Amended(Loader):
    """Loads a module, and puts ours into it."""

    def __init__(self, theirs: Loader) -> None:
        self._theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As vLLM's."""
        return self._theirs.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As vLLM's, and what is ours behind it."""
        self._theirs.exec_module(module)
        for adopted in under_vllm.ADOPTED.get(module.__name__, ()):
            _adopt(*adopted)
        vars(module).update(under_vllm.SHOWN[module.__name__])
        under_vllm.be_known()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


def _adopt(ours: ModuleType, place: str, kinds: Sequence[str]) -> None:
    """Let these classes of ours be vLLM's, wherever this package makes or asks for one."""
    theirs = import_module(place)
    for kind in kinds:
        _replace(kind, getattr(ours, kind), getattr(theirs, kind))


def _enter_hash_functions() -> None:
    """Let blocks be hashed with as little work with vLLM's hash functions as with ours, which give the same digests."""
    theirs = import_module("vllm.utils.hashing")
    for ours, recipe in tuple(RECIPES.items()):
        RECIPES[getattr(theirs, ours.__name__)] = recipe


class _Shown(ModuleType):
    """One of the eight modules. What is set in it is set wherever this package uses it."""

    def __getattr__(self, name: str) -> Any:
        if (place := _PASSED_ON.get(self.__name__, {}).get(name)) is not None:
            return getattr(import_module(place), name)
        if self.__name__ in REPLACED and (not name.startswith("__")):
            return getattr(REPLACED[self.__name__], name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or not _replace(name, getattr(self, name, None), value) or name in vars(self):
            super().__setattr__(name, value)  # else it is looked up where it has been replaced


def _is_ours(name: str) -> bool:
    return name.startswith(f"{__package__}.")


def _replace(name: str, old: object, new: object) -> bool:
    """Make `name` mean `new` in every module of this package in which it means `old`. False if there is none."""
    found = False
    for place, module in list(sys.modules.items()):
        if (place == __package__ or _is_ours(place)) and name in vars(module) and vars(module)[name] is old:
            vars(module)[name] = new
            found = True
    return found


def _by_default(spec: type, name: str, value: object) -> None:
    """Let a field of a frozen dataclass have another default, which its `__init__` keeps as a plain default."""
    old = getattr(spec, name)
    setattr(spec, name, value)
    make: Any = vars(spec)["__init__"]
    make.__defaults__ = tuple(value if default is old else default for default in make.__defaults__)


def _register_all(vllm_config: object = None) -> None:
    """The built-in entries of the registry, and those of the platform that vLLM runs on."""
    by_spec.register_all_kvcache_specs(vllm_config)
    import_module("vllm.platforms").current_platform.register_custom_kv_cache_specs(vllm_config)


_LATE: Mapping[str, Mapping[str, object]] = {
    "vllm.v1.core.single_type_kv_cache_manager": {"register_all_kvcache_specs": _register_all},
    "vllm.v1.kv_cache_spec_registry": {"_REGISTRY_KVCACHESPEC_LIST": ENTRIES},
}
"""What a module shows otherwise than ours, or besides."""


def _read_retention_from_environment() -> None:
    """Let every coordinator that is given no retention interval take the one of the environment."""
    make = KVCacheCoordinator.__init__
    parameters = signature(make)

    @wraps(make)
    def make_with_retention(*args: Any, **keywords: Any) -> None:
        given = parameters.bind(*args, **keywords)
        if given.arguments.get("retention_interval") is None and (interval := os.environ.get(RETENTION)):
            given.arguments["retention_interval"] = int(interval)
        make(*given.args, **given.kwargs)

    setattr(KVCacheCoordinator, "__init__", make_with_retention)  # noqa: B010
