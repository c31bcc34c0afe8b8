"""What every KV-cache spec can do (specs-and-config.md §§2-5)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from math import prod
from typing import Any, Protocol, Self

from .entries import how_to_register, manager_of, uniform_base_of


class DType(Hashable, Protocol):
    """Any hashable with the size of an element in bytes; torch and numpy dtypes qualify."""

    @property
    def itemsize(self) -> int:
        """Bytes per element."""


def cdiv(a: int, b: int) -> int:
    """a / b rounded up, for b > 0."""
    return -(-a // b)


@dataclass(frozen=True)
class KVCacheSpec:
    """What one layer stores per block of `block_size` tokens. ValueError for a block size below 1.

    Specs are compared and hashed by value. `vllm_config` is duck-typed; specs-and-config.md §1 lists what is read.
    """

    block_size: int

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size is {self.block_size}: a block holds at least one token")

    @property
    def page_size_bytes(self) -> int:
        """Bytes reserved for one block of one layer. NotImplementedError in the base class."""
        raise NotImplementedError(f"{type(self).__name__} does not say how large its page is")

    @property
    def storage_block_size(self) -> int:
        """Entries stored per block, in tokens unless the layer compresses several tokens into one."""
        return self.block_size

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes that one request needs at most in this layer. NotImplementedError where a class does not say."""
        raise NotImplementedError(f"{type(self).__name__} does not say how much memory a request needs")

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """The same spec for blocks of `block_size` tokens; a given padding is kept as it is."""
        return replace(self, block_size=block_size)

    @classmethod
    def merge(cls, specs: Sequence[Self]) -> Self:
        """The spec of a group of layers, a new object equal to every member but for merged windows (§4).

        AssertionError if the members differ in class or in any other field.
        """
        if not specs:
            raise AssertionError("nothing to merge: a group has at least one layer")
        first = specs[0]
        classes = sorted({type(spec).__name__ for spec in specs})
        if len({type(spec) for spec in specs}) != 1:
            raise AssertionError(f"cannot merge specs of different classes: {', '.join(classes)}")
        merged = first._merge_windows(specs)
        for field in fields(first):
            values = [getattr(spec, field.name) for spec in specs]
            if field.name not in merged and not all(value == values[0] for value in values):
                raise AssertionError(f"cannot merge {classes[0]} specs with different {field.name}: {values}")
        return replace(first, **merged)

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, "KVCacheSpec"]) -> bool:
        """Whether all these layers may share this layer's block table although their pages may differ (§5).

        AssertionError if this spec's class is not registered.
        """
        base = uniform_base_of(self)
        if base is None:
            raise AssertionError(how_to_register(self))
        manager = manager_of(self)
        return all(isinstance(spec, base) and manager_of(spec) is manager for spec in kv_cache_specs.values())

    def _merge_windows(self, specs: Sequence[Any]) -> dict[str, Any]:
        """Fields in which the members may differ, with their common value."""
        return {}


class MambaAttentionBackendEnum(Enum):
    """Which kind of state a Mamba layer keeps; the core does not read it."""

    MAMBA1 = auto()
    MAMBA2 = auto()
    SHORT_CONV = auto()
    LINEAR = auto()
    GDN_ATTN = auto()
    CUSTOM = auto()


@dataclass(frozen=True)
class MambaSpec(KVCacheSpec):
    """A layer that keeps one state per sequence, made of several tensors, instead of keys and values per token.

    Its page has no size unless there is one dtype for every shape [S-07]. `mamba_type` may be any hashable.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    page_size_padded: int | None = None
    mamba_type: Hashable = MambaAttentionBackendEnum.MAMBA2
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one state, or the given padding.

        ValueError unless there is one dtype for every shape [S-07], AssertionError for a padding below the state.
        """
        if len(self.shapes) != len(self.dtypes):
            raise ValueError(f"{len(self.shapes)} shapes but {len(self.dtypes)} dtypes: give one dtype for every shape")
        state = sum(prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True))
        return padded_page_size(state, self.page_size_padded)

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """Bytes of the states of one request; how many are kept follows `cache_config.mamba_cache_mode` (K-5)."""
        mode = vllm_config.cache_config.mamba_cache_mode
        if mode == "all":
            states = cdiv(vllm_config.model_config.max_model_len, self.block_size)
        else:
            states = 2 if mode == "align" else 1
        return (states + self.num_speculative_blocks) * self.page_size_bytes

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether all are Mamba layers with the same cache mode and number of speculative blocks [S-09]."""
        return all(
            isinstance(spec, MambaSpec)
            and spec.num_speculative_blocks == self.num_speculative_blocks
            and spec.mamba_cache_mode == self.mamba_cache_mode
            for spec in kv_cache_specs.values()
        )


def padded_page_size(least: int, padded: int | None) -> int:
    """The page size given, or the least one in bytes. AssertionError if the given one is too small."""
    if padded is None:
        return least
    if padded < least:
        raise AssertionError(f"page_size_padded is {padded} bytes but a block stores {least}: pad upwards")
    return padded
