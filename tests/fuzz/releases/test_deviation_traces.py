"""The traces of known deviations: what is told of one that is missing, stale or as it should be."""

from typing import Any

import pytest
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases import deviations
from blockproof.fuzz.releases.deviations import check_traces, find_traces
from blockproof.fuzz.traces.trace_file import TraceFile, write_trace
from blockproof.model.ops import Done, Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
FILE = TraceFile(Trace(SHAPE, (Submit("a", (0,)), Free("a"))), "impl")
FOUND = Finding("free", Free("a"), 1, Done(), Done())


@pytest.fixture
def judged(monkeypatch):
    """Says what a trace shows by its name."""
    verdicts = {"good": FOUND, "stale": "stale: it shows nothing"}
    monkeypatch.setattr(deviations, "undeclared", lambda name, trace, target: verdicts[name])
    monkeypatch.setattr(deviations, "trace_names", lambda deviation: deviation)


def test_a_trace_shows_its_deviation_or_is_a_problem(judged, tmp_path):
    lines = []
    for name in ("good", "stale"):
        write_trace(FILE, tmp_path / f"{name}.json")
    deviations: list[Any] = [("good", "stale")]
    shown = check_traces(deviations, tmp_path, open_target("impl"), lines.append)
    assert shown.traces == {"good": (FILE, FOUND)}
    assert shown.problems == ["stale: it shows nothing"]
    assert lines == [f"{'good':34}   2 operations, `free` at Free"]


def test_a_deviation_that_does_not_occur_is_a_problem_and_the_others_are_written(judged, tmp_path, monkeypatch):
    found = {"good": FILE, "stale": None}
    monkeypatch.setattr(deviations, "find_smallest", lambda name, deviation, target, seconds: found[name])
    folder = tmp_path / "new"
    declared: list[Any] = [("good",), ("stale",)]
    shown = find_traces(declared, folder, open_target("impl"), 0.5, lambda line: None)
    assert shown.problems == ["stale: did not occur in 0.5 s"]
    assert [path.name for path in folder.iterdir()] == ["good.json"]
    assert shown.traces == {"good": (FILE, FOUND)}
