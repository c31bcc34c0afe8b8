"""Checks of the contract that a fault planted into our core does not show alone: each is told a wrong answer."""

import pytest
from blockproof.fuzz.opening.targets import open_target
from blockproof.model.ops import Advance, Allocate, Done, Free, Group, Lookup, Submit

from ..adapters.test_deviations import Release
from .contract_stories import computed
from .test_contract import ZEROS, Story, shape

FULL = shape(Group("full", 2))


class Changed:
    """Our core, whose lookups answer with other rows."""

    name = "changed"

    def __init__(self, rows):
        self._core, self._rows = open_target("impl"), rows
        self.start = self._core.start

    def step(self, operation):
        outcome, snapshot = self._core.step(operation)
        match operation, outcome:
            case Lookup(), Done((tokens, rows)):
                return Done((tokens, self._rows(rows))), snapshot
        return outcome, snapshot


FOUND = (*computed("a", *ZEROS[:4]), Submit("b", ZEROS[:6]), Lookup("b"))


@pytest.mark.parametrize(
    "rows",
    [
        lambda rows: ((*rows[0], rows[0][-1]),),
        lambda rows: (rows[0][:-1],),
        lambda rows: (),
    ],
)
def test_a_hit_has_exactly_the_blocks_of_its_tokens_in_every_group(rows):
    *quiet, last = Story(Changed(rows), FULL).tell(*FOUND)
    assert quiet == [None] * len(quiet)
    assert last is not None
    assert last.id == "S7"
    assert Story(Changed(lambda rows: rows), FULL).tell(*FOUND) == [None] * len(FOUND)


@pytest.mark.parametrize("tokens", [2, 4])
def test_a_replay_hits_up_to_its_boundary_whatever_was_allocated_meanwhile_where_labels_are_shown(tokens):
    in_shape = shape(Group("sliding", 1, window=2), retention_interval=0)
    between = (Submit("c", (5,)), Allocate("c", 1))
    operations = (*computed("a", *ZEROS[:tokens]), *between, Submit("b", ZEROS[:tokens]), Lookup("b"))
    assert Story(open_target("impl"), in_shape).tell(*operations) == [None] * len(operations)
    *quiet, last = Story(open_target("fault:replay-boundary-lost"), in_shape).tell(*operations)
    assert quiet == [None] * len(quiet)
    assert last is not None
    assert last.id == "S14"


def test_where_labels_are_not_shown_a_replay_after_an_allocation_is_asked_for_nothing():
    """Any allocation may have evicted what the prompt needs."""
    in_shape = shape(Group("full", 1), num_blocks=4)
    operations = (
        *(*computed("a", 0, 0, 0), Free("a")),
        *(*computed("c", 5, 6, 7), Free("c")),
        *(Submit("b", (0, 0, 0)), Lookup("b")),
    )
    hides = frozenset({"labels", "earliest"})
    assert Story(open_target("impl"), in_shape, hides).tell(*operations) == [None] * len(operations)


def test_a_state_of_a_request_without_drafts_is_looked_for():
    in_shape = shape(Group("mamba", 1, mamba_mode="all"))
    operations = (Submit("a", (0, 1, 2)), Allocate("a", 2), Advance("a"), Allocate("a", 1))
    assert Story(open_target("impl"), in_shape).tell(*operations) == [None] * len(operations)
    said = Story(open_target("fault:skipped-off-by-one"), in_shape).tell(*operations)
    assert "S6" in [violation.id for violation in said if violation]


def test_a_chunk_that_begins_inside_a_block_is_lost_for_who_goes_on_behind_the_hit_as_well():
    in_shape = shape(Group("chunked", 2, chunk=5))
    story = Story(Release(), in_shape, losses={"chunk-astride-block"})
    known = "contract: known loss chunk-astride-block"
    assert story.tell(Submit("a", (*ZEROS, 0)), Lookup("a")) == [None] * 2
    looked_up = story.contract.reached[known]
    assert story.step(Allocate("a", 1, hit=True)) is None
    assert story.contract.reached[known] > looked_up > 0
