"""The kernel calls nothing proved that is not: each way to get round it is tried."""

import ast
from pathlib import Path as File
from types import SimpleNamespace

import blockproof.proofs as proofs
import pytest
import z3
from blockproof.proofs import kernel, trust
from blockproof.proofs.kernel import Account, Evidence, Proved, each_follows, exhausted, follows
from blockproof.proofs.solver import Obligation, ProofError, solve
from blockproof.proofs.symbolic import Path, Run, symbol
from blockproof.proofs.verdict import Verdict

FOLDER = File(proofs.__path__[0])
TESTS = File(__file__).parent
MAKES_SOLVERS = {"kernel.py", "solver.py", "heap_theorem.py"}
"""`heap_theorem` looks for paths with one."""


def implied(hypothesis, claim):
    (proved, _) = follows(Obligation("test", (hypothesis,), claim), 5)
    return proved


def settled(body, *assumptions):
    """The status of a statement whose every path owes what `body` gives; proofs are looked for in the plainest way."""
    run = Run("test", assumptions)
    account = Account("test", run.assumptions, 5)
    for path in run.paths(lambda: [body()]):
        found = [follows(Obligation("claim", tuple(path.hypotheses), claim.term), 5)[0] for claim in path.value]
        account.enter(path, [*path.proofs, *(proved for proved in found if proved is not None)])
    return account.proved()


def test_what_holds_on_every_path_is_proved():
    a = symbol("a")
    assert settled(lambda: (a if a > 0 else -a) >= 0) == "proved"


def test_what_fails_on_one_path_is_not():
    a = symbol("a")
    with pytest.raises(ProofError, match="not proved"):
        settled(lambda: (a if a > 3 else -a) >= 0)


def test_nobody_else_can_make_a_proof():
    with pytest.raises(ProofError, match="only the kernel"):
        Proved(Obligation("false", (), z3.BoolVal(False)), object())


def test_a_proof_from_other_hypotheses_does_not_count():
    a = z3.Int("a")
    path = Path([a > 0], value=[type("Claim", (), {"term": a > 1})()])
    account = Account("test", [], 5)
    with pytest.raises(ProofError, match="not proved"):
        account.enter(path, [implied(a > 5, path.value[0].term)])


def test_a_witness_of_something_else_is_no_witness():
    a = z3.Int("a")
    _, witness = solve([a == 1], 5)
    Account("test", [], 5).enter(Path([a > 0], value=[], assumed=True, witness=witness), [])
    with pytest.raises(ProofError, match="a statement about nothing"):
        Account("test", [], 5).enter(Path([a > 0, a < 0], value=[], assumed=True, witness=witness), [])
    Account("test", [], 5).enter(Path([a > 1], value=[], assumed=True, witness=witness), [])


def test_a_path_that_raises_owes_that_it_cannot_be():
    account = Account("test", [], 5)
    with pytest.raises(ProofError, match="not proved"):
        account.enter(Path([z3.Int("a") > 0], value=[True], error=ValueError("no")), [])


def test_every_question_must_be_answered_both_ways_or_proved_to_have_one_answer():
    account, asked = Account("test", [], 5), z3.Int("a") > 0
    account.enter(Path([asked], value=[True], decisions=[True], asked=[asked]), [])
    with pytest.raises(ProofError, match="other way"):
        account.proved()
    account.enter(Path([z3.Not(asked)], value=[True], decisions=[False], asked=[asked]), [])
    assert account.proved() == "proved"
    with pytest.raises(ProofError, match="no path"):
        Account("test", [], 5).proved()


def test_the_other_way_is_the_other_answer_to_the_same_question():
    account, one, other = Account("test", [], 5), z3.Int("a") > 5, z3.Int("a") > 0
    account.enter(Path([one], value=[True], decisions=[True], asked=[one]), [])
    account.enter(Path([z3.Not(other)], value=[True], decisions=[False], asked=[other]), [])
    with pytest.raises(ProofError, match="other way"):
        account.proved()


def test_a_function_that_asks_something_else_when_it_is_run_again_is_not_followed():
    """What lies between the two questions would be on no path."""
    a, executions = symbol("a"), []

    def claim():
        executions.append(1)
        above, below = a > 5, a <= 0
        return above | below if (a > (5 if len(executions) == 1 else 0)) else below

    with pytest.raises(ProofError, match="other"):
        settled(claim)


@pytest.mark.parametrize("left_behind", [[], {}])
def test_what_one_execution_leaves_to_the_next_is_not_followed(left_behind):
    """On each path for itself the claim holds."""
    a = symbol("a")

    def keep():
        if isinstance(left_behind, list):
            left_behind.append(1)
        else:
            left_behind[len(left_behind)] = 1
        return a + len(left_behind) > (a if a > 0 else a - 1)

    with pytest.raises(ProofError, match="when it is run again"):
        settled(keep)


def test_assumptions_that_contradict_each_other_prove_nothing():
    a = z3.Int("a")
    with pytest.raises(ProofError, match="about nothing"):
        Account("test", [a > 0, a < 0], 5)

    def contradiction():
        kernel_run.assume(z3.Int("x") > 0)
        kernel_run.assume(z3.Int("x") < 0)
        return symbol("x") == 3

    kernel_run = Run("test", [])
    account = Account("test", [], 5)
    (path,) = kernel_run.paths(lambda: [contradiction()])
    with pytest.raises(ProofError, match="about nothing"):
        account.enter(path, [implied(z3.And(path.hypotheses), path.value[0].term), *proofs_of(path)])


def proofs_of(path):
    return [follows(Obligation("claim", tuple(path.hypotheses), claim.term), 5)[0] for claim in path.value]


def test_with_one_solver_for_all_claims_the_first_without_a_proof_is_the_end():
    a = z3.Int("a")
    found = list(each_follows("test", [a > 3, a < 9], [a > 2, a < 9, a < 5, a > 0], 5))
    assert [proved is not None for proved in found] == [True, True, False]
    assert [len(proved.obligation.hypotheses) for proved in found[:2]] == [1, 1]


def test_trying_cases_needs_cases_and_a_bound():
    evidence = Evidence()
    for case in range(3):
        evidence.tried(case)
    assert exhausted("test", evidence, "up to 3") == "proved"
    for cases, bounded in ((Evidence(), "up to 3"), (evidence, " "), (3, "up to 3"), (SimpleNamespace(run=3), "3")):
        with pytest.raises(ProofError):
            exhausted("test", cases, bounded)  # type: ignore[arg-type]


def test_a_case_counts_once_and_one_that_fails_ends_the_proof():
    evidence = Evidence()
    evidence.tried((1, 2), covers=5)
    with pytest.raises(ProofError, match="recorded twice"):
        evidence.tried((1, 2))
    with pytest.raises(ProofError, match="stands for none"):
        evidence.tried((1, 3), covers=0)
    assert (evidence.cases, evidence.run) == (5, 1)
    evidence.tried((2, 2), right=False)
    with pytest.raises(ProofError, match=r"does not hold of \(2, 2\)"):
        exhausted("test", evidence, "two numbers")


def test_the_digest_of_the_cases_depends_on_each_and_not_on_their_order():
    def digest(*cases):
        evidence = Evidence()
        for case in cases:
            evidence.tried(case)
        return evidence.digest

    assert digest(1, 2, 3) == digest(3, 1, 2)
    assert len({digest(1, 2, 3), digest(1, 2), digest(1, 2, 4)}) == 3


def test_each_part_of_the_trusted_base_has_a_test_that_attacks_it():
    for what, _, name in kernel.TRUSTED:
        assert "def test_" in (TESTS / name).read_text(encoding="utf-8"), what


def test_what_assumes_anything_of_symbols_is_part_of_the_trusted_base():
    """A fact that is assumed is no obligation, so nobody has proved it."""
    assuming = {file for file, tree in sources() if any(map(assumes, ast.walk(tree)))}
    assert assuming - trust.trusted() == set()
    assert len(assuming) > 10


def assumes(node):
    of_a_run = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "assume"
    return of_a_run and ast.unparse(node.func.value) in ("running()", "run", "self._run")


def test_lines_of_the_trusted_base_are_counted_in_files_and_once_each():
    everything = trust.lines(trust.trusted())
    assert everything < sum(trust.lines(files) for _, files in trust.parts())  # guard does for two parts
    verdicts = [
        Verdict(name, "model", "proved", roles=asked)
        for name, asked in (("T1", ["skipped_sliding"]), ("T25.remove", ["remove"]))
    ]
    short, long = map(trust.lines_under, verdicts)
    assert trust.lines([File(kernel.__file__)]) < short < long < everything


def sources():
    for file in sorted(FOLDER.rglob("*.py")):
        yield file, ast.parse(file.read_text(encoding="utf-8"))


def test_no_other_module_says_that_something_is_proved():
    """The word may be compared with, and stand in a type; no value of it is made but in the kernel."""
    for file, tree in sources():
        allowed = {
            id(inside)
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare | ast.Subscript)
            for inside in ast.walk(node)
        }
        made = [
            n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value == "proved" and id(n) not in allowed
        ]
        words = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.comprehension)]
        listed = {id(inside) for node in words for inside in ast.walk(node.iter)}
        made = [node for node in made if id(node) not in listed]
        assert not made or file.name == "kernel.py", (file, [node.lineno for node in made])


def test_only_the_kernel_and_the_search_for_paths_have_solvers():
    for file, tree in sources():
        of_z3 = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "z3"]
        assert not {node.attr for node in of_z3} & {"Solver", "SolverFor"} or file.name in MAKES_SOLVERS, file
