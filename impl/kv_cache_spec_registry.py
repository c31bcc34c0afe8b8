"""Which manager serves which spec class (specs-and-config.md §6)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from .manager_base import SingleTypeKVCacheManager
    from .spec_base import KVCacheSpec

SpecClass = TypeVar("SpecClass", bound="type[KVCacheSpec]")


@dataclass(frozen=True)
class KVCacheSpecMetadata:
    """One entry: the class, its manager, and the base class whose instances may share a uniform group with it."""

    kvcache_spec_cls: "type[KVCacheSpec]"
    manager_class: "type[SingleTypeKVCacheManager]"
    uniform_type_base_spec: "type[KVCacheSpec]"


class KVCacheSpecRegistry:
    """Spec class to its metadata. A class without an entry behaves as the nearest parent that has one.

    The built-in entries are made when the package is imported, hence before anybody can add one [S-17].
    """

    _entries: ClassVar[dict[type, KVCacheSpecMetadata]] = {}

    @classmethod
    def register(
        cls,
        kvcache_spec_cls: "type[KVCacheSpec]",
        manager_class: "type[SingleTypeKVCacheManager] | None" = None,
        uniform_type_base_spec: "type[KVCacheSpec] | None" = None,
    ) -> None:
        """Add an entry; the base defaults to the class itself.

        AssertionError if the manager is missing, the class does not inherit from the base, or an entry with other
        content exists. Repeating an entry is allowed.
        """
        name = kvcache_spec_cls.__name__
        assert manager_class is not None, f"{name} needs a manager: pass manager_class"
        base = uniform_type_base_spec or kvcache_spec_cls
        assert issubclass(kvcache_spec_cls, base), f"{name} does not inherit from its base {base.__name__}"
        entry = KVCacheSpecMetadata(kvcache_spec_cls, manager_class, base)
        known = cls._entries.setdefault(kvcache_spec_cls, entry)
        assert known == entry, f"{name} is registered already as {known}: it cannot become {entry}"

    @classmethod
    def get_manager_class(cls, kvcache_spec: "KVCacheSpec") -> "type[SingleTypeKVCacheManager] | None":
        """The manager of the spec's class or its nearest registered parent, or None."""
        entry = cls._find(kvcache_spec)
        return entry.manager_class if entry else None

    @classmethod
    def get_uniform_type_base_spec(cls, kvcache_spec: "KVCacheSpec") -> "type[KVCacheSpec] | None":
        """The base of the spec's class or its nearest registered parent, or None."""
        entry = cls._find(kvcache_spec)
        return entry.uniform_type_base_spec if entry else None

    @classmethod
    def check_kv_cache_spec_registry(cls, kv_cache_spec: "Mapping[str, KVCacheSpec]") -> None:
        """ValueError that names the first layer whose spec class has no entry."""
        for layer, spec in kv_cache_spec.items():
            if cls._find(spec) is None:
                raise ValueError(f"layer {layer}: {how_to_register(spec)}")

    @classmethod
    def _find(cls, spec: "KVCacheSpec") -> KVCacheSpecMetadata | None:
        return next((cls._entries[kind] for kind in type(spec).__mro__ if kind in cls._entries), None)


def register_kv_cache_spec(
    manager_class: "type[SingleTypeKVCacheManager] | None" = None,
    uniform_type_base_spec: "type[KVCacheSpec] | None" = None,
) -> Callable[[SpecClass], SpecClass]:
    """`KVCacheSpecRegistry.register` as a class decorator."""

    def add(kvcache_spec_cls: SpecClass) -> SpecClass:
        KVCacheSpecRegistry.register(kvcache_spec_cls, manager_class, uniform_type_base_spec)
        return kvcache_spec_cls

    return add


def how_to_register(spec: "KVCacheSpec") -> str:
    """What to tell somebody whose spec class has no entry."""
    name = type(spec).__name__
    return f"{name} has no manager: decorate the class with @register_kv_cache_spec(manager_class=...)"
