"""The rule that makes two described releases differ in a trace: seen from their models alone."""

from pathlib import Path

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.releases.changed_rules import changed_rules
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.ops import Allocate, Group, Shape, Submit

FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "between-deviations"
EAGLE = Shape((Group("full", 1),), 3, 2, 1, 1, 1, eagle=True)
TWO_SIZES = Shape((Group("full", 2), Group("full", 1)), 4, 2, 1, 2, 2)
NAMED = (Submit("a", (0, 0)), Allocate("a", 2))


def test_names_that_look_ahead_are_an_entry_of_the_policy():
    trace = Trace(EAGLE, (Submit("a", (0,)),))
    assert changed_rules("vllm==0.31.0", "vllm==0.33.0", trace) == ["ahead"]
    assert changed_rules("vllm==0.29.0", "vllm==0.31.0", trace) == []


@pytest.mark.parametrize(("name", "newer"), [("copy-counted-twice", "0.31.0"), ("windows-refuse-fine-hits", "0.29.0")])
def test_a_deviation_that_is_gone_is_named(name, newer):
    trace = read_trace(FOLDER / f"{name}.json").trace
    assert changed_rules("vllm==0.26.0", f"vllm=={newer}", trace) == [name]
    assert changed_rules(f"vllm=={newer}", "vllm==0.26.0", trace) == [name]


def test_nothing_is_named_where_they_agree_or_the_model_knows_only_one_of_them():
    trace = Trace(TWO_SIZES, NAMED)
    assert changed_rules("vllm==0.29.0", "vllm==0.29.0", trace) == []
    assert changed_rules("impl", "vllm==0.29.0", trace) == []
