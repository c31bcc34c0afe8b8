"""The formula that readers see is generated from the claim that is settled."""

import re
from dataclasses import replace

import pytest
from blockproof.proofs.theorem import Theorem
from blockproof.proofs.theorems import BY_ID, THEOREMS

SYMBOLIC = [theorem for theorem in THEOREMS if isinstance(theorem, Theorem)]
IN_WORDS = {"S1.short", "T8.folded", "T8.runs", "T14", "T16.first", "T25.order"}
"""Tried on every case of a scope: no formula is settled."""
SOURCE_WIDTH, INDENT = 120, 4


@pytest.mark.parametrize("theorem", SYMBOLIC, ids=lambda theorem: theorem.id)
def test_what_is_stated_speaks_of_the_theorems_own_variables(theorem):
    text = theorem.stated
    assume, _, rest = text.partition("\nclaim\n")
    assert assume.startswith("assume\n    ")
    assert rest.strip()
    named = set(re.findall(r"\bv\.(\w+)", text))
    assert named & set(theorem.variables) or not named


def test_all_others_are_told_in_words():
    assert {theorem.id for theorem in THEOREMS if not theorem.stated} <= IN_WORDS


def test_another_claim_is_stated_otherwise():
    theorem = BY_ID["T4"]
    assert isinstance(theorem, Theorem)
    other = replace(theorem, claim=lambda f, v: f.cap_sliding(v.w, v.b, v.batched, v.max_len) >= v.c)
    assert other.stated != theorem.stated
    assert "f.cap_sliding(v.w, v.b, v.batched, v.max_len) >= v.c" in other.stated
    assert "cdiv" in theorem.stated  # of a function that the claim calls


def test_values_that_a_claim_was_made_with_are_told():
    def made(limit):
        return lambda f, v: v.c <= limit

    theorem = BY_ID["T4"]
    assert isinstance(theorem, Theorem)
    assert "where limit = 3" in replace(theorem, claim=made(3)).stated


def test_what_is_stated_is_the_same_in_every_run_and_says_what_functions_were_made_with():
    assert [theorem.id for theorem in THEOREMS if re.search(r" at 0x|<function|<class", theorem.stated)] == []
    assert "where unit = 'm'" in BY_ID["T10"].stated
    assert "where unit = 's'" in BY_ID["T10.sparse"].stated
    assert "reads=lambda f, v, q, t: f.attends_mamba(q, t)" in " ".join(BY_ID["T10.mamba"].stated.split())


def test_lines_that_are_stated_are_not_longer_than_those_of_the_sources():
    for theorem in THEOREMS:
        assert max([0, *map(len, theorem.stated.splitlines())]) <= SOURCE_WIDTH + INDENT, theorem.id
        assert '"""' not in theorem.stated
