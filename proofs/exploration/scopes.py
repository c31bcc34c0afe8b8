"""The scopes that are explored by name, and scopes made to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from ...model.ops import Group
from .scope import Scope, ScopeError, shape_of

CACHE = ("hit", "registered block evicted", "second block under one identity", "preemption")
"""What every scope with a prefix cache must reach."""


class _Options(TypedDict, total=False):
    """What a scope may have in addition to groups, blocks and prompts; see `Scope` and `Shape`."""

    requests: int
    outputs: int
    sampled: str
    chunks: tuple[int, ...]
    retention_interval: int
    eagle: bool
    drafts: int
    lookahead: int
    gate: bool
    evict: bool


def _scope(
    name: str,
    groups: Sequence[Group],
    blocks: int,
    prompts: Sequence[str],
    must_reach: Sequence[str],
    **options: Unpack[_Options],
) -> Scope:
    """A scope; prompts and sampled values are written as texts of digits, a token each."""
    outputs, lookahead = options.get("outputs", 1), options.get("lookahead", 0)
    longest = max(map(len, prompts)) + outputs + lookahead
    shape = shape_of(
        groups,
        blocks,
        max_len=longest,
        batched=longest,
        retention_interval=options.get("retention_interval"),
        eagle=options.get("eagle", False),
    )
    return Scope(
        name,
        shape,
        options.get("requests", 2),
        tuple(tuple(map(int, prompt)) for prompt in prompts),
        outputs,
        tuple(map(int, options.get("sampled", "0"))),
        options.get("chunks", (2,)),
        drafts=options.get("drafts", 0),
        lookahead=lookahead,
        gate=options.get("gate", False),
        evict=options.get("evict", False),
        must_reach=(*CACHE, *must_reach),
    )


def _full(b: int) -> Group:
    return Group("full", b)


def _states(b: int, drafts: int = 0) -> Group:
    return Group("mamba", b, mamba_mode="align", speculative_blocks=drafts)


REFUSED, GATE, SAME_STEP = "refused by free count", "refused by gate", "same-step refusal"
NULLS, HIT_WITH_NULLS, TO_FRONT = "null entries made", "hit with null entries", "freed to the front"
_THREES = ("000", "001", "010", "011", "100", "101", "110", "00")
_WINDOWS = ("000", "001", "010", "011", "100", "111", "00", "00011")
_ALL: tuple[Scope, ...] = (
    _scope("full", [_full(2)], 6, _THREES, ()),
    _scope("full-crowded", [_full(2)], 5, ("000", "010", "011", "111", "0001", "00"), (REFUSED,), requests=3),
    _scope("full-block-1", [_full(1)], 6, ("000", "01", "10", "111"), (REFUSED,), chunks=(1, 2)),
    _scope("full-evicted", [_full(2)], 5, ("000", "01", "00"), ("reset refused",), evict=True),
    _scope("full-gate", [_full(2)], 5, ("0000", "010", "00"), (GATE,), requests=3, gate=True, chunks=(1, 2)),
    _scope("full-eagle", [_full(2)], 6, ("00100", "0010", "011", "00"), ("eagle drop",), eagle=True, lookahead=1),
    _scope("sink", [Group("sink", 2, sink_len=2)], 5, ("0010", "000", "00", "1111"), (REFUSED,)),
    _scope("sliding", [Group("sliding", 2, window=2)], 6, _WINDOWS, (NULLS, HIT_WITH_NULLS, TO_FRONT)),
    _scope(
        "sliding-block-1",
        [Group("sliding", 1, window=2)],
        5,
        ("000", "01", "10", "111"),
        (NULLS, HIT_WITH_NULLS, REFUSED),
        requests=3,
    ),
    _scope("chunked", [Group("chunked", 2, chunk=4)], 6, _WINDOWS, (NULLS, HIT_WITH_NULLS)),
    _scope("mamba", [_states(2)], 5, ("00010", "0000", "011", "10"), (NULLS, HIT_WITH_NULLS, SAME_STEP, REFUSED)),
    _scope(
        "mamba-drafts",
        [_states(2, drafts=1)],
        5,
        ("00010", "1"),
        (NULLS, "draft rejected", "mamba speculative block moved", SAME_STEP),
        outputs=3,
        drafts=1,
        chunks=(2, 4),
    ),
    _scope(
        "full+sliding",
        [_full(2), Group("sliding", 2, window=2)],
        8,
        ("00010", "0001", "011"),
        (REFUSED, TO_FRONT, NULLS, "hit cut by another group"),
    ),
    _scope(
        "full+sliding-retention",
        [_full(1), Group("sliding", 1, window=2)],
        9,
        ("0000", "010", "00"),
        (REFUSED, NULLS, HIT_WITH_NULLS, "block not worth registering", "kept for a replay of the prompt"),
        retention_interval=0,
    ),
    _scope("full+mamba", [_full(2), _states(2)], 8, ("0001", "001", "011", "00"), (REFUSED, SAME_STEP)),
)
SCOPES: Mapping[str, Scope] = {scope.name: scope for scope in _ALL}
"""What `blockproof explore` explores if nothing is named."""


def made_to_measure(attention: str, blocks: int, requests: int, block_size: int) -> Scope:
    """A scope with one group for each of the attention types, joined by `+`, and the given sizes.

    Windows are a token longer than a block, chunks two blocks long; prompts are up to two blocks long and differ in
    their first or their second one. ScopeError for types that cannot be explored or combined, or if a request would
    not fit.
    """
    b = block_size
    kinds: dict[str, Group] = {
        "full": _full(b),
        "mla": Group("mla", b),
        "sink": Group("sink", b, sink_len=b),
        "sliding": Group("sliding", b, window=b + 1),
        "chunked": Group("chunked", b, chunk=2 * b),
        "mamba": _states(b),
    }
    names = attention.split("+")
    if unknown := [name for name in names if name not in kinds]:
        raise ScopeError(f"attention {unknown[0]!r} is unknown; join some of {', '.join(kinds)} by +")
    if len(set(names)) < len(names):
        raise ScopeError(f"attention {attention!r} names a type twice; name each once")
    need = 3 * len(names) + ("sink" in names)
    if blocks <= need:
        raise ScopeError(f"attention {attention!r}: a request needs {need} blocks; give at least {need + 1}")
    prompts = ("0" * 2 * b, "0" * b + "1" * b, "1" * 2 * b)
    must = ("hit", "registered block evicted", REFUSED, "preemption")
    groups = [kinds[name] for name in names]
    scope = _scope(attention, groups, blocks, prompts, (), chunks=(b,), requests=requests, outputs=2)
    return replace(scope, must_reach=must)


ASTRIDE = _scope("chunk-astride-block", [Group("chunked", 2, chunk=3)], 5, ("00010",), ())
"""A chunk that is no multiple of the block size: its hits are not sound (S7), in the model as in every core that
follows core.md §7. Explored by the tests, to show that the properties see what both sides do alike."""
