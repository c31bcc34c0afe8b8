"""The engine with a lower tier among the examples: right, and found with any of its mistakes."""

import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.simulation.judges import TIER

from .test_scheduler_engine import EXAMPLE, found_in
from .tier_mistakes import EPOCHS, FOUND, PINS, RIGHT, ROOM, STORED, TIERED

MOST = 30_000
"""Steps in which each mistake must be found."""
SEEDS = {
    "tier-pins-of-who-left": 2,
    "tier-unpins-when-who-loads-leaves": 2,
    "tier-loaded-is-found-at-once": 2,
    "tier-failed-load-stays-published": 2,
    "tier-load-outlives-new-weights": 2,
}
"""Where seed 1 takes long (docs/evidence/simulation.md)."""

OVERTAKEN = Path(__file__).parent / "simulation" / "inputs" / "overtaken-by-loads.json"
"""Who runs needs more blocks than are free; who is set back for it is loaded into these again, and so on."""


def family_in(folder):
    return SimulatedFamily(open_engine_here(f"{folder / 'simulated_tier.py'}:make_engine"))


def test_with_a_lower_tier_it_is_right():
    found, reached = found_in(family_in(EXAMPLE), 1, 6_000)
    assert found == []
    for name in ("tier: looked", "tier: stored", "tier: evicted", "tier: released", "tier blocks loaded"):
        assert reached[name] > 0, name
    least = 0.8 * reached["tier blocks found by the definition, lru"]
    assert reached["tier: looked"] > least


def test_each_clause_has_its_mistakes():
    assert all(len(clause) >= 4 for clause in (FOUND, RIGHT, PINS, ROOM, STORED))
    assert len(EPOCHS) >= 3
    assert len({(mistake.old, mistake.new) for mistake in TIERED.values()}) == len(TIERED)


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", TIERED)
def test_every_mistake_is_found(name, tmp_path):
    folder, mistake = tmp_path / "engine", TIERED[name]
    shutil.copytree(EXAMPLE, folder)
    file = folder / "tiered.py"
    source = file.read_text(encoding="utf-8")
    assert source.count(mistake.old) == 1, mistake.what
    file.write_text(source.replace(mistake.old, mistake.new), encoding="utf-8")
    found, _ = found_in(family_in(folder), SEEDS.get(name, 1), MOST)
    assert found, mistake.what


def test_a_key_that_is_lost_from_outside_is_found_by_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(EXAMPLE)
    command = ["simulate", "--target", "simulated_tier.py:make_engine", "--seed", "1", "--steps", "2000"]
    assert main([*command, "--shrink-seconds", "0", "--out", str(tmp_path)]) == 0
    assert "not observed" not in capsys.readouterr().out
    assert main([*command, "--shrink-seconds", "0", "--fault", "loses-keys", "--out", str(tmp_path)]) == 1
    assert f"new: {TIER}: what is stored at place N, from where nobody has evicted it" in capsys.readouterr().out


def test_who_waits_for_room_is_not_overtaken_by_loads(tmp_path):
    assert main(["replay", str(OVERTAKEN), "--target", f"{EXAMPLE}/simulated_tier.py:make_engine"]) == 0
    shutil.copytree(EXAMPLE, tmp_path / "engine")
    file = tmp_path / "engine" / "scheduler_engine.py"
    source = file.read_text(encoding="utf-8")
    assert source.count("short = True") == 1
    file.write_text(source.replace("short = True", "short = False"), encoding="utf-8")
    assert main(["replay", str(OVERTAKEN), "--target", f"{tmp_path}/engine/simulated_tier.py:make_engine"]) == 1
