"""Runs that go on after findings: the worst comes first, known ones are counted, and neither hides the other."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.fuzzing import FuzzTask, fuzz
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.reproductions import keep_all, write_known
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.engines.smallest import ALWAYS
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.known_file import read_known
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-engine"
ORACLES = ("shadow", "contract")
TWO_MISTAKES = f'''
import sys

sys.path.insert(0, {str(EXAMPLE)!r})
import my_engine
import my_target
from hashlib import sha256


class TwoMistakes(my_engine.KVCache):
    """Content is forgotten when it is given back (lost hits), and the third block's key has no prefix (wrong hits)."""

    def release(self, request):
        first = self.tables.get(request, [None])[:1]
        super().release(request)
        for block in first:
            if block is not None and not self.pool.holders[block]:
                self.pool.forget(block)

    def block_keys(self, tokens):
        keys = super().block_keys(tokens)
        for place in range(2, min(3, len(keys))):
            end = (place + 1) * self.block_size
            keys[place] = sha256(repr(tokens[end - self.block_size : end]).encode()).digest()
        return keys


def make_target():
    my_target.KVCache = TwoMistakes
    return my_target.make_target()


class Raising:
    """Goes wrong by exceptions in two places, and in the target itself in a third one."""

    def __init__(self, target):
        self.target = target
        self.name, self.hides, self.lacks = "raising", target.hides, target.lacks

    def start(self, shape):
        self.submitted = 0
        return self.target.start(shape)

    def step(self, operation):
        self.submitted += type(operation).__name__ == "Submit"
        if type(operation).__name__ == "ReadTable" and self.submitted > 1:
            raise LookupError("the target is wrong, not the core")
        outcome, snapshot = self.target.step(operation)
        if type(operation).__name__ == "Preempt":
            outcome = my_target.failed(KeyError("no such request"))
        return outcome, snapshot

    def close(self):
        self.target.close()


def make_raising():
    my_target.KVCache = my_engine.KVCache
    return Raising(my_target.make_target())
'''


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A target with two mistakes, of which the harmless one comes up first."""
    path = tmp_path_factory.mktemp("engine") / "two_mistakes.py"
    path.write_text(TWO_MISTAKES)
    return f"{path}:make_target"


@pytest.fixture(scope="module")
def everything(spec, tmp_path_factory):
    """What a run that goes on has found: summary, and what was kept of it."""
    plan = Plan(1, operations=6_000, attention=("full",), oracles=ORACLES, keep_going=True)
    core = open_target(spec)
    summary = run_random(core, plan, Summary(spec, "random", 1, oracles=ORACLES))
    return summary, keep_all(summary, core, plan, tmp_path_factory.mktemp("found"), lambda line: None)


def test_a_lost_hit_does_not_hide_wrong_content(spec, everything):
    _, kept = everything
    kinds = [(one.told().severity, one.found.finding.observable) for one in kept]
    assert kinds[0] == ("wrong content", "S7")
    assert {("lost efficiency", "S10"), ("lost efficiency", "S14")} <= {*kinds}
    first = run_random(
        open_target(spec), Plan(1, operations=6_000, attention=("full",), oracles=ORACLES), Summary(spec, "random", 1)
    )
    assert first.finding.observable == "S10"  # without going on this is all that is seen


def test_each_finding_is_kept_once_and_its_trace_shows_it_as_the_file_says(spec, everything):
    _, kept = everything
    core = open_target(spec)
    assert len({one.found.finding.identity for one in kept}) == len(kept) >= 3
    for one in kept:
        file = read_trace(one.kept.files.trace)
        shown, _ = replay(file.trace, core, Judging(file.oracles))
        assert shown.identity == one.found.finding.identity
        assert len(file.trace.operations) <= 12
        assert one.kept.files.test.exists()
        assert one.kept.files.command in one.kept.lines()[-1]


def test_known_findings_are_counted_and_the_new_one_is_found(spec, everything, tmp_path):
    _, kept = everything
    lines = write_known(tmp_path / "known.toml", [one for one in kept if one.found.finding.observable != "S7"])
    assert "s10-free" in lines[0]
    text = (tmp_path / "known.toml").read_text()
    assert main(["fuzz", "--target", spec, "--known", str(tmp_path / "known.toml")]) == 2  # no reason yet
    (tmp_path / "known.toml").write_text(text.replace('reason = ""', 'reason = "we evict early"'))
    known = read_known(tmp_path / "known.toml")
    plan = Plan(1, operations=20_000, attention=("full",), oracles=ORACLES, known=known)
    done = run_random(open_target(spec), plan, Summary(spec, "random", 1, oracles=ORACLES))
    assert done.finding.observable == "S7"
    assert done.known["s10-free"] > 0
    table = next(table for table in RunDocument.of(done).tables() if table.title == "Known findings")
    assert table.rows[0][0] in {entry.id for entry in known}
    again = run_random(open_target(spec), plan, Summary(spec, "random", 1, oracles=ORACLES))
    assert (again.trace, again.known, again.operations) == (done.trace, done.known, done.operations)


def test_only_some_of_a_frequent_known_finding_are_shrunk_and_compared(spec, everything):
    _, kept = everything
    known = tuple(replace(one.entry()[0], reason="known") for one in kept)
    plan = Plan(1, operations=4_000, attention=("full",), oracles=("contract", "no-S14"), known=known)
    done = run_random(open_target(spec), replace(plan, keep_going=True), Summary(spec, "random", 1))
    assert done.known["s10-free"] > 2 * ALWAYS
    assert ALWAYS <= done.compared["s10-free"] < done.known["s10-free"]


def test_another_shape_or_another_exception_is_not_known(spec, everything):
    _, kept = everything
    lost = next(replace(one.entry()[0], reason="known") for one in kept if one.found.finding.observable == "S10")
    other = replace(lost, uses=(("Advance", "Allocate", "Evict", "Submit"),))
    for wrong in (other, replace(lost, exception="KeyError"), replace(lost, attention=("mla",))):
        plan = Plan(1, operations=1_000, attention=("full",), oracles=("contract",), known=(wrong,), keep_going=True)
        done = run_random(open_target(spec), plan, Summary(spec, "random", 1))
        assert "S10" in {one.finding.observable for one in done.found.values()}
        assert not done.known[wrong.id]


def test_an_entry_that_does_not_come_up_is_stale_after_a_long_run(everything):
    _, kept = everything
    entry = replace(kept[0].entry()[0], reason="known")
    long = Summary("x", "random", 1, operations=200_000, known_findings=(entry,))
    assert [table.rows[0][1] for table in RunDocument.of(long).tables() if table.title == "Known findings"] == [
        "STALE? never"
    ]
    short = replace(long, operations=10)
    assert [table.rows[0][1] for table in RunDocument.of(short).tables() if table.title == "Known findings"] == [
        "not seen"
    ]


def test_what_was_found_until_ctrl_c_is_kept_as_it_is(spec, everything, tmp_path):
    summary, _ = everything
    plan = Plan(1, attention=("full",), oracles=ORACLES, keep_going=True)
    kept = keep_all(replace(summary, interrupted=True), open_target(spec), plan, tmp_path, lambda line: None)
    assert len(kept) == len(summary.found)
    assert {one.kept.shrunk.candidates for one in kept} == {0}
    assert all("blockproof shrink" in one.kept.go_on for one in kept)


def test_exceptions_of_a_core_and_of_its_target_are_told_apart(spec, tmp_path):
    spec = spec.replace("make_target", "make_raising")
    plan = Plan(1, operations=4_000, attention=("full",), oracles=ORACLES, keep_going=True)
    outcome = fuzz(FuzzTask(spec, "random", plan), open_target(spec), tmp_path, {}, lambda line: None)
    found = {(one.found.finding.observable, one.found.finding.kind[1]): one.told() for one in outcome.every}
    assert {("S8", "Preempt"), ("protocol", "ReadTable")} <= {*found}
    assert found["S8", "Preempt"].exception == "KeyError"
    assert found["protocol", "ReadTable"].exception == "LookupError"
    assert {one.severity for one in found.values()} == {"crash or standstill"}
    core = run_random(open_target(spec), plan, Summary(spec, "random", 1))
    known = tuple(replace(one.entry()[0], reason="known", id=str(place)) for place, one in enumerate(outcome.every))
    done = run_random(open_target(spec), replace(plan, known=known), Summary(spec, "random", 1))
    assert core.found
    assert done.finding is None
    assert {*done.known} == {entry.id for entry in known}


def test_the_command_says_all_of_it_in_every_form(spec, tmp_path, capsys):
    arguments = ["fuzz", "--target", spec, "--attention", "full", "--oracle", "shadow,contract", "--seed", "1"]
    arguments += ["--operations", "6000", "--keep-going", "--out", str(tmp_path / "found"), "--jobs", "2"]
    reports = ["--junit", str(tmp_path / "j.xml"), "--write", str(tmp_path / "s.md")]
    assert main([*arguments, *reports, "--json", "--write-known", str(tmp_path / "k.toml")]) == 1
    document = json.loads(capsys.readouterr().out)
    names = [one["observable"] for one in document["findings"]]
    assert names[0] == "S7"
    assert {"S7", "S10", "S14"} <= {*names}
    assert all(Path(one["reproduction"]["trace"]).exists() for one in document["findings"])
    assert document["repeat"].endswith("--keep-going")
    failures = " ".join(node.text for node in ElementTree.parse(tmp_path / "j.xml").iter("failure"))
    page = (tmp_path / "s.md").read_text()
    for name in names:
        assert f"{name} is violated" in failures
        assert f"{name} is violated" in page
    assert page.startswith("## blockproof: FOUND: S7")
    assert [entry["property"] for entry in tomllib.loads((tmp_path / "k.toml").read_text())["known"]] == names
