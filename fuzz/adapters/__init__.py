"""The engines that can be driven. Each family has a package here, which names itself; nothing else lists them."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from ..targets.family import Family


@cache
def families() -> Mapping[str, Family]:
    """Every family by its name: the packages beside this module that have a `FAMILY`."""
    packages = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__) if found.ispkg]
    found = [package.FAMILY for package in packages if hasattr(package, "FAMILY")]
    return MappingProxyType({family.name: family for family in found})


def family_of(spec: str) -> Family | None:
    """The family that this name of a target belongs to, well written or not; None if it is none's."""
    return next((family for family in families().values() if family.claims(spec)), None)


def references() -> tuple[str, ...]:
    """The releases that the model describes exactly, known deviations aside."""
    return tuple(family.spec(family.reference) for family in families().values() if family.reference is not None)


def forms() -> str:
    """How releases are written, for a message: `vllm, vllm==VERSION`."""
    return ", ".join(f"{name}, {name}==VERSION" for name in families())


def example() -> str:
    """A release to show how one is written: a reference release if there is one."""
    every = sorted(families().values(), key=lambda family: family.reference is None)
    return every[0].example
