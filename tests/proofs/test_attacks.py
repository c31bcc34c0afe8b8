"""Wrong code that tries to look right to the prover: nothing of it is proved, and what is right beside it is."""

import re
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from blockproof.model.attention import Chunked, Full, Mamba, Sliding
from blockproof.proofs.authoring import AuthoringError, problems, registered
from blockproof.proofs.claims import every, implies
from blockproof.proofs.quotients import tokens
from blockproof.proofs.replays import Replaying
from blockproof.proofs.roles import subject
from blockproof.proofs.solver import solve
from blockproof.proofs.symbolic import Run, symbol
from blockproof.proofs.theorem import NegativeControl, Subject, Theorem
from blockproof.proofs.theorems import BY_ID, THEOREMS

from . import attacks as first
from . import more_attacks as second

ALL = first.SOURCE + second.SOURCE
WRONG = re.findall(r"^(?:def )?(wrong_\w+)(?:\(| = )", ALL, re.MULTILINE)
RIGHT = re.findall(r"^def (right_\w+)\(", ALL, re.MULTILINE)


@pytest.fixture
def attacks(name, tmp_path, monkeypatch):
    """A fresh module for each: what one remembers is none of the next one's business."""
    path = tmp_path / "attacking.py"
    source = next(one.SOURCE for one in (first, second) if f"{name}(" in one.SOURCE or f"{name} = " in one.SOURCE)
    path.write_text(source, encoding="utf-8")
    module = ModuleType("attacking")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def settled(module, name):
    theorem = Theorem(
        id="T0",
        sentence="It is 0.",
        variables={"x": "a number"},
        assume=lambda v: [v.x >= 0],
        claim=lambda f, v: f.role(v.x) == 0,
        controls=(NegativeControl("it is 1", {"role": lambda x: 1}),),
        unroll=2,
    )
    return theorem.settle(Subject("attack", lambda role: getattr(module, name), (module.__name__,)))


def test_there_are_enough_of_them():
    assert len(WRONG) == len(set(WRONG)) >= 125
    assert len(RIGHT) == len(set(RIGHT)) >= 17


@pytest.mark.few_are_quick
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_not_proved(name, attacks):
    verdict = settled(attacks, name)
    assert verdict.status in ("refuted", "undecided"), verdict
    assert verdict.message


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", RIGHT)
def test_right_code_beside_it_is_proved(name, attacks):
    verdict = settled(attacks, name)
    assert verdict.status == "proved", verdict
    assert verdict.replays >= 50
    assert verdict.largest > 2**63


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [one for one in WRONG if "hidden" in one])
def test_what_no_run_finds_is_refused(name, attacks, monkeypatch):
    """Without the runs on plain numbers nothing of it is proved, either: it is not luck."""
    monkeypatch.setattr(Replaying, "hold", lambda *arguments: True)
    assert settled(attacks, name).status in ("refuted", "undecided")


def claimed(claim, assume=lambda v: [v.x >= 0], controls=None, role=abs):
    """What comes of a claim about a function of one number."""
    wrong = NegativeControl("it is less by one", {"role": lambda x: x - 1})
    theorem = Theorem(
        id="T0",
        sentence="Something.",
        variables={"x": "a number"},
        assume=assume,
        claim=claim,
        controls=(wrong,) if controls is None else controls,
    )
    return theorem.settle(Subject("attack", lambda name: role, ()))


def test_a_claim_that_claims_something_is_proved():
    assert claimed(lambda f, v: f.role(v.x) >= 0, assume=lambda v: []).status == "proved"
    assert claimed(lambda f, v: implies(v.x > 5, f.role(v.x) > 5)).status == "proved"


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (lambda f, v: [], "nothing is claimed"),
        (lambda f, v: [one for one in (f.role(v.x) >= 0,) if v.x < 0], "nothing is claimed"),
        (lambda f, v: implies(v.x < 0, f.role(v.x) == 7), "never holds"),
        (lambda f, v: [f.role(v.x) >= 0, implies(every(v.x > 3, v.x < 2), f.role(v.x) == 7)], "never holds"),
        (lambda f, v: implies(v.x * v.x < 0, f.role(v.x) == 7), "never holds"),
    ],
)
def test_a_claim_that_says_nothing_is_not_proved(claim, said):
    verdict = claimed(claim)
    assert verdict.status == "undecided"
    assert said in verdict.message


def test_assumptions_that_nothing_satisfies_prove_nothing():
    assert "about nothing" in claimed(lambda f, v: f.role(v.x) == 7, lambda v: [v.x > 3, v.x < 2]).message


def broken(x):
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    "control",
    [
        NegativeControl("it raises", {"role": broken}),
        NegativeControl("it is right", {"role": abs}),
        NegativeControl("it raises another error", {"role": broken}, raises="ValueError"),
        NegativeControl("it raises nothing", {"role": lambda x: -1}, raises="RuntimeError"),
    ],
)
def test_a_control_that_is_refuted_for_another_reason_or_not_at_all_does_not_count(control):
    verdict = claimed(lambda f, v: f.role(v.x) >= 0, controls=(control,))
    assert verdict.status == "undecided"
    assert control.wrong in verdict.message


def test_a_control_about_an_error_says_which():
    control = NegativeControl("it raises", {"role": broken}, raises="RuntimeError")
    assert claimed(lambda f, v: f.role(v.x) >= 0, controls=(control,)).status == "proved"


def test_a_theorem_whose_controls_replace_no_function_is_not_registered():
    theorem = Theorem(
        id="T0",
        sentence="Something.",
        variables={"x": "a number"},
        assume=lambda v: [],
        claim=lambda f, v: v.x == v.x,
        controls=(NegativeControl("another claim", claim=lambda f, v: v.x == 0), NegativeControl("nothing")),
    )
    with pytest.raises(AuthoringError, match="replaces a function") as raised:
        registered([theorem])
    assert "'nothing' changes nothing" in str(raised.value)
    assert registered([replace(theorem, controls=(NegativeControl("no", {"role": abs}),))])


def test_a_control_that_replaces_the_claim_as_well_is_not_about_the_function():
    wrong = NegativeControl("it is wrong", {"role": abs}, claim=lambda f, v: v.x < v.x)
    theorem = BY_ID["T1"]
    assert isinstance(theorem, Theorem)
    theorem = replace(theorem, controls=(wrong,))
    assert "and not the claim" in " ".join(problems(theorem))


def test_every_theorem_is_registered():
    assert [problem for theorem in THEOREMS for problem in problems(theorem)] == []


def test_what_a_state_is_read_by_is_asked_of_the_model(monkeypatch):
    monkeypatch.setattr(Mamba, "attends", lambda rule, q, t: t == q)
    verdict = BY_ID["T1.states"].settle(subject("model"), with_controls=False)
    assert (verdict.status, verdict.replayed) == ("refuted", True)


@pytest.mark.parametrize(("kind", "name"), [(Sliding, "T1"), (Chunked, "T2"), (Full, "T1.full")])
def test_so_it_is_for_the_other_types(kind, name, monkeypatch):
    monkeypatch.setattr(kind, "attends", lambda rule, q, t: t == q)
    assert BY_ID[name].settle(subject("model"), with_controls=False).status == "refuted"


def test_tokens_of_blocks_of_two_sizes_are_added_up():
    p, q, a, b = map(symbol, "pqab")
    run = Run("test", [a > 0, b > 0])
    for path in run.paths(lambda: (tokens(p, 0, a) + tokens(q, 0, b), tokens(p, 0, a) - tokens(q, 0, b))):
        total, rest = path.value
        for found, meant in ((total, p * a + q * b), (rest, p * a - q * b)):
            assert solve([*path.hypotheses, found.term != meant.term], 5)[0] == "unsat"
