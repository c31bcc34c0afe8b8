"""The tables that say which function plays which role."""

import random
from collections import Counter

import pytest
from blockproof.proofs import roles
from blockproof.proofs.theorem import UnavailableError
from blockproof.proofs.theorems import THEOREMS


@pytest.mark.parametrize("table", ["MODEL", "API"])
def test_each_role_is_bound_in_one_place(table):
    bound = Counter(role for family in roles.FAMILIES for role in getattr(family, table, {}))
    assert [role for role, times in bound.items() if times > 1] == []
    assert len(bound) > 50


def test_a_role_that_a_core_cannot_play_is_unavailable():
    for subject in (roles.model(), roles.impl()):
        with pytest.raises(UnavailableError, match="role no-such-role"):
            subject.find("no-such-role")


SIZES = {18, 19, 20}
"""Numbers of theorems about bytes and groups of layers, which `fuzz-config` and tests/fuzz/configuration ask about."""


def test_theorems_have_distinct_ids_and_every_number_from_1_to_26_has_one():
    ids = [theorem.id for theorem in THEOREMS]
    assert len(ids) == len(set(ids))
    assert {theorem.number[0] for theorem in THEOREMS if theorem.id.startswith("T")} == {*range(1, 27)} - SIZES
    assert ids == [theorem.id for theorem in sorted(THEOREMS, key=lambda theorem: theorem.number)]


@pytest.mark.parametrize("subject", ["model", "impl"])
def test_usage_in_floating_point_stays_within_bounds(subject):
    usage = roles.subject(subject).find("usage")
    chance = random.Random(24)
    pools = [1, 2, 3, 4, 50, 2**31, 2**53 - 1, *(chance.randrange(1, 10**9) for _ in range(300))]
    for blocks in pools:
        usable = blocks - 1
        for free in {0, usable // 3, usable // 2, max(usable - 1, 0), usable, chance.randint(0, usable)}:
            value = usage(free, blocks)
            assert 0 <= value <= 1
            assert (value == 0) == (free == usable)
            assert usable == 0 or (value == 1) == (free == 0)
