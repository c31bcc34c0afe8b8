"""What watches a command that is given something malformed notices each promise that is broken, and nothing else."""

import gc
import json
import sys
from importlib import import_module

import pytest
from blockproof.fuzz.traces.trace_file import TraceFile, dump_trace

from . import malformed, malformed_watch
from .malformed_cases import drawn_trace
from .malformed_planted import FAULTS, LEFT_BEHIND, planted
from .malformed_watch import watched

SPOILED = {
    "exception": ({}, "a traceback: TypeError"),
    "quadratic": ({"groups": "x" * 30_000}, malformed.TOO_LONG),
    "memory": ({"num_blocks": 2**12}, "took "),
    "elsewhere": ({"hash_block_size": None}, "elsewhere"),
    "code": ({"max_model_len": "{0.__class__}"}, "os.system"),
}
"""By fault: what of a shape is malformed, and what is said then."""


@pytest.mark.parametrize("fault", FAULTS)
def test_each_broken_promise_is_noticed(fault, tmp_path, monkeypatch):
    monkeypatch.setattr(malformed_watch, "MOST_MEMORY_MIB", 64)
    gc.collect()
    if fault == "memory" and not malformed_watch.resident_mib(reset=True):
        pytest.skip("this system does not tell how much memory was taken")
    changes, says = SPOILED[fault]
    document = json.loads(dump_trace(TraceFile(drawn_trace(3, "full"))))
    document["shape"] |= changes
    document["operations"][-1] = [] if fault == "exception" else document["operations"][-1]
    (tmp_path / "trace.json").write_text(json.dumps(document))
    words = ["replay", str(tmp_path / "trace.json"), "--until", "0"]
    assert watched(words, tmp_path)[1] == ""
    with planted(fault):
        monkeypatch.setattr(malformed, "LONGEST_S", 0.5 if fault == "quadratic" else 30.0)
        assert says in watched(words, tmp_path)[1]
    LEFT_BEHIND.unlink(missing_ok=True)


def test_a_folder_that_is_there_is_not_made(tmp_path):
    with malformed_watch.Watch.here().staying_in(tmp_path) as noted:
        tmp_path.parent.mkdir(exist_ok=True)
        assert noted == []
        (tmp_path.parent / "made-by-the-test").mkdir()
        assert len(noted) == 1
        (tmp_path.parent / "made-by-the-test").rmdir()


def test_a_module_that_is_imported_for_the_first_time_is_no_file_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "never_imported.py").write_text("")
    (tmp_path / "inside").mkdir()
    with malformed_watch.Watch.here().staying_in(tmp_path / "inside") as noted:
        import_module("never_imported")
        assert noted == []
    del sys.modules["never_imported"]
    import_module("never_imported")
    assert [file.parent.name for file in tmp_path.rglob("*.pyc")] == ["__pycache__"], "it could be written"
    del sys.modules["never_imported"]
