"""Theorems over the functions by which our core of today replaces those of the older one."""

import re

import pytest
from blockproof.proofs import expectations, roles
from blockproof.proofs.campaign import Result
from blockproof.proofs.judgement import problems
from blockproof.proofs.theorems import BY_ID

DECLARED = expectations.read(["impl-today"])
OTHER_RULE = ("T3.nulled.mamba", "T22.cover", "T22.coarse", "T22.coarse.mixed", "T22.coarse.step")
"""What is about a rule of the older core."""
LACKING = "no function of the API|our core has no round_|a queue of batches has no loop along links"
"""What our older core lacks as well."""


def test_everything_is_settled_and_nothing_refuted():
    declared = DECLARED["impl-today"]
    assert declared.keys() == BY_ID.keys()
    silent = {name for name, expected in declared.items() if expected.outcome == "unavailable"}
    assert {name for name in silent if not re.match(LACKING, declared[name].reason)} == set(OTHER_RULE)
    older = expectations.read(["impl"])["impl"]
    for name in declared.keys() - silent:
        assert declared[name].outcome in ("proved", expectations.BOUNDED, older[name].outcome), name
        assert declared[name].outcome != "refuted", name
    assert sum(any(".impl.today." in function for function in one.ran) for one in declared.values()) > 50


@pytest.mark.parametrize("name", OTHER_RULE)
def test_what_is_of_the_older_rule_says_which_theorem_is_of_this_one(name):
    """A rule of each core, and none of it without a theorem."""
    verdict = BY_ID[name].settle(roles.subject("impl-today"))
    assert problems([Result(verdict)], DECLARED) == []
    own = DECLARED["impl-today"][verdict.message.rpartition(": ")[2]]
    assert own.outcome in ("proved", expectations.BOUNDED)
    assert verdict.message.rpartition(": ")[2] != name


@pytest.mark.parametrize(
    "name",
    [
        "T3.nulled.open",
        "T3.settled",
        "T7.align",
        "T7.fits",
        "T7.missing",
        "T10.registers",
        "T13",
        "T22.last",
        "S4.reset",
    ],
)
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


def test_states_that_stay_for_drafts_are_refuted(monkeypatch):
    """By the rule of today nothing stays for them: tokens whose outcome is open are not among those that count."""
    from blockproof.impl.today.states import MambaToday

    right = MambaToday.remove_skipped_blocks

    def held_back(self, request_id, total_computed_tokens):
        right(self, request_id, max(0, total_computed_tokens - self.num_speculative_blocks))

    monkeypatch.setattr(MambaToday, "remove_skipped_blocks", held_back)
    assert BY_ID["T3.nulled.open"].settle(roles.subject("impl-today"), with_controls=False).status == "refuted"


def test_a_wrong_way_that_is_gone_only_where_blocks_are_short_is_not_proved(monkeypatch):
    """Both ways of a core that asks how many are free are gone; on plain numbers there are plenty."""
    from blockproof.impl.managers.mamba import MambaManager

    right = MambaManager.allocate_new_blocks

    def one_more(self, *given, **named):
        self.block_pool.get_new_block()
        return right(self, *given, **named)

    monkeypatch.setattr(MambaManager, "allocate_new_blocks", one_more)
    assert BY_ID["T7.align"].settle(roles.subject("impl-today"), with_controls=False).status != "proved"
