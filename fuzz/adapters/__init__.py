"""The engines that can be tested: one package for each family. A new package is found without being listed anywhere."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from ..targets.family import Family


@cache
def families() -> Mapping[str, Family]:
    """All families by name: the packages in this folder that have a `FAMILY`."""
    packages = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__) if found.ispkg]
    found = [package.FAMILY for package in packages if hasattr(package, "FAMILY")]
    return MappingProxyType({family.name: family for family in found})


@cache
def family_of(spec: str) -> Family | None:
    """The family that a target's name belongs to, even if the rest of the name is malformed; None if there is none."""
    return next((family for family in families().values() if family.claims(spec)), None)


def described() -> tuple[str, ...]:
    """Full names of the releases that the model describes exactly, apart from known deviations."""
    return tuple(family.spec(version) for family in families().values() for version in family.exact)


def references() -> tuple[str, ...]:
    """Full names of those by whose rules our core goes."""
    return tuple(family.spec(family.reference) for family in families().values() if family.reference is not None)


def forms() -> str:
    """The forms of a release's name, for messages: `vllm, vllm==VERSION`."""
    return ", ".join(f"{name}, {name}==VERSION" for name in families())


def example() -> str:
    """Full name of a release, as an example in messages; a reference release if there is one."""
    every = sorted(families().values(), key=lambda family: family.reference is None)
    return every[0].example
