"""Calculators in a process of their own: answers as from this process, and what it takes to lose one."""

from pathlib import Path

import pytest
from blockproof.fuzz.configuration.check import Judge, draw_case
from blockproof.fuzz.configuration.questions import Question
from blockproof.fuzz.opening.child import ChildCalculator
from blockproof.fuzz.opening.process import ChildLimits
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.targets.base import TargetLostError, TargetUnavailableError
from blockproof.fuzz.workload.draw import SeededDraw

HERE = Path(__file__).parents[1]
BLOCKS = Question("num_blocks", {"draws": [[2, 4096, 512]], "vllm_config": {}})
GCD = Question("approximate_gcd", {"draws": [[[4, 6], None]]})


@pytest.fixture(autouse=True)
def calculators_importable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def launch():
    opened = []

    def open_child(fake, **limits):
        opened.append(ChildCalculator(fake, f"calculators:{fake}", limits=ChildLimits(**limits)))
        return opened[-1]

    yield open_child
    for calculator in opened:
        calculator.close()


def test_a_child_answers_as_this_process_does():
    here, child = open_calculator("impl"), open_calculator("impl", isolate=True)
    assert isinstance(child, ChildCalculator)
    try:
        for index in range(20):
            _, questions = draw_case(SeededDraw(f"child/{index}"))
            assert child.ask_all(questions) == [here.ask(op, inputs) for op, inputs in questions]
    finally:
        child.close()


def test_a_child_that_ends_is_lost_and_comes_back_for_the_next_question(launch):
    calculator = launch("exits")
    assert calculator.ask(*GCD) == {"output": [2]}
    with pytest.raises(TargetLostError, match="crash: exit status 3"):
        calculator.ask(*BLOCKS)
    assert calculator.ask(*GCD) == {"output": [2]}


def test_a_child_that_hangs_is_lost(launch):
    with pytest.raises(TargetLostError, match="hang: no answer within"):
        launch("hangs", operation_s=0.5).ask(*BLOCKS)


def test_a_child_that_eats_memory_is_lost(launch):
    calculator = launch("eats", growth_bytes=200 << 20)
    with pytest.raises(TargetLostError, match="memory"):
        calculator.ask_all([BLOCKS] * 10)


def test_an_answer_of_no_known_form_loses_the_child(launch):
    with pytest.raises(TargetLostError, match="expected an output or what is raised"):
        launch("answers_nonsense").ask(*BLOCKS)


def test_the_question_over_which_a_child_is_lost_is_the_finding(launch):
    configuration, _ = draw_case(SeededDraw("lost"))
    judge = Judge(launch("exits"), oracle="lockstep")
    finding = judge.check(configuration, [GCD, BLOCKS, GCD])
    assert (finding.oracle, finding.op) == ("lost", "num_blocks")
    assert finding.actual.startswith("crash")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("calculators:answers_nothing", "without 'name'"),
        ("fakes:exits", "without 'ask'"),
        ("nowhere:at_all", "cannot import nowhere"),
    ],
)
def test_a_factory_that_makes_no_calculator_is_unavailable(spec, problem):
    with pytest.raises(TargetUnavailableError, match=problem):
        open_calculator(spec)
    with pytest.raises(TargetUnavailableError, match=problem):
        open_calculator(spec, isolate=None).ask("num_blocks", {})
