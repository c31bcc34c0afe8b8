"""The known defects of transformers, each with the change that mends it: the `fix.py` of written-up findings.

A finding is put down to one of them if it is gone with that change (`EngineFamily.suspects`). The changes replace
methods of classes; which of them are in force is decided anew whenever an engine starts.
"""

import runpy
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FINDINGS = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "findings"
"""Where they are, in the repository and in the installed package."""


@cache
def fixes() -> Mapping[str, Callable[[], None]]:
    """By finding, what changes the release in this process; empty where the findings are not installed."""
    found = {}
    for path in sorted(FINDINGS.glob("*/fix.py")):
        if "from transformers" in path.read_text(encoding="utf-8"):
            found[path.parent.name] = runpy.run_path(str(path))["fix"]
    return found


class Mending:
    """Puts changes over classes, and takes them back."""

    def __init__(self, classes: Iterable[type]) -> None:
        """`classes`: all that a change may touch, as they are now."""
        self._plain: dict[type, dict[str, Any]] = {one: dict(vars(one)) for one in classes}

    def only(self, names: Iterable[str]) -> None:
        """From now on just these changes are in force."""
        for one, plain in self._plain.items():
            for name, value in plain.items():
                if vars(one).get(name) is not value:
                    setattr(one, name, value)
        for name in names:
            fixes()[name]()
