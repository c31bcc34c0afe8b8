"""SGLang's own scheduler under simulation: skipped where neither it nor an environment with it is installed."""

import re
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.sglang.scheduler import DEFECTS
from blockproof.fuzz.cli.main import main

from .released import place_of

NAME = families()["sglang"].example
INPUTS = Path(__file__).with_name("inputs")


@pytest.fixture(scope="module")
def place():
    """Where its interpreter and its files are."""
    return place_of(NAME)


def simulated(out: Path, *more: str) -> int:
    command = ["simulate", "--target", NAME, "--seed", "11", "--out", str(out), "--shrink-seconds", "0"]
    return main([*command, *more])


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_it_is_checked_with_every_attention_it_has(capsys):
    assert main(["targets", "check", "--engine", NAME]) == 0
    assert "are right" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_its_defects_are_found_and_put_down_to_their_causes(tmp_path, capsys):
    assert simulated(tmp_path, "--steps", "4000", "--keep-going") == 1
    said = capsys.readouterr().out
    for reached in ("hits: ", "states read: ", "steps in flight beside another: ", "reweigh in flight: "):
        assert reached in said
    assert "not observed" not in said
    assert "\nnew: " not in said
    assert ": fate, step " in said.split("\nabort-takes-longer-names (")[1].partition("\n")[0]


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("file", sorted(INPUTS.glob("sglang-*.json")), ids=lambda file: file.stem)
def test_a_story_bears_the_name_of_the_cause_without_which_nothing_is_found(capsys, file):
    (name,) = (one for one in DEFECTS if f"sglang-{one}" == file.stem)
    assert main(["replay", str(file), "--target", NAME]) == 1
    assert f"\n{name} (1 engine): " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("what", ["stored-beside-new-weights", "looked-for-on-the-host"])
def test_what_a_server_does_for_a_prompt_that_it_refuses_is_not_judged_as_for_that_prompt(capsys, what):
    """One token stands in place of the prompt: nothing of the prompt is looked for, and nothing of it is stored."""
    assert main(["replay", str(INPUTS / f"refused-prompt-{what}.json"), "--target", NAME]) == 0
    assert "nothing found" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("fault", ["other-blocks", "forgets"])
def test_a_planted_fault_is_found(tmp_path, capsys, fault):
    judge = {"other-blocks": "memory", "forgets": "progress"}[fault]
    assert simulated(tmp_path, "--steps", "300", "--fault", fault, "--keep-going") == 1
    assert re.search(rf"\nnew: {judge}: .*: {judge}, step ", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("attention", ["full", "full+sliding", "full+mamba"])
def test_a_story_is_told_in_words_and_repeats(tmp_path, capsys, attention):
    assert simulated(tmp_path, "--steps", "1000", "--fault", "other-blocks", "--attention", attention) == 1
    (file,) = tmp_path.iterdir()
    capsys.readouterr()
    assert main(["replay", str(file), "--target", NAME, "--show"]) == 1
    said = capsys.readouterr().out
    assert "schedule: step 1" in said
    assert ": memory, step " in said
