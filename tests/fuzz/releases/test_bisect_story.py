"""Bisecting the story of an engine: over releases, and over the commits of a repository."""

import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.releases import bisect_releases
from blockproof.fuzz.releases.bisect import State
from blockproof.fuzz.releases.bisect_story import observe_story, question_of_story

from ..scheduler_mistakes import MISTAKES
from .toy_git import git

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"
FILES = ("simulated.py", "scheduler_engine.py", "offloading.py")
WRONG = MISTAKES["freed-by-the-first"]


def put(folder, text=None):
    """The example in a folder, with this text as its scheduler; its name."""
    folder.mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy(EXAMPLE / name, folder)
    if text is not None:
        (folder / "scheduler_engine.py").write_text(text, encoding="utf-8")
    return f"{folder}/simulated.py:make_engine"


RIGHT = (EXAMPLE / "scheduler_engine.py").read_text(encoding="utf-8")
BROKEN = RIGHT.replace(WRONG.old, WRONG.new)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A file of what the mistake shows."""
    folder = tmp_path_factory.mktemp("story")
    task = StoryTask(1, steps=20_000, goes_on=False, shrink_seconds=5)
    done = simulate(put(folder / "engine", BROKEN), task, folder, lambda line: None)
    return Path(done.found[0]["file"])


@pytest.mark.slow
def test_a_story_is_observed_as_a_trace_is(story, tmp_path):
    question = question_of_story(read_story(story), False)
    fails = observe_story(question, put(tmp_path / "broken", BROKEN))
    assert fails.state is State.FAILS
    assert fails.why.startswith("memory: ")
    assert fails.operations > 0
    passes = observe_story(question, put(tmp_path / "right"))
    assert (passes.state, passes.why) == (State.PASSES, "")
    raises = BROKEN.replace("    def schedule(self)", "    def schedule(self, much)")
    other = observe_story(question, put(tmp_path / "raises", raises))
    assert (other.state, other.why[:6]) == (State.OTHER, "fate: ")
    assert observe_story(question_of_story(read_story(story), True), put(tmp_path / "raises", raises)).state.fails
    unseen = observe_story(question, put(tmp_path / "unseen", "import nothing_of_this"))
    assert unseen.state is State.UNSEEN
    assert "nothing_of_this" in unseen.why


@pytest.mark.slow
def test_the_first_release_is_named(story, tmp_path, monkeypatch, capsys):
    engines = {f"vllm==0.{minor}.1": put(tmp_path / str(minor), BROKEN if minor > 20 else RIGHT) for minor in (19, 21)}
    monkeypatch.setattr(bisect_releases, "observe_story", lambda asked, spec: observe_story(asked, engines[spec]))
    monkeypatch.setattr(bisect_releases, "interpreter_of", lambda spec: spec)
    monkeypatch.setattr(bisect_releases, "candidates", lambda *asked: ("0.19.1", "0.21.1"))
    assert cli.main(["bisect", str(story), "--releases", "vllm==0.19.1..0.21.1"]) == 0
    *table, verdict = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["release", "story", "steps", "seconds"]
    assert verdict == "first fails in vllm==0.21.1 (the last that does not: vllm==0.19.1)"


@pytest.mark.slow
def test_the_first_commit_is_named(story, tmp_path, capsys):
    repo = tmp_path / "repo"
    put(repo)
    git(repo, "init", "--quiet", "--initial-branch=trunk")
    hashes = []
    for number, text in enumerate((RIGHT, RIGHT + "\n", BROKEN, BROKEN + "\n")):
        (repo / "scheduler_engine.py").write_text(text, encoding="utf-8")
        git(repo, "add", ".")
        git(repo, "commit", "--quiet", "-m", f"change {number}")
        hashes.append(git(repo, "rev-parse", "HEAD"))
    words = ["bisect", str(story), "--git", f"{hashes[0]}..HEAD", "--repo", str(repo)]
    assert cli.main([*words, "--target", "simulated:make_engine"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"first bad commit: {hashes[2]}")
    assert cli.main([*words, "--target", "simulated:make_nothing"]) == 3
    assert "has no function 'make_nothing'" in capsys.readouterr().err
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("from blockproof.fuzz.simulation.faults import OneAtATime\n")
    assert cli.main([*words, "--target", f"{elsewhere}:OneAtATime"]) == 3
    assert "imported nothing from the commit" in capsys.readouterr().err


def test_oracles_do_not_judge_a_story(tmp_path, capsys):
    path = tmp_path / "story.json"
    path.write_text('{"blockproof_scheduler": 1, "target": "x", "judge": "", "rule": "", "story": {}}')
    assert cli.main(["bisect", str(path), "--releases", "vllm==0.19.1..0.20.2", "--oracle", "shadow"]) == 2
    assert "--oracle" in capsys.readouterr().err
