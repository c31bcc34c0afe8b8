"""Shapes for targets that have not all that a shape can ask for."""

from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.runs.open_run import drawn_shape
from blockproof.fuzz.workload.draw import SeededDraw


def drawn(lacks, about=""):
    run: Any = SimpleNamespace(lacks=frozenset(lacks), block_sizes=())
    return [drawn_shape(run, SeededDraw(f"shapes/{i}"), "full+mamba", about=about) for i in range(400)]


def test_states_that_a_target_does_not_cache_are_drawn_without_a_cache():
    shapes = drawn({"Group.mamba_mode"})
    in_place = [shape for shape in shapes if any(x.kind == "mamba" and x.mamba_mode != "align" for x in shape.groups)]
    assert not [shape for shape in in_place if shape.caching]
    assert len(in_place) > 40  # without a draw of its own there are 19
    assert len([shape for shape in shapes if shape.caching]) > 280


@pytest.mark.parametrize("about", ["steps", "rounds"])
def test_runs_about_what_a_cache_does_have_one(about):
    assert all(shape.caching for shape in drawn({"Group.mamba_mode"}, about))
