"""A run that tested nothing is no success: what is judged, from which size on, and what is said."""

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from blockproof.fuzz.engines.fuzzing import FuzzOutcome
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_engine
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.findings.oracle_names import MODEL_FREE, ORACLES
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.formats import junit, markdown, plain
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.vacuity import LEAST_ALLOCATIONS, LEAST_LOOKUPS, LEAST_OPERATIONS, vacuity
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model.ops import Done, Free

FULL = Counter(full=10)


def summed(operations=5_000, allocated=1_000, refused=0, lookups=2_000, hits=100, **more) -> Summary:
    """A summary of ten runs."""
    outcomes = Counter({("Submit", "Done"): 300, ("Allocate", "Done"): allocated, ("Allocate", "Refused"): refused})
    causes = Counter({("Allocate", "Refused", "asked for drafts"): refused})
    given = {"outcomes": outcomes, "causes": causes, "attention": FULL, "hits": Counter(lookups=lookups, hits=hits)}
    return Summary("mine", "random", 1, 10, operations, 1.0, **{**given, **more})


def unbuilt(reason="NotImplementedError, no message", runs=10) -> Summary:
    causes = Counter({("start", "Failed", reason): runs})
    return Summary("mine", "random", 1, 10, 0, 1.0, attention=FULL, unbuilt=Counter(full=runs), causes=causes)


@pytest.mark.parametrize(
    ("summary", "says"),
    [
        (Summary("mine", "random", 1), "no run was made"),
        (unbuilt("ValueError: # blocks"), "no core was built in 10 runs: ValueError: # blocks (10 times)"),
        (summed(0, 0, lookups=0), "cores were built, but no operation was made"),
        (summed(allocated=0, refused=50), "no allocation succeeded in 5,000 operations: asked for drafts (50 times)"),
        (summed(LEAST_OPERATIONS, allocated=0, causes=Counter()), "look at what step does with Submit"),
        (summed(allocated=99, refused=901), "90% of 1,000 allocations were refused or failed, most of them: asked for"),
        (summed(allocated=9, refused=LEAST_ALLOCATIONS - 9), "91% of 100 allocations"),
        (summed(lookups=LEAST_LOOKUPS, hits=0), "none of 1,000 lookups with caching on found anything"),
    ],
)
def test_what_tested_nothing_fails_in_one_line_that_says_what_to_look_at(summary, says):
    problem = vacuity(summary).problem
    assert says in problem
    assert "\n" not in problem
    assert "look at" in problem or "give more" in problem
    assert FuzzOutcome(summary, [], "").exit_code == 3
    document = RunDocument.of(summary)
    for text in (document.lead().conclusion, plain(document), markdown(document), junit(document)):
        assert "TESTED NOTHING" in text
    assert document.tested_nothing == problem
    case = ElementTree.fromstring(junit(document)).find(".//testcase[@classname='run']/failure")
    assert case.get("message") == problem


@pytest.mark.parametrize(
    ("summary", "warns"),
    [
        (summed(), ""),
        (summed(allocated=300, refused=700), ""),
        (summed(allocated=200, refused=800), "80% of 1,000 allocations were refused or failed"),
        (summed(allocated=101, refused=899), "90% of 1,000 allocations"),
        (summed(LEAST_OPERATIONS - 1, allocated=0, lookups=0), "99 operations are too few to say"),
        (summed(allocated=1, refused=LEAST_ALLOCATIONS - 2), ""),
        (summed(lookups=LEAST_LOOKUPS - 1, hits=0), "none of 999 lookups with caching on has found anything so far"),
        (summed(lookups=LEAST_LOOKUPS // 5 - 1, hits=0), ""),
        (summed(lookups=0, hits=0), ""),
        (summed(unbuilt=Counter(full=9)), ""),
        (summed(attention=Counter(full=5, mamba=5), unbuilt=Counter(mamba=5)), "never built: mamba"),
    ],
)
def test_below_that_it_warns_and_small_runs_are_not_failed(summary, warns):
    said = vacuity(summary)
    assert said.problem is None
    assert (warns in said.warnings[0]) if warns else said.warnings == ()
    outcome = FuzzOutcome(summary, [], "again")
    assert outcome.exit_code == 0
    assert [line for line in outcome.lines() if line.startswith("note: ")] == [f"note: {one}" for one in said.warnings]
    assert all(line in RunDocument.of(summary).text() for line in said.warnings)
    assert all(line in markdown(RunDocument.of(summary)) for line in said.warnings)


def test_it_may_be_allowed_and_ctrl_c_has_a_code_of_its_own():
    allowed = replace(unbuilt(), allow_vacuous=True)
    assert vacuity(allowed).problem is None
    assert vacuity(allowed).warnings[0].startswith("no core was built")
    assert FuzzOutcome(allowed, [], "").exit_code == 0
    stopped = FuzzOutcome(replace(unbuilt(), interrupted=True), [], "")
    assert stopped.exit_code == 130
    assert stopped.lines()[-1] == "interrupted by Ctrl-C after 1 s"
    found = replace(summed(), interrupted=True, finding=Finding("S1", Free("a"), 0, Done(), Done(), oracle="contract"))
    assert vacuity(found) == (None, ())
    assert FuzzOutcome(found, [], "").exit_code == 1


@pytest.mark.parametrize("oracles", [ORACLES, MODEL_FREE, ("liveness",)])
@pytest.mark.parametrize("attention", [*ATTENTION])
def test_our_core_is_far_from_all_limits_on_every_attention_type(attention, oracles):
    done = Summary("impl", "random", 1, oracles=oracles)
    run_engine(open_target("impl"), Plan(1, operations=600, attention=(attention,), oracles=oracles), done)
    assert vacuity(done) == (None, ())


def test_lookups_count_where_caching_is_on_and_causes_are_counted():
    done = Summary("impl", "random", 1)
    run_engine(open_target("impl"), Plan(1, operations=3_000, attention=("full", "cross")), done)
    assert 0 < done.hits["hits"] < done.hits["lookups"] < done.operation_counts["Lookup"]
    refused = [times for (kind, result, _), times in done.causes.items() if (kind, result) == ("Allocate", "Refused")]
    assert sum(refused) == done.outcomes["Allocate", "Refused"]
    assert ("Allocate", "Refused", "asked for drafts") in done.causes
    assert "Refused and failed, by cause" in plain(RunDocument.of(done))
    other = Summary("impl", "random", 1)
    other.merge(done)
    assert (other.hits, other.causes) == (done.hits, done.causes)
