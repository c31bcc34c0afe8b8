"""With which manager and which base class every spec class is registered (specs-and-config.md §6).

Specs and managers both depend on this file, so it imports neither and takes any class. The typed way in, for users, is
`kv_cache_spec_registry`.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KVCacheSpecMetadata:
    """One entry: the class, its manager, and the base class whose instances may share a uniform group with it."""

    kvcache_spec_cls: type[Any]
    manager_class: type[Any]
    uniform_type_base_spec: type[Any]


ENTRIES: dict[type, KVCacheSpecMetadata] = {}
"""By spec class. A class without an entry behaves as the nearest parent that has one."""


def manager_of(spec: object) -> type[Any] | None:
    """The manager of the spec's class or its nearest registered parent, or None."""
    entry = _find(spec)
    return entry.manager_class if entry else None


def uniform_base_of(spec: object) -> type[Any] | None:
    """The base of the spec's class or its nearest registered parent, or None."""
    entry = _find(spec)
    return entry.uniform_type_base_spec if entry else None


def how_to_register(spec: object, layer: str | None = None) -> str:
    """The text of an error about a spec class without an entry, which some layer may have. Callers match its start."""
    where = "" if layer is None else f" for layer {layer}"
    name = type(spec).__name__
    return (
        f"Unsupported KV cache spec type{where}: {name} has no manager, "
        "decorate the class with @register_kv_cache_spec(manager_class=...)"
    )


def _find(spec: object) -> KVCacheSpecMetadata | None:
    return next((ENTRIES[kind] for kind in type(spec).__mro__ if kind in ENTRIES), None)
