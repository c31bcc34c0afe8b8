"""What only cores of today decide, and what they keep for it besides: the part of `tables.Policy` and of `tables.Core`
that nobody reads who wants to know the rule of vLLM 0.23."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .identity import ExtraKey
from .ops import Allocate, Shape, Value
from .state import Request, State, Stored

Core: TypeAlias = Any  # these two are of `tables`, which is built on this file
Plan: TypeAlias = Any
Offer: TypeAlias = tuple[str, int, int, int]  # request, group, block, tokens


class Kept:
    """What a core keeps for the features."""

    last: Any = None  # the operation before, with its outcome
    ahead = 0  # how many tokens behind a block its identity covers, too

    def __init__(self, shape: Shape, decided: "Additions") -> None:
        if decided.ahead is not None:
            self.ahead = decided.ahead(shape)
        self.tails: dict[tuple[int, str], tuple[int, int]] = {}
        """By group and request: the table entry and the block that it shares and will write on in (`copies`)."""
        self.named_itself: dict[tuple[int, str], int] = {}
        """Of those that the request has named itself, tokens up to the end: the names move, not the table."""
        self.copied: tuple[tuple[int, int], ...] = ()  # source and target of each copy that the operation asks for
        self.offers: list[Offer] = []  # states offered to a connector that are not told yet
        self.offered: tuple[Value, ...] = ()  # what the operation tells besides its outcome


def ended(core: Core, name: str) -> None:
    """The request's blocks are written on in by nobody."""
    for group in range(len(core.rules)) if core.tails else ():
        core.tails.pop((group, name), None)
        core.named_itself.pop((group, name), None)


def stored(
    core: Core,
    group: int,
    request: Request,
    places: Sequence[tuple[int, int]],
    told: tuple[int, int],
    size: int,
) -> Stored:
    """The event that tells of blocks, each from where to where in tokens, and of all tokens in the range `told`."""
    unit, submit, tokens = core.shape.hash_block_size, request.submit, request.tokens
    identities = [request.chain[end // unit - 1] for _, end in places]
    keys = [core.policy.event_keys(submit, start, end + core.ahead) for start, end in places]
    ahead = [tuple(tokens[end : end + core.ahead]) for _, end in places] if core.ahead else ()
    start, end = told
    parent = request.chain[start // unit - 1] if start else None
    range_of = tuple(tokens[start:end])
    return Stored((*identities,), parent, range_of, size, submit.adapter, (*keys,) or None, group, (*ahead,))


def nothing(*given: object) -> None:
    """Without a feature, nothing happens."""


def looked_up(core: Core, request: Request, tokens: int, blocks: list[list[int]]) -> None:
    """What a lookup remembers and tells besides its hit."""
    if core.policy.junction is not None:
        request.junction = core.policy.junction(core, request, tokens)
    if request.submit.reports_hits and core.policy.report is not None and tokens:
        request.hit = None  # which is not there if the report ends in an error
        core.policy.report(core, request, tokens, blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """Decisions that the rule of vLLM 0.23 does not know. Without the feature: None, False or nothing."""

    state: type[State] = State
    ahead: Callable[[Shape], int] | None = None  # tokens behind a block that its identity covers
    also_named: Callable[[Core, Request, int], tuple[ExtraKey, ...]] | None = None  # by what else is a block named?
    connector_hit: Callable[[Core, Request], tuple[int, Any, bool]] | None = None  # may states end before it?
    junction: Callable[[Core, Request, int], int] | None = None  # where a prefix ends that others share
    copies: Callable[[Core, int, Plan], bool] | None = None  # is a block copied for this allocation?
    chain: Callable[[Core], None] = nothing  # a chain of draft models prefills tokens again
    make_private: Callable[[Core, int, str, bool], list[int]] | None = None  # copies it
    report: Callable[[Core, Request, int, list[list[int]]], None] | None = None  # tells of the blocks of a hit
    finish: Callable[[Core], None] = nothing  # the copies have run
    name_tail: Callable[[Core, int, Request, int], None] = nothing  # names the end of a prompt in its block
    offer: Callable[[Core, int, str, int, int], None] | None = None  # offers states to a connector
    last_offer: Callable[[Core, str], None] = nothing  # the same when a request ends
    read: Callable[[Core, str], tuple[Value, ...]] | None = None  # what else is asked of a table
    zero_again: Callable[[Core, str], None] = nothing  # lists blocks again that a load has left unwritten
    checkpoints: Callable[[Core, int, Plan], list[int]] | None = None  # entries for states that a step leaves
    watch: Callable[[Core, list[int]], None] | None = None  # lets blocks go whose holder reads on
    reused: Callable[[Core], tuple[Value, ...]] | None = None  # those that were handed out again
    margin: Callable[[Core, Allocate], int] = lambda core, op: 0  # blocks that stay free when a request is admitted
    digests_by_size: bool = True  # is a block of several hash blocks named otherwise in events than the last of them?
    skips_tokens: bool = False  # are external tokens before a window left out one by one, or by whole blocks?
    counts_admitted: bool = False  # is a lookup counted only when its request is admitted?
