"""The theorems, by subject."""

from importlib import import_module
from pkgutil import iter_modules

from ..authoring import registered
from ..theorem import Statement

_MODULES = [import_module(f".{module.name}", __name__) for module in iter_modules(__path__)]
FAMILIES = tuple(module for module in _MODULES if hasattr(module, "THEOREMS"))

THEOREMS: tuple[Statement, ...] = registered(theorem for family in FAMILIES for theorem in family.THEOREMS)
"""All of them, in the order of their numbers."""

BY_ID = {theorem.id: theorem for theorem in THEOREMS}
