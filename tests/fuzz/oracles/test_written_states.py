"""Which states a step writes, as the oracles see it: a core must not register one that nobody wrote."""

from pathlib import Path

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.attention import NO_STEP, Mamba, Step, rule_for
from blockproof.model.ops import Group, MambaMode, Shape

TRACE = read_trace(Path(__file__).parent / "inputs" / "state-registered-unwritten.json").trace
"""Two tokens from outside and two new ones in blocks of three: nobody writes the state of three tokens."""
FAULT = "fault:unwritten-state-registered"


@pytest.mark.parametrize(("oracle", "observable"), [(LOCKSTEP, "labels"), (SHADOW, "corruption"), (CONTRACT, "S10")])
def test_a_state_that_nobody_wrote_is_not_registered_and_each_oracle_sees_one_that_is(
    oracle: str, observable: str
) -> None:
    judging = Judging((oracle,))
    assert replay(TRACE, open_target("impl"), judging)[0] is None
    found, _ = replay(TRACE, open_target(FAULT), judging)
    assert found is not None
    assert (found.oracle, found.observable) == (oracle, observable)


def test_the_shadow_memory_comes_upon_it_by_itself() -> None:
    summary = Summary(FAULT, "random", 2)
    run_random(open_target(FAULT), Plan(2, operations=5_000, attention=("mamba",), oracles=(SHADOW,)), summary)
    assert summary.finding is not None
    assert summary.finding.observable == "corruption"


def rule(mode: MambaMode) -> Mamba:
    group = Group("mamba", 4, mamba_mode=mode, speculative_blocks=2)
    made = rule_for(group, Shape((group,), 9, 32, 4, 4, 32))
    assert isinstance(made, Mamba)
    return made


@pytest.mark.parametrize(
    ("mode", "steps", "loaded", "stands"),
    [
        ("align", [Step(0, 4)], False, [0]),
        ("align", [Step(0, 9)], False, []),
        ("align", [Step(0, 8)], False, [1]),
        ("all", [Step(0, 9)], False, [0, 1]),
        ("align", [Step(3, 6, 2)], False, [0]),  # four tokens are known, and right whatever the drafts are
        ("all", [Step(3, 6, 2)], False, []),
        ("align", [Step(2, 5, 2), Step(4, 5)], False, [0]),  # a draft that is right ends the block
        ("align", [Step(2, 5, 2), Step(3, 5)], False, []),  # it was wrong
        ("all", [Step(2, 5, 2), Step(4, 5)], False, []),
        ("align", [Step(0, 5), Step(5, 6)], False, []),  # passed without writing
        ("align", [Step(4, 6)], True, [0]),
        ("align", [Step(5, 7)], True, []),
        ("all", [Step(5, 9)], True, [1]),
    ],
)
def test_a_block_end_stands_only_where_it_was_written(
    mode: MambaMode, steps: list[Step], loaded: bool, stands: list[int]
) -> None:
    written = NO_STEP
    for step in steps:
        written = written.then(step, loaded=loaded)
    assert [i for i in range(3) if written.stands(rule(mode), i)] == stands
