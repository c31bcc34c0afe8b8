"""Reports: all forms say the same, and floors notice a harness that went blind."""

import hashlib
import json
from collections import Counter
from xml.etree import ElementTree

import msgspec
import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.opening.known_deviations import declared_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.floors import FloorsError, check_floors, read_floors
from blockproof.fuzz.reports.formats import junit, markdown, plain
from blockproof.fuzz.reports.run import LONG_RUN, RunDocument
from blockproof.fuzz.reports.summary import Summary, digest_of
from blockproof.model.ops import Allocate, AllocateBatch, Done, Free, Group, Item, Refused, Shape, Submit, Take

RELEASE = "vllm==0.23.0"


def run(spec="impl", seed=1, operations=600, **plan):
    summary = Summary(spec, "random", seed)
    run_random(open_target(spec), Plan(seed, operations=operations, **plan), summary)
    return summary


def summary_with_finding():
    finding = Finding("free", Free("a"), 3, Done(), Refused(), ("free: [1] -> []",), (), "stderr: \x1b[31m<&> \x00")
    return Summary("impl", "random", 1, 2, 10, 0.5, Counter(full=2), finding=finding, finding_attention="full")


def test_counts_add_up():
    summary = run(attention=("full", "mamba"))
    assert sum(summary.operation_counts.values()) == summary.operations >= 600
    assert sum(summary.outcomes.values()) == summary.operations
    assert sum(summary.attention.values()) == summary.runs
    assert set(summary.attention) == {"full", "mamba"}
    assert summary.outcomes["Submit", "Done"] == summary.operation_counts["Submit"]
    assert summary.outcomes["Allocate", "Refused"] > 0


def test_the_same_seed_gives_the_same_counts_and_another_one_others():
    first, second, other = run(seed=5), run(seed=5), run(seed=6)
    assert first.outcomes == second.outcomes
    assert first.reached == second.reached
    assert first.outcomes != other.outcomes


def test_merging_adds_counts_and_keeps_the_first_finding():
    whole, part = run(seed=5), run(seed=6)
    outcomes = whole.outcomes + part.outcomes
    whole.merge(part)
    assert whole.outcomes == outcomes
    assert whole.finding is None
    found = run("fault:free-order-reversed", seed=7)
    assert found.finding is not None
    whole.merge(found)
    whole.merge(summary_with_finding())
    assert (whole.finding, whole.finding_seed, whole.seed) == (found.finding, 7, 5)


def test_every_form_names_what_was_reached_and_found():
    summary = run()
    document = RunDocument.of(summary)
    situation, times = summary.reached.most_common(1)[0]
    told = json.loads(document.text())
    assert (told["document"], told["reached"][situation], told["finding"]) == ("run", times, None)
    assert any(situation in line and f"{times:,}" in line for line in plain(document).splitlines())
    assert f"| {situation} | {times:,} |" in markdown(document)
    assert "no difference in" in plain(document)
    found = RunDocument.of(summary_with_finding())
    assert "FOUND: `free` differs at Free" in plain(found)
    assert "free: [1] -> []" in markdown(found)
    assert found.finding["operation"] == "Free"


def test_junit_has_a_case_for_each_attention_type_and_fails_the_right_one():
    unmet = RunDocument.of(summary_with_finding())
    unmet.floors_unmet = ["situation 'hit' reached 0 times, floor 1"]
    suite = ElementTree.fromstring(junit(unmet))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failed = {case.get("name"): case.find("failure").text for case in suite.findall("testcase[failure]")}
    assert "free: [1] -> []" in failed["full"]
    assert failed["situations"] == "situation 'hit' reached 0 times, floor 1"
    clean = ElementTree.fromstring(junit(RunDocument.of(run())))
    assert clean.get("failures") == "0"
    assert clean.find(".//failure") is None


def test_a_deviation_that_a_long_run_never_sees_is_called_stale():
    first, second, *rest = (deviation.id for deviation in declared_for(RELEASE) if not deviation.chaos_only)
    summary = Summary(RELEASE, "random", 1, operations=LONG_RUN, deviated=Counter({first: 1200}))
    document = RunDocument.of(summary)
    lines = {line.split()[0]: line for line in plain(document).splitlines() if line.startswith("  ")}
    assert "1,200" in lines[first]
    assert "STALE" in lines[second]
    assert document.deviations_not_seen == [second, *rest]
    assert "STALE" not in plain(RunDocument.of(Summary(RELEASE, "random", 1, operations=100)))


def test_a_floor_that_is_not_reached_is_named_with_both_numbers(tmp_path):
    path = tmp_path / "floors.toml"
    path.write_text(
        '[total]\nruns = 3\n[situations]\nhit = 10\n"no such" = 1\n[operations]\nFree = 2\n[attention]\nfull = 1\n'
    )
    summary = Summary("impl", "random", 1, runs=2, reached=Counter(hit=3), operation_counts=Counter(Free=2))
    assert check_floors(summary, read_floors(path)) == [
        "runs in all 2 times, floor 3",
        "situation 'hit' reached 3 times, floor 10",
        "situation 'no such' reached 0 times, floor 1",
        "attention full run 0 times, floor 1",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[situations]\nhit = -1", "[situations] hit: expected a number of times, got -1"),
        ("[situations]\nhit = true", "hit: expected a number"),
        ("[what]\nhit = 1", "[what]: expected one of"),
        ("hit = 1", "[hit]: expected one of"),
        ("[total]\nseconds = 1", "[total] seconds: expected operations or runs"),
        ("[situations\nhit", "line 1"),
    ],
)
def test_a_floors_file_with_anything_else_in_it_is_refused(text, part, tmp_path):
    path = tmp_path / "floors.toml"
    path.write_text(text)
    with pytest.raises(FloorsError) as caught:
        read_floors(path)
    assert part in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(FloorsError, match="no such file"):
        read_floors(tmp_path / "none")


def test_the_digest_of_a_run_is_that_of_its_records():
    """Nested ones, too; a field, the kind of an operation and the shape count."""
    one = Allocate("a", 3, hit=True, external=2)
    shape = Shape((Group("full", 4),), 9, 8, 4, 4, 8)
    operations = [Submit("a", (0, 1), items=(Item("x", 1, 1),)), one, AllocateBatch(("a", "b")), Take(2)]
    every = (shape, [type(operation).__name__ for operation in operations], operations)
    data = hashlib.blake2b(msgspec.msgpack.encode(every), digest_size=8).digest()
    assert digest_of(shape, operations) == int.from_bytes(data)
    for other in ([*operations[:3], Take(3)], operations[:3], [*operations, Free("a")]):
        assert digest_of(shape, other) != digest_of(shape, operations)
