"""What is read, what is skipped, and what is held at once: windows, chunks, states (T1-T6).

`attends_*` is the definition of attention, that of the model's rules (`Rule.attends`), the same for every core.
"""

from typing import Any

from ...model.attention import Mamba, Rule
from ...model.ops import Group, Shape
from ..bare import bare
from ..symbolic_builtins import Counted
from ..theorem import UnavailableError
from .kinds import KINDS, ProvedKind

_REQUEST = "request"


def _rule(kind: type[Rule], **fields: Any) -> Any:
    return bare(kind, **fields)


def _cap(kind: type[Rule], batched: Any, max_len: Any, **fields: Any) -> Any:
    shape = bare(Shape, max_num_batched_tokens=batched, max_model_len=max_len)
    return bare(kind, shape=shape, group=bare(Group), **fields).cap()


_NARROW = [kind for kind in KINDS.values() if kind.rule.cap is not Rule.cap]
"""Kinds that give up what is behind a window or a chunk, and have a cap."""


def _attends(kind: ProvedKind) -> Any:
    if kind in _NARROW:
        return lambda q, t, size: _rule(kind.rule, **{kind.letter: size}).attends(q, t)
    return lambda q, t: _rule(kind.rule).attends(q, t)


def _model_skipped(kind: ProvedKind) -> Any:
    return lambda c, size: _rule(kind.rule, **{kind.letter: size}).skipped(c)


def _model_cap(kind: ProvedKind) -> Any:
    return lambda size, b, batched, max_len: _cap(kind.rule, batched, max_len, b=b, **{kind.letter: size})


_ATTENDS: dict[str, Any] = {f"attends_{kind.name}": _attends(kind) for kind in KINDS.values()}

MODEL: dict[str, Any] = {
    **_ATTENDS,
    **{f"skipped_{kind.name}": _model_skipped(kind) for kind in _NARROW},
    "skipped_mamba": lambda c: _rule(Mamba).skipped(c),
    **{f"cap_{kind.name}": _model_cap(kind) for kind in _NARROW},
}


def _skipped(names: Any, of: ProvedKind) -> Any:
    """`get_num_skipped_tokens` of a manager whose rule needs one number, or none."""
    kind = names(of.manager)
    if of not in _NARROW:
        return lambda c: bare(kind).get_num_skipped_tokens(c)
    return lambda c, size: bare(kind, **{of.field: size}, extra_retained_tokens=0).get_num_skipped_tokens(c)


def _admission_cap(names: Any, of: ProvedKind) -> Any:
    kind = names(of.spec)

    def cap(size: Any, b: Any, batched: Any, max_len: Any) -> Any:
        made = bare(kind, block_size=b, **{of.field: size})
        return made.max_admission_blocks_per_request(batched, max_len)

    return cap


def _quiet(names: Any, manager: str, **fields: Any) -> Any:
    """The last number of tokens at which a step may end that changes nothing, by a table of so many entries."""
    kind = names(manager)
    if not hasattr(kind, "quiet_tokens"):
        raise UnavailableError(f"{manager} knows no horizon")

    def last(b: Any, held: Any, settled: Any, size: Any = None) -> Any:
        given = {name: size if value is None else value for name, value in fields.items()}
        made = bare(kind, block_size=b, req_to_blocks={_REQUEST: Counted(held)}, **given)
        quiet = made.quiet_tokens(_REQUEST, settled)
        return quiet.stop - 1

    return last


def _counted(names: Any) -> Any:
    """How many of so many settled tokens count where states that do not move are given back: drafts hold some back, or
    are none of the settled ones."""
    kind = names(KINDS["mamba"].manager)

    def counted(c: Any, drafts: Any) -> Any:
        asked: list[Any] = []

        def none_is_skipped(tokens: Any) -> int:
            asked.append(tokens)
            return 0

        fields = {"num_speculative_blocks": drafts, "mamba_cache_mode": "none", "moves_blocks": False}
        tables: dict[str, Any] = {"req_to_blocks": {}, "num_leading_nulls": {}, "_null_block": None}
        made = bare(kind, **fields, **tables, _num_skipped_blocks=none_is_skipped)
        made.remove_skipped_blocks(_REQUEST, c)
        (tokens,) = asked
        return tokens

    return counted


API: dict[str, Any] = {
    "quiet_full": lambda names: _quiet(names, KINDS["full"].manager),
    **{
        f"quiet_{kind.name}": lambda names, kind=kind: _quiet(names, kind.manager, **{kind.field: None})
        for kind in _NARROW
    },
    "counted_mamba": _counted,
    "quiet_mamba": lambda names: _quiet(
        names,
        KINDS["mamba"].manager,
        num_speculative_blocks=None,
        extra_blocks=None,
        mamba_cache_mode="none",
        moves_blocks=False,
    ),
    **{role: lambda names, function=function: function for role, function in _ATTENDS.items()},
    **{
        f"skipped_{kind.name}": lambda names, kind=kind: _skipped(names, kind)
        for kind in KINDS.values()
        if kind.rule.skipped is not Rule.skipped
    },
    **{f"cap_{kind.name}": lambda names, kind=kind: _admission_cap(names, kind) for kind in _NARROW},
}
