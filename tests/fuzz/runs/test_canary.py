"""The canary of a run: an oracle that is made blind is refused, by name, before anything else is done."""

import json

import pytest
from blockproof.fuzz.campaign.tasks import Task, encoded, result_of
from blockproof.fuzz.campaign.work import close_targets, run_task
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.configuration import check
from blockproof.fuzz.configuration.fuzzing import check_oracle
from blockproof.fuzz.configuration.invariants import INVARIANTS
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import ENGINES, run_engine
from blockproof.fuzz.findings.oracle_names import ADDITIONS, EVERY, LOCKSTEP, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.oracles.liveness.rules import Watch
from blockproof.fuzz.oracles.shadow import Shadow
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.canary import BlindOracleError, check_oracles
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.pair import Pair, PairRun, Strictness
from blockproof.fuzz.targets.glance import Looks

from ..fakes import Fake

TARGET = Fake(lambda count: None)


def nothing(*given, **named):
    """What a blind oracle finds."""


def sees_no_glance(self, operation, last):
    return last


BLINDED = {
    "lockstep": (LockstepRun, "_compare"),
    "shadow": (Shadow, "step"),
    "contract": (Contract, "step"),
    "liveness": (Watch, "step_ends"),
}


@pytest.mark.parametrize("oracles", [EVERY, EVERY[1:], (*EVERY, *ADDITIONS), *((oracle,) for oracle in EVERY)])
@pytest.mark.parametrize("every", [1, 32])
def test_oracles_that_see_are_named_in_order(oracles, every):
    canary = check_oracles(TARGET, Judging(oracles, full_look_every=every, notes=every == 32))
    assert canary.seen == tuple(name for name in oracles if name in EVERY)
    assert canary.milliseconds > 0
    assert canary.line().startswith(f"canary: seen by {', '.join(canary.seen)} in ")


def test_the_declared_deviations_of_a_reference_blind_nobody():
    released = Fake(lambda count: None)
    released.name = "vllm==0.23.0"
    for without in ((), ("misuse-unchecked",)):
        assert check_oracles(released, Judging(EVERY, without)).seen == EVERY


@pytest.mark.parametrize("oracle", EVERY)
@pytest.mark.parametrize("alone", [True, False])
def test_a_blind_oracle_is_refused(oracle, alone, monkeypatch):
    judging = Judging((oracle,) if alone else EVERY)
    check_oracles(TARGET, judging)
    monkeypatch.setattr(*BLINDED[oracle], nothing)
    with pytest.raises(BlindOracleError, match=f"^blind: {oracle}[,;]"):
        check_oracles(TARGET, judging)


@pytest.mark.parametrize(
    ("owner", "name", "blind"), [(Looks, "glance", sees_no_glance), (LockstepRun, "finish", nothing)]
)
def test_a_short_look_that_sees_nothing_and_a_last_full_look_that_is_left_out_are_refused(
    owner, name, blind, monkeypatch
):
    monkeypatch.setattr(owner, name, blind)
    check_oracles(TARGET, Judging((LOCKSTEP,)))
    with pytest.raises(BlindOracleError, match=r"^blind: lockstep[,;]"):
        check_oracles(TARGET, Judging((LOCKSTEP, SHADOW), full_look_every=32))


@pytest.mark.parametrize("strictness", Strictness)
def test_a_comparison_of_two_targets_that_sees_no_difference_is_refused(strictness, monkeypatch):
    pair = Pair(TARGET, TARGET, strictness)
    assert check_oracles(pair, Judging(())).seen == ("difference",)
    monkeypatch.setattr(PairRun, "_compare", nothing)
    with pytest.raises(BlindOracleError, match=r"^blind: difference;"):
        check_oracles(pair, Judging(()))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_tries_its_oracles_before_the_target_is_asked(engine, monkeypatch):
    target, started = open_target("impl"), list[object]()
    start = target.start

    def watched(shape):
        started.append(shape)
        return start(shape)

    monkeypatch.setattr(target, "start", watched)
    plan = Plan(1, operations=50, attention=("full",))
    assert run_engine(target, plan, Summary("impl", engine, 1)).canary.seen == (LOCKSTEP, SHADOW)
    assert started
    started.clear()
    monkeypatch.setattr(Shadow, "step", nothing)
    with pytest.raises(BlindOracleError):
        run_engine(target, plan, Summary("impl", engine, 1))
    assert not started


def test_the_command_refuses_in_one_line_and_reports_what_was_seen(monkeypatch, capsys):
    command = ["fuzz", "--seed", "1", "--operations", "100", "--oracle", "all", "--json"]
    assert cli.main(command) == 0
    assert json.loads(capsys.readouterr().out)["canary"]["seen"] == [*EVERY]
    monkeypatch.setattr(Contract, "step", nothing)
    assert cli.main(command) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1].startswith("blockproof: blind: contract;")


def test_a_task_of_a_campaign_with_a_blind_oracle_is_a_problem_and_no_result(monkeypatch):
    monkeypatch.setattr(Contract, "step", nothing)
    task = Task(3, "impl", "full", ("shadow", "contract"), "random", 1, 100)
    result = result_of(run_task(encoded(task)))
    close_targets()
    assert (result.operations, result.runs) == (0, 0)
    assert result.problem.startswith("blind: contract;")


def test_fuzz_config_refuses_judges_that_see_nothing(monkeypatch, capsys):
    assert check_oracle("impl", "all").seen == ("lockstep", "invariants")
    assert check_oracle("vllm==0.23.0", "invariants").seen == ("invariants",)
    for blinded, blind in (({"_compare": lambda *given: False}, "lockstep"), ({"_hold": nothing}, "invariants")):
        with monkeypatch.context() as patch:
            for name, does in blinded.items():
                patch.setattr(check.Judge, name, does)
            assert cli.main(["fuzz-config", "--seed", "1", "--cases", "1"]) == 3
            assert f"blockproof: blind: {blind};" in capsys.readouterr().err


@pytest.mark.parametrize("invariant", ["I1", "I2", "I4"])
def test_an_invariant_that_holds_of_everything_is_refused(invariant, monkeypatch):
    monkeypatch.setitem(INVARIANTS, invariant, lambda configuration, ask: iter(()))
    with pytest.raises(BlindOracleError, match=r"^blind: invariants;"):
        check_oracle("impl", "all")
