"""The engine with a scheduler among the examples: right, and found with any of its mistakes."""

import json
import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.findings.story_finding import StoryFinding
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.simulation.judges import JUDGES

from .scheduler_mistakes import MISTAKES, OFFLOADING

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-scheduler-engine"
MOST = 30_000
"""Steps in which each mistake must be found."""
SEEDS = {"gives-back-for-a-load": 3, "key-without-place-of-items": 3}
"""Where seed 1 takes long (docs/evidence/simulation.md)."""


def family_in(folder: Path, factory: str = "make_engine") -> SimulatedFamily:
    """The engine of a folder."""
    return SimulatedFamily(open_engine_here(f"{folder / 'simulated.py'}:{factory}"))


def found_in(family: SimulatedFamily, seed: int, most: int) -> tuple[list[StoryFinding], dict[str, int]]:
    """The first findings within so many steps, and what was reached."""
    reached: dict[str, int] = {}
    number, found = 0, list[StoryFinding]()
    while reached.get("steps", 0) < most and not found:
        run = family.run_of(family.draw(seed, number))
        found, number = run.run(3000), number + 1
        for name, many in run.reached.items():
            reached[name] = reached.get(name, 0) + many
    return found, reached


@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_is_right(seed):
    found, reached = found_in(family_in(EXAMPLE), seed, 8_000)
    assert found == []
    for name in (
        "hits",
        "preemptions",
        "steps with drafts rejected",
        "blocks copied",
        "ids used again",
        "steps in flight beside another",
    ):
        assert reached[name] > 0, name


def test_there_are_thirty_mistakes_at_least():
    assert len({(mistake.old, mistake.new) for mistake in MISTAKES.values()}) >= 30


def test_with_a_second_memory_it_is_right():
    found, reached = found_in(family_in(EXAMPLE, "make_offloading_engine"), 1, 10_000)
    assert found == []
    assert reached["transfers ended"] > 30
    assert reached["transfers failed"] > 0


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", [*MISTAKES, *OFFLOADING])
def test_every_mistake_is_found(name, tmp_path):
    folder, offloads = tmp_path / "engine", name in OFFLOADING
    mistake = OFFLOADING[name] if offloads else MISTAKES[name]
    shutil.copytree(EXAMPLE, folder)
    file = folder / ("offloading.py" if offloads else "scheduler_engine.py")
    source = file.read_text(encoding="utf-8")
    assert source.count(mistake.old) == 1, mistake.what
    file.write_text(source.replace(mistake.old, mistake.new), encoding="utf-8")
    family = family_in(folder, "make_offloading_engine" if offloads else "make_engine")
    found, _ = found_in(family, SEEDS.get(name, 1), MOST)
    assert found, mistake.what
    assert found[0].judge in JUDGES


def test_the_commands_of_its_page_find_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(EXAMPLE)
    assert main(["targets", "check", "--engine", "simulated.py:make_engine"]) == 0
    for factory in ("make_offloading_engine", "make_engine"):
        command = ["simulate", "--target", f"simulated.py:{factory}", "--steps", "4000", "--seed", "1"]
        assert main([*command, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "nothing found" in said
    assert "canary: seen by an engine without mistakes, tokens, memory, progress, fate, capacity" in said
    assert "not observed" not in said


def test_a_finding_is_kept_replayed_and_made_smaller(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(EXAMPLE)
    target = ["--target", "simulated.py:make_engine"]
    command = ["simulate", *target, "--steps", "4000", "--seed", "1", "--shrink-seconds", "0"]
    assert main([*command, "--fault", "other-blocks", "--out", str(tmp_path)]) == 1
    (file,) = tmp_path.glob("*.json")
    kept = json.loads(file.read_text())
    assert kept["judge"] == "memory"
    assert main(["replay", str(file), *target]) == 1
    assert main(["shrink", str(file), *target, "--out", str(tmp_path / "small")]) == 1
    (small,) = (tmp_path / "small").glob("*.json")
    less = json.loads(small.read_text())
    assert less["rule"] == kept["rule"]
    assert len(less["story"]["happenings"]) < len(kept["story"]["happenings"])
    capsys.readouterr()
    assert main(["replay", str(small), *target, "--show"]) == 1
    said = capsys.readouterr().out
    for what in (
        "start: Group(kind='full'",
        "add r",
        "schedule: step 1",
        " computes 0",
        "table [",
        "update: step 1 has",
    ):
        assert what in said
    assert "was computed there last" in said or "what nobody wrote" in said
    assert main(["replay", str(small), *target, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["found"][0]["rule"] == kept["rule"]
