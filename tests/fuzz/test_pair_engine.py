"""The pair of engines among the examples: right, and found with any of its mistakes."""

import json
import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.simulation.judges import JUDGES

from .pair_mistakes import ADAPTED, PAIRED
from .test_scheduler_engine import found_in

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-pair"
EVERY = {**PAIRED, **ADAPTED}
DOUBLED = Path(__file__).parent / "simulation" / "inputs" / "doubled-while-leaving.json"
"""A message that asks for a load comes twice, and the request leaves while it is loaded."""
REMEMBERED = "        self.over[one.asked.id, one.asked.attempt] = one.asked.source.until\n"
MOST = 60_000
"""Steps in which each mistake must be found."""
SEEDS = {
    "pair-answer-of-who-left": 2,
    "pair-acknowledgement-of-another-attempt": 2,
    "pair-message-of-an-earlier-life": 3,
    "pair-newer-attempt-beside-the-older": 2,
    "pair-blocks-back-while-loading": 2,
    "pair-hears-old-attempts": 3,
}
"""Where seed 1 takes long (docs/evidence/simulation.md)."""
SOON = (
    "pair-freed-as-soon-as-computed",
    "pair-lease-never-ends",
    "pair-drop-at-prefill-while-loading",
    "pair-result-of-who-was-dropped",
    "pair-partial-load",
    "pair-lost-is-not-noticed",
    "pair-tokens-without-places",
)
"""Mistakes that are found within some hundred steps, by one judge or another; the others take longer."""


def family_in(folder: Path) -> SimulatedFamily:
    """The pair of a folder."""
    return SimulatedFamily(open_engine_here(f"{folder / 'simulated.py'}:make_engine"))


def planted(name: str, folder: Path) -> SimulatedFamily:
    """The pair with a mistake."""
    mistake = EVERY[name]
    shutil.copytree(EXAMPLE, folder)
    file = folder / ("simulated.py" if name in ADAPTED else "pair_engine.py")
    source = file.read_text(encoding="utf-8")
    assert source.count(mistake.old) == 1, mistake.what
    file.write_text(source.replace(mistake.old, mistake.new), encoding="utf-8")
    return family_in(folder)


def test_the_pair_is_right():
    found, reached = found_in(family_in(EXAMPLE), 1, 6_000)
    assert found == []
    for name in (
        "crash in flight",
        "part",
        "messages lost",
        "messages late",
        "messages twice",
        "messages lost at a cut",
        "messages to a half that is down",
        "transfers failed",
        "steps in flight beside another",
        "looks at an idle engine",
    ):
        assert reached[name] > 0, name


def test_a_story_that_is_played_again_is_the_same():
    family = family_in(EXAMPLE)
    for number in range(30):
        story = family.story_from_json(json.loads(json.dumps(family.story_to_json(family.draw(2, number)))))
        assert story == family.draw(2, number)
        one = family.run_of(story)
        assert one.run(3000) == []
        other = family.run_of(story)
        assert other.run(3000) == []
        assert one.reached == other.reached


def test_who_leaves_while_he_is_loaded_is_not_loaded_again(tmp_path):
    """What a long run found in this pair itself (docs/evidence/simulation.md)."""
    assert main(["replay", str(DOUBLED), "--target", f"{EXAMPLE / 'simulated.py'}:make_engine"]) == 0
    shutil.copytree(EXAMPLE, tmp_path / "pair")
    file = tmp_path / "pair" / "pair_engine.py"
    source, line = file.read_text(encoding="utf-8"), REMEMBERED
    assert source.count(line) == 1
    file.write_text(source.replace(line, ""), encoding="utf-8")
    assert main(["replay", str(DOUBLED), "--target", f"{tmp_path / 'pair' / 'simulated.py'}:make_engine"]) == 1


def test_there_are_twenty_mistakes_at_least():
    assert len({(mistake.old, mistake.new) for mistake in EVERY.values()}) >= 20


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in EVERY])
def test_every_mistake_is_found(name, tmp_path):
    found, _ = found_in(planted(name, tmp_path / "pair"), SEEDS.get(name, 1), MOST)
    assert found, EVERY[name].what
    assert found[0].judge in JUDGES


def test_the_commands_of_its_page_find_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(EXAMPLE)
    assert main(["targets", "check", "--engine", "simulated.py:make_engine"]) == 0
    command = ["simulate", "--target", "simulated.py:make_engine", "--steps", "4000", "--seed", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "nothing found" in said
    assert "not observed" not in said


def test_a_finding_is_kept_replayed_told_and_made_smaller(tmp_path, capsys):
    planted("pair-lease-never-ends", tmp_path / "pair")
    target = ["--target", f"{tmp_path / 'pair' / 'simulated.py'}:make_engine"]
    command = ["simulate", *target, "--steps", "8000", "--seed", "1", "--shrink-seconds", "0"]
    assert main([*command, "--out", str(tmp_path)]) == 1
    (file,) = tmp_path.glob("*.json")
    assert main(["shrink", str(file), *target, "--out", str(tmp_path / "small")]) == 1
    (small,) = (tmp_path / "small").glob("*.json")
    story = json.loads(small.read_text())["story"]
    troubles = [one for one in story["happenings"] if one["what"] in ("crash", "part")] + story.get("network", [])
    assert len(troubles) == 1, "one loss is enough for a lease that never ends"
    capsys.readouterr()
    assert main(["replay", str(small), *target, "--show"]) == 1
    said = capsys.readouterr().out
    assert "network: router>prefill: Compute(" in said
    assert "network: prefill>router: Computed(" in said
    assert main(["replay", str(small), "--target", f"{EXAMPLE / 'simulated.py'}:make_engine"]) == 0
