"""What makes a run of theorems fail, which theorems are meant, what is left behind, and what happens without z3."""

import subprocess
import sys

import pytest
from blockproof.proofs import judgement
from blockproof.proofs.campaign import Result
from blockproof.proofs.theorem import Statement, Verdict
from blockproof.proofs.theorems import THEOREMS
from blockproof.proofs.weights import SECONDS

HELD = Statement(id="T1", sentence="", formal="")
BROKEN = Statement(id="T2", sentence="", formal="", refuted_on={"impl": "it loses a block"})


def result(statement, status, subject="impl", disputed=(), **fields):
    return Result(Verdict(statement.id, subject, status, **fields), disputed=list(disputed))


@pytest.mark.parametrize(
    ("settled", "problem"),
    [
        (result(HELD, "proved"), None),
        (result(HELD, "unavailable"), None),
        (result(BROKEN, "refuted", counterexample={"w": 1}), None),
        (result(BROKEN, "proved", subject="model"), None),
        (result(HELD, "undecided", message="no answer"), "T1 on impl: undecided: no answer"),
        (
            result(HELD, "refuted", counterexample={"w": 1}, message="claim 0 fails"),
            "T1 on impl: refuted by {'w': 1}: claim 0 fails",
        ),
        (
            result(BROKEN, "proved"),
            "T2 on impl: proved, but declared refuted (it loses a block): the declaration is stale",
        ),
        (
            result(BROKEN, "refuted", subject="model", counterexample={}, message="m"),
            "T2 on model: refuted by {}: m",
        ),
        (result(HELD, "proved", disputed=[("; question\nrest", "sat")]), "T1 on impl: cvc5 says sat to: ; question"),
    ],
)
def test_a_run_fails_on_whatever_is_not_as_declared_and_on_nothing_else(settled, problem):
    assert judgement.problems([settled], [HELD, BROKEN]) == ([] if problem is None else [problem])


def test_theorems_are_chosen_by_id_or_by_number():
    assert judgement.chosen(THEOREMS, []) == list(THEOREMS)
    assert [theorem.id for theorem in judgement.chosen(THEOREMS, ["T2", "T5.gap"])] == ["T2", "T5.gap"]
    assert [theorem.id for theorem in judgement.chosen(THEOREMS, ["T5"])] == ["T5", "T5.attained", "T5.gap"]
    with pytest.raises(LookupError, match=r"no theorem is called 'T99'; see blockproof prove --list"):
        judgement.chosen(THEOREMS, ["T5", "T99"])


def test_results_come_in_the_order_of_the_theorems_and_long_ones_are_begun_first():
    results = [result(BROKEN, "proved"), result(HELD, "proved", "model"), result(HELD, "proved", "impl")]
    assert judgement.in_order(results, [HELD, BROKEN]) == [results[2], results[1], results[0]]
    weights = [theorem.weight for theorem in judgement.longest_first(THEOREMS)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > weights[-1] > 0


def test_seconds_are_noted_of_theorems_that_there_are():
    assert set(SECONDS) <= {theorem.id for theorem in THEOREMS}


def test_what_is_unsettled_is_kept_and_what_is_settled_is_exported(tmp_path):
    undecided = result(HELD, "undecided", "vllm==0.23.0", smtlib=["first", "the one that was not settled"])
    disputed = result(BROKEN, "proved", disputed=[("asked", "unknown")], smtlib=["asked"], satisfiable=["possible"])
    kept = judgement.keep_unsettled([undecided, disputed, result(HELD, "proved", smtlib=["x"])], tmp_path / "left")
    assert [(path.name, path.read_text()) for path in kept] == [
        ("T1.vllm-0.23.0.0.smt2", "the one that was not settled"),
        ("T2.impl.0.smt2", "asked"),
    ]
    assert judgement.export([disputed], tmp_path / "all") == 2
    assert {path.name: path.read_text() for path in (tmp_path / "all").iterdir()} == {
        "T2.impl.000.smt2": "asked",
        "T2.impl.000.sat.smt2": "possible",
    }
    assert judgement.keep_unsettled([result(HELD, "proved")], tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


WITHOUT_SOLVERS = """
import sys
sys.modules["z3"] = sys.modules["cvc5"] = None  # as if neither were installed
from blockproof.fuzz.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_solvers(*arguments):
    return subprocess.run([sys.executable, "-c", WITHOUT_SOLVERS, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [(), ("T1", "--list"), ("T1", "--target", "model")])
def test_prove_without_z3_says_in_one_line_what_to_install(arguments):
    done = without_solvers("prove", *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "prove needs the solver z3, which is not installed; run: pip install 'blockproof[prove]'" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("fuzz", "--target", "impl", "--operations", "200"),
        ("explore", "--attention", "full", "--blocks", "4", "--block-size", "1"),
        ("prove", "--help"),
    ],
)
def test_nothing_else_needs_a_solver(arguments, tmp_path):
    done = without_solvers(*arguments)
    assert done.returncode == 0, done.stderr
