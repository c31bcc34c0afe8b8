"""What another release makes of the traces of deviations: the verdicts, on cores whose answers are known.

The model with the deviations of vLLM 0.23.0 stands for that release, and for the others that are asked.
"""

import re
from functools import partial
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.known_deviations import declared_for, model_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases.deviations import (
    ALIKE,
    KEPT,
    NOT_TAKEN,
    OTHERS,
    OTHERWISE,
    SAME,
    look_elsewhere,
    page_elsewhere,
)
from blockproof.fuzz.targets.rule import Rule
from blockproof.model.core import Model
from blockproof.model.ops import Done, Lookup

RELEASE = "vllm==0.23.0"
DEVIATING = partial(model_for, RELEASE)
REFERENCE = Rule(DEVIATING, RELEASE)
DECLARED = [one for one in declared_for(RELEASE) if not one.chaos_only]
"""All but misuse, which replaces nothing in the model."""


class AlwaysHits(Rule):
    """Says of every lookup that it found two tokens."""

    def step(self, operation):
        """As the model's, but for a lookup."""
        outcome, snapshot = super().step(operation)
        return (Done((2, ((0, 0),))) if isinstance(operation, Lookup) else outcome), snapshot


class Less(Rule):
    """Has not all operations."""

    lacks = frozenset({"CommonPrefix"})


def verdicts(other, declared=DECLARED):
    return {one.id: one.verdict for one in look_elsewhere(declared, Path(KEPT), REFERENCE, other)}


def test_our_core_does_in_every_trace_what_the_rule_says():
    found = look_elsewhere(DECLARED, Path(KEPT), REFERENCE, open_target("impl"))
    assert {one.verdict for one in found} == {SAME}
    assert {one.corrupts for one in found} == {None, False}


def test_a_core_with_all_deviations_is_the_reference_again():
    found = look_elsewhere(DECLARED, Path(KEPT), REFERENCE, Rule(DEVIATING, "another"))
    assert {one.verdict for one in found} == {ALIKE}
    assert {one.corrupts for one in found} == {None, True}


@pytest.mark.parametrize("name", ["hit-not-cut", "eagle-last-block", "overlapping-items"])
def test_one_deviation_that_a_core_has_not(name):
    mended = partial(model_for, RELEASE, without=(name,))
    assert verdicts(Rule(mended, "mended"))[name] in {SAME, OTHERS}


def test_an_operation_that_a_core_has_not_shows_nothing():
    other = Less(Model, "less")
    (one,) = look_elsewhere(
        [one for one in DECLARED if one.id == "common-prefix-unknown"], Path(KEPT), REFERENCE, other
    )
    assert one.verdict == NOT_TAKEN
    assert one.text() == f"{NOT_TAKEN}: there is no equivalent of CommonPrefix"


def test_another_difference_is_told_with_its_place():
    declared = [one for one in DECLARED if one.id == "window-of-one"]
    (one,) = look_elsewhere(declared, Path(KEPT), REFERENCE, AlwaysHits(Model, "eager"))
    assert one.verdict == OTHERWISE
    assert "at Lookup (operation" in one.text()


def test_another_release_needs_the_traces(capsys):
    assert main(["deviations", "--also", "vllm==0.33.0"]) == 2
    assert "add --check DIR" in capsys.readouterr().err


def test_the_kept_page_has_a_row_for_each_deviation():
    kept = Path(f"{KEPT}-0.33.0.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[([\w-]+)\]", kept, re.MULTILINE) == [one.id for one in declared_for(RELEASE)]


def test_the_page_has_a_row_for_each():
    found = look_elsewhere(DECLARED[:2], Path(KEPT), REFERENCE, Rule(DEVIATING, "another"))
    written = page_elsewhere(found, RELEASE, "another", "a command")
    assert written.startswith(f"# What another makes of the deviations of {RELEASE}\n")
    name = DECLARED[0].id
    assert f"| [{name}](deviations.md#{name}) | [trace](deviations/{name}.json) | {ALIKE} |" in written
