"""Theorems over the functions by which our core of today replaces those of the older one."""

import pytest
from blockproof.proofs import expectations, roles
from blockproof.proofs.campaign import Result
from blockproof.proofs.judgement import problems
from blockproof.proofs.theorems import BY_ID

DECLARED = expectations.read(["impl-today"])


def test_what_is_declared_is_proved_of_functions_of_its_own():
    declared = DECLARED["impl-today"]
    assert len(declared) > 20
    for name, expected in declared.items():
        assert expected.outcome in ("proved", expectations.BOUNDED), name
        assert any(".impl.today." in function for function in expected.ran), name


@pytest.mark.parametrize("name", ["T3.settled", "T7.fits", "T7.missing", "T13"])
def test_they_come_to_what_is_declared_and_refute_their_wrong_variants(name):
    verdict = BY_ID[name].settle(roles.subject("impl-today"))
    assert problems([Result(verdict)], DECLARED) == []
    assert set(verdict.controls.values()) == {"refuted"}


def test_a_wrong_prediction_of_today_is_refuted(monkeypatch):
    """That of the older rule knows nothing of copies; one that forgets a block takes more than it says."""
    from blockproof.impl.today.managers import ByNames

    right = ByNames.get_num_blocks_to_allocate

    def one_less(self, *given, **named):
        return right(self, *given, **named) - 1

    monkeypatch.setattr(ByNames, "get_num_blocks_to_allocate", one_less)
    assert BY_ID["T7.missing"].settle(roles.subject("impl-today"), with_controls=False).status == "refuted"
