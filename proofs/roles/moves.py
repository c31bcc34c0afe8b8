"""The moves of which every operation of a core consists, as the relation between two states has them."""

from typing import Any

from ..invariants import moves

MOVES = (
    "take",
    "hit",
    "touch",
    "pad",
    "drop",
    "shift",
    "register",
    "forget",
    "learn",
    "renew",
    "settle",
    "cut",
    "leave",
    "close",
    "restart",
    "construct",
)

MODEL: dict[str, Any] = {f"move_{name}": getattr(moves, name) for name in MOVES}
API: dict[str, Any] = {}
