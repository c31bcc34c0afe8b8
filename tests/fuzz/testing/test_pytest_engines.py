"""The tests of the pytest plugin that simulate an engine, and the stories that it replays."""

import shlex
import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main

from ..scheduler_mistakes import MISTAKES

pytest_plugins = ["pytester"]
EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"
ENGINE = "simulated.py:make_engine"
SEARCH = ("--blockproof-engine", "--blockproof-steps", "3000", "--blockproof-seed", "1")


@pytest.fixture
def engine(project):
    """The project with the example's scheduler in it; a function that plants one of its mistakes."""
    for name in ("simulated.py", "scheduler_engine.py", "offloading.py"):
        shutil.copy(EXAMPLE / name, project.path)

    def plant(name):
        project.change("scheduler_engine.py", MISTAKES[name].old, MISTAKES[name].new)

    return plant


def test_an_engine_without_mistakes_passes(project, engine):
    done = project.run(*SEARCH, "test_other.py", "-v", target=ENGINE)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines([f"blockproof: simulating {ENGINE}, seed 1", "blockproof::simulate PASSED*"])
    of_one = project.run(*SEARCH, "--blockproof-attention", "full", "--collect-only", "-q", target=ENGINE)
    of_one.stdout.fnmatch_lines(["blockproof::simulate[[]full[]]"])


def test_a_mistake_is_told_call_by_call_and_can_be_repeated(project, engine, monkeypatch):
    engine("freed-by-the-first")
    done = project.run(*SEARCH, "-k", "simulate", target=ENGINE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*_ simulating _*",
            "memory: *",
            "start: *",
            "add *",
            "schedule: step 1",
            f"repeat it: blockproof replay findings/simulated_*.json --target {ENGINE}",
            "story: findings/simulated_new-memory_*.json",
            f"repeat the search: blockproof simulate --target {ENGINE} --seed 1 --steps 3000",
        ]
    )
    monkeypatch.chdir(project.path)
    # Where CI is set, pytest's summary says the whole message a second time.
    (again,) = {line.removeprefix("repeat it: ") for line in done.outlines if line.startswith("repeat it: ")}
    assert main(shlex.split(again)[1:]) == 1
    # What was found is a test from now on: it fails until the engine is mended.
    replay = ("--blockproof-engine", "--blockproof-traces", "findings", "findings")
    project.run(*replay, target=ENGINE).assert_outcomes(failed=1)
    shutil.copy(EXAMPLE / "scheduler_engine.py", project.path)
    project.run(*replay, target=ENGINE).assert_outcomes(passed=1)
    alone = project.run(*replay[1:], target=None)
    alone.assert_outcomes(errors=1)
    alone.stdout.fnmatch_lines(["*is somebody's code; if you trust it, name it as the engine*"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--blockproof-steps", "9"), "--blockproof-steps: of an engine; add --blockproof-engine, or write *-seconds"),
        ((*SEARCH, "--blockproof-oracle", "shadow"), "--blockproof-oracle: not with *-engine: *leave it out"),
        (("--blockproof-engine", "--blockproof-steps", "x"), "--blockproof-steps: 'x' is no number of steps"),
    ],
)
def test_a_wrong_combination_says_what_to_do_instead(project, engine, words, said):
    project.run(*words, target=ENGINE).stderr.fnmatch_lines([f"ERROR: {said}"])


def test_what_is_no_engine_and_what_is_no_target_say_so(project, engine):
    done = project.run(*SEARCH, "-k", "simulate", target="my_target:make_target")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["tests nothing: *without 'add'; it is a target: blockproof fuzz --target *"])
    swapped = project.run("--blockproof-seconds", "1", target=ENGINE)
    swapped.stderr.fnmatch_lines(["ERROR: *it is an engine: blockproof simulate --target *; *--engine"])
    trace = project.run("--blockproof-engine", "--blockproof-traces", "regressions", target=ENGINE)
    trace.stdout.fnmatch_lines(["*is the trace of a target; replay it without --blockproof-engine*"])
