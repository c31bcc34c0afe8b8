"""The prover is attacked with random functions and claims; faults that it could have are planted, and must be found."""

import json

import pytest
import z3
from blockproof.fuzz.cli.main import main
from blockproof.proofs import symbolic, symbolic_run
from blockproof.proofs.fuzzing.functions import draw
from blockproof.proofs.fuzzing.structures import fuzz_structures
from blockproof.proofs.fuzzing.trial import Tally, fuzz, try_seed
from blockproof.proofs.solver import ProofError

QUICK, ALL = 400, 20_000
STRUCTURES, ALL_STRUCTURES = 60, 1_000


def found(seeds, attempt=try_seed):
    """What the prover says wrongly of the functions of these seeds."""
    tally = Tally()
    for seed in seeds:
        attempt(seed, tally)
        if tally.wrong:
            return tally.wrong
    return []


def test_no_answer_is_wrong():
    tally = fuzz(QUICK, seed=1)
    assert not tally.wrong, tally.wrong[0]
    assert min(tally.statuses[status] for status in ("proved", "refuted", "undecided")) >= QUICK // 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_answer_is_wrong_in_twenty_thousand(part):
    tally = fuzz(ALL // 4, seed=100 + part)
    assert not tally.wrong, tally.wrong[0]
    assert tally.cases >= ALL // 4


def test_no_answer_about_tables_bytes_loops_and_heaps_is_wrong():
    tally = fuzz_structures(STRUCTURES, seed=1)
    assert not tally.wrong, tally.wrong[0]
    assert min(tally.statuses[status] for status in ("proved", "refuted")) >= STRUCTURES // 10


@pytest.mark.slow
def test_no_answer_about_a_thousand_structures_is_wrong():
    tally = fuzz_structures(ALL_STRUCTURES, seed=2)
    assert not tally.wrong, tally.wrong[0]


def test_the_same_seed_draws_the_same_function():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    one, other = fuzz(30, seed=3), fuzz(30, seed=3)
    assert (one.statuses, one.reasons) == (other.statuses, other.reasons)


def test_the_command_attacks_until_there_are_so_many_claims(capsys):
    assert main(["prove", "--fuzz", "100", "--seed", "4"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert main(["prove", "--fuzz", "100", "--seed", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] == []
    assert 100 <= told["claims"] == told["proved"] + told["refuted"] + told["undecided"]
    said = ", ".join(f"{told[status]} {status}" for status in ("proved", "refuted", "undecided"))
    assert last == f"seed 4: {told['claims']} claims: {said}; 0 wrong"


def test_the_command_ends_with_the_program_at_the_first_wrong_answer(monkeypatch, capsys):
    monkeypatch.setattr(symbolic, "_divided", truncated)
    assert main(["prove", "--fuzz", "600", "--seed", "0"]) == 1
    *wrong, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("def f(") for line in wrong)
    assert last.endswith(f"; {sum(line.startswith('seed ') for line in wrong)} wrong")


def printed_identity(key):
    return tuple(("term", str(part)) if isinstance(part, z3.AstRef) else part for part in key)


def truncated(a, b):
    if symbolic.running().decide(b == 0):
        raise ZeroDivisionError
    quotient = z3.If(a >= 0, a / b, -(-a / b))
    return symbolic.SymbolicInt(quotient), symbolic.SymbolicInt(a - quotient * b)


class NeverRemembered(ProofError):
    """A refusal that the run does not hear of."""

    def __init__(self, message):
        super().__init__(message)
        ProofError.latest = None


def one_answer(run, condition):
    return True


PLANTED = {
    "quotients are named by printed terms": (symbolic_run, "_identity", printed_identity, range(7_000_086, 7_000_087)),
    "division rounds towards zero": (symbolic, "_divided", truncated, range(60)),
    "a symbol is no integer": (symbolic.SymbolicInt, "_stands_for", object, range(400)),
    "a refusal that is caught is forgotten": (
        symbolic,
        "refusal",
        lambda what: NeverRemembered(what),
        range(600),
    ),
    "one answer to each question is taken": (symbolic_run.Run, "_forced", one_answer, range(60)),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_the_prover_is_found(fault, monkeypatch):
    where, name, planted, seeds = PLANTED[fault]
    monkeypatch.setattr(where, name, planted)
    assert found(seeds)


@pytest.mark.parametrize("fault", PLANTED)
def test_without_the_fault_the_same_functions_show_nothing(fault):
    *_, seeds = PLANTED[fault]
    assert not found(list(seeds)[:25])
