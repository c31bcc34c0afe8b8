"""What makes a run of theorems fail, which theorems are meant, what is left behind, and what happens without z3."""

import subprocess
import sys

import pytest
from blockproof.fuzz.findings.writing import write_file
from blockproof.proofs import expectations, judgement
from blockproof.proofs.campaign import Result
from blockproof.proofs.expectations import BOUNDED, NONE_RAN, Expected
from blockproof.proofs.theorem import Statement
from blockproof.proofs.theorems import THEOREMS
from blockproof.proofs.verdict import Verdict
from blockproof.proofs.weights import SECONDS

HELD = Statement(id="T1", sentence="")
BROKEN = Statement(id="T2", sentence="")
RAN = {"core:f": "hash", "core:g": "hash"}
EXPECTED = {
    "impl": {
        "T1": Expected("proved", ran=("core:f",)),
        "T2": Expected("refuted", witness="claim 1 fails", ran=("core:f",)),
        "T3": Expected(BOUNDED, ran=("core:f",)),
        "T4": Expected("unavailable", reason="our core has no f"),
        "T5": Expected(NONE_RAN),
    }
}


def result(theorem, status, subject="impl", disputed=(), **fields):
    name = theorem if isinstance(theorem, str) else theorem.id
    fields = {"covered": {} if status == "unavailable" else RAN} | fields
    return Result(Verdict(name, subject, status, **fields), disputed=list(disputed))


@pytest.mark.parametrize(
    ("settled", "problem"),
    [
        (result("T1", "proved"), None),
        (result("T2", "refuted", counterexample={"w": 1}, message="claim 1 of 3 fails"), None),
        (result("T3", "proved", bounded="only up to 10 tokens"), None),
        (result("T4", "unavailable", message="our core has no f"), None),
        (result("T5", "proved", covered={}), None),
        (result("T1", "unavailable", message="gone"), "T1 on impl: unavailable: gone, but declared proved"),
        (result("T1", "undecided", message="no answer"), "T1 on impl: undecided: no answer"),
        (
            result("T1", "refuted", counterexample={"w": 1}, message="claim 0 of 1 fails"),
            "T1 on impl: refuted by {'w': 1}: claim 0 of 1 fails, but declared proved",
        ),
        (result("T1", "proved", covered={}), "T1 on impl: none of its functions ran, but declared proved"),
        (result("T1", "proved", covered={"core:g": "h"}), "T1 on impl: proved without core:f, which must run"),
        (result("T1", "proved", bounded="up to 3"), "T1 on impl: proved (bounded), but declared proved"),
        (result("T3", "proved"), "T3 on impl: proved, but declared proved (bounded)"),
        (result("T2", "proved"), "T2 on impl: proved, but declared refuted (claim 1 fails)"),
        (
            result("T2", "refuted", counterexample={}, message="raises AssertionError: no"),
            "T2 on impl: refuted by {}: raises AssertionError: no, but declared to be refuted by another "
            "counterexample: claim 1 fails",
        ),
        (
            result("T4", "unavailable", message="cannot be imported"),
            "T4 on impl: unavailable: cannot be imported, but declared unavailable because our core has no f",
        ),
        (result("T5", "proved"), "T5 on impl: proved, but declared none of its functions ran"),
        (result("T6", "proved"), "T6 on impl: proved, and nothing is declared"),
        (result("T1", "proved", disputed=[("; question\nrest", "sat")]), "T1 on impl: cvc5 says sat to: ; question"),
        (result("T1", "proved", subject="my:core"), None),
        (result("T1", "unavailable", subject="my:core", message="gone"), None),
        (
            result("T1", "refuted", subject="my:core", counterexample={"w": 1}, message="claim 0 of 1 fails"),
            "T1 on my:core: refuted by {'w': 1}: claim 0 of 1 fails",
        ),
    ],
)
def test_a_run_fails_on_whatever_is_not_as_declared_and_on_nothing_else(settled, problem):
    found = [text.partition("; if that is right")[0] for text in judgement.problems([settled], EXPECTED)]
    assert found == ([] if problem is None else [problem])


def test_of_a_core_without_declarations_it_is_said_what_is_not_known():
    results = [result("T1", "proved"), *(result(name, "unavailable", "my:core") for name in ("T2", "T3"))]
    results.append(result("T4", "proved", "my:core", covered={}))
    (said,) = judgement.unsaid(results, EXPECTED)
    assert said.startswith("my:core: no expected results: only a refutation fails; nothing is known")
    assert said.endswith("from T2, T3, T4")


def test_what_came_out_can_be_declared_and_what_is_undecided_cannot(tmp_path):
    first = [
        result("T1", "proved"),
        result("T2", "refuted", counterexample={"w": 1}, message="claim 1 of 3 fails"),
        result("T4", "unavailable", message="our core has no f"),
        result("T9", "undecided", message="no answer"),
        result("T0", "proved"),
    ]
    names = ["T0", "T1", "T2", "T4", "T9"]
    (path,) = expectations.write(tmp_path, first, names, write_file)
    assert path.name == "impl.json"
    assert set(expectations.read(["impl"], tmp_path)["impl"]) == {"T0", "T1", "T2", "T4"}
    assert judgement.problems(first, expectations.read(["impl", "model"], tmp_path)) == [
        "T9 on impl: undecided: no answer"
    ]
    expectations.write(tmp_path, [result("T1", "refuted", message="raises ValueError: no")], names[1:], write_file)
    now = expectations.read(["impl"], tmp_path)["impl"]
    assert now["T1"].witness == "raises ValueError"
    assert set(now) == {"T1", "T2", "T4"}, "there is no T0 any more"
    assert expectations.read(["my:core"], tmp_path) == {}


@pytest.mark.parametrize("subject", ["model", "impl", "vllm==0.23.0", "vllm==0.33.0"])
def test_every_theorem_is_declared_for_every_core_of_the_record(subject):
    declared = expectations.read([subject])[subject]
    assert list(declared) == [theorem.id for theorem in THEOREMS]
    for theorem in THEOREMS:
        one = declared[theorem.id]
        assert one.outcome in ("proved", BOUNDED, "refuted", "unavailable", NONE_RAN)
        assert bool(one.witness) == (one.outcome == "refuted") == (subject in theorem.refuted_on), theorem.id
        assert bool(one.reason) == (one.outcome == "unavailable")
        assert bool(one.ran) == (one.outcome in ("proved", BOUNDED, "refuted"))


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
    kept = judgement.keep_unsettled(
        [undecided, disputed, result(HELD, "proved", smtlib=["x"])], tmp_path / "left", write_file
    )
    assert [(path.name, path.read_text()) for path in kept] == [
        ("T1.vllm-0.23.0.0.smt2", "the one that was not settled"),
        ("T2.impl.0.smt2", "asked"),
    ]
    assert judgement.export([disputed], tmp_path / "all", write_file) == 2
    assert {path.name: path.read_text() for path in (tmp_path / "all").iterdir()} == {
        "T2.impl.000.smt2": "asked",
        "T2.impl.000.sat.smt2": "possible",
    }
    assert judgement.keep_unsettled([result(HELD, "proved")], tmp_path / "none", write_file) == []
    assert not (tmp_path / "none").exists()


WITHOUT_SOLVERS = """
import sys
sys.modules["z3"] = sys.modules["cvc5"] = None  # as if neither were installed
from blockproof.fuzz.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_solvers(*arguments, program=WITHOUT_SOLVERS):
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)


def test_without_cvc5_nothing_is_settled_unless_it_is_said_that_nobody_confirms():
    program = WITHOUT_SOLVERS.replace('sys.modules["z3"] = ', "")
    done = without_solvers("prove", "T1.full", "--target", "model", program=program)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert (
        "cvc5, which confirms every answer, is not installed; run: pip install '/path/to/blockproof[prove]'"
        in done.stderr
    )
    done = without_solvers("prove", "T1.full", "--target", "model", "--no-cross-check", program=program)
    assert done.returncode == 0, done.stderr
    assert "not confirmed by cvc5 (--no-cross-check)" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("T1", "--target", "model")])
def test_prove_without_z3_says_in_one_line_what_to_install(arguments):
    done = without_solvers("prove", *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert (
        "prove needs the solver z3, which is not installed; run: pip install '/path/to/blockproof[prove]'"
        in done.stderr
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("fuzz", "--target", "impl", "--operations", "200", "--seed", "1"),
        ("explore", "--attention", "full", "--blocks", "4", "--block-size", "1"),
        ("prove", "--help"),
        ("prove", "T1", "--list"),
    ],
)
def test_nothing_else_needs_a_solver(arguments, tmp_path):
    done = without_solvers(*arguments)
    assert done.returncode == 0, done.stderr
