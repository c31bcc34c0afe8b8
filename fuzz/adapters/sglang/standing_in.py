"""What makes an SGLang importable where some of what it imports is missing, or newer than it knows."""

import importlib
import logging
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class without_noise:
    """No warnings and no log lines while SGLang is imported and built."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        logging.disable(logging.CRITICAL)

    def __exit__(self, *raised: object) -> None:
        logging.disable(logging.NOTSET)
        self._warnings.__exit__(None, None, None)


class _Empty:
    """An object that has every attribute and can be called; nothing happens."""

    def __getattr__(self, name: str) -> "_Empty":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty()

    def __call__(self, *_arguments: object, **_named: object) -> "_Empty":
        return _Empty()

    def __get_pydantic_core_schema__(self, *_arguments: object) -> Any:
        """As the type of a field, it allows anything."""
        return importlib.import_module("pydantic_core").core_schema.any_schema()


class _EmptyModule(ModuleType):
    """A module in which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty()


class _EmptyPackageFinder:
    """Import hook: empty modules in place of one missing package and everything in it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """A spec for the package and its modules; None for anything else."""
        if name.partition(".")[0] != self._package:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module, with a version that is recent enough for every check."""
        module = _EmptyModule(spec.name)
        module.__dict__["__version__"] = "99.0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do: the module stays empty."""


def stand_in_for(package: str) -> None:
    """Replaces a package by empty modules if it cannot be imported here."""
    if find_spec(package) is None:
        sys.meta_path.append(_EmptyPackageFinder(package))


def allow_registering_twice() -> None:
    """A model that a release brings along, and that this `transformers` has by now, may be registered again."""
    for module, name in (("configuration_auto", "_LazyConfigMapping"), ("auto_factory", "_LazyAutoMapping")):
        mapping: Any = getattr(importlib.import_module(f"transformers.models.auto.{module}"), name)
        mapping.register = _again(mapping.register)


def _again(register: Any) -> Any:
    def registered(self: Any, key: Any, value: Any, exist_ok: bool = False) -> Any:
        return register(self, key, value, exist_ok=True)

    return registered
