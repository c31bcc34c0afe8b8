"""The check of an engine to be simulated, and the template that it begins with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.engine_check import check_engine
from blockproof.fuzz.engines.played import StartEndsError, found_at_start
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import simulate
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.opening.new_target import write_target
from blockproof.fuzz.simulation.answers import problem_with
from blockproof.fuzz.simulation.checks import HINTS
from blockproof.fuzz.simulation.judges import JUDGES
from blockproof.fuzz.simulation.protocol import (
    Delivered,
    EngineView,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
)

from ..simulation.engines import shape_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine" / "simulated.py"


STEP = "        pieces = self.scheduler.step(self.max_tokens)\n"
"""The line of the template that asks its scheduler."""
START = "        self.max_tokens = shape.max_tokens\n"
"""One of its start."""


@pytest.fixture
def template(tmp_path) -> Path:
    return write_target("My-Engine", tmp_path / "tests", engine=True).target


def changed(template: Path, old: str, new: str) -> str:
    """The template with a mistake; its name."""
    source = template.read_text()
    assert source.count(old) == 1
    template.write_text(source.replace(old, new))
    return f"{template}:make_engine"


def test_the_template_is_right_and_its_test_passes(template):
    assert template.name == "my_engine_engine.py"
    report = check_engine(f"{template}:make_engine")
    assert (report.code, report.unseen) == (0, [])
    assert len(report.checks) == 12
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(template.parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout


def test_the_example_is_asked_all_that_it_has():
    report = check_engine(f"{EXAMPLE}:make_engine")
    assert report.code == 0
    asked = " ".join(one.asks for one in report.checks)
    for what in ("2 steps in flight", "reset", "new weights", "parked", "fork", "drafts", "adapter", "image", "salt"):
        assert what in asked


@pytest.mark.parametrize(
    ("old", "new", "judge", "said"),
    [
        ("return ScheduledBatch(tuple(parts), own=pieces)", "return parts", "fate", "schedule() returned a list"),
        ("Delivered(id, tokens, ended))", "(id, tokens))", "fate", "a tuple among what is delivered"),
        ('tuple(state["blocks"])', 'tuple(state["blocks"][:1])', "memory", "for which there is no slot"),
        ('return "stop"', 'return ""', "tokens", "behind its end"),
        ("        self.scheduler.remove(id)\n\n", "        pass\n\n", "tokens", "a: "),
        ("self.free += self.running.pop(id)", "self.running.pop(id)", "capacity", "were at the start"),
        ("        self.max_tokens = shape.max_tokens\n", "        raise OSError('no shape')\n", "start", "no shape"),
    ],
)
def test_each_mistake_is_explained(template, old, new, judge, said):
    report = check_engine(changed(template, old, new))
    assert report.code == 1
    wrong = [one for one in report.checks if one.judge]
    assert wrong[0].judge == judge
    assert said in wrong[0].what
    assert wrong[0].hint
    assert any("in the engine, or in what shows it" in line for line in report.lines())


def test_a_missing_reference_is_found(tmp_path):
    """Who comes second gets the blocks of the first, and nobody counts it."""
    for path in EXAMPLE.parent.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    engine = tmp_path / "scheduler_engine.py"
    right = "        self.references[block] += 1\n"
    assert right in engine.read_text()
    engine.write_text(engine.read_text().replace(right, "        self.references[block] = 1\n"))
    wrong = [one for one in check_engine(f"{tmp_path / 'simulated.py'}:make_engine").checks if one.judge]
    assert wrong[0].asks == "two requests that share blocks, of which one ends first; then others need room"


def test_every_judge_has_a_hint():
    assert {*HINTS} == {*JUDGES}


KILL = "        import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
BARE = "        import os; from blockproof.fuzz.targets.unharmed import really_exit; really_exit(0)\n"
"""Ends the process as C may do: no exception is raised, and status 0 says that all is well."""


@pytest.mark.parametrize(("call", "how"), [(KILL, "killed by SIGKILL"), (BARE, "exit status 0")])
def test_an_engine_that_ends_its_process_is_told(template, capsys, call, how):
    target = changed(template, STEP, call)
    report = check_engine(target)
    assert (report.code, report.lost, report.questions) == (1, f"{how}, asked for: one request", 12)
    assert report.lines()[-1] == "0 answers are right; 12 questions of 12 not answered"
    assert main(["simulate", "--target", target, "--steps", "50", "--seed", "3", "--out", str(template.parent)]) == 1
    assert f"schedule ends the process: {how}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "raised"),
    [
        ("import os; os._exit(0)", "SystemExit: os._exit(0)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_what_would_end_the_process_is_a_finding_with_its_place(template, call, raised):
    report = check_engine(changed(template, STEP, f"        {call}\n"))
    assert (report.code, report.lost, len(report.checks)) == (1, "", 12)
    assert f"schedule raises {raised}" in report.checks[0].what
    assert f'File "{template}"' in report.checks[0].more[0]


def test_what_is_written_to_descriptor_1_is_no_answer(template):
    """As a library in C++ does that logs, without the end of a line."""
    target = changed(template, STEP, f"        import os; os.write(1, b'hello')\n{STEP}")
    report = check_engine(target)
    assert (report.code, len(report.checks)) == (0, 12)
    outcome = simulate(target, StoryTask(1, steps=300), None, lambda line: None)
    assert (outcome.exit_code, outcome.lost) == (0, "")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ('raise NotImplementedError("no blocks of two tokens")', 0, "NotImplementedError: no blocks of two tokens"),
        ('raise AssertionError("no blocks of two tokens")', 1, "fate: AssertionError in start"),
    ],
)
def test_a_refusal_is_told_by_its_reason_and_an_assertion_in_start_is_a_finding(template, capsys, raised, code, said):
    source = template.read_text()
    start = source.index("\n", source.index("    def start("))
    check = f"\n        if shape.groups[0].block_size == 2:\n            {raised}"
    template.write_text(source[:start] + check + source[start:])
    target = f"{template}:make_engine"
    assert (
        main(["simulate", "--target", target, "--steps", "2000", "--seed", "3", "--out", str(template.parent)]) == code
    )
    assert said in capsys.readouterr().out


def test_what_is_not_shown_is_named(template):
    source = template.read_text().replace('slots=(Slots(table=tuple(state["blocks"])),)', "slots=None")
    template.write_text(source.replace("    def look(self)", "    def looks(self)"))
    report = check_engine(f"{template}:make_engine")
    assert (report.code, report.unseen) == (0, ["memory", "capacity, but that it says it is idle"])


ENDLESS = "        while True: pass\n"
STUBBORN = (
    "        while True:\n            try:\n                while True: pass\n            except Exception: pass\n"
)


@pytest.mark.parametrize("call", [ENDLESS, STUBBORN])
def test_an_endless_call_is_found_with_its_place(template, monkeypatch, call):
    monkeypatch.setattr("blockproof.fuzz.engines.deadlines.CALL_SECONDS", 0.2)
    family = SimulatedFamily(open_engine_here(changed(template, STEP, call)))
    story = family.draw(1, 0)
    ((found),) = family.run_of(story).run(100)
    assert (found.judge, found.rule, found.step) == ("fate", "hang in schedule", 1)
    assert found.what == "schedule does not return within 0.2 s"
    assert found.more[0].startswith(f'File "{template}"')
    assert found.more[0].endswith("in schedule")


def test_a_start_that_does_not_return_is_no_refusal(template, monkeypatch):
    for name in ("START", "CALL", "STORY"):
        monkeypatch.setattr(f"blockproof.fuzz.engines.deadlines.{name}_SECONDS", 0.2)
    family = SimulatedFamily(open_engine_here(changed(template, START, ENDLESS)))
    with pytest.raises(StartEndsError) as ends:
        family.run_of(family.draw(1, 0))
    assert found_at_start(ends.value)[0].rule == "hang in start"


def test_the_command(template, capsys):
    assert main(["targets", "check", "--engine", f"{template}:make_engine"]) == 0
    assert "all 12 answers are right" in capsys.readouterr().out
    assert main(["targets", "check", "--engine", f"{template}:make_engine", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["checks"]) == 12
    assert main(["targets", "check", "--engine", "impl"]) == 2
    assert main(["targets", "check", "--engine", "nowhere.py:make_engine"]) == 3
    assert main(["targets", "check", "--engine", "x.py:y", "--oracle", "shadow"]) == 2
    assert main(["simulate"]) == 2
    assert main(["simulate", "--target", "impl", "--steps", "5"]) == 2
    assert main(["simulate", "--target", f"{template}:make_engine", "--fault", "wings", "--steps", "5"]) == 2
    assert main(["simulate", "--target", f"{template}:make_engine", "--attention", "mamba", "--steps", "5"]) == 2


BATCH: Any = ScheduledBatch
PART: Any = Scheduled
SLOTS: Any = Slots
TOLD: Any = Delivered
LOAD: Any = SlotTransfer
"""What an engine may make of any values."""


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("schedule", BATCH([1]), "schedule() returned a batch whose parts are not all Scheduled: a int"),
        ("schedule", BATCH((PART("a", -1, 2),)), "first=-1; it is the position"),
        ("schedule", BATCH((PART("a", 0, 2.0),)), "count=2.0; it is the number"),
        ("schedule", BATCH((PART("a", 0, 2, slots=(SLOTS(("x",)),)),)), "it lists block ids"),
        ("schedule", BATCH((PART("a", 0, 2, slots=()),)), "0 Slots; there are 1 groups"),
        ("schedule", BATCH((PART("a", 0, 2, slots=(SLOTS(at=[1]),)),)), "says the slot of each position"),
        ("schedule", BATCH((), (SlotCopy(3, 1, 2),)), "group=3; there are 1 groups"),
        ("schedule", BATCH((), (), (LOAD("t", "load", 0, (1, 2)),)), "2 slots on the device and 0 other"),
        (
            "schedule",
            BATCH((), (), (LOAD("t", "load", 0, (1,), request="a"),)),
            "1 slots on the device and 0 positions",
        ),
        ("schedule", BATCH((), (), (LOAD("t", "move", 0, ()),)), "kind='move'; it is 'load' or 'store'"),
        ("update", None, "update() returned None; return a list of Delivered"),
        ("update", [TOLD("a", ("x",))], "tokens=('x',) for 'a'; they are a tuple of numbers"),
        ("add", [TOLD("a", ended="bye")], "ended='bye' for 'a'; it is one of"),
        ("idle", None, "idle() returned None; return True"),
        ("look", 3, "look() returned a int; return an EngineView"),
        ("look", EngineView(-1), "look() returned free=-1"),
    ],
)
def test_an_answer_of_another_form(method, answer, said):
    assert said in problem_with(method, answer, shape_of())


@pytest.mark.parametrize(("method", "answer"), [("schedule", None), ("add", None), ("reset", 3), ("update", ())])
def test_an_answer_of_the_right_form(method, answer):
    assert problem_with(method, answer, shape_of()) == ""
