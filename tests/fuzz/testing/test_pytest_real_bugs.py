"""`pytest --blockproof-traces real-bugs`: the traces that come with blockproof, on anybody's core."""

import pytest
from blockproof.fuzz.faults import CATALOGUED

pytest_plugins = ["pytester"]
REAL = ("--blockproof-traces", "real-bugs")
CORE_AND_ARITHMETIC = """
from blockproof.fuzz.opening.targets import open_calculator, open_target

def make():
    target = open_target("impl")
    target.ask = open_calculator("fault:hash-of-the-common-multiple").ask
    return target
"""
A_FEW = "V13 or V42 or V47"


def test_our_core_has_none_of_them(project):
    done = project.run(*REAL, target="impl")
    done.assert_outcomes(passed=len(CATALOGUED) + 1)  # and the test that is there anyway


def test_a_core_that_has_one_fails_its_trace(project):
    done = project.run(*REAL, "-k", A_FEW, target="fault:claimed-hit-reset")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["FAILED *V13-claimed-hit-reset.json::replay - Failed: lockstep: *"])


def test_an_arithmetic_that_has_one_fails_its_question(project):
    (project.path / "both.py").write_text(CORE_AND_ARITHMETIC, encoding="utf-8")
    done = project.run(*REAL, "-k", "V42", target="both:make")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*resolve_block_sizes*"])


def test_what_another_core_cannot_show_is_skipped(project):
    """The engine of the example has one group of full attention, no model describes it, and it answers no questions."""
    done = project.run(*REAL, "-k", A_FEW)
    outcomes = done.parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped", "deselected"}
    assert outcomes["skipped"] >= 2
    assert outcomes["passed"] >= 1


def test_somebody_has_to_say_whose(project):
    done = project.run(*REAL, target=None)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--blockproof-traces real-bugs: of which core? Name it with --blockproof-target"])


def test_a_folder_of_that_name_comes_first(project):
    project.traces.rename(project.path / "real-bugs")
    project.run(*REAL).assert_outcomes(passed=2)


def test_a_setting_may_name_them(project):
    project.settings(target="impl", traces="real-bugs")
    done = project.run("-k", "V47", "--blockproof-traces", "real-bugs", target=None)
    done.assert_outcomes(passed=1, deselected=done.parseoutcomes()["deselected"])
