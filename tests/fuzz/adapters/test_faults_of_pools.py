"""Faults planted into the rule of pools beside the pool: a core that differs from vLLM 0.33.0 in one of its decisions
is found by lockstep."""

from dataclasses import replace
from typing import Any, cast

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.kinds import HYBRIDS_OF_POOLS
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.deviations import DeviatingModel
from blockproof.model.features import given_up, page_names, pool_room, today, written_back
from blockproof.model.features.pools import Pools
from blockproof.model.kinds.pool_kinds import Hot, Resident, Source
from blockproof.model.ops import NULL, Allocate, Arrive, Done, Reset, StepStart
from blockproof.model.tables import predicted

from .test_faults_of_today import Fault, Faulty, operations_until_found

ATTENTION = tuple("+".join(kinds) for kinds in HYBRIDS_OF_POOLS)


def pools(make):
    """A core whose decisions are what `make` makes of the right ones of a core with pools."""

    def chain(core):
        today.chain(core)
        if core.shape.host_blocks:
            core.policy = replace(core.policy, **make(core.policy))

    return lambda policy: replace(policy, chain=chain)


def kept_as(kind):
    """A core that keeps its pools otherwise."""

    def chain(core):
        today.chain(core)
        if core.shape.host_blocks:
            core.state.__class__ = kind

    return lambda policy: replace(policy, chain=chain)


def not_behind(*operations):
    """Nothing happens behind these operations."""

    def behind(right):
        return lambda core: core.state.shown() if isinstance(core.last[0], operations) else right(core)

    return pools(lambda policy: {"reused": behind(policy.reused)})


def counted_as(kind, count):
    """Of groups of this kind so many blocks are predicted."""

    def wrong(right):
        def predicted(core, group, plan, counts, capped):
            found = right(core, group, plan, counts, capped)
            return count(core, found) if isinstance(core.rules[group], kind) else found

        return predicted

    return pools(lambda policy: {"predicted": wrong(policy.predicted)})


def common_hit(core, request):
    length, rows = pool_room.hit(core, request)
    return length, [row[: length // core.rules[0].b] for row in rows]


def device_alone(core, request):
    state = core.state
    length, rows = pool_room.hit(core, request)
    return (0, [[] for _ in rows]) if length and not state.copies else (length, rows)


def everything_back_at_once(core, name):
    core.state.ending = ""
    given_up.give_back(core, name)


def grows_with_the_request(core, group, plan):
    return core.extend(group, plan) if isinstance(core.rules[group], Hot) else pool_room.extend(core, group, plan)


class NeverTold(Pools):
    def _tell(self, blocks):
        for block in blocks:
            self.watched.pop(block, None)


class KeepsWhatIsTold(Pools):
    def unlist(self, key):
        pass


class ReadsTheTable(Pools):
    def row(self, group, name):
        return self.tables[group].get(name, [])


class HoldsNoMove(Pools):
    def references(self):
        moves, self.moves = self.moves, []
        counts = super().references()
        self.moves = moves
        return counts


class HoldsAllPages(Pools):
    def held(self, group, name):
        return self.row(group, name)


class LosesOneGroup(Pools):
    def drop(self, group, name, page):
        return super().drop(group, name, page) if group == self.resident[0] else NULL


class RegionsOfOneBlockLess(Pools):
    def lacking(self, group, name):
        return max(0, super().lacking(group, name) - 1)


FAULTS = {
    "common-hit-alone": pools(lambda policy: {"hit": common_hit}),
    "hit-needs-pages": pools(lambda policy: {"hit": device_alone}),
    "host-room-uncounted": counted_as(Source, lambda core, found: 0),
    "host-blocks-counted-on-the-device": pools(
        lambda policy: {
            "predicted": lambda core, group, *given: (
                predicted if isinstance(core.rules[group], Source) else policy.predicted
            )(core, group, *given)
        }
    ),
    "pages-uncounted": counted_as(Resident, lambda core, found: 0),
    "pages-of-the-hit-counted": counted_as(Resident, lambda core, found: found + 1),
    "regions-uncounted": counted_as(Hot, lambda core, found: 0),
    "regions-of-a-block-less": kept_as(RegionsOfOneBlockLess),
    "nothing-written-back": not_behind(Allocate),
    "nothing-arrives": not_behind(StepStart),
    "imports-never-whole": not_behind(Arrive),
    "host-not-reset": not_behind(Reset),
    "named-when-it-ends": pools(lambda policy: {"give_back": everything_back_at_once}),
    "region-grows": pools(lambda policy: {"extend": grows_with_the_request}),
    "readers-never-told": kept_as(NeverTold),
    "pages-told-too-long": kept_as(KeepsWhatIsTold),
    "pages-read-by-the-table": kept_as(ReadsTheTable),
    "moves-hold-nothing": kept_as(HoldsNoMove),
    "pages-never-let-go": kept_as(HoldsAllPages),
    "page-lost-in-one-group": kept_as(LosesOneGroup),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_decision_is_found(name):
    assert operations_until_found(Fault(FAULTS[name], ATTENTION), 10_000) is not None


SITUATIONS = {
    *("page written back", "page let go", "page lost", "page taken up", "region", "load into the host"),
    "names behind a request's end",
}


def test_the_right_decisions_are_no_finding_and_every_situation_comes_up():
    target = Faulty(Fault(pools(lambda policy: {}), ATTENTION))
    summary = Summary(target.name, "random", 3)
    run_random(target, Plan(3, None, 5_000, attention=ATTENTION, oracles=("lockstep",)).possible_on(target), summary)
    assert summary.finding is None
    assert {name for name in SITUATIONS if not summary.reached[f"pools: {name}"]} == set()


class Undeviating(Faulty):
    """The rule itself with one wrong decision, without what the release does otherwise."""

    def start(self, shape):
        self._model = DeviatingModel(shape, (), lambda declared, note: self._fault.change(today.TODAY))
        built = self._model.construction
        return built, self._model.snapshot() if built == Done() else None


def shadowed(fault, operations=6_000):
    """A run that the shadow memory alone judges."""
    target = Undeviating(Fault(fault, ATTENTION))
    summary = Summary(target.name, "random", 0)
    plan = Plan(0, None, operations, attention=ATTENTION, oracles=("shadow",)).possible_on(target)
    run_random(target, plan, summary)
    return summary


class WrittenBackElsewhere(Pools):
    def shown(self):
        *rest, moves = cast(Any, super().shown())
        return *rest, tuple([((host % (self.host.num_blocks - 1)) + 1, *to) for host, *to in moves])


class NotRestored(Pools):
    def shown(self):
        *rest, moves = cast(Any, super().shown())
        return *rest, tuple([move for move in moves if not move[1]])


def named_at_once(core, name):
    """Blocks of the host get their names before the pages are there."""
    state = core.state
    of = state.pages[name]
    of.ready, kept = max(of.ready, (of.asked or 0) // core.rules[0].b), of.ready
    page_names.name_whole(core, name)
    of.ready = kept


READ_WRONG = {
    **{
        name: FAULTS[name]
        for name in (
            *("regions-of-a-block-less", "imports-never-whole", "readers-never-told", "pages-told-too-long"),
            *("pages-read-by-the-table", "moves-hold-nothing", "page-lost-in-one-group"),
        )
    },
    "written-back-elsewhere": kept_as(WrittenBackElsewhere),
    "not-restored": kept_as(NotRestored),
}


@pytest.mark.parametrize("name", READ_WRONG)
def test_the_shadow_memory_finds_what_is_read_wrong(name):
    assert shadowed(READ_WRONG[name]).finding.observable == "corruption"


def test_the_shadow_memory_finds_blocks_that_are_named_before_they_are_written(monkeypatch):
    monkeypatch.setattr(written_back, "name_whole", named_at_once)
    assert shadowed(pools(lambda policy: {})).finding.observable == "corruption"


def test_what_is_right_reads_what_was_written_from_both_pools():
    done = shadowed(pools(lambda policy: {}), 3_000)
    assert done.finding is None
    assert done.reached["shadow: pages copied"] >= 400
    assert done.reached["shadow: tokens read from the host"] >= 400


def test_the_contract_alone_is_not_asked_of_such_a_core():
    target = Faulty(Fault(pools(lambda policy: {}), ATTENTION))
    plan = Plan(3, None, 300, attention=(*ATTENTION, "full"), oracles=("contract",), keep_going=True)
    assert plan.possible_on(target).attention == ("full",)
    summary = Summary(target.name, "random", 3)
    run_random(target, plan, summary)
    assert set(summary.attention) == {"full"}
    assert summary.operations >= 300
