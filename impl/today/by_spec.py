"""Which manager serves the layers of a spec by the rule of today."""

from typing import Any

from ..managers.base import SingleTypeKVCacheManager
from ..managers.by_spec import with_cap
from ..managers.spec_registry import KVCacheSpecRegistry
from ..specs.entries import how_to_register
from ..specs.interface import KVCacheSpec
from .checkpoints import with_checkpoints
from .managers import OF_TODAY
from .reference_window import ReferenceWindowManager, RSWASpec
from .rings import CircularBufferSpec, RingManager
from .states import MambaToday


def manager_of_today(
    spec: KVCacheSpec, max_num_batched_tokens: int, max_model_len: int, **named: Any
) -> SingleTypeKVCacheManager:
    """A manager for the spec. NotImplementedError for one of somebody else, who knows nothing of this rule."""
    if isinstance(spec, CircularBufferSpec):
        return RingManager(spec, **named)
    if isinstance(spec, RSWASpec):
        return ReferenceWindowManager(spec, **named)
    plain = KVCacheSpecRegistry.get_manager_class(spec)
    if plain is None:
        raise AssertionError(how_to_register(spec))
    if plain not in OF_TODAY:
        raise NotImplementedError(f"{plain.__name__} goes by the rule of 0.23: it cannot serve a core of today")
    kind = OF_TODAY[plain]
    made = with_checkpoints(kind, spec) if issubclass(kind, MambaToday) else kind
    return with_cap(made, spec, max_num_batched_tokens, max_model_len, named)
