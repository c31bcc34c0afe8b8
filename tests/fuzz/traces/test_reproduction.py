"""What is left of a finding for those who have to fix it."""

import json
import re

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.reproduction import base_name, pytest_file, replay_text, safe_name, write_reproduction
from blockproof.fuzz.traces.trace_file import FoundBy, FoundWhat, TraceFile, dump_trace, load_trace
from blockproof.model.ops import Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)


def test_a_trace_from_elsewhere_cannot_put_code_into_the_test_file():
    end = '"""\nimport os; os.abort()\n"""'
    file = TraceFile(Trace(SHAPE, (Submit(end, (0,)),)), end, FoundWhat(end, end, end), FoundBy(end, 1, end))
    spaces: dict[str, str] = {}
    exec(compile(pytest_file(file, "name"), "test_name.py", "exec"), spaces)
    assert spaces["TARGET"] == end
    assert json.loads(spaces["TRACE"])["operations"][0]["request"] == end


@pytest.mark.parametrize("what", ["wrong: <a>|b?*", "../../etc", "é\\u3042", "x" * 500, "", "NUL "])
def test_names_of_files_are_such_that_every_file_system_takes_them(what, tmp_path):
    file = TraceFile(Trace(SHAPE, ()), "impl", FoundWhat(what, "start", "text"))
    for name in (base_name(file), base_name(file, "whole"), safe_name(what)):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,90}", name), name
    assert base_name(file, "whole") == f"{base_name(file)}_whole"
    assert write_reproduction(file, tmp_path).trace.parent == tmp_path


def test_the_trace_says_who_judged_and_the_test_says_from_where_the_target_is_found(tmp_path, monkeypatch):
    (tmp_path / "my_reproduced.py").write_text("def make(): ...\n")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    file = TraceFile(Trace(SHAPE, ()), "my_reproduced.py:make")
    files = write_reproduction(file, tmp_path / "there" / "findings", oracles=("shadow", "contract"))
    assert load_trace(files.trace.read_bytes()).oracles == ("shadow", "contract")
    assert "--oracle" not in files.command
    text = files.test.read_text()
    assert "/ '../..'" in text
    assert "folder=FOLDER" in text
    assert "FOLDER" not in pytest_file(TraceFile(Trace(SHAPE, ())), "name", tmp_path)


def test_a_target_that_is_not_there_any_more_is_said_to_have_been(tmp_path):
    text = dump_trace(TraceFile(Trace(SHAPE, ())))
    with pytest.raises(TargetUnavailableError, match=f"it was found from {tmp_path}"):
        replay_text(text, "gone_for_good:make", folder=tmp_path)


def test_a_trace_in_which_the_target_crashed_is_run_again_in_another_process(tmp_path):
    """Else it would end whoever replays it."""
    code = """
import os
from blockproof.fuzz.opening.targets import open_target

def make():
    core = open_target("impl")
    core.step = lambda operation: os.abort()
    return core
"""
    (tmp_path / "dying.py").write_text(code)
    trace = Trace(SHAPE, (Submit("a", (0,)),))
    text = "the target was lost (crash) at operation 0: Submit a"
    file = TraceFile(trace, "dying.py:make", FoundWhat("crash", "Submit", text), oracles=("contract",))
    finding = replay_text(dump_trace(file), file.target, folder=tmp_path)
    assert finding is not None
    assert finding.kind == ("crash", "Submit")
