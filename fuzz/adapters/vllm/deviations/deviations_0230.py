"""Where the reference release is known to differ from the specification (core.md, "What 0.23.0 does otherwise")."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from .....model import arith, lookup
from .....model.attention import Chunked, CoreError, Rule
from .....model.ops import Submit
from .....model.state import Request
from .....model.tables import (
    Core,
    Plan,
    Policy,
    admits,
    reach,
    settled,
    worth,
)
from ....targets.deviations import MISUSE_UNCHECKED, Deviation, Note, UndefinedStateError, blamed
from . import state_deviations
from .identity_deviations import CHANGES, Keys
from .search import SEARCH, release_hit

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "common-prefix-unknown",
        reason=(
            "asking for the common prefix of an unknown request leaves an empty table, which counts as one more sharer"
        ),
        condition="CommonPrefix of a request without a table, in a full-attention group",
        source="Found by lockstep.",
    ),
    Deviation(
        "chunked-cap",
        reason=(
            "the admission cap of chunked local attention leaves out the block that a chunk starting inside it drags "
            "along"
        ),
        condition="the chunk is no multiple of the block size, and the gate asks for more than the cap",
        source="Theorem T6; S-13.",
    ),
    *state_deviations.DEVIATIONS,
    Deviation(
        "hit-not-cut",
        reason=(
            "the common length is applied to the first full-attention group's blocks only: another group's list stays "
            "longer, its surplus blocks are pinned and stand where new tokens will be written; with external tokens a "
            "negative number of blocks is taken, which inflates the free count"
        ),
        condition="two specs of the full-attention family, or an eagle mamba group before another one",
        source="Found by lockstep; vllm-project/vllm-ascend#14283, review of vllm-project/vllm#40868.",
    ),
    Deviation(
        "mamba-eagle-margin",
        reason=(
            "an eagle mamba group is searched one block beyond the common length but drops none, so the hit can be "
            "longer than what the other groups hold: tokens count as computed whose keys and values are nowhere"
        ),
        condition=(
            "eagle, a hybrid with mamba, and a mamba state registered one block further than the other groups' hit"
        ),
        source="Found by lockstep; vllm-project/vllm#43559, vllm-project/vllm#48375.",
        corrupts=True,
    ),
    Deviation(
        "hit-taken-for-external",
        reason=(
            "group by group, the hit is attached and blocks for external tokens are taken: those of one group can be "
            "the next group's hit, which nobody holds yet; the block then stands in two tables and is overwritten"
        ),
        condition="several groups, a hit together with external tokens, and the hit's blocks first in the free queue",
        source="Found by the shadow memory.",
        corrupts=True,
    ),
    Deviation(
        "sink-construction",
        reason=(
            "the constructor of the sink manager lacks a parameter that its caller passes, so no such core can be built"
        ),
        condition="any group with attention sinks",
        source="Found at construction; S-18.",
    ),
    Deviation(
        "chunk-astride-block",
        reason=(
            "a chunked-local hit begins at the chunk of the longest possible hit, not of the hit found: the query "
            "behind a shorter one reads null entries"
        ),
        condition="chunked local attention, and a chunk border inside the hit or a block astride two chunks",
        source="Found by the shadow memory and by theorem T8.chunked.",
        corrupts=True,
    ),
    Deviation(
        "chunked-refuses",
        reason=(
            "a lookup with chunked local attention is an assertion error with eagle, or where hits do not end at "
            "the group's own block size"
        ),
        condition="chunked local attention with a draft model, or with groups of other block sizes",
        source="core.md, section 7.",
    ),
    Deviation(
        "window-of-one",
        reason=(
            "a window of one token reads nothing from the cache, yet a hit demands a registered block, and none ever is"
        ),
        condition="a sliding window of one token, without eagle",
        source="Theorem T8.hit.",
    ),
    Deviation(
        "eagle-cut-twice",
        reason=(
            "a hit shorter than an eagle window is cut to the alignment before and after its last block is given "
            "up: up to one alignment is lost"
        ),
        condition="eagle, a sliding window, and an alignment of more than its block",
        source="Theorem T9.hit.",
    ),
    Deviation(
        "eagle-in-turn",
        reason=(
            "groups of several eagle types are asked in turn, and one that has given a block up is not asked "
            "again: the hit may end where it has no block behind"
        ),
        condition="two or more eagle types besides full attention",
        source="Theorem T14.",
    ),
    Deviation(
        "eagle-last-block",
        reason=(
            "the block behind a hit must end before the request's last token, though it is only read by the draft "
            "model: prompts of whole blocks lose one block"
        ),
        condition="eagle, and a request of whole blocks",
        source="Found when the hit was defined.",
    ),
    Deviation(
        "registers-unreadable",
        reason=(
            "blocks are registered that no hit can need: states inside an alignment, the last block of a chunk, "
            "the first block of an eagle window, blocks of full attention behind the only boundary that is kept"
        ),
        condition="several groups, chunks, eagle, or retention interval 0",
        source="Theorems T10 and T11.",
    ),
    Deviation(
        "registers-by-scheduler-block",
        reason=(
            "a single sliding-window group registers by the scheduler's block size, but looks hits up by its own: "
            "part of what could hit is not kept"
        ),
        condition="one sliding-window group, and a scheduler block size of more than its block",
        source="Found when registering was defined.",
    ),
    Deviation(
        "replay-boundary-eagle",
        reason=(
            "with eagle, the boundary kept for a replay of the prompt is one that the replay cannot reach: it "
            "never hits"
        ),
        condition="a retention interval, eagle, and less than a block behind the last boundary of the prompt",
        source="Theorem T11.",
    ),
    Deviation(
        "cut-by-all-computed",
        reason=(
            "windows are cut by tokens that can still be taken back (drafts, the last token of a prompt that was "
            "loaded whole): the next query then reads null entries"
        ),
        condition="windows or chunks, with drafts rejected late or a prompt that comes from outside as a whole",
        source="Theorem T3.settled; vllm-project/vllm#47728.",
        corrupts=True,
    ),
    Deviation(
        "gate-behind-hit",
        reason=(
            "the gate compares the cap, in blocks held, with the length of a table, null entries included: behind "
            "a long hit it counts too little"
        ),
        condition="the gate, a hit, and a window or chunk",
        source="Theorem T16.hit.",
    ),
    Deviation(
        "gate-lookahead",
        reason=("the gate does not count the room that drafts need"),
        condition="the gate, with lookahead",
        source="Theorem T16.lookahead.",
    ),
    Deviation(
        "gate-reserved",
        reason=("the gate does not leave the blocks that others have reserved"),
        condition="the gate, with reserved blocks",
        source="Theorem T16.overcommit.",
    ),
    *(deviation for deviation, _ in CHANGES.values()),
    MISUSE_UNCHECKED,
)
"""Each with what the release does, when it shows, and where that is known from."""

RESERVED_AS_FULL = "window-reserved-as-full"
ELSEWHERE = (
    Deviation(
        RESERVED_AS_FULL,
        reason="the gate counts windows and chunks in full, though their blocks are given back on the way",
        condition="the gate, and a prompt that is longer than the window; up to 0.19",
        source="Found by the liveness oracle; vllm-project/vllm#39734.",
    ),
)
"""What other releases do that the reference does not."""


def policy_of(declared: Collection[str], note: Note, rules: "Rules | None" = None) -> Policy:
    """What a core decides that has the deviations with these ids, by the rules of the reference if none are given."""
    base, decisions, states_of = rules or Rules()
    policy, keys = base, [name for name in CHANGES if name in declared]
    for entry, (names, compute) in decisions.items():
        if quirks := [name for name in names if name in declared]:
            change: dict[str, Any] = {entry: blamed(compute, getattr(policy, entry), quirks, note)}
            policy = replace(policy, **change)
    if keys:
        of_release = _Keys(keys, note, base)
        policy = replace(policy, content_keys=of_release.named, event_keys=of_release.shown)
        if base.copies is not None:
            policy = replace(policy, name_tail=of_release.name_tail)
    if "hit-taken-for-external" in declared or "hit-not-cut" in declared:
        policy = replace(policy, attach=partial(attach_in_turn, "hit-taken-for-external" in declared, note))
    if any(name in declared for name in state_deviations.HELD):
        of_states = states_of(declared, note, base)
        policy = replace(
            policy,
            states=of_states.predicted,
            extend_states=of_states.extend,
            null_skipped=of_states.null,
            make_private=of_states.make_private,
        )
    if state_deviations.LEFT_BEHIND in declared:
        policy = replace(policy, renewed=partial(state_deviations.left_behind, note))
    if "common-prefix-unknown" in declared:
        ghosts = _Ghosts(note, base)
        policy = replace(policy, shared_prefix=ghosts.shared, give_back=ghosts.give_back)
    return replace(policy, set_aside=partial(no_sinks, note)) if "sink-construction" in declared else policy


# Identities.


class _Keys:
    """Extra keys as the release makes them. A deviation has occurred once two different keys become equal, or equal
    ones different."""

    def __init__(self, quirks: Collection[str], note: Note, base: Policy) -> None:
        self.quirks, self.note, self.base = quirks, note, base
        self._seen: dict[object, Keys] = {}
        self._of_tail = False

    def named(self, submit: Submit, start: int, end: int) -> Keys:
        """Those of a block that gets its identity. `late`: naming goes on behind the prompt."""
        keys, late = self.base.content_keys(submit, start, end), start > 0 and end > len(submit.prompt)
        for name in self.quirks:
            changed = CHANGES[name][1](keys, submit, start, end, late)
            made_from, made = self._seen.setdefault((name, "of", changed), keys), (name, "to", keys)
            self.note(name, made_from != keys or self._seen.setdefault(made, changed) != changed)
            keys = changed
        return keys

    def name_tail(self, core: Core, group: int, request: Request, num_tokens: int) -> None:
        """The end of a prompt is named by itself, as what is filled behind the prompt."""
        self._of_tail = True
        self.base.name_tail(core, group, request, num_tokens)
        self._of_tail = False

    def shown(self, submit: Submit, start: int, end: int) -> Keys:
        """Those that an event shows, without their tags."""
        keys, late = self.base.event_keys(submit, start, end), self._of_tail and start > 0
        for name in self.quirks:
            changed = CHANGES[name][1](keys, submit, start, end, late)
            self.note(name, [value for _, value in changed] != [value for _, value in keys], harmless=True)
            keys = changed
        return keys


# Registering, windows, admission.


def release_worth(quirks: Collection[str], core: Core, group: int, i: int, request: Request) -> bool:
    """Whether the release registers a block."""
    rule, shape = core.rules[group], core.shape
    if not rule.windowed:
        return "registers-unreadable" in quirks or worth(core, group, i, request)
    unit = shape.scheduler_block_size if "registers-by-scheduler-block" in quirks else core.alignment
    interval, replay = unit if shape.retention_interval is None else shape.retention_interval, 0
    if shape.retention_interval is not None:
        num_prompt_tokens = len(request.submit.prompt)
        replay = lookup.replay_boundary(core.rules, core.alignment, num_prompt_tokens)
        if "replay-boundary-eagle" in quirks:
            replay = arith.down(num_prompt_tokens - 1, shape.scheduler_block_size)
    if "registers-unreadable" not in quirks:
        return lookup.worth_registering(rule, i, interval, replay)
    return in_mask(rule, i, interval, () if shape.retention_interval is None else (replay,))


def in_mask(rule: Rule, i: int, interval: int, ends: Collection[int]) -> bool:
    """Whether the release's mask of a window has block `i`: for hits at multiples of `interval`, 0 for none, and at
    these ends."""
    need, per = arith.window_blocks(rule.w, rule.b) + rule.eagle, interval // rule.b
    if interval and (need >= per or (i >= rule.eagle and (i - rule.eagle) % per >= per - need)):
        return True
    lasts = [end // rule.b + rule.eagle for end in ends]
    return any(last - need <= i < last for last in lasts)


def release_reach(quirks: Collection[str], core: Core, group: int, num_tokens: int) -> int:
    """Leading tokens that the release registers: a block more in Mamba groups, too, if a draft model reads them."""
    boundary, rule = arith.down(num_tokens, core.alignment), core.rules[group]
    more = bool(boundary and rule.eagle and quirks)
    return min(num_tokens, boundary + rule.b) if more else reach(core, group, num_tokens)


def all_computed(quirks: Collection[str], request: Request, computed: int) -> int:
    """Windows are cut by all tokens that count as computed."""
    return computed if quirks else settled(request, computed)


def release_capped(
    quirks: Collection[str], rule: Rule, lookahead: int, required: int, entries: int, inside: int
) -> int:
    """New blocks that the release's gate counts."""
    cap = rule.cap(lookahead)
    if isinstance(rule, Chunked) and "chunked-cap" in quirks:
        cap = arith.cdiv(min(rule.k + rule.longest(lookahead), rule.shape.max_model_len), rule.b)
    if cap is None or RESERVED_AS_FULL in quirks:
        return arith.missing_blocks(required, entries)
    if "gate-behind-hit" in quirks:
        return arith.missing_blocks(min(required, cap), entries)
    return min(arith.missing_blocks(required, entries), max(0, cap - inside))


def release_admits(quirks: Collection[str], core: Core, plan: Plan) -> bool:
    """Whether the release's gate lets a request pass."""
    op = replace(plan.op, lookahead=0) if "gate-lookahead" in quirks else plan.op
    return admits(core, plan._replace(op=replace(op, reserved=0) if "gate-reserved" in quirks else op))


# Attaching, giving back, sharing.


def attach_in_turn(in_turn: bool, note: Note, core: Core, plan: Plan) -> None:
    """A group takes its blocks before the next group has attached its hit. A negative number of blocks corrupts the
    free count: what follows is undefined."""
    groups = range(len(core.rules))
    missing = [] if in_turn else [core.attach(group, plan) for group in groups]
    for group in groups:
        count = core.attach(group, plan) if in_turn else missing[group]
        if in_turn:
            later = {block for hit in plan.hit[group + 1 :] for block in hit}
            next_free = core.state.queue()[: max(0, count)]
            note("hit-taken-for-external", not later.isdisjoint(next_free))
        if count < 0:
            raise UndefinedStateError
        if count:
            core.grow(group, core.state.tables[group][plan.op.request], count)


class _Ghosts:
    """Unknown requests that have an empty table, since their common prefix was asked for."""

    def __init__(self, note: Note, base: Policy) -> None:
        self.note, self.base = note, base
        self._of_group: dict[int, set[str]] = {}

    def shared(self, core: Core, group: int, name: str, counts: list[int]) -> int:
        """Blocks shared by all tables and the empty ones."""
        right = self.base.shared_prefix(core, group, name, counts)
        if not core.rules[group].is_full or not core.shape.caching:
            return right
        tables, ghosts = core.state.tables[group], self._of_group.setdefault(group, set())
        if not tables.get(name):
            ghosts.add(name)
        sharers = len(tables.keys() | ghosts)
        shared = len(list(takewhile(lambda block: counts[block] == sharers, tables.get(name, ()))))
        self.note("common-prefix-unknown", shared != right)
        return shared

    def give_back(self, core: Core, name: str) -> None:
        """The empty table goes with the request."""
        for ghosts in self._of_group.values():
            ghosts.discard(name)
        self.base.give_back(core, name)


def no_sinks(note: Note, core: Core, rule: Rule) -> None:
    """CoreError: no core with attention sinks can be built."""
    note("sink-construction", True)
    raise CoreError("TypeError")


DECISIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "hit": (SEARCH, release_hit),
    "worth": (("registers-unreadable", "registers-by-scheduler-block", "replay-boundary-eagle"), release_worth),
    "reach": (("mamba-eagle-margin",), release_reach),
    "settled": (("cut-by-all-computed",), all_computed),
    "stands": ((state_deviations.BY_SCHEDULER,), state_deviations.all_stand),
    "capped": (("gate-behind-hit", "chunked-cap", RESERVED_AS_FULL), release_capped),
    "admits": (("gate-lookahead", "gate-reserved"), release_admits),
}
"""By entry of the policy: the deviations that it has, and the release's decision with some of them."""


class Rules(NamedTuple):
    """What a release's deviations are deviations from, and how it decides with them."""

    base: Policy = Policy()
    decisions: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = DECISIONS
    states_of: type[state_deviations.ReleaseStates] = state_deviations.ReleaseStates
