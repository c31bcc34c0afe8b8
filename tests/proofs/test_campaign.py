"""Theorems settled in processes of their own, by two solvers: what is agreed, what is disputed, what is lost."""

import json
import stat
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import z3
from blockproof.fuzz.cli.main import main
from blockproof.proofs import campaign, expectations, requirements
from blockproof.proofs.campaign import Campaign, Interpreter, Task, Worker
from blockproof.proofs.cross_check import second_opinion, together
from blockproof.proofs.solver import Obligation, question, solve
from blockproof.proofs.theorems import BY_ID

needs_cvc5 = pytest.mark.skipif(find_spec("cvc5") is None, reason="needs cvc5")


def settled(*tasks, cross_check=False, jobs=2):
    """With one job in the order of the tasks, with more as they are ready."""
    results = []
    Campaign(jobs, 5.0, cross_check).run(tasks, results.append)
    return results


def script(tmp_path, text):
    """An interpreter that does something else than settle theorems."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Interpreter("model", str(path))


@needs_cvc5
def test_both_solvers_settle_a_theorem_for_model_and_our_core():
    results = settled(Task("T1", (Interpreter("model"), Interpreter("impl"))), cross_check=True)
    assert {result.verdict.subject for result in results} == {"model", "impl"}
    for result in results:
        assert result.verdict.status == "proved"
        assert result.disputed == []
        assert result.confirmed >= len(set(result.verdict.smtlib)) >= 10
        assert result.verdict.covered
    assert [set(result.verdict.controls.values()) for result in results] == [{"refuted"}, set()]


@needs_cvc5
def test_the_second_solver_is_told_nothing_of_the_first_ones_answer():
    worker = Worker(Interpreter("second opinion"))
    try:
        declared = "(declare-const a Int)"
        assert worker.ask({"opinion": f"; x\n{declared}(assert (> a 3))(check-sat)", "seconds": 5}, 20) == "sat"
        assert worker.ask({"opinion": f"; x\n{declared}(assert (> a a))(check-sat)", "seconds": 5}, 20) == "unsat"
    finally:
        worker.close()


@needs_cvc5
def test_questions_asked_together_are_unsat_only_if_each_is():
    x, y, far = z3.Int("x"), z3.Bool("a name"), z3.Function("far", z3.IntSort(), z3.BoolSort())
    right = [Obligation("sum", (x > 2,), x + x > 5), Obligation("case", (far(x), z3.Implies(far(x), y)), y)]
    wrong = Obligation("wrong", (x > 2,), x > 3)
    assert second_opinion(together([one.smtlib() for one in right])) == "unsat"
    for place in range(3):
        mixed = [*right[:place], wrong, *right[place:]]
        assert second_opinion(together([one.smtlib() for one in mixed])) == "sat"
    other = Obligation("another x", (), z3.Or(z3.Bool("x"), z3.Not(z3.Bool("x"))))
    assert together([right[0].smtlib(), other.smtlib()]) == ""
    assert together([right[0].smtlib(), "(check-sat)"]) == ""


@pytest.mark.parametrize(
    ("text", "settle_s", "reason"), [("exit 0", 30, "has ended"), ("sleep 60", 0.5, "no answer within 0.5 s")]
)
def test_a_process_that_dies_or_hangs_makes_the_theorem_undecided(tmp_path, monkeypatch, text, settle_s, reason):
    monkeypatch.setattr(campaign, "SETTLE_S", settle_s)
    (result,) = settled(Task("T1", (script(tmp_path, text),)))
    assert result.verdict.status == "undecided"
    assert reason in result.verdict.message


ANSWERS = """exec {python} -c '
import json, sys
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    status = "undecided" if {undecided} else "proved"
    print(json.dumps(dict(theorem=asked["settle"], subject=asked["subject"], status=status)), flush=True)
'"""
"""A process that settles nothing, and says what it is told to."""


@pytest.mark.parametrize(
    ("undecided", "statuses"),
    [("number", ["proved"] * 3), ("asked['settle'] == 'T2'", ["proved", "undecided", "proved"])],
)
def test_what_is_undecided_after_other_theorems_is_asked_of_a_new_process(tmp_path, undecided, statuses):
    where = script(tmp_path, ANSWERS.format(python=sys.executable, undecided=undecided.replace("'", '"')))
    results = []
    Campaign(1, 5.0, False).run([Task(name, (where,)) for name in ("T1", "T2", "T3")], results.append)
    assert [result.verdict.status for result in results] == statuses


def test_a_process_that_ended_before_it_was_asked_makes_the_theorem_undecided(tmp_path, monkeypatch):
    """Both writing the request and closing the pipe then fail; the result must not be lost over it."""

    def ended(*arguments, **options):
        process = start(*arguments, **options)
        process.wait()
        return process

    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", ended)
    (result,) = settled(Task("T1", (script(tmp_path, "exit 0"),)))
    assert result.verdict.status == "undecided"
    assert result.verdict.message == "the process has ended"


def test_what_goes_wrong_with_a_result_is_raised_and_not_lost(tmp_path):
    def done(result):
        raise RuntimeError(f"cannot keep {result.verdict.theorem}")

    with pytest.raises(RuntimeError, match=r"cannot keep T1"):
        Campaign(2, 5.0, False).run([Task("T1", (script(tmp_path, "exit 0"),))], done)


def test_a_solver_that_disagrees_is_a_failure_that_leaves_its_question_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Campaign, "_opinion", lambda self, text, workers, seconds: "unknown")
    monkeypatch.setattr(requirements, "cvc5_installed", lambda: True)
    assert main(["prove", "T1.full", "--target", "model", "--out", str(tmp_path / "left")]) == 1
    said = capsys.readouterr().out
    assert "T1.full on model: cvc5 says unknown to: ; T1.full on model" in said
    left = sorted((tmp_path / "left").iterdir())
    assert left
    assert all("(check-sat)" in path.read_text() for path in left)


def declared(monkeypatch, tmp_path, subject, **fields):
    """Let these be what is expected of T24."""
    path = tmp_path / expectations.file_name(subject)
    path.write_text(json.dumps({"T24": fields}))
    monkeypatch.setattr(expectations, "FOLDER", tmp_path)


def test_what_is_not_as_declared_is_a_finding(monkeypatch, tmp_path, capsys):
    declared(monkeypatch, tmp_path, "model", outcome="refuted", witness="claim 0 fails", ran=["a:b"])
    assert main(["prove", "T24", "--target", "model", "--no-cross-check"]) == 1
    assert "but declared refuted (claim 0 fails)" in capsys.readouterr().out


SETTLE = """
import sys
from blockproof.proofs import worker
{}
worker.main()
"""


def worker_with(tmp_path, changed):
    """The interpreter of a worker in which something was changed before it serves."""
    path = tmp_path / "program.py"
    path.write_text(SETTLE.format(changed))
    return script(tmp_path, f"exec {sys.executable} {path}")


def test_an_error_in_a_target_is_told_with_type_message_and_place(tmp_path):
    changed = """
from blockproof.impl.managers.window import SlidingWindowManager as Manager
Manager.get_num_skipped_tokens = property(lambda self: undefined_here)
from blockproof.proofs.theorems import BY_ID
object.__setattr__(BY_ID["T2"], "assume", lambda v: undefined_here)
"""
    where = replace(worker_with(tmp_path, changed), subject="impl")
    wrong, right = settled(Task("T2", (where,)), Task("T1.states", (where,)), jobs=1)
    assert wrong.verdict.status == "undecided"
    assert wrong.verdict.message.startswith("NameError: name 'undefined_here' is not defined, in <lambda>, ")
    assert wrong.verdict.message.endswith("program.py line 8")
    assert right.verdict.status == "proved", "the process goes on"


def test_what_a_process_said_before_it_ended_is_told(tmp_path):
    (result,) = settled(Task("T1", (worker_with(tmp_path, "raise SystemError('no core here')"),)))
    assert result.verdict.message == "the process has ended: SystemError: no core here"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["T99"], "no theorem is called 'T99'; did you mean 'T9'?"),
        (["--target", "nonsense"], "write model, impl, "),
        (["--target", "vllm==x"], "write model, impl, "),
        (["--seconds", "0"], "--seconds"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments, said, capsys):
    assert main(["prove", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_release_that_is_not_installed_is_exit_3(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path))
    assert main(["prove", "T1", "--target", "vllm==0.0.1"]) == 3
    assert "vllm==0.0.1 is not installed; run: blockproof targets install vllm==0.0.1" in capsys.readouterr().err


OWN = """
class SlidingWindowManager:
    def __init__(self, spec, *args, **kwargs):
        self.sliding_window = spec.sliding_window

    def get_num_skipped_tokens(self, computed):
        return max(0, computed - self.sliding_window + {one})

core = None
"""


@pytest.mark.parametrize(("one", "code", "said"), [(1, 0, "1 proved"), (2, 1, "T1 on mine:core: refuted by {'c': 1,")])
def test_a_users_own_core_fails_on_a_refutation_only_and_what_is_not_known_is_said(one, code, said, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(OWN.format(one=one))
    target = f"{tmp_path / 'mine.py'}:core"
    assert main(["prove", "T1", "T2", "--target", target, "--no-cross-check"]) == code
    out = capsys.readouterr().out
    assert said in out
    assert (
        "mine:core: no expected results: only a refutation fails; nothing is known of it from T1.full, T1.reads" in out
    )
    assert "T2 " in out.partition("nothing is known of it from")[2].partition("\n")[0] + " "


def test_a_proof_is_confirmed_from_the_hypotheses_that_it_took():
    x, y = z3.Ints("x y")
    obligation = Obligation("o", (x > 1, y > 2, x < 5), x > 0)
    assert obligation.needed() == obligation.smtlib(), "nothing is known of it yet"
    assert solve([*obligation.hypotheses, z3.Not(obligation.claim)], 5.0) == ("unsat", None)
    assert obligation.needed() == Obligation("o", (x > 1,), x > 0).smtlib()


def test_json_and_exported_questions(tmp_path, capsys):
    folder = tmp_path / "smt"
    assert main(["prove", "T1.states", "--target", "model", "--no-cross-check", "--json", "--export", str(folder)]) == 0
    document = json.loads(capsys.readouterr().out)
    (result,) = document["results"]
    assert (result["theorem"], result["subject"], result["status"]) == ("T1.states", "model", "proved")
    assert document["problems"] == []
    assert len(list(folder.iterdir())) > result["obligations"] > 0


def test_the_list_names_every_theorem(capsys):
    assert main(["prove", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BY_ID)


def test_a_question_is_the_same_text_whatever_was_made_before():
    def text():
        a, b = z3.Ints("a b")
        return Obligation("x", (a * b > 3, (a * b) % 7 == 1), (a * b) % 7 + a * b > 4).smtlib()

    before = text()
    kept = [z3.Int(f"other {number}") + number for number in range(50)]
    assert kept
    assert text() == before
    assert "?x0" in before


@needs_cvc5
def test_solvers_are_bounded_by_their_steps():
    x, y, z = z3.Ints("x y z")
    hard = [x * x * x + y * y * y + z * z * z == 114, x > 5000, y < -3000]  # whether there are such is not known
    assert solve(hard, 0.01)[0] == "unknown"
    assert second_opinion(f";\n{question(hard)}", 0.01) == "unknown"
