"""Where vLLM 0.26.0 to 0.31.0 are known to differ from the specification: the rule of today (`model.features.today`)
without what came later.

`CAME` says of each release what it brought: before it, choices and deviations were those given there. It is told of the
first release that has it among those that were read: 0.26, 0.29, 0.30, 0.31 and 0.33.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .....model import arith, lookup, tables
from .....model.attention import Mamba, Rule, demand
from .....model.decisions import nothing
from .....model.features import copies, inside, today
from .....model.ops import Shape
from .....model.state import Request
from .....model.tables import Core, Policy
from ....targets.deviations import Deviation, Note
from ..releases import minor
from . import deviations_0230 as deviations
from . import deviations_0330
from .fine_search import FINE_SEARCH, REFUSED, fine_hit, fine_junction
from .identity_deviations import BY_NAME, LATE, UNTAGGED
from .kept_blocks import EARLY, LOWER, worth
from .state_deviations import AGAIN, SHARED, TWICE, ProcessedStates, ReleaseStates

UNBEGUN = "begun-without-a-block"
NEW = (
    Deviation(
        AGAIN,
        reason=(
            "where drafts are computed behind a prompt of whole hash blocks and what was sampled is not known yet, the "
            "end of the prompt gets its name again in each step, in a block that may hold a later state; where that "
            "was given back, the allocation ends in an assertion half-way"
        ),
        condition="mamba in align mode, drafts, and a step before the outcome of the last one of the prompt is known",
        source="Found by lockstep.",
        corrupts=True,
    ),
    Deviation(
        TWICE,
        reason=(
            "where a state is copied, the room for a running state (with those of drafts, if the request begins) is "
            "asked for besides, also where the request has it: refused though there is room"
        ),
        condition="mamba in align mode, a copy, and a step that stays in the block",
        source="Found by lockstep.",
    ),
    Deviation(
        UNBEGUN,
        reason=(
            "a request whose first step finds room for its state in a block that came from outside does not count as "
            "begun: of a state that it then names itself it gets the copy, in place of the block that it has, which "
            "keeps the name; a worker that only learns of blocks behind those that it knows writes on in it"
        ),
        condition="mamba in align mode, external tokens, and a step that ends where the prompt's end gets its name",
        source="Found by lockstep.",
    ),
    Deviation(
        REFUSED,
        reason=(
            "hits end inside blocks wherever states are kept for more tokens than a hash block, though windows and "
            "chunks of larger blocks cannot be looked up so: every lookup is an AssertionError"
        ),
        condition="mamba in align mode with a window or a chunk, both with blocks of several hash blocks",
        source="Found by lockstep.",
    ),
)
"""Those that neither 0.23.0 nor 0.33.0 has."""


# Decisions.


def name_tail(
    core: Core, group: int, request: Request, num_tokens: int, *, early: bool = False, again: Note | None = None
) -> None:
    """The last hash block of a prompt gets its name also where only a longer request can find it; a state only inside
    its block, and with eagle, if `early`, one hash block before, where the hit of a replay ends. `again`: also in steps
    behind the one that has computed it."""
    rule, unit, is_state = core.rules[group], core.shape.hash_block_size, isinstance(core.rules[group], Mamba)
    left = unit * (early and is_state and core.shape.eagle)
    last, written = arith.down(len(request.submit.prompt) - left, unit), request.written
    is_past = is_state and written.last.start >= last and not written.loaded
    if last % rule.b and (again is not None or not is_past):
        copies.name_tail(core, group, request, num_tokens, left)
        if again is not None:
            again(AGAIN, is_past and (group, request.submit.request) in core.tails)


def finish(core: Core) -> None:
    """Copies are made, and nothing is offered to a connector."""
    copies.finish(core)
    core.offered = ()


def lists(core: Core, group: int) -> bool:
    """Where states are read before they are written, new blocks of full attention are zeroed."""
    return today.lists(core, group) and tables.lists(core, group)


def check(shape: Shape, rules: Sequence[Rule]) -> None:
    """A retention interval, also of 0, needs windows or states; groups are not all of one kind."""
    if shape.retention_interval == 0:
        demand(any(rule.windowed or isinstance(rule, Mamba) for rule in rules), "ValueError")
    today.check(shape, rules)
    lookup.check(replace(shape, retention_interval=None), rules)


def alignment(quirks: Collection[str], shape: Shape, rules: Sequence[Rule]) -> int:
    """Hits end at multiples of so many tokens: hash blocks, whatever windows there are."""
    unit = shape.hash_block_size
    states = [rule for rule in rules if isinstance(rule, Mamba) and rule.align and rule.b > unit]
    refused = bool(quirks and states) and shape.caching and len(rules) > 1
    return unit if refused else inside.alignment(shape, rules)


DECISIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    **deviations_0330.DECISIONS,
    "hit": (FINE_SEARCH, fine_hit),
    "junction": (FINE_SEARCH, fine_junction),
    "worth": (("registers-unreadable", "registers-by-scheduler-block", EARLY, LOWER), worth),
}
"""As `deviations.DECISIONS`."""


# Releases.


class StatesUpToANull(ProcessedStates):
    """States are given back up to the first null entry."""

    over_nulls = False


class StatesOf0260(ReleaseStates):
    """The same, by tokens whose outcome is known, and blocks of drafts move wherever they are held."""

    by_processed = True

    def make_private(self, core: Core, group: int, name: str, is_state: bool) -> list[int]:
        """A request that has not begun gets the copy, as behind a hit."""
        if is_state and UNBEGUN in self.declared and (group, name) not in self.begun:
            self.note(UNBEGUN, core.named_itself.pop((group, name), 0) > 0)
        return super().make_private(core, group, name, is_state)


@dataclass(frozen=True, kw_only=True)
class Came:
    """What a release brought, as what was there before it."""

    since: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the policy that were others."""
    had: tuple[str, ...] = ()
    """Deviations that are gone since then."""
    decisions: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = field(default_factory=dict)
    """Entries of `DECISIONS` that were others."""
    new: tuple[str, ...] = ()
    """Deviations that were not there yet."""
    states_of: type[ReleaseStates] | None = None
    """How states were held, if otherwise."""


CAME = (
    Came(  # names that look ahead
        since="0.33",
        choices={
            "ahead": None,
            "name_tail": partial(name_tail, early=True),
            "worth": partial(worth, ()),
        },
        had=("eagle-cut-twice", "eagle-in-turn", "eagle-last-block", EARLY, AGAIN),
        new=(
            *deviations_0330.FOR_CONNECTOR,
            *deviations_0330.OF_KINDS,
            *deviations_0330.OF_CHAINS,
        ),  # nobody asks an older release for these
    ),
    Came(since="0.32", had=("common-prefix-unknown",)),
    Came(since="0.31", had=(LATE.id, BY_NAME.id, UNTAGGED.id, TWICE)),
    Came(
        since="0.30",
        choices={"name_tail": name_tail, "last_offer": nothing},
        had=(LOWER,),
        new=(EARLY,),
        states_of=StatesUpToANull,
    ),
    Came(
        since="0.29",
        choices={"offer": None, "finish": finish, "lists": lists, "check": check, "counts_admitted": False},
        decisions={
            "alignment": ((REFUSED,), alignment),
            "worth": (DECISIONS["worth"][0], partial(worth, by_scheduler=True)),
        },
        had=("hit-not-cut", REFUSED, UNBEGUN),
        new=(SHARED,),
        states_of=StatesOf0260,
    ),
)
"""Newest first."""


def missing_in(version: str) -> list[Came]:
    """What this release does not have yet, newest first."""
    return [came for came in CAME if minor(came.since) > minor(version)]


def deviations_of(version: str) -> tuple[Deviation, ...]:
    """Those of this release."""
    ids = {one.id for one in deviations_0330.DEVIATIONS}
    for came in missing_in(version):
        ids = ids.union(came.had).difference(came.new)
    every = {one.id: one for one in (*deviations.DEVIATIONS, *deviations_0330.DEVIATIONS, *NEW)}
    return tuple(one for one in every.values() if one.id in ids)


def policy_of(version: str, declared: Collection[str], note: Note) -> Policy:
    """What a core of this release decides that has the deviations with these ids."""
    base, decisions = today.TODAY, dict(DECISIONS)
    states_of: type[ReleaseStates] = ProcessedStates
    for came in missing_in(version):
        base, states_of = replace(base, **came.choices), came.states_of or states_of
        decisions |= came.decisions
    tail: Any = base.name_tail
    if AGAIN in declared:
        base = replace(base, name_tail=partial(tail, again=note))
    return deviations_0330.policy_by(deviations.Rules(base, decisions, states_of), declared, note)
