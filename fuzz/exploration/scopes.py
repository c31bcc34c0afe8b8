"""The scopes that are explored by name, and scopes made to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from ...model.ops import Group
from ..kinds import KINDS
from ..workload.bounds import sink_blocks
from .scope import Scope, ScopeError, shape_of
from .situations import (
    BEHIND,
    BESIDE,
    CUT,
    DRAFT,
    DUPLICATE,
    EVICTED,
    FAILED,
    FULL,
    GATE,
    HIT,
    LATE,
    MOVED,
    NOT_WORTH,
    NULLS,
    NULLS_IN_HIT,
    OUTSIDE,
    PREEMPTED,
    REPLAY,
    RESERVED,
    RESET,
    SAME_STEP,
    TO_FRONT,
)

CACHE = (HIT, EVICTED, DUPLICATE, PREEMPTED)
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
    reserved: tuple[int, ...]
    external: tuple[int, ...]
    delay: bool
    fails: bool
    evict: bool
    caching: bool


def _scope(
    name: str,
    groups: Sequence[Group],
    blocks: int,
    prompts: Sequence[str],
    must_reach: Sequence[str],
    **options: Unpack[_Options],
) -> Scope:
    """A scope; prompts and sampled values are written as texts of digits, a token each."""
    outputs, lookahead, caching = options.get("outputs", 1), options.get("lookahead", 0), options.get("caching", True)
    longest = max(map(len, prompts)) + outputs + lookahead
    shape = shape_of(
        groups,
        blocks,
        max_len=longest,
        batched=longest,
        retention_interval=options.get("retention_interval"),
        eagle=options.get("eagle", False),
        caching=caching,
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
        reserved=options.get("reserved", (0,)),
        external=options.get("external", ()),
        delay=options.get("delay", False),
        fails=options.get("fails", False),
        evict=options.get("evict", False),
        must_reach=(*(CACHE if caching else ()), *must_reach),
    )


def _full(b: int) -> Group:
    return Group("full", b)


def _window(b: int, tokens: int) -> Group:
    return Group("sliding", b, window=tokens)


def _states(b: int, drafts: int = 0) -> Group:
    return Group("mamba", b, mamba_mode="align", speculative_blocks=drafts)


_THREES = ("000", "001", "010", "011", "100", "101", "110", "00")
_WINDOWS = ("000", "001", "010", "011", "100", "111", "00", "00011")
CONNECTOR = (OUTSIDE, LATE, BESIDE)
_ALL: tuple[Scope, ...] = (
    _scope("full", [_full(2)], 6, _THREES, ()),
    _scope("full-crowded", [_full(2)], 5, ("000", "010", "011", "111", "0001", "00"), (FULL,), requests=3),
    _scope("full-block-1", [_full(1)], 6, ("000", "01", "10", "111"), (FULL,), chunks=(1, 2)),
    _scope("full-evicted", [_full(2)], 5, ("000", "01", "00"), (RESET,), evict=True),
    _scope("full-gate", [_full(2)], 5, ("0000", "010", "00"), (GATE,), requests=3, gate=True, chunks=(1, 2)),
    _scope("full-eagle", [_full(2)], 6, ("00100", "0010", "011", "00"), (BEHIND,), eagle=True, lookahead=1),
    _scope("sink", [Group("sink", 2, sink_len=2)], 5, ("0010", "000", "00", "1111"), (FULL,)),
    _scope("sliding", [_window(2, 2)], 6, _WINDOWS, (NULLS, NULLS_IN_HIT, TO_FRONT)),
    _scope(
        "sliding-block-1",
        [_window(1, 2)],
        5,
        ("000", "01", "10", "111"),
        (NULLS, NULLS_IN_HIT, FULL),
        requests=3,
    ),
    _scope("chunked", [Group("chunked", 2, chunk=4)], 6, _WINDOWS, (NULLS, NULLS_IN_HIT)),
    _scope("chunk-astride-block", [Group("chunked", 2, chunk=3)], 5, ("00010", "000", "011"), (NULLS, NULLS_IN_HIT)),
    _scope("mamba", [_states(2)], 5, ("00010", "0000", "011", "10"), (NULLS, NULLS_IN_HIT, SAME_STEP, FULL)),
    _scope(
        "mamba-drafts",
        [_states(2, drafts=1)],
        5,
        ("00010", "1"),
        (NULLS, DRAFT, MOVED, SAME_STEP),
        outputs=3,
        drafts=1,
        chunks=(2, 4),
    ),
    _scope(
        "full+sliding",
        [_full(2), _window(2, 2)],
        8,
        ("00010", "0001", "011"),
        (FULL, TO_FRONT, NULLS, CUT),
    ),
    _scope(
        "full+sliding-retention",
        [_full(1), _window(1, 2)],
        9,
        ("0000", "010", "00"),
        (FULL, NULLS, NULLS_IN_HIT, NOT_WORTH, REPLAY),
        retention_interval=0,
    ),
    _scope("full+mamba", [_full(2), _states(2)], 8, ("0001", "001", "011", "00"), (FULL, SAME_STEP)),
    # Tokens from outside, at once or later.
    _scope(
        "full-external",
        [_full(2)],
        4,
        ("0000", "001", "00"),
        (*CONNECTOR, FAILED, FULL),
        external=(1, 2),
        delay=True,
        fails=True,
    ),
    _scope(
        "sliding-external",
        [_window(2, 2)],
        5,
        ("00000", "001"),
        (*CONNECTOR, NULLS, NULLS_IN_HIT),
        external=(2, 3),
        delay=True,
    ),
    _scope("mamba-external", [_states(2)], 5, ("0000", "001"), (*CONNECTOR, NULLS, FULL), external=(2,), delay=True),
    _scope(
        "full+sliding-external",
        [_full(1), _window(1, 2)],
        7,
        ("0000", "01"),
        (*CONNECTOR, FAILED, NULLS, FULL),
        external=(1,),
        delay=True,
        fails=True,
    ),
    # What others have reserved, and the gate behind a hit.
    _scope(
        "full-reserved",
        [_full(2)],
        6,
        ("00000", "010", "00"),
        (GATE,),
        gate=True,
        reserved=(0, 1),
        lookahead=1,
    ),
    _scope(
        "chunked-reserved",
        [Group("chunked", 2, chunk=4)],
        4,
        ("0001", "0100", "00"),
        (RESERVED, FULL),
        reserved=(0, 1),
    ),
    _scope(
        "sliding-reserved",
        [_window(2, 2)],
        6,
        ("00010", "01", "000"),
        (GATE, NULLS),
        gate=True,
        reserved=(0, 1),
        lookahead=1,
    ),
    _scope(
        "mamba-gate",
        [_states(2, drafts=1)],
        6,
        ("0001", "01"),
        (GATE, NULLS, MOVED),
        gate=True,
        reserved=(0, 1),
        outputs=2,
        drafts=1,
    ),
    # No prefix cache.
    _scope("full-uncached", [_full(2)], 5, ("00010", "01"), (FULL, PREEMPTED), requests=3, caching=False),
    _scope(
        "full+sliding+mamba-uncached",
        [_full(2), _window(2, 2), _states(2)],
        10,
        ("000000", "010"),
        (FULL, PREEMPTED, NULLS, TO_FRONT, OUTSIDE, LATE),
        caching=False,
        external=(2,),
        delay=True,
    ),
    # Three groups.
    _scope(
        "full+sliding+mamba",
        [_full(2), _window(2, 2), _states(2)],
        9,
        ("00010", "011"),
        (FULL, NULLS, NULLS_IN_HIT, CUT, SAME_STEP),
    ),
    _scope(
        "full+sliding+chunked",
        [_full(1), _window(1, 2), Group("chunked", 1, chunk=2)],
        10,
        ("000", "01", "010"),
        (FULL, NULLS, NULLS_IN_HIT, CUT, NOT_WORTH),
    ),
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
    kinds: dict[str, Group] = {name: kind.explored(b) for name, kind in KINDS.items() if kind.explored}
    names = attention.split("+")
    if unknown := [name for name in names if name not in kinds]:
        raise ScopeError(f"attention {unknown[0]!r} is unknown; join some of {', '.join(kinds)} by +")
    if len(set(names)) < len(names):
        raise ScopeError(f"attention {attention!r} names a type twice; name each once")
    groups = [kinds[name] for name in names]
    need = 3 * len(names) + sink_blocks(groups)
    if blocks <= need:
        raise ScopeError(f"attention {attention!r}: a request needs {need} blocks; give at least {need + 1}")
    prompts = ("0" * 2 * b, "0" * b + "1" * b, "1" * 2 * b)
    must = (HIT, EVICTED, FULL, PREEMPTED)
    scope = _scope(attention, groups, blocks, prompts, (), chunks=(b,), requests=requests, outputs=2)
    return replace(scope, must_reach=must)
