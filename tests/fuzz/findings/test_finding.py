"""What a finding says, and what makes two findings the same."""

from typing import Any

import pytest
from blockproof.fuzz.findings.cause import Cause, Frame
from blockproof.fuzz.findings.finding import Finding, problem_of
from blockproof.fuzz.findings.oracle_names import CONTRACT, DIFFERENCE, SHADOW, TARGET
from blockproof.model.ops import Allocate, Done, Failed, Refused

STEP = Allocate("a", 3)
CAUSE = Cause(
    "PoolError", "block 7 is gone", (Frame("my_target.py", 8, "step", True), Frame("core.py", 40, "Pool.take"))
)
RAISED = Failed("KeyError", CAUSE)


def test_an_exception_is_shown_with_its_message_and_places():
    finding = Finding("S8", STEP, 4, RAISED, RAISED, detail="Allocate raised KeyError", oracle=CONTRACT)
    assert str(finding).splitlines() == [
        "contract: S8 is violated at operation 4: Allocate a, new_tokens=3",
        "  Allocate raised KeyError",
        "  PoolError: block 7 is gone",
        "    adapter  my_target.py:8, in step",
        "    core     core.py:40, in Pool.take",
        "  target outcome: fails with KeyError: block 7 is gone",
    ]
    cause: Any = finding.as_json()["cause"]
    assert cause["message"] == "block 7 is gone"


def test_a_lost_target_is_called_lost_and_not_a_difference():
    finding = Finding("protocol", STEP, 4, Done(), None, detail="no answer", oracle=TARGET, raised=CAUSE)
    head, *rest = str(finding).splitlines()
    assert head == "the target was lost (protocol) at operation 4: Allocate a, new_tokens=3"
    assert rest[1] == "  PoolError: block 7 is gone"


def test_only_what_differs_is_shown_unless_all_is_asked_for():
    ours, theirs = ("free: [1] -> []", "usage: 0 -> 1"), ("free: [1] -> [1]", "usage: 0 -> 1")
    finding = Finding("free", STEP, 4, Done(), Done(), ours, theirs)
    assert "usage" not in str(finding)
    assert str(finding).endswith("\n  1 change that both made is shown by --verbose")
    assert finding.text(verbose=True).count("usage: 0 -> 1") == 2
    assert "--verbose" not in finding.text(verbose=True)
    different = Finding("other answer", STEP, 4, Done(1), Done(2), ours, ours, oracle=DIFFERENCE, sides=("one", "two"))
    assert "2 changes that both made are shown by --verbose" in str(different)


@pytest.mark.parametrize(
    ("finding", "identity"),
    [
        (Finding("free", STEP, 4, Done(), Done()), ("lockstep", "free", "Allocate")),
        (Finding("outcome", None, -1, Done(), Refused()), ("lockstep", "outcome", "start")),
        (
            Finding("outcome", STEP, 4, Done(), RAISED),
            ("lockstep", "outcome", "Allocate", "PoolError", "core.py:40 in Pool.take"),
        ),
        (Finding("labels", STEP, 4, RAISED, RAISED), ("lockstep", "labels", "Allocate")),
        (
            Finding("S8", STEP, 4, None, Failed("OSError", Cause("OSError", "no block 7")), oracle=CONTRACT),
            ("contract", "S8", "Allocate", "OSError", "no block N"),
        ),
        (
            Finding("S8", STEP, 4, RAISED, RAISED, oracle=CONTRACT),
            ("contract", "S8", "Allocate", "PoolError", "core.py:40 in Pool.take"),
        ),
        (
            Finding("corruption", STEP, 4, Done(), Done(), detail="block 3", oracle=SHADOW),
            ("shadow", "corruption", "Allocate"),
        ),
        (
            Finding("protocol", STEP, 4, None, None, detail="Snapshot.tables has 0 entries", oracle=TARGET),
            ("target", "protocol", "Allocate", "Snapshot.tables has N entries"),
        ),
        (
            Finding("hang", STEP, 4, None, None, detail="no answer in 3 s", oracle=TARGET),
            ("target", "hang", "Allocate"),
        ),
    ],
)
def test_the_identity_is_oracle_observable_operation_and_cause(finding, identity):
    assert finding.identity == identity
    assert finding.kind == identity[1:3]


@pytest.mark.parametrize(
    ("detail", "problem"),
    [
        (
            "Snapshot.free is [1, (2, 'a'], a list; expected a list of block ids",
            "Snapshot.free is a list; expected a list of block ids",
        ),
        ("Snapshot.tables has 3 entries; expected 1\nmore", "Snapshot.tables has N entries; expected N"),
        ("the outcome is a int; return Done", "the outcome is a int; return Done"),
        ("no request 'r12' holds \"a b\" in [1, 2] of 7", "no request ... holds ... in ... of N"),
    ],
)
def test_a_problem_is_told_without_the_values_of_the_moment(detail, problem):
    assert problem_of(detail) == problem
