"""The moves of which every operation consists; and what the model makes of a request at the end of a step."""

from types import SimpleNamespace
from typing import Any

from ...model import core, legal, ops, tables
from ...model.state import Request
from ..bare import bare
from ..invariants import moves
from ..symbolic_builtins import Counted

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


class _Tokens(Counted):
    """Tokens of which only the number matters."""

    def __iadd__(self, more: Counted) -> "_Tokens":
        return _Tokens(self.length + more.length)


def _ended(kind: str, n: Any, computed: Any, scheduled: Any, sampled: Any, rejected: Any) -> Any:
    """What the model makes of one request: settled tokens before and after an operation that is legal, and the position
    of its next query then; None for one that is not legal."""
    request = Request(None, _Tokens(n), computed, scheduled, arriving=kind == "arrive")  # type: ignore[arg-type]
    shape = SimpleNamespace(hash_block_size=1, caching=False, groups=(), max_model_len=n + sampled)
    model = bare(core.Model, requests={"r": request}, shape=shape)
    operation: Any = {
        "advance": ops.Advance("r", _Tokens(sampled), rejected),  # type: ignore[arg-type]
        "reject": ops.Reject("r", rejected),
        "arrive": ops.Arrive("r"),
    }[kind]
    before = tables.settled(request, request.computed)
    if not legal.allows(model, operation):
        return None
    getattr(core.Model, kind)(model, operation)
    return before, tables.settled(request, request.computed), request.computed


MODEL: dict[str, Any] = {"request_after": _ended, **{f"move_{name}": getattr(moves, name) for name in MOVES}}
API: dict[str, Any] = {}
