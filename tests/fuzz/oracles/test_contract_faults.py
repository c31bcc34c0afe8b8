"""Who checks the contract? Each property reports the mistake that was planted for it, before any other does."""

import pytest
from blockproof.fuzz.faults import MADE_UP
from blockproof.fuzz.findings.oracle_names import CONTRACT
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.contract import PROPERTIES, Contract
from blockproof.fuzz.runs.scheduler_view import SchedulerView
from blockproof.model.legal import allows

from .contract_stories import STORIES


def verdicts(target, shape, operations, hides=()):
    """What the contract says after each operation, up to the first violation."""
    _, before = target.start(shape)
    view, contract = SchedulerView(shape), Contract(shape, hides)
    view.start(before)
    contract.start(before)
    said = []
    for operation in operations:
        assert allows(view, operation), operation
        outcome, after = target.step(operation)
        view.follow(operation, outcome, after)
        said.append(contract.step(operation, outcome, before, after, view))
        if said[-1] is not None:
            break
        before = after
    return said


@pytest.mark.each_is_measured
@pytest.mark.parametrize("name", STORIES)
def test_a_planted_mistake_is_reported_by_its_property_at_the_end_of_its_story(name):
    story = STORIES[name]
    *quiet, last = verdicts(open_target(f"fault:{name}"), story.shape, story.operations)
    assert len(quiet) + 1 == len(story.operations), last
    assert quiet == [None] * len(quiet)
    assert last is not None
    assert last.id == story.property, last
    assert any(character.isdigit() for character in last.what), "the operands are missing"


@pytest.mark.parametrize("name", STORIES)
def test_the_clean_core_keeps_to_the_contract_in_every_story(name):
    story = STORIES[name]
    assert verdicts(open_target("impl"), story.shape, story.operations) == [None] * len(story.operations)


@pytest.mark.parametrize("property", PROPERTIES)
def test_every_property_has_a_mistake_of_its_own(property):
    assert property in {story.property for story in STORIES.values()}


def test_every_mistake_that_the_contract_must_find_has_a_story_that_ends_in_its_property():
    meant = {name: fault.observables for name, fault in MADE_UP.items() if fault.oracles == (CONTRACT,)}
    assert meant
    assert meant == {name: (STORIES[name].property,) for name in meant}
