"""Findings in small engines keep what they promise; the check of that notices broken promises."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.traces.trace_file import read_trace, write_trace
from blockproof.model.ops import Group

from ..faulty_engines import MINE
from ..promises import broken_by, left_by, passing_of

NAMES = [plant.__name__ for plant in MINE]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """The targets are named as seen from this folder."""
    monkeypatch.chdir(Path(__file__).parents[1])


def kept_by(names, seeds, folder, seconds=3):
    """The findings of these mistakes; a file and a module name the targets in turn. What is broken is an error."""
    left = []
    for number, (name, seed) in enumerate((name, seed) for seed in seeds for name in names):
        form = "faulty_engines" if number % 2 else "faulty_engines.py"
        found = left_by(f"{form}:make_{name}", seed, folder / name / str(seed), seconds)
        assert found is not None, name
        left.append(found)
    assert [problem for found in left for problem in broken_by(found)] == []
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    assert passing_of([found.shrunk.parent for found in left], elsewhere) == (2 * len(left), [])
    return left


@pytest.mark.slow
def test_findings_replay_are_shown_and_fail_from_any_folder(tmp_path):
    left = kept_by(NAMES[::2], [0], tmp_path)
    assert len(left) == 7


@pytest.mark.slow
def test_more_findings_do(tmp_path):
    assert len(kept_by(NAMES, [1, 2, 3], tmp_path, seconds=0.5)) == 39


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What a wrong hit has left."""
    folder = Path.cwd()
    os.chdir(Path(__file__).parents[1])
    try:
        return left_by("faulty_engines.py:make_whole_prompt_hit", 0, tmp_path_factory.mktemp("left"), seconds=3)
    finally:
        os.chdir(folder)


def altered(left, change):
    """The same, with the shrunk trace file changed."""
    path = left.shrunk.with_name("altered.json")
    write_trace(change(read_trace(left.shrunk)), path)
    return replace(left, shrunk=path)


def test_a_trace_that_shows_nothing_is_noticed(left):
    cut = altered(left, lambda file: replace(file, trace=replace(file.trace, operations=())))
    assert any("replay ended with 0" in problem for problem in broken_by(cut))


def test_another_cause_is_noticed(left):
    other = altered(left, lambda file: replace(file, finding=_with_identity(file.finding, ("contract", "S1", "Free"))))
    problems = "\n".join(broken_by(other))
    assert "replay shows ['contract', 'S7', 'Lookup']" in problems
    assert "shrunk from (('contract', 'S7', 'Lookup'), ('another length', '', 'value', 'value'))" in problems
    assert "to (('contract', 'S1', 'Free'), ())" in problems


def _with_identity(finding, identity):
    return type(finding)(finding.observable, finding.operation, finding.text, identity)


def test_a_shape_without_a_core_is_noticed(left):
    def halve(file):
        shape = replace(file.trace.shape, groups=(Group("full", 2),), hash_block_size=1, scheduler_block_size=2)
        return replace(file, trace=replace(file.trace, shape=shape))

    assert any("the model has no core of the shape" in problem for problem in broken_by(altered(left, halve)))


def test_a_shape_that_is_not_declared_is_noticed(left):
    def two_ranks(file):
        return replace(file, trace=replace(file.trace, shape=replace(file.trace.shape, eagle=True)))

    assert any("none that the target declares" in problem for problem in broken_by(altered(left, two_ranks)))


def test_a_test_that_passes_or_breaks_is_noticed(tmp_path):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "test_one.py").write_text("def test_passes():\n    pass\n\n\ndef test_breaks():\n    missing()\n")
    number, wrong = passing_of([folder], elsewhere)
    assert number == 2
    assert [line.partition(": ")[2].partition(" ")[0] for line in wrong] == ["did", "NameError:"]
