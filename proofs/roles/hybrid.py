"""The search for the hit that all groups of a core have in common (T14)."""

import sys
from typing import Any

from ..hybrid_subjects import AnyElement, Names, model_search, named_search

MODEL: dict[str, Any] = {"hybrid_search": model_search}


def _search(names: Names) -> Any:
    element = getattr(sys.modules.get("torch"), "float32", AnyElement())  # a release's specs take torch's types only
    return named_search(names, element)


API: dict[str, Any] = {"hybrid_search": _search}
