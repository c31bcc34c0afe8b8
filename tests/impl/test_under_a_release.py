"""Schedulers of releases run over our core, and show nothing that the core would have to answer for."""

import json
import subprocess
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.targets import interpreter_of

RELEASE, TODAY = "vllm==0.23.0", "vllm==0.33.0"
CASES = (
    "chunk-astride-block",
    "window-cut-too-early",
    "state-beyond-keys",
    "hit-not-cut",
    "state-from-outside",
    "replay-never-hits",
    "short-prompt-loses-hit",
    "window-reserved-as-full",
)


@pytest.mark.slow
@pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
def test_the_scheduler_of_the_release_runs_over_our_core_without_a_violation(tmp_path: Path) -> None:
    _, place = interpreter_of(RELEASE)
    assert place is not None
    environment = environment_of(place, tmp_path, ("model", "fuzz", "impl"))
    script = Path(__file__).with_name("over_our_core.py")
    command = [str(place.python), "-P", str(script), *CASES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["case"] for line in told] == list(CASES), done.stderr[-2000:]
    assert all(line["cores"] > 0 for line in told)
    assert [line for line in told if line["shown"] is not False] == []


BROKEN = """
from blockproof.impl.today.block_pool import BlockPool

right = BlockPool.touch
BlockPool.touch = lambda pool, blocks: right(pool, [*blocks][1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(environments.find(TODAY) is None, reason=f"blockproof targets install {TODAY}")
@pytest.mark.parametrize(("mistake", "code"), [("", 0), (BROKEN, 1)])
def test_an_engine_of_today_over_our_core_is_simulated_as_a_patch(tmp_path, capsys, mistake, code):
    (tmp_path / "mistake.py").write_text(mistake)
    words = ["simulate", "--target", TODAY, "--steps", "1500", "--seed", "12", "--out", str(tmp_path)]
    patches = ["--patch", "blockproof.impl.compat:install", "--patch", str(tmp_path / "mistake.py")]
    assert main([*words, *patches]) == code
    assert "evictions: " in capsys.readouterr().out
