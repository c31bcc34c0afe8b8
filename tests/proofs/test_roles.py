"""The tables that say which function plays which role."""

from collections import Counter

import pytest
from blockproof.proofs import roles
from blockproof.proofs.theorem import UnavailableError
from blockproof.proofs.theorems import THEOREMS


@pytest.mark.parametrize("table", ["MODEL", "API"])
def test_each_role_is_bound_in_one_place(table):
    bound = Counter(role for family in roles._FAMILIES for role in getattr(family, table, {}))
    assert [role for role, times in bound.items() if times > 1] == []
    assert len(bound) > 50


def test_a_role_that_a_core_cannot_play_is_unavailable():
    for subject in (roles.model(), roles.impl()):
        with pytest.raises(UnavailableError, match="role no-such-role"):
            subject.find("no-such-role")


def test_theorems_have_distinct_ids_and_every_number_from_1_to_26_has_one():
    ids = [theorem.id for theorem in THEOREMS]
    assert len(ids) == len(set(ids))
    assert {theorem.number[0] for theorem in THEOREMS if theorem.id.startswith("T")} == set(range(1, 27))
    assert ids == [theorem.id for theorem in sorted(THEOREMS, key=lambda theorem: theorem.number)]
