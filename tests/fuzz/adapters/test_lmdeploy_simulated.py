"""LMDeploy's own loop under simulation: skipped where neither it nor an environment with it is installed."""

import subprocess
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import main

from .released import place_of

NAME = families()["lmdeploy"].example
FINDINGS = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "findings"
KNOWN = {"piece-cancelled-when-sent": "fate", "prompt-of-the-whole-length": "memory"}


@pytest.fixture(scope="module")
def place():
    """Where its interpreter and its files are."""
    return place_of(NAME)


def simulated(out: Path, *more: str, seed: int = 1) -> int:
    command = ["simulate", "--target", NAME, "--seed", str(seed), "--out", str(out), "--shrink-seconds", "0"]
    return main([*command, *more])


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("name", "seed"), [("prompt-of-the-whole-length", 1), ("piece-cancelled-when-sent", 2)])
def test_its_defects_are_found_and_put_down_to_their_causes(tmp_path, capsys, name, seed):
    assert simulated(tmp_path, "--steps", "4500", "--keep-going", seed=seed) == 1
    said = capsys.readouterr().out
    assert "hits: " in said
    assert "not observed" not in said
    assert "\nnew: " not in said
    assert f"\n{name} (" in said
    assert f"): {KNOWN[name]}, step " in said.split(f"\n{name} (")[1].partition("\n")[0]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("fault", "judge"), [("other-blocks", "memory"), ("forgets", "progress")])
def test_a_planted_fault_is_found(tmp_path, capsys, fault, judge):
    assert simulated(tmp_path, "--steps", "1000", "--fault", fault) == 1
    assert f": {judge}, step " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_a_defect_shows_with_its_own_loop_on_asyncio_and_not_behind_the_change(place, name):
    environment = {"PYTHONPATH": f"{place.layers[0]}:{FINDINGS}", "CUDA_VISIBLE_DEVICES": ""}
    for more, status in ([], 1), (["--fixed"], 0):
        command = [place.python, FINDINGS / name / "scenario.py", *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == status, done.stdout + done.stderr
