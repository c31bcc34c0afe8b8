"""The formula that readers see is generated from the claim that is settled."""

import re
from dataclasses import replace

import pytest
from blockproof.proofs.theorem import Theorem
from blockproof.proofs.theorems import BY_ID, THEOREMS

SYMBOLIC = [theorem for theorem in THEOREMS if isinstance(theorem, Theorem)]
IN_WORDS = {"T14", "T25.order"}
"""Tried on every case of a scope: no formula is settled."""


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
