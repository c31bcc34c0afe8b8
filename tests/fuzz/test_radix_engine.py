"""The radix tree among the examples: right under all oracles by what it declares, found with any of its mistakes."""

import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.conformance import check_target
from blockproof.fuzz.targets.base import Target

from .radix_mistakes import MISTAKES

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-radix-engine"


def engine_in(folder: Path) -> Target:
    """The target of an engine."""
    return open_target(f"{folder / 'radix_target.py'}:make_target")


def run(target: Target, operations: int, seed: int = 1) -> Summary:
    """Runs under all oracles that suit it."""
    plan = Plan(seed, operations=operations, oracles=MODEL_FREE, attention=("full",))
    return run_random(target, plan, Summary(target.name, "random", seed, oracles=MODEL_FREE))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_engine_is_right(seed):
    done = run(engine_in(EXAMPLE), 6_000, seed)
    assert done.finding is None, done.finding
    assert done.reached["contract: hit of a shared block"] > 50
    assert done.reached["contract: by design evicts_more"] > 20
    assert done.reached["liveness: request finished"] > 20
    assert not done.operation_counts["Preempt"]
    assert {name for name, _ in done.unobserved} == {"S9", "S11", "S19"}


def test_the_check_finds_it_right():
    report = check_target(engine_in(EXAMPLE), MODEL_FREE)
    assert report.code == 0
    assert not report.of("hint")


def test_the_commands_of_its_page_find_nothing(monkeypatch, capsys):
    monkeypatch.chdir(EXAMPLE)
    oracles = ["--oracle", "shadow,contract,liveness"]
    assert main(["targets", "check", "radix_target.py:make_target", *oracles]) == 0
    floors = ["--floors", "floors.toml"]
    assert main(["fuzz", "--target", "radix_target:make_target", "--seed", "1", "--operations", "10000", *floors]) == 0
    assert "all of them finish" in capsys.readouterr().out


@pytest.mark.parametrize(("design", "observable"), [("evicts_more", "S10"), ("publishes_at_end", "S14")])
def test_without_one_of_its_designs_it_is_accused(design, observable):
    target = engine_in(EXAMPLE)
    target.designs = target.designs - {design}  # type: ignore[attr-defined]
    finding = run(target, 5_000).finding
    assert finding is not None
    assert finding.observable == observable


def test_there_are_twenty_mistakes_at_least():
    assert len({(mistake.old, mistake.new) for mistake in MISTAKES.values()}) >= 20


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_found(name, tmp_path):
    folder, mistake = tmp_path / "engine", MISTAKES[name]
    shutil.copytree(EXAMPLE, folder)
    source = (folder / "radix_engine.py").read_text(encoding="utf-8")
    assert source.count(mistake.old) == 1, mistake.what
    (folder / "radix_engine.py").write_text(source.replace(mistake.old, mistake.new), encoding="utf-8")
    assert run(engine_in(folder), 10_000).finding is not None, mistake.what
