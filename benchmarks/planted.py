"""A plugin of pytest that puts a fault into every manager of our core that a test builds: PLANTED names it.

PLANTED=states-leak PYTHONPATH=benchmarks python -m pytest -p planted tests/impl

So `real_bugs.py --unit-tests` runs it.
"""

import os
from typing import Any

from blockproof.fuzz.faults import FAULTS
from blockproof.impl import KVCacheManager

_plant = FAULTS[os.environ["PLANTED"]].plant
_built = KVCacheManager.__init__


def _build(self: Any, *arguments: Any, **named: Any) -> None:
    _built(self, *arguments, **named)
    _plant(self)


KVCacheManager.__init__ = _build  # type: ignore[method-assign]
