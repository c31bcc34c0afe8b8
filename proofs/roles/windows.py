"""What is read, what is skipped, and what is held at once: windows, chunks, states (T1-T6).

`attends_*` is the definition of attention, that of the model's rules (`Rule.attends`), the same for every core.
"""

from typing import Any

from ...model.attention import Chunked, Full, Mamba, Rule, Sliding
from ...model.ops import Group, Shape
from ..symbolic_builtins import Counted
from ..theorem import UnavailableError
from .bare import bare

_REQUEST = "request"


def _rule(kind: type[Rule], **fields: Any) -> Any:
    return bare(kind, **fields)


def _cap(kind: type[Rule], batched: Any, max_len: Any, **fields: Any) -> Any:
    shape = bare(Shape, max_num_batched_tokens=batched, max_model_len=max_len)
    return bare(kind, shape=shape, group=bare(Group), **fields).cap()


_ATTENDS: dict[str, Any] = {
    "attends_full": lambda q, t: _rule(Full).attends(q, t),
    "attends_sliding": lambda q, t, w: _rule(Sliding, w=w).attends(q, t),
    "attends_chunked": lambda q, t, k: _rule(Chunked, k=k).attends(q, t),
    "attends_mamba": lambda q, t: _rule(Mamba).attends(q, t),
}

MODEL: dict[str, Any] = {
    **_ATTENDS,
    "skipped_sliding": lambda c, w: _rule(Sliding, w=w).skipped(c),
    "skipped_chunked": lambda c, k: _rule(Chunked, k=k).skipped(c),
    "skipped_mamba": lambda c: _rule(Mamba).skipped(c),
    "cap_sliding": lambda w, b, batched, max_len: _cap(Sliding, batched, max_len, w=w, b=b),
    "cap_chunked": lambda k, b, batched, max_len: _cap(Chunked, batched, max_len, k=k, b=b),
}


def _skipped(names: Any, manager: str, **fields: str) -> Any:
    """`get_num_skipped_tokens` of a manager whose rule needs one number, or none."""
    kind = names(manager)
    if not fields:
        return lambda c: bare(kind).get_num_skipped_tokens(c)
    (attribute,) = fields.values()
    return lambda c, size: bare(kind, **{attribute: size}).get_num_skipped_tokens(c)


def _admission_cap(names: Any, spec: str, attribute: str) -> Any:
    kind = names(spec)

    def cap(size: Any, b: Any, batched: Any, max_len: Any) -> Any:
        made = bare(kind, block_size=b, **{attribute: size})
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


API: dict[str, Any] = {
    "quiet_full": lambda names: _quiet(names, "FullAttentionManager"),
    "quiet_sliding": lambda names: _quiet(names, "SlidingWindowManager", sliding_window=None),
    "quiet_chunked": lambda names: _quiet(names, "ChunkedLocalAttentionManager", attention_chunk_size=None),
    "quiet_mamba": lambda names: _quiet(
        names,
        "MambaManager",
        num_speculative_blocks=None,
        extra_blocks=None,
        mamba_cache_mode="none",
        moves_blocks=False,
    ),
    **{role: lambda names, function=function: function for role, function in _ATTENDS.items()},
    "skipped_sliding": lambda names: _skipped(names, "SlidingWindowManager", size="sliding_window"),
    "skipped_chunked": lambda names: _skipped(names, "ChunkedLocalAttentionManager", size="attention_chunk_size"),
    "skipped_mamba": lambda names: _skipped(names, "MambaManager"),
    "cap_sliding": lambda names: _admission_cap(names, "SlidingWindowSpec", "sliding_window"),
    "cap_chunked": lambda names: _admission_cap(names, "ChunkedLocalAttentionSpec", "attention_chunk_size"),
}
