"""Which manager serves which spec class (specs-and-config.md §6)."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from ..specs.base import KVCacheSpec
from ..specs.entries import ENTRIES, KVCacheSpecMetadata, how_to_register, manager_of, uniform_base_of
from .base import SingleTypeKVCacheManager

__all__ = ["KVCacheSpecMetadata", "KVCacheSpecRegistry", "register_kv_cache_spec"]

SpecClass = TypeVar("SpecClass", bound=type[KVCacheSpec])


class KVCacheSpecRegistry:
    """Spec class to its metadata. A class without an entry behaves as the nearest parent that has one.

    The built-in entries are made when the package is imported, hence before anybody can add one [S-17].
    """

    @classmethod
    def register(
        cls,
        kvcache_spec_cls: type[KVCacheSpec],
        manager_class: type[SingleTypeKVCacheManager] | None = None,
        uniform_type_base_spec: type[KVCacheSpec] | None = None,
    ) -> None:
        """Add an entry; the base defaults to the class itself.

        AssertionError if the manager is missing, the class does not inherit from the base, or an entry with other
        content exists. Repeating an entry is allowed.
        """
        name = kvcache_spec_cls.__name__
        if manager_class is None:
            raise AssertionError(f"{name} needs a manager: manager_class is required")
        base = uniform_type_base_spec or kvcache_spec_cls
        if not issubclass(kvcache_spec_cls, base):
            raise AssertionError(f"{name} does not inherit from its base {base.__name__}")
        entry = KVCacheSpecMetadata(kvcache_spec_cls, manager_class, base)
        known = ENTRIES.setdefault(kvcache_spec_cls, entry)
        if known != entry:
            raise AssertionError(f"{name} is registered already as {known}: it cannot become {entry}")

    @classmethod
    def get_manager_class(cls, kvcache_spec: KVCacheSpec) -> type[SingleTypeKVCacheManager] | None:
        """The manager of the spec's class or its nearest registered parent, or None."""
        return manager_of(kvcache_spec)

    @classmethod
    def get_uniform_type_base_spec(cls, kvcache_spec: KVCacheSpec) -> type[KVCacheSpec] | None:
        """The base of the spec's class or its nearest registered parent, or None."""
        return uniform_base_of(kvcache_spec)

    @classmethod
    def check_kv_cache_spec_registry(cls, kv_cache_spec: Mapping[str, KVCacheSpec]) -> None:
        """ValueError that names the first layer whose spec class has no entry."""
        for layer, spec in kv_cache_spec.items():
            if manager_of(spec) is None:
                raise ValueError(how_to_register(spec, layer))


def register_kv_cache_spec(
    manager_class: type[SingleTypeKVCacheManager] | None = None,
    uniform_type_base_spec: type[KVCacheSpec] | None = None,
) -> Callable[[SpecClass], SpecClass]:
    """`KVCacheSpecRegistry.register` as a class decorator."""

    def add(kvcache_spec_cls: SpecClass) -> SpecClass:
        KVCacheSpecRegistry.register(kvcache_spec_cls, manager_class, uniform_type_base_spec)
        return kvcache_spec_cls

    return add
