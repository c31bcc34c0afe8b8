"""Faults planted into the rule of today: a core that differs from vLLM 0.33.0 in one decision is found by lockstep."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.opening.known_deviations import known_of
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.deviations import DeviatingModel
from blockproof.model import lookup, tables
from blockproof.model.arith import down
from blockproof.model.attention import Mamba
from blockproof.model.features import copies, inside, names, today
from blockproof.model.identity import extra_keys
from blockproof.model.ops import Done
from blockproof.model.tables import Policy

from .test_deviations_today import RELEASE, Described

STATES = ("full+mamba", "full+mamba+mamba")
HYBRIDS = ("full+sliding", "full+sliding+mamba", *STATES)
OPERATIONS = 40_000


class Fault(NamedTuple):
    """A wrong decision."""

    change: Callable[[Policy], Policy]
    attention: tuple[str, ...] = ("full", *HYBRIDS)


def entry(name, wrong):
    """One entry of the policy is what `wrong` makes of the right one."""
    return lambda policy: replace(policy, **{name: wrong(getattr(policy, name))})


def put(**entries):
    return lambda policy: replace(policy, **entries)


# What the wrong decisions are.


def only_whole(right):
    def hit(core, request):
        length, rows = right(core, request)
        return (length, rows) if not length % core.shape.least_scheduler_block_size else (0, [[] for _ in rows])

    return hit


def a_block_less(right):
    def hit(core, request):
        length, rows = right(core, request)
        return (length, rows) if length != core.alignment else (0, [[] for _ in rows])

    return hit


def beyond_the_limit(right):
    def hit(core, request):
        request.limit = len(request.tokens) - 1
        return right(core, request)

    return hit


def never_lags(right):
    return lambda core, request: (*right(core, request)[:2], False)


def always_common(right):
    return lambda core, request: (*core.policy.hit(core, request), False)


def no_states(right):
    def found(core, request):
        length, rows, lags = right(core, request)
        return (
            length,
            [[] if isinstance(rule, Mamba) else row for rule, row in zip(core.rules, rows, strict=True)],
            lags,
        )

    return found


def one_ahead_less(right):
    return lambda core, group, request, num_tokens: right(core, group, request, num_tokens - 1)


def but_the_last_group(right):
    return lambda core, request, length, rows: right(core, request, length, [*rows[:-1], []])


def not_last(right):
    return lambda core, name: right(core, name)[:-1]


def not_behind_the_next(right):
    return lambda core, name: (tuple(core.state.queue()), *right(core, name)[1:])


def keeps_one_more(right):
    return lambda core, group, name, settled: right(core, group, name, settled - 1)


def gives_one_more(right):
    return lambda core, group, name, settled: right(core, group, name, settled + 1)


def copies_forgotten(right):
    """Counted as none, and made all the same."""

    def predicted(core, group, plan, counts, capped):
        return right(core, group, plan, counts, capped) - (core.policy.copies(core, group, plan) and not capped)

    return predicted


def window_of_a_longer_chain(core):
    today.chain(core)
    for rule in core.rules:
        rule.again = 2 * rule.again


def state_past_its_replay(core, group, request, num_tokens):
    """The state at a prompt's end is named where only one token is left."""
    return copies.name_tail(core, group, request, num_tokens, 1)


class NothingBehind(inside.Names):
    def __init__(self, core, request):
        super().__init__(core, request, reads_on=False)


def hit_with_nothing_behind(core, request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside, "Names", NothingBehind)
        return inside.hit(core, request)


def names_stay(core, group, name, is_state):
    """The names of a state that a request has named itself do not move to the copy."""
    core.named_itself.pop((group, name), None)
    return copies.make_private(core, group, name, is_state)


def held_for_ever(core):
    state = names.named(core)
    core.copied = tuple(zip(state.copying[::2], state.copying[1::2], strict=True))
    state.copying = []
    core.offers, core.offered = [], ()


def offered_twice(right):
    def offer(core, group, name, first, end):
        right(core, group, name, first, end)
        right(core, group, name, first, end)

    return offer


def sooner(right):
    """A watermark for those that run, too."""
    return lambda core, op: 0 if op.alone else core.shape.watermark


def everybody(right):
    return lambda core, op: 0 if core.requests[op.request].runs else core.shape.watermark


def a_place_before(right):
    return lambda core, group, plan: [entry - 1 for entry in right(core, group, plan) if entry]


def first_of_all(core, blocks):
    names.named(core).watched.update(dict.fromkeys(blocks))
    core.state.let_go(blocks, front=True)


def told_late(right):
    told: list[int] = []

    def reused(core):
        told.extend(right(core))
        return tuple(told.pop(0) for _ in range(len(told) > 1))

    return reused


def of_all_groups(core, group):
    return any(isinstance(rule, Mamba) for rule in core.rules)


def by_prompt(core, request, end):
    return (("prompt", len(request.submit.prompt)),)


def nothing_before_junctions(right):
    """Windows are kept at a junction, not where hits end before it."""

    def worth(core, group, i, request):
        junction, request.junction = request.junction, 0
        rule, interval, kept = core.rules[group], core.shape.retention_interval, right(core, group, i, request)
        request.junction = junction
        at_it = interval is not None and today.is_thinned(rule) and junction > 0
        return kept or (at_it and lookup.worth_registering(rule, i, interval, down(junction, core.alignment)))

    return worth


def by_scheduler_block(core, request, hit):
    found = inside.junction(core, request, hit)
    return down(found, core.shape.scheduler_block_size)


FAULTS = {
    "hits-whole-blocks-only": Fault(entry("hit", only_whole), STATES),
    "hit-of-one-unit-missed": Fault(entry("hit", a_block_less)),
    "limit-of-a-hit-ignored": Fault(entry("hit", beyond_the_limit)),
    "connector-hit-never-lags": Fault(entry("connector_hit", never_lags), STATES),
    "connector-hit-of-all-groups": Fault(entry("connector_hit", always_common), STATES),
    "connector-hit-without-states": Fault(entry("connector_hit", no_states), STATES),
    "junction-unknown": Fault(put(junction=lambda core, request, hit: 0), HYBRIDS),
    "junction-at-the-hit": Fault(put(junction=lambda core, request, hit: hit), HYBRIDS),
    "nothing-before-junctions": Fault(entry("worth", nothing_before_junctions), ("full+sliding",)),
    "junction-by-scheduler-block": Fault(put(junction=by_scheduler_block), STATES),
    "names-do-not-look-ahead": Fault(put(ahead=lambda shape: 0)),
    "names-look-two-ahead": Fault(put(ahead=lambda shape: 2 * inside.names_ahead(shape))),
    "names-of-chains-look-one-ahead": Fault(put(ahead=lambda shape: min(1, inside.names_ahead(shape)))),
    "old-names-look-ahead": Fault(put(ahead=lambda shape: inside.drafts(shape) * shape.caching)),
    "old-names-need-nothing-behind": Fault(put(hit=hit_with_nothing_behind)),
    "chains-prefill-nothing-again": Fault(put(chain=lambda core: None), ("sliding", "full+sliding")),
    "window-of-a-longer-chain": Fault(put(chain=window_of_a_longer_chain), ("sliding", "full+sliding")),
    "state-past-its-replay": Fault(put(name_tail=state_past_its_replay), STATES),
    "events-with-version": Fault(put(event_keys=extra_keys), ("full",)),
    "cut-by-computed": Fault(put(settled=lambda request, computed: computed), ("sliding", "full+sliding")),
    "skipped-by-computed": Fault(put(surely=lambda request: request.computed), ("sliding", "full+sliding")),
    "window-kept-too-long": Fault(entry("null_skipped", keeps_one_more), ("sliding", "full+sliding")),
    "window-cut-too-soon": Fault(entry("null_skipped", gives_one_more), ("sliding", "full+sliding")),
    "watermark-for-the-running": Fault(entry("margin", sooner)),
    "watermark-for-the-lone": Fault(entry("margin", everybody)),
    "watermark-forgotten": Fault(put(margin=lambda core, op: 0)),
    "digests-by-size": Fault(put(digests_by_size=True), STATES),
    "external-by-whole-blocks": Fault(put(skips_tokens=False), ("sliding", "full+sliding")),
    "lookups-counted-at-once": Fault(put(counts_admitted=False)),
    "states-zeroed-too": Fault(put(lists=of_all_groups), STATES),
    "full-attention-zeroed": Fault(put(lists=tables.lists)),
    "all-worth-keeping": Fault(put(worth=lambda core, group, i, request: True), HYBRIDS),
    "prompt-end-unnamed": Fault(put(name_tail=lambda *given: None), STATES),
    "prompt-end-a-token-late": Fault(entry("name_tail", one_ahead_less), STATES),
    "prompt-end-two-tokens-before": Fault(entry("name_tail", lambda right: partial(right, left=2)), STATES),
    "states-not-offered": Fault(put(offer=lambda *given: None), STATES),
    "states-offered-twice": Fault(entry("offer", offered_twice), STATES),
    "last-state-not-offered": Fault(put(last_offer=lambda *given: None), STATES),
    "offers-outlive-their-request": Fault(put(give_back=tables.give_back), STATES),
    "reused-first-without-a-name": Fault(put(let_go=tables.let_go)),
    "copies-not-counted": Fault(entry("predicted", copies_forgotten), STATES),
    "names-do-not-move": Fault(put(make_private=names_stay), STATES),
    "copies-held-for-ever": Fault(put(finish=held_for_ever), STATES),
    "nothing-reported": Fault(put(report=lambda *given: None)),
    "last-group-not-reported": Fault(entry("report", but_the_last_group), HYBRIDS),
    "cached-tokens-not-told": Fault(entry("read", not_last)),
    "next-block-told-as-behind-it": Fault(entry("read", not_behind_the_next)),
    "no-checkpoints": Fault(put(checkpoints=None, stands=tables.stands), STATES),
    "checkpoint-an-entry-before": Fault(entry("checkpoints", a_place_before), STATES),
    "watched-blocks-reused-first": Fault(put(watch=first_of_all)),
    "watched-blocks-let-go": Fault(put(watch=lambda core, blocks: core.policy.let_go(core, None, blocks, False))),
    "reader-never-told": Fault(put(reused=lambda core: ())),
    "reader-told-late": Fault(entry("reused", told_late)),
    "hits-by-scheduler-block": Fault(put(alignment=lookup.alignment), STATES),
    "retention-as-before": Fault(put(check=lookup.check), ("full", *STATES)),
    "admits-everybody": Fault(put(admits=lambda core, plan: True)),
    "output-named-as-prompt-everywhere": Fault(put(also_named=by_prompt), ("rswa", "full+rswa")),
}


class Faulty(Described):
    """The release with one wrong decision."""

    def __init__(self, fault):
        super().__init__()
        self._fault = fault

    def start(self, shape):
        known = known_of(RELEASE)

        def policy_of(declared, note):
            return self._fault.change(known.policy_of(declared, note))

        self._model = DeviatingModel(shape, known.deviations, policy_of, known.reaction_to)
        built = self._model.construction
        return built, self._model.snapshot() if built == Done() else None


def operations_until_found(fault, operations=OPERATIONS, seed=0):
    """None if nothing was found."""
    target = Faulty(fault)
    summary = Summary(target.name, "random", seed)
    plan = Plan(seed, None, operations, attention=fault.attention, oracles=("lockstep",)).possible_on(target)
    run_random(target, plan, summary)
    return None if summary.finding is None else summary.operations


RARE = {"copies-not-counted", "offers-outlive-their-request"}
"""Those that take several thousand operations."""


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RARE)) for name in FAULTS])
def test_a_wrong_decision_is_found(name):
    found = operations_until_found(FAULTS[name])
    assert found is not None


def test_the_right_decisions_are_no_finding():
    assert operations_until_found(Fault(lambda policy: policy, STATES), 4_000) is None
