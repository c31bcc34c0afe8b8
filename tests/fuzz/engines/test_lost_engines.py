"""Engines that end their process, or do not come back: what is kept and told of the story."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines import story_fuzzing
from blockproof.fuzz.engines.forked import Noted, lost_at
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import StoryOutcome, play, read_story, simulate
from blockproof.fuzz.opening.commands import last_lines
from blockproof.fuzz.opening.new_target import write_target

KILL = "import os, signal; print('about to go'); os.kill(os.getpid(), signal.SIGKILL)"
SEVERAL = f"        if len(self.scheduler.running) > 1: {KILL}\n"
LATE = f"        CALLS.append(1)\n        if len(CALLS) > 400: {KILL}\n"
STEP = "        pieces = self.scheduler.step(self.max_tokens)\n"
LOCKED = """
import ctypes, sys
from blockproof.fuzz.engines import deadlines
from blockproof.fuzz.engines.simulated import Guarded, _STORY
from blockproof.fuzz.simulation.faults import OneAtATime

class Locks(OneAtATime):
    def schedule(self):
        lock, c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
        c.pthread_mutex_lock(lock)
        c.pthread_mutex_lock(lock)

deadlines.CALL_SECONDS = deadlines.SPARE = 0.2
deadlines.end_what_hangs(2)
Guarded(Locks(), _STORY).run(100)
"""


def engine(folder: Path, wrong: str) -> str:
    """The template, with this before it asks its scheduler; its name."""
    template = write_target("My-Engine", folder, engine=True).target
    source = template.read_text()
    assert source.count(STEP) == 1
    template.write_text("CALLS = []\n" + source.replace(STEP, wrong + STEP))
    return f"{template}:make_engine"


def quiet(line: str) -> None:
    """Nobody listens."""


def test_the_story_that_ends_a_process_is_kept_and_made_smaller(tmp_path, capsys):
    target = engine(tmp_path, SEVERAL)
    outcome = simulate(target, StoryTask(1, steps=2000, goes_on=False), tmp_path / "found", quiet)
    (found,) = outcome.found
    assert (outcome.exit_code, outcome.lost) == (1, "")
    assert (found["judge"], found["rule"]) == ("fate", "the process was lost: killed by SIGKILL in schedule")
    assert (len(found["story"]["happenings"]), found["complete"]) == (2, True)
    assert found["more"] == ["about to go"]
    assert "behind" not in found
    capsys.readouterr()
    assert main(["replay", found["file"], "--target", target, "--show"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("start: ")
    assert f"schedule: step {found['step'] - 1}" in lines  # all before the one with which it ends
    assert f"schedule: step {found['step']}" not in lines
    page = tmp_path / "page.html"
    assert main(["report", found["file"], "--target", target, "--out", str(page)]) == 0
    assert "ends the process: killed by SIGKILL" in page.read_text()


def test_an_end_that_needs_the_engines_before_it_is_repeated_with_them(tmp_path, capsys):
    target = engine(tmp_path, LATE)
    given = ["simulate", "--target", target, "--seed", "1", "--first", "2", "--steps", "2000", "--out", str(tmp_path)]
    assert main(given) == 1
    out = capsys.readouterr().out
    assert "killed by SIGKILL in schedule" in out
    assert "alone it shows nothing; behind engine 2 and those after it it does:" in out
    command = next(line for line in out.splitlines() if "repeat: " in line).partition("repeat: blockproof ")[2].split()
    assert command == ["simulate", "--target", target, "--seed", "1", "--first", "2"]
    assert main([*command, "--out", str(tmp_path)]) == 1
    assert "killed by SIGKILL in schedule" in capsys.readouterr().out


def test_a_finding_that_a_new_process_does_not_show_says_so(tmp_path, capsys):
    target = engine(tmp_path, LATE.replace(KILL, "raise OSError('too many')"))
    assert main(["simulate", "--target", target, "--seed", "1", "--steps", "2000", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "alone it shows nothing; behind engine 0 and those after it it does:" in out
    assert "page: " not in out


def test_what_does_not_come_back_to_python_ends_with_its_stack():
    ran = subprocess.run([sys.executable, "-c", LOCKED], capture_output=True, timeout=60, check=False)
    assert ran.returncode == 1
    found = lost_at(Noted(9, 3, 3), ran.returncode, last_lines(ran.stderr))
    assert (found.rule, found.what, found.step) == ("hang in schedule", "schedule does not come back to Python", 4)
    assert any(line.endswith("in schedule") for line in found.more)
    assert not any("/simulation/run.py" in line for line in found.more)


class Interrupted:
    """In place of a process: it has found something and makes it smaller when somebody ends it."""

    def __init__(self, *given: Any) -> None:
        self.told = [{"begun": {"number": 4, "steps": 70}}, {"noticed": FOUND}]

    def __enter__(self) -> "Interrupted":
        return self

    def __exit__(self, *error: object) -> None:
        """It ends."""

    def __iter__(self) -> Any:
        yield from self.told
        raise KeyboardInterrupt


FOUND = {
    "name": "new: fate: hang in schedule",
    "known": "",
    "judge": "fate",
    "rule": "hang in schedule",
    "step": 7,
    "what": "schedule does not return within 10 s",
    "more": [],
    "seed": 1,
    "number": 4,
    "tries": 0,
    "complete": False,
    "fault": "",
    "story": {"shape": {}, "happenings": []},
    "steps": 70,
}


@pytest.mark.parametrize("noticed", [True, False])
def test_what_was_found_is_told_though_nobody_waits_for_a_smaller_story(tmp_path, monkeypatch, noticed):
    class Process(Interrupted):
        def __init__(self, *given: Any) -> None:
            super().__init__()
            del self.told[1 + noticed :]

    monkeypatch.setattr(story_fuzzing, "Printing", Process)
    outcome = simulate(engine(tmp_path, ""), StoryTask(1), tmp_path / "found", quiet)
    said = "\n".join(outcome.lines())
    assert "after 70 steps, 4 engines" in said
    assert ("hang in schedule" in said, "nothing found until then" in said) == (noticed, not noticed)
    assert [Path(one["file"]).exists() for one in outcome.found] == [True] * noticed
    assert outcome.exit_code == (1 if noticed else 130)


def test_shrink_says_that_nothing_smaller_shows_it(tmp_path):
    target = engine(tmp_path, "        if len(self.scheduler.running) > 1: raise OSError('two')\n")
    outcome = simulate(target, StoryTask(1, steps=2000, goes_on=False), tmp_path / "found", quiet)
    again = play(read_story(Path(outcome.found[0]["file"])), target, quiet, shrink_seconds=60.0)
    assert any("nothing smaller shows it, in " in line for line in again.lines())


def test_a_process_that_is_lost_before_a_story_is_told_with_its_last_output():
    outcome = StoryOutcome("mine", StoryTask(1), lost="exit status 3", last_output=["no such library"])
    assert outcome.lines() == ["mine, seed 1: the process was lost: exit status 3", "  no such library"]
