"""Two targets compared at every strictness: their share of the limits, the report, and the traces that are kept."""

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases import diff
from blockproof.fuzz.releases.diff import Comparison, Differences, compare_targets
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.pair import Pair, Strictness
from blockproof.fuzz.traces.trace_file import read_trace

FAULT = "fault:free-order-reversed"


@pytest.fixture(scope="module")
def found():
    pair = Pair(open_target("impl"), open_target(FAULT))
    return compare_targets(pair, Plan(1, operations=1_000, attention=("full",)))


@pytest.mark.parametrize(
    ("seconds", "operations", "share"),
    [(5.0, None, (2.5, None)), (None, 7, (None, 4)), (0.0, 8, (0.0, 4)), (None, 2 * 10**400, (None, 10**400))],
)
def test_each_strictness_has_its_share_of_the_limits(monkeypatch, seconds, operations, share):
    plans = []

    def noted(pair, strictness, plan, shrinking):
        assert shrinking is None
        plans.append((strictness, (plan.seconds, plan.operations)))
        return Comparison(strictness, Summary("x", "random", 1))

    monkeypatch.setattr(diff, "compare", noted)
    pair = Pair(open_target("impl"), open_target("impl"))
    assert compare_targets(pair, Plan(1, seconds, operations)).situations == []
    assert plans == [(strictness, share) for strictness in Strictness]


@pytest.mark.slow
def test_lines_and_json_say_the_same(found):
    exact, shape = found.comparisons
    assert (exact.strictness, shape.strictness) == (Strictness.EXACT, Strictness.SHAPE)
    assert exact.situations
    document = found.document()
    assert found.situations == [*exact.situations, *shape.situations]
    assert document.lead().conclusion == f"they differ in {len(found.situations)} situations"
    operations = exact.summary.operations + shape.summary.operations
    assert document.lead().headline.startswith(f"{found.pair.name}: {operations:,} operations on both, ")
    assert (document.first, document.second) == ("impl", FAULT)
    assert [len(one.situations) for one in document.comparisons] == [len(exact.situations), len(shape.situations)]
    first, told = exact.situations[0], document.comparisons[0].situations[0]
    assert (told.situation, told.runs, told.text) == (first.finding.kind[0], first.times, str(first.finding))
    assert document.tables()[0].rows[0][:2] == [*first.finding.kind]
    assert first.lines()[-1] == str(first.finding)


def test_the_smallest_trace_of_each_situation_is_kept(found, tmp_path):
    found.keep(tmp_path / "out", 9)
    files = [read_trace(path) for path in (tmp_path / "out").glob("*.json")]
    assert {file.finding.text for file in files} <= {str(one.finding) for one in found.situations}
    assert {(file.target, file.found_by.seed) for file in files} == {(FAULT, 9)}


def test_targets_that_behave_alike_leave_nothing(tmp_path):
    pair = Pair(open_target("impl"), open_target("impl"))
    alike = Differences(pair, (Comparison(Strictness.EXACT, Summary("x", "random", 1)),))
    alike.keep(tmp_path / "out", 9)
    assert not (tmp_path / "out").exists()
    assert alike.document().lead().conclusion == "they behave alike"
    assert alike.document().tables()[0].rows == [["alike", "", "", ""]]
