"""The programs behind the site, as modules, and the site itself where one has been built.

The programs lie in `docs` and not in the package; they need nothing but the standard library.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from .pages import DOCS

SITE = Path(os.environ["BLOCKPROOF_SITE"]).resolve() if os.environ.get("BLOCKPROOF_SITE") else None
"""The built site; None where none was built for the tests (`make site`, then BLOCKPROOF_SITE=build/site)."""


def program(name: str) -> ModuleType:
    """The module of a file in `docs`."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
