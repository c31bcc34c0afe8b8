"""Wrong code that tries to look right to the prover: nothing of it is proved, and what is right beside it is."""

import re
import sys
from types import ModuleType

import pytest
from blockproof.proofs.theorem import NegativeControl, Subject, Theorem

from .attacks import SOURCE

WRONG = re.findall(r"^(?:def )?(wrong_\w+)(?:\(| = )", SOURCE, re.MULTILINE)
RIGHT = re.findall(r"^def (right_\w+)\(", SOURCE, re.MULTILINE)


@pytest.fixture
def attacks(tmp_path, monkeypatch):
    """A fresh module for each: what one remembers is none of the next one's business."""
    path = tmp_path / "attacking.py"
    path.write_text(SOURCE, encoding="utf-8")
    module = ModuleType("attacking")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE, str(path), "exec"), vars(module))
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
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 12


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_not_proved(name, attacks):
    verdict = settled(attacks, name)
    assert verdict.status in ("refuted", "undecided"), verdict
    assert verdict.message


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_beside_it_is_proved(name, attacks):
    verdict = settled(attacks, name)
    assert verdict.status == "proved", verdict
    assert verdict.replays >= 50
    assert verdict.largest > 2**63
