"""Runs led by coverage: they are repeatable, go back to where something was reached, and find what is planted."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("scipy")

from blockproof.fuzz.detection.settings import SETTINGS
from blockproof.fuzz.detection.trials import Task, run_trial
from blockproof.fuzz.engines.choice import ENGINES
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.open_run import open_run

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
guided = import_module("coverage_guided")
STATES = guided.Leading((guided.States,))


def led(seed, leading=STATES):
    """An engine of which each run can be asked for."""
    plan = Plan(seed, attention=("full", "full+sliding"))
    return guided.Led(open_run(open_target("impl"), plan.judging()), plan, Summary("impl", "led", seed), leading)


def traces_of(seed, runs=12):
    engine = led(seed)
    made = []
    for _ in range(runs):
        engine.one_run()
        made.append(engine.run.trace)
    return made


def test_the_same_seed_makes_the_same_runs():
    assert traces_of(3) == traces_of(3)
    assert traces_of(3) != traces_of(4)


def test_what_was_reached_is_reached_again_by_the_same_choices():
    engine = led(5)
    for _ in range(30):
        engine.one_run()
    marks = engine.corpus.first
    assert len(marks) > 500
    assert {one.attention for one, _ in marks.values()} == {"full", "full+sliding"}
    for mark, (one, step) in [*marks.items()][::150]:
        again = led(6)
        assert again.drive(guided.go_on(Random(1), one, step, 200)) is None
        assert again.corpus.first[mark][1] <= step


@pytest.mark.parametrize("move", ["same_core", "vary"])
def test_other_runs_keep_the_core(move):
    engine = led(7)
    engine.one_run()
    shape, operations = engine.run.shape, engine.run.operations
    one, step = engine.corpus.rare()
    changed = 0
    for number in range(20):
        assert engine.drive(getattr(guided, move)(Random(number), one, step, 200)) is None
        assert engine.run.shape == shape
        changed += engine.run.operations != operations
    assert changed > 4


def test_the_rarest_leads_and_what_was_tried_often_does_not():
    corpus = guided.Corpus(Random(2))
    often, seldom = guided.Input("full", [0.1], [0]), guided.Input("full", [0.2], [0])
    for _ in range(9):
        corpus.add(often, {("often",): 7})
    corpus.add(seldom, {("often",): 3, ("seldom",): 5})
    assert corpus.first[("often",)] == (seldom, 3)
    led_to = [corpus.rare()[1] for _ in range(12)]
    assert led_to[:6] == [5] * 6
    assert 3 in led_to


@pytest.fixture
def settings() -> Iterator[None]:
    """The settings of the script, for one test."""
    engines, known = dict(ENGINES), dict(SETTINGS)
    guided.add_settings()
    yield
    ENGINES.clear()
    ENGINES.update(engines)
    SETTINGS.clear()
    SETTINGS.update(known)


@pytest.mark.parametrize("name", ["led-states", "led-late"])
def test_a_planted_fault_is_found_after_as_many_operations_each_time(name, settings):
    first, again = (run_trial(Task("skipped-off-by-one", 1, name, operations=6000)) for _ in range(2))
    assert first.found
    assert first.operations == again.operations


def test_edges_are_those_of_model_and_core_and_lead_to_the_fault_as_well():
    words = [
        sys.executable,
        "benchmarks/coverage_guided.py",
        "--setting",
        "led-both",
        "--only",
        "eviction-does-nothing",
    ]
    words += ["--seeds", "1", "--operations", "4000"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1 of 1" in done.stdout
