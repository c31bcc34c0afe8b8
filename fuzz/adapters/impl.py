"""The adapter of our own core (`impl`). The core has the API of vLLM, so vLLM's adapter does most of the work.

It is imported when it is opened (`impl_package`).
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module, metadata
from importlib.resources import files
from pkgutil import walk_packages
from types import SimpleNamespace
from typing import Any, NamedTuple

from ...model.attention import rules_for
from ...model.features.today import TODAY
from ...model.kinds.rswa import has_gap
from ...model.ops import Shape
from ...model.tables import Policy
from ..findings.offered import OF_TODAY
from ..targets.base import Calculator, Target
from ..targets.declarations import KINDS_OF_FEW, OFFERS, STARVED
from ..targets.family import Mutable
from .impl_limits import LowLimits, limits_of
from .impl_package import PACKAGE, package_of_compiled
from .vllm.binding import Binding, names_of
from .vllm.configuration.core_calculator import CoreCalculator
from .vllm.configuration.question_json import spec_from_json
from .vllm.releases import REFERENCE, Release, release_of
from .vllm.style import VllmStyleTarget

__all__ = [
    "CORES",
    "bind_impl",
    "mutable_impl",
    "open_changed_impl",
    "open_impl",
    "open_impl_calculator",
    "spec_from_json",
]

_DECIDING = frozenset({"configuration", "hashing", "managers", "pool", "request", "specs"})
"""Folders and modules of our core in which something is decided."""
_DECIDING_TODAY = frozenset({"today"})
_UNREACHED = frozenset({"today.under_vllm"})
"""What no operation comes to: what stands between a scheduler and the core."""


TODAY_CORE, TODAY_COMPILED = TODAY_CORES = "impl-today", "impl-today-compiled"
CORES: Mapping[str, Callable[[], str]] = {
    "impl": lambda: PACKAGE,
    "impl-compiled": package_of_compiled,
    TODAY_CORE: lambda: PACKAGE,
    TODAY_COMPILED: package_of_compiled,
}
"""The forms of our core by the names of their targets, and the package of each. Those of `TODAY_CORES` are held to the
rule of today, and called as vLLM 0.33."""


def rule_for(target_name: str) -> Policy | None:
    """The rule of a target that is a core of ours, planted fault or not; None for the usual one."""
    return TODAY if target_name.rpartition("@")[2] in TODAY_CORES else None


def open_impl(core: str = "impl") -> Target:
    """Our core as a target, in one of its `CORES`. ImportError if it is not installed."""
    return VllmStyleTarget(core, bind_impl(core))


def open_changed_impl(name: str, change: Callable[[Any], None], core: str = "impl") -> Target:
    """Our core as a target of this name; `change` is applied to every manager as soon as it is built."""
    return VllmStyleTarget(name, _ChangedBinding(**vars(bind_impl(core)), change=change))


def open_impl_calculator(core: str = "impl") -> Calculator:
    """Our core as a calculator; arguments and errors as for `open_impl`."""
    return CoreCalculator(core, bind_impl(core))


@dataclass(frozen=True)
class _ChangedBinding(Binding):
    change: Callable[[Any], None] = lambda manager: None

    def manager(self, shape: Shape) -> Any:
        manager = super().manager(shape)
        self.change(manager)
        return manager


class _Float32(NamedTuple):
    """A dtype, as far as the core asks: numpy takes longer to import than all else that a run needs of others."""

    itemsize: int = 4


def _embeddings(numbers: Sequence[int]) -> Any:
    """An embedding of one element for each token."""
    numpy = import_module("numpy")
    return numpy.array(numbers, dtype=numpy.int64).reshape(len(numbers), 1)


@cache
def bind_impl(core: str = "impl") -> Binding:
    """The binding of our core in one of its `CORES`. ImportError if it is not installed."""
    package = CORES[core]()
    today = [f"{package}.today"] if core in TODAY_CORES else []
    names = names_of(*today, package, f"{package}.kv_cache_utils")
    logging.getLogger(package).setLevel(logging.ERROR)
    names("init_none_hash")(names("sha256"))
    return Binding(
        version=metadata.version("blockproof"),
        names=names,
        dtype=_Float32(),
        adapter=cache(
            lambda name, number, path: SimpleNamespace(
                lora_name=name, name=name, lora_int_id=number, adapter_id=number, lora_path=path
            )
        ),
        item=lambda item: SimpleNamespace(
            identifier=sys.intern(item.identifier),
            mm_position=SimpleNamespace(offset=item.offset, length=item.length),
        ),
        embeddings=_embeddings,
        sampling=None,
        hasher_options={},
        hasher_options_of=_reference_window if core in TODAY_CORES else lambda shape: {},
        around=partial(LowLimits, package=package),
        release=_called_as(core),
    )


def _reference_window(shape: Shape) -> Mapping[str, int]:
    """The least window behind which generated tokens have names of their own."""
    windows = [rule.w for rule in rules_for(shape) if has_gap(rule)]
    return {"reference_window": min(windows)} if windows else {}


_NOT_YET = {"Shape.host_blocks"}
"""What the rule of today has and our core does not: a pool of the host. It refuses such a shape."""


def _called_as(core: str) -> Release:
    """How a core of ours is called."""
    if core in TODAY_CORES:
        return replace(
            release_of("0.33.0"),
            loses=frozenset(),
            offers=(OF_TODAY | KINDS_OF_FEW | {"AllocateBatch", "Allocate.in_flight", "Arrive.missing"}) - _NOT_YET,
            kinds_missing=frozenset(),
            common_prefix=True,
            caches_unaligned_states=True,
            prefill_parallel=True,
        )
    offers = frozenset(OFFERS) - {STARVED} - OF_TODAY - KINDS_OF_FEW
    return replace(release_of(REFERENCE), retention="keyword", loses=frozenset(), offers=offers)


CHANGED_CORES = ("impl", TODAY_CORE)
"""The cores of ours whose mutants can be made: not compiled ones."""


def mutable_impl(core: str = "impl") -> Mutable:
    """The modules of our core that random mutants change: those that decide, of the core of today what it decides
    otherwise. Compiling, tensors and the modules that only give names are left out."""
    package = import_module(PACKAGE)
    modules = [found.name for found in walk_packages(package.__path__, f"{PACKAGE}.") if not found.ispkg]
    deciding = _DECIDING_TODAY if core == TODAY_CORE else _DECIDING
    parts = {name: name.removeprefix(f"{PACKAGE}.") for name in modules}
    own = tuple(name for name, part in parts.items() if part.partition(".")[0] in deciding and part not in _UNREACHED)
    judged = files(__package__) / f"{core.replace('-', '_')}_survivors.toml"
    return Mutable(own, PACKAGE, _forget, survivors=judged.read_text(encoding="utf-8"))


def _forget() -> None:
    """Forget what is known of modules that are read again: limits would be low in those that nobody calls any more."""
    bind_impl.cache_clear()
    limits_of.cache_clear()
