"""The Hypothesis state machine as somebody outside uses it, under unittest or pytest."""

import shlex
import subprocess
import sys
import unittest
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz import lockstep_machine
from blockproof.fuzz.engines.failing import FindingError
from blockproof.fuzz.findings.words import trace_lines
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model.ops import Allocate, Free, Group, ReadTable, Shape, Submit
from hypothesis import Phase, settings

FAULT = "fault:free-order-reversed"


def case_of(machine, examples):
    """The TestCase that pytest would collect, with the same examples each time."""
    case = machine.TestCase
    case.settings = settings(
        case.settings, max_examples=examples, stateful_step_count=30, database=None, derandomize=True
    )
    return case


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Findings are written below the current folder."""
    monkeypatch.chdir(tmp_path)


def run(machine, examples=15) -> unittest.TestResult:
    """What unittest makes of it."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case_of(machine, examples)).run(result)
    assert result.testsRun == 1
    return result


def failure(machine) -> FindingError:
    """What it raises."""
    with pytest.raises(FindingError) as caught:
        case_of(machine, 200)("runTest").runTest()
    return caught.value


@pytest.mark.parametrize("chaos", [False, True])
def test_our_core_passes(chaos):
    applied = []

    class Counted(lockstep_machine("impl", chaos=chaos)):  # type: ignore[misc]  # made when it is asked for
        def count(self, lockstep):
            applied.extend(lockstep.operations)

    result = run(Counted)
    assert result.wasSuccessful(), result.failures or result.errors
    assert len(applied) > 100  # it did something


def test_a_faulty_core_fails_with_steps_and_a_trace_that_repeats_the_difference(tmp_path):
    error = failure(lockstep_machine(FAULT, attention=("full",), folder=tmp_path))
    text = str(error)
    assert text.startswith("lockstep: model and target differ in `free` at operation")
    assert str(error.finding) in text
    (path,) = tmp_path.glob("*.json")
    assert f"trace:  {path}\npytest: {tmp_path / f'test_{path.stem}.py'}\n" in text
    file = read_trace(path)
    assert "\n".join(trace_lines(file.trace.shape, file.trace.operations)) in text
    assert (file.target, file.finding.text) == (FAULT, str(error.finding))
    found, applied = replay(file.trace, open_target(FAULT))
    assert (found, applied) == (error.finding, file.trace)
    assert replay(file.trace, open_target("impl")) == (None, file.trace)


def test_the_bytes_that_hypothesis_draws_are_not_printed(tmp_path):
    ((_, text),) = run(lockstep_machine(FAULT, attention=("full",), folder=tmp_path), 200).failures
    assert "blockproof replay" in text
    assert "\\x" not in text
    assert "Falsifying" not in text
    assert "Failing test case" not in text


MY_CORE = """
from blockproof.fuzz.opening.targets import open_target

def make():
    target = open_target("fault:free-order-reversed")
    target.name = "my core"
    return target
"""


@pytest.mark.parametrize("target", [FAULT, "core_of_my_own:make"])
def test_the_command_that_is_printed_repeats_the_difference(target, tmp_path, monkeypatch):
    (tmp_path / "core_of_my_own.py").write_text(MY_CORE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = str(failure(lockstep_machine(target, attention=("full",))))
    words = shlex.split(text.split("repeat the finding: ")[1])
    assert words[0] == "blockproof"
    words = [sys.executable, "-m", "blockproof.fuzz.cli", *words[1:]]
    again = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert again.returncode == 1, again.stderr
    assert "differ in `free`" in again.stdout


def test_the_trace_is_as_short_as_the_reducer_makes_it():
    error = failure(lockstep_machine(FAULT, attention=("full",)))
    assert [type(operation).__name__ for operation in error.trace.operations] == ["Submit", "Allocate", "Free"]
    assert Phase.shrink not in lockstep_machine(FAULT).TestCase.settings.phases  # it takes minutes and gives no trace


def test_a_target_that_is_not_deterministic_fails_with_the_whole_trace():
    class Moody:
        """Its first core has a fault, the others have none."""

        name = "moody"
        faults = iter([FAULT])

        def start(self, shape):
            self.core = open_target(next(self.faults, "impl"))
            return self.core.start(shape)

        def step(self, operation):
            return self.core.step(operation)

        def close(self):
            self.core.close()

    story = iter([Submit("a", (0, 0)), Allocate("a", 2), ReadTable("a"), Free("a")])
    machine: Any = lockstep_machine(Moody())()
    machine.run = LockstepRun(machine.tested.target)
    machine.run.start(Shape((Group("full", 1),), 3, 2, 1, 1, 1))
    machine.workload = SimpleNamespace(next=lambda model: next(story))
    for _ in range(3):
        machine.advance_requests(b"")
    with pytest.raises(FindingError) as caught:
        machine.advance_requests(b"")
    assert caught.value.finding.step == 3
    assert caught.value.trace == machine.run.trace


def test_unittest_reports_the_difference_as_a_failure():
    result = run(lockstep_machine("fault:usage-counts-null-block"))
    ((_, text),) = result.failures
    assert "model and target differ in `usage` at construction" in text


def test_a_difference_that_only_draining_shows_is_found():
    """`Free` of the last requests happens at the end of a run, in `teardown`."""
    machine: Any = lockstep_machine(FAULT, attention=("full",))
    machine.finish = machine.advance_requests = machine.observe = lambda self, data: None  # nobody leaves before
    assert type(failure(machine).finding.operation).__name__ == "Free"


def test_a_target_may_be_given_instead_of_its_name():
    target = open_target("impl")
    machine = lockstep_machine(target, attention=("mamba", "full+mamba"))
    assert machine.tested.target is target
    assert machine.attention == ("mamba", "full+mamba")
    assert run(machine).wasSuccessful()


def test_an_unknown_attention_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown attention 'sidling': choose from full, mla") as caught:
        lockstep_machine("impl", attention=("full", "sidling"))
    assert all(name in str(caught.value) for name in ATTENTION)


def test_a_target_that_is_not_there_is_said_at_once():
    with pytest.raises(TargetUnavailableError, match="no_such_module"):
        lockstep_machine("no_such_module:make")
    with pytest.raises(ValueError, match="unknown target"):
        lockstep_machine("no such target")


def test_the_package_is_imported_without_hypothesis():
    """The child process of a target has none."""
    program = (
        "import sys; sys.modules['hypothesis'] = None; import blockproof.fuzz\n"
        "from blockproof.fuzz.adapters.vllm import style\n"
        "from blockproof.fuzz.opening import serve\n"
        "try: blockproof.fuzz.lockstep_machine\n"
        "except ImportError: print('only the machine needs it')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("only the machine needs it\n", "")


def test_the_package_has_no_other_names():
    import blockproof.fuzz

    with pytest.raises(AttributeError, match="has no attribute 'machines'"):
        blockproof.fuzz.machines  # noqa: B018
