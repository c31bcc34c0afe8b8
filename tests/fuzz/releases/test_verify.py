"""Changes verified: what is the same, what changed, what is intended, what is broken, and what was not tested."""

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.releases import alike, diff, verify_effects
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases import verify_report as report
from blockproof.fuzz.releases.bisect import observe
from blockproof.fuzz.releases.diff import compare_targets
from blockproof.fuzz.releases.verify import verify
from blockproof.fuzz.releases.verify_clock import Clock
from blockproof.fuzz.releases.verify_effects import BothSides, Where
from blockproof.fuzz.releases.verify_proofs import reprove
from blockproof.fuzz.releases.verify_sides import Lasting, named_sides
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.known_file import read_known
from blockproof.fuzz.traces.shrink import shrink
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.ops import Advance, Allocate, Failed, Group, Preempt, Refused, Shape, Submit

from .toy_git import git
from .verified_sides import Changed, side, verified

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
REORDERED = "fault:free-order-reversed"
ANY_ORDER = (*MODEL_FREE, "no-S9")
"""For who means to reuse blocks in another order: by S9 the end of a table goes first."""
BROKEN = "fault:hit-in-wrong-order"


def test_a_refactoring_is_the_same_behaviour():
    done = verified("impl", Changed())
    assert (done.code, done.changed, done.judged) == (0, [], [])
    assert report.verdict(done) == f"same behaviour over {done.operations:,} operations"
    assert done.operations >= 700
    assert set(done.summaries) == {"old", "new"}
    page = report.comment(done)
    assert page.startswith("## ✅ blockproof verify: same behaviour over")
    assert "Situations reached" in page
    assert "`old` → `new`" in page
    assert report.lines(done)[-1] == f"verdict: {report.verdict(done)}"


def test_another_order_of_reuse_is_a_change_and_none_once_it_is_listed(tmp_path):
    done = verified("impl", REORDERED, operations=400, oracles=ANY_ORDER)
    assert done.code == 1
    kinds = {one.finding.kind for one in done.changed}
    assert ("eviction order", "Free") in kinds
    assert not done.broken
    assert {one.placed.where for one in done.changed} == {Where.RIGHT}
    assert re.fullmatch(r"\d+ differences not listed as intended: \d+ changed, both right", report.verdict(done))
    report.keep(done, tmp_path / "out")
    for one in report.document(done).changed:
        assert read_trace(tmp_path / "out" / one.trace).finding.observable == one.what
    file = tmp_path / "intended.toml"
    ids = report.write_intended(done, file)
    assert len(ids) == len(done.changed)
    file.write_text(file.read_text().replace('reason = ""', 'reason = "newest first, for the cache of the GPU"'))
    again = verified("impl", REORDERED, known=read_known(file), operations=400, oracles=ANY_ORDER)
    assert (again.code, again.changed) == (0, [])
    assert set(again.intended) <= set(ids)
    assert report.verdict(again).endswith("operations but for what is intended")
    assert "newest first" in report.comment(again)
    same = verified("impl", "impl", known=read_known(file), operations=400, oracles=ANY_ORDER)
    assert (same.code, same.stale) == (0, ids)
    assert any(line.startswith("intended, but did not come up") for line in report.lines(same))


@pytest.mark.slow
def test_what_the_change_breaks_is_told_from_what_it_fixes_and_from_what_both_have():
    broken = verified("impl", BROKEN, operations=4_000)
    assert broken.code == 1
    assert broken.broken
    assert {one.where for one in broken.judged} == {Where.NEW}
    assert " introduced" in report.verdict(broken)
    assert "❌" in report.comment(broken)
    fixed = verified(BROKEN, "impl", operations=4_000)
    assert not fixed.broken
    assert {one.where for one in fixed.judged} == {Where.OLD}
    assert any(line.startswith("fixed: ") for line in report.lines(fixed))
    both = verified(BROKEN, BROKEN, operations=4_000)
    assert both.code == 0
    assert {one.where for one in both.judged} == {Where.BOTH}


class NoRoomForDrafts:
    """A core that never has a block for drafts, and says that there are none: nobody can meet that mistake. With
    `mixes` it writes into what another request holds, too."""

    name = "no room"
    lacks = frozenset({"drafts", "Reject", "Advance.rejected", "Group.speculative_blocks"})

    def __init__(self, mixes):
        self._core, self._mixes = open_here("impl"), mixes
        self.close = self._core.close

    def start(self, shape):
        self._known = {}
        return self._core.start(shape)

    def step(self, operation):
        outcome, shown = self._core.step(operation)
        name = getattr(operation, "request", None)
        match operation:
            case Submit(_, prompt):
                self._known[name] = len(prompt)
            case Advance():
                self._known[name] += len(operation.sampled)
            case Allocate() if table := shown.tables[0].get(name):
                others = [blocks[-1] for other, blocks in shown.tables[0].items() if other != name and blocks]
                if operation.new_tokens > self._known[name]:
                    table = table[:-1]
                elif self._mixes and others:
                    table = [*table[:-1], others[0]]
                shown = shown._replace(tables=[{**shown.tables[0], name: table}])
        return outcome, shown


def test_a_corruption_of_the_new_side_does_not_become_one_that_both_have():
    done = verified(NoRoomForDrafts(False), NoRoomForDrafts(True), operations=2_000, oracles=("shadow",))
    wrong = [one for one in done.judged if one.finding.observable == "corruption"]
    assert wrong
    assert {one.where for one in done.judged} <= {Where.NEW, Where.WRONG}
    for one in wrong:
        assert "has no block" not in one.finding.detail


@pytest.mark.parametrize(("earlier", "words", "both"), [(0, "", True), (1, "", False), (0, " in another way", False)])
def test_another_mistake_of_the_same_kind_is_not_the_same(monkeypatch, earlier, words, both):
    def elsewhere(question, open_target):
        answer = observe(question, open_target)
        return replace(answer, operations=answer.operations - earlier, why=re.sub(r"\d", "7", answer.why) + words)

    monkeypatch.setattr(verify_effects, "observe", elsewhere)
    monkeypatch.setattr(BothSides, "alike", lambda self, trace: False)  # something else differs
    done = verified(BROKEN, BROKEN, operations=4_000)
    assert {one.where for one in done.judged} == ({Where.BOTH} if both else {Where.WRONG})
    assert done.code == (0 if both else 1)


@pytest.mark.parametrize("new", [Changed(allocate=Refused()), "impl"])
def test_an_old_side_that_does_nothing_is_no_comparison(new):
    done = verified(Changed(allocate=Refused()), new, operations=1_000)
    assert done.vacuous.startswith("no allocation succeeded in ")
    assert (done.code, done.judged, done.timing) == (3, [], "not timed")
    assert report.verdict(done) == f"the sides cannot be compared, on the old one {done.vacuous}"


def test_a_new_side_that_does_nothing_is_a_change():
    done = verified("impl", Changed(allocate=Refused()), operations=1_000)
    assert (done.vacuous, done.code) == ("", 1)
    assert ("refused", "Allocate") in {one.finding.kind for one in done.changed}


def test_a_side_that_is_lost_is_a_difference_and_does_not_end_the_comparison():
    done = verified("impl", Changed(lost_at=Allocate), operations=300)
    assert ("raises", "Allocate") in {one.finding.kind for one in done.changed}
    assert ("crash", "Allocate") in {one.finding.kind for one in done.broken}
    lasting = Lasting(Changed(lost_at=Allocate))
    lasting.start(SHAPE)
    _, before = lasting.step(Submit("a", (0,)))
    assert lasting.step(Allocate("a", 1)) == (Failed("crash"), before)


@pytest.mark.parametrize("begun", ["old", "new", "nothing"])
def test_ctrl_c_leaves_what_there_is(monkeypatch, begun):
    real = run_random

    def pressed(target, plan, summary, *more):
        if summary.target == begun:
            raise KeyboardInterrupt
        return real(target, plan, summary, *more)

    monkeypatch.setattr(verifying, "run_random", pressed)
    if begun == "nothing":
        monkeypatch.setattr(verifying, "compare_targets", lambda *given: _press())
    done = verified("impl", "impl")
    assert (done.interrupted, done.code) == (True, 130)
    assert report.verdict(done) == "interrupted"
    assert report.lines(done)


@pytest.mark.parametrize("at", ["shrinking", "judging"])
def test_ctrl_c_keeps_what_was_found_by_then(monkeypatch, at):
    if at == "shrinking":  # Ctrl-C ends the reducer with the best trace so far
        monkeypatch.setattr(diff, "shrink", lambda *given, **more: replace(shrink(*given, **more), interrupted=True))
    else:
        real = run_random

        def pressed(target, plan, summary, *more):
            real(target, plan, summary, *more)
            raise KeyboardInterrupt

        monkeypatch.setattr(verifying, "run_random", pressed)
    done = verified("impl", BROKEN, operations=4_000)
    assert (done.interrupted, done.code) == (True, 1)
    assert done.changed
    assert bool(done.judged) is (at == "judging")
    assert {one.why for one in done.judged} <= {"it was not tried there"}


def _press():
    raise KeyboardInterrupt


def _fail(*given, **more):
    raise IndexError("list index out of range")


@pytest.mark.parametrize("at", ["compare_targets", "run_random", "smallest", "place", "compare_speed", "prove"])
def test_a_bug_of_ours_ends_its_stage_and_the_table_is_told(monkeypatch, at):
    if at != "prove":
        monkeypatch.setattr(BothSides if at == "place" else verifying, at, _fail)
    done = verified("impl", BROKEN, operations=2_000, timed=True, prove=_fail if at == "prove" else None)
    assert done.bugs
    assert all("IndexError: list index out of range" in str(bug) for bug in done.bugs)
    assert done.code == 1
    assert bool(done.changed) is (at != "compare_targets")
    assert bool(done.judged) is (at not in ("run_random", "place"))
    told = report.lines(done)
    assert "bug" in told[-1]
    assert "of blockproof, so not all was tested" in told[-1]
    assert any(line.startswith("a bug of blockproof, which says nothing of the target") for line in told)
    assert any(line.startswith("Differences") for line in told)
    assert len(report.document(done).bugs) == len(done.bugs)


def test_an_oracle_that_fails_loses_nothing_and_blames_nobody(monkeypatch):
    real = Contract.step

    def fails(self, operation, *given):
        return _fail() if isinstance(operation, Preempt) else real(self, operation, *given)

    monkeypatch.setattr(Contract, "step", fails)
    same = verified("impl", "impl")
    assert (same.code, same.changed, same.judged) == (70, [], [])
    assert same.bugs
    changed = verified("impl", REORDERED)
    assert changed.code == 1
    assert changed.changed
    assert not [one for one in changed.judged if one.finding.is_our_bug]


STAGES = ("judging new", "judging old", "timing")


def test_a_side_that_cannot_be_started_again_leaves_what_there_is(monkeypatch):
    def gone(*given):
        raise TargetUnavailableError("the engine is gone")

    monkeypatch.setattr(verifying, "run_random", gone)
    monkeypatch.setattr(verifying, "alike_runs", gone)
    done = verified("impl", "impl")
    assert (done.code, done.unfinished) == (3, [f"{part}: the engine is gone" for part in STAGES])
    assert "not finished: judging new: the engine is gone" in report.lines(done)
    assert "a side could not be started again" in report.verdict(done)


def test_the_seconds_are_what_it_takes_in_all(monkeypatch):
    """Every stage is given what is left until its end, and no more: never the whole again."""
    given: list[tuple[Any, ...]] = []
    now = [10.0]  # the start of both sides
    monkeypatch.setattr(Clock, "seconds", property(lambda self: now[0]))
    real_compare, real_random = compare_targets, run_random

    def noted(*told, answer=None):
        given.append(told)
        return answer

    def compared(pair, plan, shrinking):
        noted("runs", plan.seconds, shrinking)
        now[0] = 50.0
        return real_compare(pair, replace(plan, seconds=None, operations=600), 1.0)

    def judged(target, plan, summary):
        noted("judges", plan.seconds)
        now[0] += 12.0
        return real_random(target, replace(plan, seconds=None, operations=600), summary)

    monkeypatch.setattr(verifying, "compare_targets", compared)
    monkeypatch.setattr(verifying, "run_random", judged)
    monkeypatch.setattr(verifying, "alike_runs", lambda old, new, plan, left: noted("drawn", left, answer=[]))
    monkeypatch.setattr(verifying, "compare_speed", lambda *rest: noted("timed", rest[-1], answer="not timed"))
    plan = Plan(1, 100.0, attention=("full",))
    sides = side("impl", "old"), side("impl", "new")
    clock = Clock(100.0, begin=0.0)
    done = verify(*sides, plan, lambda line: None, lambda left: noted("proved", left, answer="nothing"), clock)
    assert done.code == 0
    assert given == [
        ("runs", pytest.approx(90.0 * 0.35), pytest.approx(90.0 * 0.1)),
        ("judges", pytest.approx((10.0 + 90.0 * 0.65 - 50.0) * 0.6)),
        ("judges", pytest.approx((10.0 + 90.0 * 0.78 - 62.0) * 0.6)),
        ("drawn", pytest.approx((10.0 + 90.0 * 0.92 - 74.0) * 0.2)),
        ("timed", pytest.approx(10.0 + 90.0 * 0.92 - 74.0)),
        ("proved", pytest.approx(26.0)),
    ]


def test_when_the_time_is_over_the_rest_says_so():
    clock = Clock(10.0, begin=time.monotonic() - 11.0)
    plan = Plan(1, 10.0, attention=("full",))
    done = verify(side("impl", "old"), side("impl", "new"), plan, lambda line: None, None, clock)
    assert done.timing == "not timed: the time was over; give more --seconds"
    assert clock.until(0.5) == 0.0
    assert str(reprove("impl", "impl", seconds=0.0)).startswith("not proved: the time was over")
    assert any(" s in all" in line for line in report.lines(done))


@pytest.mark.parametrize(
    ("spec", "oracles"), [("impl", ("lockstep", *MODEL_FREE)), ("blockproof.fuzz.adapters.impl:open_impl", None)]
)
def test_lockstep_judges_what_the_model_describes(spec, oracles):
    with named_sides(spec, "impl") as (old, new):
        assert old.oracles == (oracles or new.oracles)
        assert old.name == spec


@pytest.fixture
def history(tmp_path, monkeypatch):
    """Makes a repository with a commit for each name of a target, whose core is that target."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(alike, "TIMED_OPERATIONS", 200)

    def make(*names):
        repo = tmp_path / "repo"
        repo.mkdir()
        git(repo, "init", "--quiet", "--initial-branch=trunk")
        for name in names:
            (repo / "core.py").write_text(CORE.format(name=name))
            git(repo, "add", ".")
            git(repo, "commit", "--quiet", "-m", f"take {name}")
        (repo / "core.py").write_text("nothing of this may be imported!")
        return repo

    return make


CORE = """\
from blockproof.fuzz.opening.targets import open_here

def make():
    return open_here("{name}")
"""


def run(repo, *words, target="core:make"):
    limits = ("--operations", "200", "--seed", "1", "--attention", "full", "--out", str(repo.parent / "out"))
    return cli.main(["verify", "--git", "HEAD~1..HEAD", "--repo", str(repo), "--target", target, *limits, *words])


@pytest.mark.slow
def test_two_commits_are_compared_in_worktrees_of_their_own(history, tmp_path, capsys):
    repo = history("impl", REORDERED)
    before = git(repo, "status", "--porcelain"), git(repo, "worktree", "list"), git(repo, "for-each-ref")
    comment = tmp_path / "ci" / "comment.md"
    assert run(repo, "--json", "--write", str(comment)) == 1
    assert (git(repo, "status", "--porcelain"), git(repo, "worktree", "list"), git(repo, "for-each-ref")) == before
    assert not list((tmp_path / "scratch").iterdir())
    document = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"[0-9a-f]{7} \(take impl\)", document["old"])
    assert document["new"].endswith(f" (take {REORDERED})")
    assert document["proofs"] == "there are no theorems about this engine"
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {one["trace"] for one in document["changed"]}
    assert "other entries of the cache go first" in comment.read_text(encoding="utf-8")
    assert "situations" in document["speed"] or "times as long" in document["speed"]["text"]


@pytest.mark.slow
def test_intended_changes_are_listed_in_a_file_and_pass(history, tmp_path, capsys):
    repo, file = history("impl", REORDERED), tmp_path / "intended.toml"
    assert run(repo, "--write-intended", str(file)) == 1
    assert "write a reason for each" in capsys.readouterr().err
    assert run(repo, "--intended", str(file)) == 2
    assert "reason: is empty" in capsys.readouterr().err
    file.write_text(file.read_text().replace('reason = ""', 'reason = "newest first"'))
    assert run(repo, "--intended", str(file)) == 0
    assert "but for what is intended" in capsys.readouterr().out


def test_a_side_that_cannot_be_imported_is_one_line(history, capsys):
    repo = history("nonsense", "impl")
    assert run(repo) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("blockproof: ")
    assert "unknown target 'nonsense'" in last


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--target", "impl"), "name two targets to compare, or one with --git, not 1"),
        (("--target", "impl", "--target", "nonsense"), "unknown target 'nonsense'"),
        (("--git", "a..b", "--target", "impl"), "--git needs --target with one of package.module:factory"),
        (("--git", "a..b", "--target", "a:b", "--target", "c:d"), "with --git name one target, not 2"),
        (("--git", "a..b", "--target", "a:b", "--repo", "/nowhere"), "/nowhere is no folder"),
    ],
)
def test_wrong_usage_is_one_line(words, says, capsys):
    assert cli.main(["verify", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said
