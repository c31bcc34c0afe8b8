"""The adapter of our own core (`impl`). The core has the API of vLLM, so vLLM's adapter does most of the work.

The core is imported by name, when it is opened: the harness also works where our core is not installed.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

from ...model.ops import Shape
from ..targets.base import Calculator, Target
from .vllm.binding import Binding, names_of
from .vllm.question_json import spec_from_json
from .vllm.releases import REFERENCE, release_of
from .vllm.style import CoreCalculator, VllmStyleTarget

__all__ = ["bind_impl", "open_changed_impl", "open_impl", "open_impl_calculator", "spec_from_json"]


def open_impl() -> Target:
    """Our core as a target. ImportError if it is not installed."""
    return VllmStyleTarget("impl", bind_impl())


def open_changed_impl(name: str, change: Callable[[Any], None]) -> Target:
    """Our core as a target of this name; `change` is applied to every manager as soon as it is built."""
    return VllmStyleTarget(name, _ChangedBinding(**vars(bind_impl()), change=change))


def open_impl_calculator() -> Calculator:
    """Our core as a calculator; errors as for `open_impl`."""
    return CoreCalculator("impl", bind_impl())


@dataclass(frozen=True)
class _ChangedBinding(Binding):
    change: Callable[[Any], None] = lambda manager: None

    def manager(self, shape: Shape) -> Any:
        manager = super().manager(shape)
        self.change(manager)
        return manager


@cache
def bind_impl() -> Binding:
    """The binding of our core. ImportError if it is not installed."""
    package = f"{__name__.split('.')[0]}.impl"
    names = names_of(package, f"{package}.kv_cache_utils")
    numpy = import_module("numpy")
    logging.getLogger(package).setLevel(logging.ERROR)
    names("init_none_hash")(names("sha256"))
    return Binding(
        version=metadata.version("blockproof"),
        names=names,
        dtype=numpy.dtype("float32"),
        adapter=cache(
            lambda name, number, path: SimpleNamespace(
                lora_name=name, name=name, lora_int_id=number, adapter_id=number, lora_path=path
            )
        ),
        item=lambda item: SimpleNamespace(
            identifier=sys.intern(item.identifier),
            mm_position=SimpleNamespace(offset=item.offset, length=item.length),
        ),
        embeddings=lambda numbers: numpy.array(numbers, dtype=numpy.int64).reshape(len(numbers), 1),
        sampling=None,
        hasher_options={},
        release=replace(release_of(REFERENCE), retention="keyword", loses=frozenset()),
    )
