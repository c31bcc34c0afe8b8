"""The prover is attacked with random functions and claims; faults that it could have are planted, and must be found."""

import json
import os
import signal

import pytest
import z3
from blockproof.fuzz.cli.main import main
from blockproof.proofs import symbolic, symbolic_run
from blockproof.proofs.fuzzing import attack as attacking
from blockproof.proofs.fuzzing.apart import Lost, apart
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


def spinning(seed, number):
    """As a question that takes no steps: nothing but the end of the process ends it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGXCPU})
    while number % 3 == 0:
        pass
    return try_program(seed, number)


try_program = attacking.try_program


def test_a_program_that_does_not_end_is_lost_and_the_others_are_tried(monkeypatch):
    monkeypatch.setattr(attacking, "try_program", spinning)
    with attacking.attack(50, 4, seconds=1) as tallies:
        *_, tally = tallies
    assert tally.lost == dict.fromkeys((0, 3), "no end within 1 s of processor time")
    alone = Tally()
    for number in (1, 2, 4):
        alone.add(try_program(4, number))
    assert tally.cases == alone.cases + 20 == 50
    assert tally.statuses["undecided"] == alone.statuses["undecided"] + 20
    assert tally.reasons == alone.reasons


def test_too_many_that_are_lost_are_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(attacking, "PROGRAM_S", 1)
    monkeypatch.setattr(attacking, "try_program", lambda seed, number: os._exit(7) if number % 3 == 0 else Tally())
    assert main(["prove", "--fuzz", "11", "--seed", "4"]) == 1
    *lost, too_many, last = capsys.readouterr().out.splitlines()
    assert lost[1] == "program 3: exit status 7; again: blockproof prove --fuzz 1 --seed 4 --first 3"
    assert too_many == "more than 1% of the claims were lost so"
    assert last == "seed 4: 20 claims: 0 proved, 0 refuted, 20 undecided (20 of them lost); 0 wrong"


def test_few_that_are_lost_are_told_only(monkeypatch, capsys):
    many = Tally()
    many.statuses["proved"] = 1_500
    monkeypatch.setattr(attacking, "try_program", lambda seed, number: many if number else os._exit(7))
    assert main(["prove", "--fuzz", "1000", "--seed", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lost"] == {"0": "exit status 7"}
    assert (told["claims"], told["undecided"]) == (1_510, 10)


def test_a_program_alone_comes_to_what_it_comes_to_among_others():
    with attacking.attack(60, 7, 3) as tallies:
        several = [dict(tally.statuses) for tally in tallies]
    with attacking.attack(1, 7, 5) as tallies:
        alone = next(tallies).statuses
    assert {status: several[2][status] - several[1].get(status, 0) for status in several[2]} == {
        status: alone[status] for status in several[2]
    }


def test_an_error_of_our_own_is_raised_and_a_child_that_is_killed_is_lost():
    def work(number):
        if number:
            raise KeyError("broken")
        os.kill(os.getpid(), signal.SIGTERM)

    with apart(work) as done:
        assert done(0) == Lost("SIGTERM")
        with pytest.raises(RuntimeError, match="KeyError: 'broken'"):
            done(1)


def test_the_command_ends_with_the_program_at_the_first_wrong_answer(monkeypatch, capsys):
    monkeypatch.setattr(symbolic, "_divided", truncated)
    assert main(["prove", "--fuzz", "600", "--seed", "0"]) == 1
    *wrong, again, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("def f(") for line in wrong)
    assert main(again.removeprefix("again: blockproof ").split()) == 1
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
