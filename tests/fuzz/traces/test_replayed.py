"""What is told of a replayed trace."""

from dataclasses import replace

from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.traces.replayed import Replayed
from blockproof.model.ops import Allocate, Done, Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
APPLIED = Trace(SHAPE, (Submit("a", (0,)), Allocate("a", 2), Free("a")))
WANTED = replace(APPLIED, operations=(*APPLIED.operations[:2], Free("c"), *APPLIED.operations[2:]))
AGREED = Replayed(WANTED, APPLIED, "impl", None)
FINDING = Finding("free", Free("a"), 2, Done(), Done())


def test_what_was_left_out_is_told_and_that_both_agreed():
    assert AGREED.lines(show=False) == [
        "operations left out, since they make no sense where they stand: 1",
        "no difference in 3 operations on impl",
    ]
    assert AGREED.as_json(show=False) == {"target": "impl", "operations": 3, "left_out": 1, "finding": None}


def test_a_finding_ends_a_trace_early_so_nothing_counts_as_left_out():
    found = replace(AGREED, finding=FINDING)
    assert found.lines(show=False) == [str(FINDING)]
    document = found.as_json(show=False)
    assert document["left_out"] == 0
    assert document["finding"] == {
        "observable": "free",
        "operation": "Free",
        "step": 2,
        "text": str(FINDING),
        "oracle": "lockstep",
        "identity": ["lockstep", "free", "Free"],
        "manner": ["", "", "value", "value"],
    }


def test_steps_are_numbered_and_say_what_they_change():
    lines = AGREED.lines(show=True)
    assert lines[0].startswith("shape: full(block_size=1)")
    assert lines[1] == "   0  Submit a, prompt=(0,)  ->  1"
    assert lines[lines.index("") + 1 :] == AGREED.lines(show=False)
    steps = AGREED.as_json(show=True)["steps"]
    assert [step["operation"]["op"] for step in steps] == ["Submit", "Allocate", "Free"]
    assert "free: [1, 2] -> []" in steps[1]["changes"]
