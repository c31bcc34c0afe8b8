"""Malformed files and replies end in one line or in a finding: no traceback, no code of theirs that runs, and nothing
on the terminal that moves the cursor.

The same with more of them: benchmarks/hostile.py.
"""

import json
import os
import subprocess
import sys
from contextlib import chdir, nullcontext
from random import Random
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.story_fuzzing import read_stored, read_story, story_text
from blockproof.fuzz.opening.names import Program
from blockproof.fuzz.opening.process import ChildLimits
from blockproof.fuzz.opening.program import ProgramTarget
from blockproof.fuzz.planning.fields import ModelError, read_json
from blockproof.fuzz.reports.floors import FloorsError, read_floors
from blockproof.fuzz.simulation.story import story_to_json
from blockproof.fuzz.simulation.traffic import EngineFacts, draw_simulation
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.known_file import read_known
from blockproof.fuzz.traces.trace_file import MAX_BLOCK_OPERATIONS, TraceFile, dump_trace, load_trace, read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.model.ops import Group, Shape, Submit
from hypothesis import given, settings
from hypothesis import strategies as st

from ..malformed import ESCAPE, RIGHT_TO_LEFT, TOO_LONG, answer, spoiled
from ..malformed_cases import KINDS, drawn_trace

READERS: dict[str, Any] = {
    "trace": (read_trace, TraceError),
    "story": (read_story, TraceError),
    "known findings": (read_known, TraceError),
    "config.json": (read_json, ModelError),
    "floors": (read_floors, FloorsError),
}
MARK = "blockproof-was-here"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Makers of malformed documents, by kind, each in a folder of its own."""
    with chdir(tmp_path_factory.mktemp("here")):  # an option may name a folder here
        yield {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(random=st.randoms(use_true_random=False))
def test_every_promise_is_kept(cases, kind, random):
    made = cases[kind]
    with made.in_place() if hasattr(made, "in_place") else nullcontext():
        words = made.words(random)
        result = answer(words)
    if result.wrong == TOO_LONG and hasattr(made, "takes_long") and made.takes_long():
        return
    assert result.wrong == "", (words, result.error)
    assert not os.path.exists(MARK)


def test_the_check_itself_notices_what_it_is_there_for(monkeypatch):
    def broken(problem):
        monkeypatch.setattr("blockproof.fuzz.cli.main.command", lambda: problem)
        return answer(["replay"]).wrong

    assert "a traceback: ZeroDivisionError" in broken(lambda *_, **__: 1 / 0)
    assert broken(lambda *_, **__: sys.stdout.rich_proxied_file.write(ESCAPE) * 0) == "prints U+001B"
    assert broken(lambda *_, **__: 2) == "exit 2 without a word"
    assert "2 lines" in broken(lambda *_, **__: print("blockproof: a\nb", file=sys.stderr) or 2)


def test_most_of_what_is_malformed_is_noticed(cases):
    outcomes = [answer(cases["traces"].words(Random(seed))).code for seed in range(40)]
    assert outcomes.count(2) > 20


FACTS = EngineFacts(frozenset({"drafts", "salts", "adapters", "items"}), frozenset({"look"}))


@settings(max_examples=300)
@given(random=st.randoms(use_true_random=False))
def test_a_malformed_story_is_refused_in_one_line(random):
    story = story_to_json(draw_simulation(SeededDraw(f"4/{random.randrange(9)}"), FACTS))
    found = {"known": "", "judge": "fate", "rule": "x", "what": "y", "step": 1, "fault": "", "story": story}
    try:
        read_stored(spoiled(story_text(found, "mine"), random), "s.json")
    except TraceError as error:
        problem = str(error)
        assert problem.isprintable()
        assert problem.startswith("s.json: ")


# Files that are none.


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "data",
    [
        b"", b" \n", b"\x00", b"\xff\xfe[\x00]\x00", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'"\\ud800"',
        b"\xed\xa0\x80", b"NaN", b"{", b"\xef\xbb\xbf{", b"a = " + b"[" * 100_000, b"\x1b[2J = 1",
    ],
)  # fmt: skip
def test_what_parsers_stumble_over_is_one_short_line(reader, data, tmp_path):
    read, error = READERS[reader]
    path = tmp_path / ("floors.json" if data[:1] in (b"{", b"[") else "file")
    path.write_bytes(data)
    if not data.strip() and reader in ("known findings", "floors"):
        assert not read(path)  # an empty TOML file says nothing
        return
    with pytest.raises(error) as caught:
        read(path)
    problem = str(caught.value)
    assert problem.isprintable()
    assert len(problem) < 1_000
    assert str(path) in problem


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader, tmp_path):
    read, error = READERS[reader]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    for path, says in {
        "pipe": "is no regular file",
        ".": "is a directory",
        "circle": "cannot be read",
        "none": "no such file",
        "huge": "more than the",
        "a\x00b": "cannot be read",
        "n" * 1_000: "cannot be read",
    }.items():
        with pytest.raises(error, match=says):
            read(tmp_path / path)


def test_a_link_to_a_file_is_followed(tmp_path):
    (tmp_path / "there.toml").write_text("[total]\nruns = 1\n")
    (tmp_path / "link.toml").symlink_to("there.toml")
    assert read_floors(tmp_path / "link.toml") == {"total": {"runs": 1}}


def test_blocks_times_operations_are_bounded():
    trace = drawn_trace(3, "full")
    document = json.loads(dump_trace(TraceFile(trace)))
    document["shape"]["num_blocks"] = 2**20
    document["operations"] = [{"op": "StepStart"}] * (MAX_BLOCK_OPERATIONS // 2**20 + 1)
    with pytest.raises(TraceError, match="blocks times operations, more than"):
        load_trace(json.dumps(document))
    document["operations"].pop()
    assert load_trace(json.dumps(document)).trace.shape.num_blocks == 2**20


# Texts that are shown.


@pytest.mark.parametrize("name", [ESCAPE, RIGHT_TO_LEFT, "a\nblockproof: nothing was found", "\x9b31m", "[/x][red]"])
def test_a_name_moves_no_cursor_and_fakes_no_line(name, tmp_path):
    trace = drawn_trace(3, "full")
    operations = (Submit(name, (0, 1)), *trace.operations)
    path = tmp_path / "t.json"
    path.write_text(dump_trace(TraceFile(type(trace)(trace.shape, operations))))
    shown = answer(["replay", str(path), "--show"])
    assert (shown.code, shown.wrong) == (0, "")
    assert not any(line.startswith("blockproof: nothing") for line in shown.out.splitlines())
    named = repr(name)[1:-1].replace("\\'", "'")
    assert named in shown.out


def test_an_error_text_with_half_a_character_leaves_a_trace_that_can_be_read(tmp_path):
    (tmp_path / "half.py").write_text(
        "from blockproof.fuzz.opening.targets import open_target\n"
        "class Half:\n"
        "    name = 'half'\n"
        "    def start(self, shape):\n"
        "        return open_target('impl').start(shape)\n"
        "    def step(self, operation):\n"
        "        raise ValueError('\\ud800\\x1b[2J')\n"
        "    def close(self):\n"
        "        pass\n"
        "make = Half\n"
    )
    words = ["fuzz", "--target", f"{tmp_path}/half.py:make", "--operations", "50", "--seed", "1"]
    found = answer([*words, "--out", str(tmp_path / "out"), "--write", str(tmp_path / "s.md")])
    assert (found.code, found.wrong) == (1, "")
    assert "\\ud800\\x1b[2J" in found.out
    traces = sorted((tmp_path / "out").glob("*.json"))
    assert len(traces) == 2
    for path in traces:
        assert "\\ud800" in read_trace(path).finding.text
    assert "\\ud800" in (tmp_path / "s.md").read_text(encoding="utf-8")


def test_a_terminal_without_a_character_is_given_its_escape(tmp_path):
    command = f"{sys.executable} -m blockproof.fuzz.cli replay {tmp_path}/ä.json 2>&1"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, shell=True, capture_output=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stdout.decode("ascii").endswith("no such file; check the path\n")


# Replies of a real program.


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ('"[" * 100_000', "nested too deeply"),
        ('\'{"outcome": "Done", "value": \' + "[" * 500 + "]" * 500 + "}"', "nested too deeply"),
        ('\'{"outcome": "Failed", "error": "\\\\ud800"}\'', "half a character"),
        ('b"{\\xff}".decode("latin-1")', "no JSON"),
        ('"9" * 10_000', "digits"),
        ('\'{"outcome": "Done", "snapshot": [NaN]}\'', "expected an object with its fields"),
    ],
)
def test_a_program_that_answers_nonsense_is_a_lost_target(reply, says, tmp_path):
    hello = {"protocol": 1, "name": "fake", "hides": [], "lacks": []}
    said = f"print({json.dumps(hello)!r}, flush=True)\ninput()\nprint({reply}, flush=True)\n"
    (tmp_path / "fake.py").write_text(said)
    target = ProgramTarget(
        Program("program:fake", (sys.executable, f"{tmp_path}/fake.py")), ChildLimits(operation_s=5, start_s=20)
    )
    shape = Shape((Group("full", 2),), 4, 8, hash_block_size=2, scheduler_block_size=2, max_num_batched_tokens=8)
    try:
        with pytest.raises(TargetLostError, match=says):
            target.start(shape)
    finally:
        target.close()


def test_a_bug_of_our_own_is_told_in_visible_text(monkeypatch, capsys):
    def fails(*_, **__):
        raise RuntimeError(f"{ESCAPE}\ud800")

    monkeypatch.setattr("blockproof.fuzz.cli.main.command", lambda: fails)
    assert main(["replay"]) == 70
    assert "\\x1b[2J" in capsys.readouterr().err
