"""The GitHub action with an engine: simulated, its old stories replayed, and what is found reported."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main

from ..scheduler_mistakes import MISTAKES
from .github import Runner, repository
from .test_action import ACTION, IMAGE, cases

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"
ENGINE = "simulated.py:make_engine"
WRONG = MISTAKES["freed-by-the-first"]


@pytest.fixture
def engine(tmp_path):
    """The example, as it is checked out in a job."""
    workspace = tmp_path / "workspace"
    shutil.copytree(EXAMPLE, workspace, ignore=shutil.ignore_patterns("__pycache__", "findings"))
    repository(workspace)
    return workspace


def job(workspace, tmp_path, **changed):
    inputs = {"target": ENGINE, "engine": "true", "version": "installed", "seed": "1", "operations": "2500", **changed}
    return Runner(workspace, tmp_path / "runner", IMAGE).run(ACTION, inputs)


def break_it(workspace):
    path = workspace / "scheduler_engine.py"
    path.write_text(path.read_text(encoding="utf-8").replace(WRONG.old, WRONG.new), encoding="utf-8")


def test_an_engine_without_mistakes_is_green(engine, tmp_path):
    done = job(engine, tmp_path)
    assert not done.failed, done.log
    assert done.annotations == []
    report = Path(done.outputs["blockproof"]["report"])
    assert cases(report / "fuzz.xml") == {"simulate": None}
    assert f"$ blockproof simulate --target {ENGINE} --seed 1 --steps 2500" in done.log
    assert f"nothing was found on {ENGINE}" in done.summary


@pytest.mark.slow
def test_a_mistake_is_caught_reported_and_kept(engine, tmp_path):
    break_it(engine)
    done = job(engine, tmp_path)
    assert done.failed, done.log
    report = Path(done.outputs["blockproof"]["report"])
    assert cases(report / "fuzz.xml")["simulate"].get("message").startswith("memory: ")
    (annotation,) = done.annotations
    assert annotation.startswith("::error file=simulated.py,title=blockproof%3A memory%3A ")
    assert "which holds another content" in done.summary
    (story,) = (report / "findings").glob("*.json")
    assert story.with_suffix(".html").is_file()
    command = re.search(r"^repeat it: (blockproof replay .*)$", done.summary, re.MULTILINE)[1]
    again = subprocess.run(shlex.split(command), cwd=engine, env=IMAGE, capture_output=True, text=True)
    assert again.returncode == 1, again.stderr

    # Among the corpus it fails until the engine is mended, and nothing is looked for.
    (engine / "stories").mkdir()
    shutil.copy(story, engine / "stories")
    red = job(engine, tmp_path, corpus="stories")
    assert red.failed
    assert "blockproof simulate" not in red.log
    assert "1 story from stories, which must show nothing" in red.log
    assert "memory: " in cases(report / "corpus.xml")[story.stem].get("message")
    assert (report / "corpus" / story.with_suffix(".html").name).is_file()
    shutil.copy(EXAMPLE / "scheduler_engine.py", engine)
    green = job(engine, tmp_path, corpus="stories")
    assert not green.failed, green.log
    assert "1 story of the corpus replayed, nothing was found" in green.summary


def test_what_is_no_engine_is_told_in_one_line(engine, tmp_path):
    done = job(engine, tmp_path, target="simulated.py:nobody")
    assert done.failed
    assert "simulated.py has no function 'nobody'" in done.summary
    assert main(["ci", "--target", ENGINE, "--engine", "--floors", "floors.toml"]) == 2
