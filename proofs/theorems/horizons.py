"""Steps that change nothing: up to its horizon a running request takes no block and gives none back.

A core that knows a horizon compares with it and does nothing else. So what is claimed of it is all that such a step
would have done: the table has room, and nothing more is out of sight, however much of what was computed meanwhile is
settled by then.
"""

from collections.abc import Callable
from typing import Any

from ..claims import every, implies
from ..theorem import NegativeControl, Theorem

_STEP = {
    "b": "tokens per block",
    "held": "entries of the table",
    "settled": "tokens by which the table was cut when the horizon was found",
    "t": "tokens at the end of a step",
    "c": "tokens that are settled when that step is allocated",
}


def _any_step(*sizes: str) -> Callable[[Any], list[Any]]:
    def assume(v: Any) -> list[Any]:
        return [
            v.b >= 1,
            v.held >= 0,
            v.settled >= 0,
            v.settled <= v.c,
            v.c < v.t,
            *(getattr(v, size) >= 1 for size in sizes),
        ]

    return assume


def _quiet(f: Any, v: Any, last: Any, skipped: Callable[[Any], Any], spare: Any = 0) -> Any:
    """A step that ends at or before the last quiet token: there is room, and no block more is out of sight."""
    room = v.t <= (v.held - spare) * v.b
    return implies(v.t <= last, every(room, skipped(v.c) // v.b <= skipped(v.settled) // v.b))


def _of_full(f: Any, v: Any, more: int = 0) -> Any:
    return _quiet(f, v, f.quiet_full(v.b, v.held, v.settled) + more, lambda c: 0)


def _of_sliding(f: Any, v: Any, more: int = 0) -> Any:
    return _quiet(
        f, v, f.quiet_sliding(v.b, v.held, v.settled, v.w) + more, lambda c: max(0, f.skipped_sliding(c, v.w))
    )


def _of_states(f: Any, v: Any, more: int = 0) -> Any:
    last = f.quiet_mamba(v.b, v.held, v.settled, v.p) + more
    return _quiet(f, v, last, lambda c: max(0, f.skipped_mamba(f.counted_mamba(c, v.p))), v.p)


def _control(kind: str, more: int = 0) -> NegativeControl:
    """Only the end of the table is looked at, or `more` tokens beyond."""
    return NegativeControl(
        "what goes out of sight, and what drafts need, is forgotten" if not more else "a token behind the table fits",
        {f"quiet_{kind}": lambda b, held, settled, size=None: held * b + more},
    )


def _theorem(
    kind: str,
    what: str,
    claim: Callable[..., Any],
    sizes: dict[str, str],
    assume: Callable[[Any], list[Any]],
    wrong: NegativeControl,
) -> Theorem:
    return Theorem(
        id=f"T16.horizon.{kind}",
        sentence=f"A step of a running request with {what} that ends within its horizon finds room in its table, and "
        "nothing more is out of its sight.",
        variables={**_STEP, **sizes},
        assume=assume,
        claim=claim,
        controls=(NegativeControl("the horizon is a token further", claim=lambda f, v: claim(f, v, 1)), wrong),
        meaning="A decode step within it costs two comparisons, and changes nothing that is seen.",
    )


THEOREMS = (
    _theorem("full", "full attention", _of_full, {}, _any_step(), _control("full", 1)),
    _theorem(
        "sliding", "a sliding window", _of_sliding, {"w": "window, in tokens"}, _any_step("w"), _control("sliding")
    ),
    _theorem(
        "states",
        "states that do not move",
        _of_states,
        {"p": "speculative blocks"},
        lambda v: [*_any_step()(v), v.p >= 0, v.held >= v.p],
        _control("mamba"),
    ),
)
