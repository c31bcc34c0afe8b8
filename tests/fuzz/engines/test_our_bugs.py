"""An oracle, the model or the generator fails: what was found before is told and kept, and the target not blamed."""

import json
from itertools import count

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.root_causes import RootCauses
from blockproof.fuzz.engines.smallest import KnownCounter
from blockproof.fuzz.findings.finding import BUG, Trace
from blockproof.fuzz.findings.oracle_names import BLOCKPROOF, CONTRACT, LIVENESS, SHADOW
from blockproof.fuzz.findings.severity import Severity, severity
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.oracles.liveness.scheduler import Scheduler
from blockproof.fuzz.oracles.shadow import Shadow
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.fuzz.workload.operations import Workload
from blockproof.model.core import Model
from blockproof.model.ops import Advance, Allocate, Group, Lookup, Shape, Submit

SHAPE = Shape((Group("full", 2),), 8, 64, 2, 2, 64)
STORY = (Submit("a", (1, 2, 3)), Lookup("a"), Allocate("a", 3), Advance("a", (4,)))


@pytest.fixture
def failing(monkeypatch):
    """Makes a method raise at its Nth call, and at each one behind it."""

    def plant(owner, name, at):
        real, calls = getattr(owner, name), count(1)

        def fails(self, *given, **more):
            if next(calls) >= at:
                raise IndexError("list index out of range")
            return real(self, *given, **more)

        monkeypatch.setattr(owner, name, fails)

    return plant


def run(capsys, *words):
    code = cli.main([*words])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("owner", "name", "oracles"),
    [(Contract, "step", (CONTRACT,)), (Shadow, "step", (SHADOW,)), (Model, "apply", ("lockstep",))],
)
@pytest.mark.parametrize("at", [1, 3])
def test_what_fails_in_a_step_is_told_at_the_step(failing, owner, name, oracles, at):
    failing(owner, name, at)
    finding, applied = replay(Trace(SHAPE, STORY), open_target("impl"), Judging(oracles))
    assert (finding.oracle, finding.observable, finding.step) == (BLOCKPROOF, BUG, at - 1)
    assert applied.operations == STORY[:at]
    assert severity(finding) is Severity.OUR_BUG
    told = str(finding)
    assert told.startswith(f"a bug of blockproof, which says nothing of the target, at operation {at - 1}: ")
    assert "IndexError: list index out of range" in told
    assert "test_our_bugs.py" in told  # the place that raised


def test_what_fails_at_the_construction_is_told_too(failing):
    failing(Contract, "start", 1)
    finding, _ = replay(Trace(SHAPE, STORY), open_target("impl"), Judging((CONTRACT,)))
    assert (finding.observable, finding.operation, finding.step) == (BUG, None, -1)


@pytest.mark.parametrize(("owner", "name"), [(Scheduler, "step"), (Workload, "drawn")])
def test_what_fails_around_the_steps_is_told_too(failing, capsys, tmp_path, owner, name):
    failing(owner, name, 200)
    oracles = LIVENESS if owner is Scheduler else SHADOW
    words = ("--oracle", oracles, "--seed", "1", "--operations", "5000", "--attention", "full", "--out", str(tmp_path))
    code, out, _ = run(capsys, "fuzz", *words)
    assert code == 70
    assert "a bug of blockproof, which says nothing of the target, at " in out
    assert "IndexError: list index out of range" in out
    assert list(tmp_path.glob("*.json"))


def test_a_run_without_a_finding_ends_with_70_and_a_trace_that_repeats_it(failing, capsys, tmp_path):
    failing(Contract, "step", 50)
    words = ("--oracle", "shadow,contract", "--seed", "1", "--operations", "400", "--attention", "full")
    code, out, _ = run(capsys, "fuzz", *words, "--out", str(tmp_path))
    assert code == 70
    assert "FOUND: a bug of blockproof, which says nothing of the target, at " in out
    small = min(tmp_path.glob("*.json"), key=lambda path: len(read_trace(path).trace.operations))
    code, out, _ = run(capsys, "replay", str(small), "--json")
    assert code == 70
    assert json.loads(out)["finding"]["oracle"] == BLOCKPROOF


def test_what_was_found_before_is_kept_and_comes_first(capsys, tmp_path, monkeypatch):
    real = Contract.step

    def fails(self, operation, *given):
        if isinstance(operation, Advance) and len(operation.sampled) > 1:
            raise IndexError("list index out of range")
        return real(self, operation, *given)

    monkeypatch.setattr(Contract, "step", fails)
    words = ("--target", "fault:one-block-leaks", "--oracle", "contract", "--seed", "1", "--operations", "3000")
    code, out, _ = run(capsys, "fuzz", *words, "--attention", "full", "--keep-going", "--out", str(tmp_path), "--json")
    document = json.loads(out)
    assert code == 1
    kinds = [(one["oracle"], one["observable"]) for one in document["findings"]]
    assert kinds[0] == (CONTRACT, "S1")
    assert kinds[-1] == (BLOCKPROOF, BUG)
    assert list(tmp_path.glob("s1_*.json"))
    assert list(tmp_path.glob("bug_*.json"))


@pytest.mark.parametrize("what", ["counts", "of"])
def test_asking_about_a_finding_may_fail_and_loses_nothing(failing, capsys, tmp_path, what):
    failing(KnownCounter if what == "counts" else RootCauses, what, 1)
    words = ("--target", "fault:one-block-leaks", "--oracle", "contract", "--seed", "1", "--operations", "3000")
    code, out, _ = run(capsys, "fuzz", *words, "--attention", "full", "--out", str(tmp_path))
    assert code == 1
    assert "contract: S1 is violated" in out


def test_shrinking_may_fail_and_loses_nothing(monkeypatch, capsys, tmp_path):
    def fails(trace):
        raise IndexError("list index out of range")
        yield trace

    monkeypatch.setattr("blockproof.fuzz.traces.shrink.PASSES", (fails,))
    words = ("--target", "fault:one-block-leaks", "--oracle", "contract", "--seed", "1", "--operations", "3000")
    code, out, _ = run(capsys, "fuzz", *words, "--attention", "full", "--out", str(tmp_path))
    assert code == 1
    assert "not shrunk, by a bug of blockproof" in out
    assert "contract: S1 is violated" in out
    assert list(tmp_path.glob("s1_*.json"))


def test_two_targets_are_compared_as_far_as_it_goes(failing, capsys, tmp_path):
    failing(Workload, "drawn", 100)
    words = ("--target", "impl", "--target", "fault:one-block-leaks", "--seed", "1", "--operations", "2000")
    code, out, _ = run(capsys, "diff", *words, "--attention", "full", "--out", str(tmp_path), "--json")
    document = json.loads(out)
    kinds = {one["situation"] for part in document["comparisons"] for one in part["situations"]}
    assert kinds > {BUG}
    assert code == 1
    failing(Workload, "drawn", 1)
    code, out, _ = run(capsys, "diff", *words, "--attention", "full", "--out", str(tmp_path))
    assert code == 70
    assert "they differ in" not in out
