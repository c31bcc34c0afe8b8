"""S10 and S11, mistake by mistake: what a core tells of registered blocks is changed on its way, and it is noticed."""

import pytest
from blockproof.fuzz.opening.targets import open_target
from blockproof.model.ops import Allocate, Done, Evict, Free, Group, Reset, Submit, TakeEvents

from ..runs.test_model_free import Changed
from .contract_stories import _shape, computed
from .test_contract_faults import verdicts

SHAPE = _shape(Group("full", 2), events=True)
TAKING = Allocate("b", 1)
STORED, AGAIN = computed("a", 0, 1, 2, 3, 4), computed("b", 0, 1, 9)
STORY = (*STORED, TakeEvents(), *AGAIN, Free("a"), Free("b"), Evict((1,)), TakeEvents(), Reset(), TakeEvents())


def said(change, operations=STORY):
    """What is said of a core whose events are changed, by property and text; None if nothing is."""

    def told(operation, outcome, shown):
        if isinstance(operation, TakeEvents):
            outcome = Done(tuple(change(event) for event in outcome.value if change(event)))
        return outcome, shown and shown._replace(events=tuple(change(event) for event in shown.events if change(event)))

    *_, last = verdicts(Changed(told), SHAPE, operations)
    return last and (last.id, last.what)


def of_kind(kind, change):
    return lambda event: change(event) if event[0] == kind else event


def at(place, value):
    return lambda event: (*event[:place], value, *event[place + 1 :])


def test_what_our_core_tells_is_right_and_of_all_kinds():
    kinds = set()

    def note(event):
        kinds.add(event[0])
        return event

    assert said(note) is None
    assert kinds == {"stored", "removed", "cleared"}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (of_kind("stored", lambda event: None), "group 0: no event tells that a block was registered with label 0"),
        (of_kind("stored", at(7, 5)), "says group 5, blocks of 2 tokens; groups: [2]"),
        (of_kind("stored", at(4, 3)), "says group 0, blocks of 3 tokens; groups: [2]"),
        (of_kind("stored", lambda event: at(1, (*event[1], "more"))(event)), "stores more, but no more blocks were"),
        (
            of_kind("stored", lambda event: at(1, ("one",) * len(event[1]))(event)),
            "calls label 1 one, as it has called",
        ),
        (of_kind("removed", at(1, ("nobody",))), "removes nobody, which is not in the mirror"),
        (of_kind("cleared", lambda event: None), "blocks by label {}, in the mirror {"),
    ],
)
def test_a_wrong_event_is_told(change, part):
    id, what = said(change)
    assert id == "S11"
    assert part in what


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda drained: Done(drained[:-1]), "were pending"),
        (lambda drained: Done(7), "7 were handed out"),
        (lambda drained: Done((*drained[:-1], at(4, 9)(drained[-1]))), "was handed out as"),
        (lambda drained: Done((*drained[:-1], "event")), "was handed out as event"),
    ],
)
def test_events_are_handed_out_as_they_were_pending(spoil, part):
    core = Changed(lambda op, outcome, shown: (spoil(outcome.value) if op == TakeEvents() else outcome, shown))
    *_, last = verdicts(core, SHAPE, (*STORED, TakeEvents()))
    assert last.id == "S11"
    assert part in last.what


def test_pending_events_stay_as_they_are():
    def change(operation, outcome, shown):
        return outcome, shown._replace(events=shown.events[:0]) if operation == Free("a") else shown

    *_, last = verdicts(Changed(change), SHAPE, (*STORED, Free("a")))
    assert last.id == "S11"
    assert "pending events changed" in last.what


@pytest.mark.parametrize(
    ("operation", "labels", "part"),
    [
        (Free("a"), {1: None}, "block 1, registered with label 0, lost its identity by Free"),
        (Free("a"), {1: 7}, "block 1, registered with label 0, lost its identity by Free"),
        (Free("a"), {3: 0}, "block 3 is registered with label 0 before its tokens are in it"),
        (Evict((1,)), {1: 0}, "Evict leaves blocks [1] registered"),
    ],
)
def test_identities_come_with_content_and_go_with_reuse_and_eviction(operation, labels, part):
    def change(applied, outcome, shown):
        if applied == operation:
            shown = shown._replace(labels=[labels.get(block, label) for block, label in enumerate(shown.labels)])
        return outcome, shown

    shape = _shape(Group("full", 2))
    *_, last = verdicts(Changed(change), shape, (*STORED, operation))
    assert last.id == "S10"
    assert part in last.what
    assert verdicts(open_target("impl"), shape, (*STORED, operation))[-1] is None


def test_a_block_that_is_handed_out_has_no_old_identity():
    before = []

    def change(operation, outcome, shown):
        if operation == TAKING:
            shown = shown._replace(labels=before)
        before[:] = shown.labels
        return outcome, shown

    shape = _shape(Group("full", 2), num_blocks=3)
    *quiet, last = verdicts(Changed(change), shape, (*computed("a", 0, 1, 2, 3), Free("a"), Submit("b", (9,)), TAKING))
    assert quiet == [None] * 5
    assert last.id == "S10"
    assert "was handed out and keeps its old identity" in last.what
