"""Lockstep compares what a target does not hide, and sends only what it does not lack."""

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.cause import failed
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE, ORACLES
from blockproof.fuzz.opening.oracles import suited_and_why, suited_to, suited_when_asked
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.open_run import open_run
from blockproof.fuzz.runs.run import why_not_done
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.shapes import draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Failed, Refused, Shape, Submit, TakeEvents, TakeStats

HIDDEN = {"usage": 0.0, "events": (), "stats": None, "num_identities": 0, "new_block_ids": None, "registered": None}
"""Fields that the target hides, with their empty values; None: one for each group."""


class Hiding:
    """A target with our core that hides something, and fills in empty values."""

    name = "hiding"

    def __init__(self, spec="impl", hides=HIDDEN, lacks=(), order=list):
        self.core, self.hides, self.lacks, self.order = open_target(spec), frozenset(hides), frozenset(lacks), order
        self.asked = []

    def start(self, shape: Shape):
        self.groups = len(shape.groups)
        outcome, snapshot = self.core.start(shape)
        return outcome, snapshot and self.blanked(snapshot)

    def step(self, operation):
        self.asked.append(operation)
        outcome, snapshot = self.core.step(operation)
        if {TakeEvents: "events", TakeStats: "stats"}.get(type(operation)) in self.hides:
            outcome = Done()
        return outcome, self.blanked(snapshot)

    def blanked(self, snapshot):
        each = {"new_block_ids": [[]] * self.groups, "registered": [{}] * self.groups}
        empty = {name: each.get(name, HIDDEN.get(name)) for name in self.hides if name in HIDDEN}
        return snapshot._replace(**empty, free=self.order(snapshot.free))

    def close(self):
        self.core.close()


def lockstep(target, operations=3_000, **more):
    done = Summary("hiding", "random", 1, oracles=(LOCKSTEP,))
    return run_random(target, Plan(1, operations=operations, oracles=(LOCKSTEP,), **more), done)


def test_what_is_hidden_is_not_compared_and_the_rest_is():
    assert lockstep(Hiding()).finding is None
    assert lockstep(Hiding("fault:free-order-reversed")).finding.observable == "free"
    assert lockstep(Hiding(hides={*HIDDEN, "free_order"}, order=sorted)).finding is None
    assert lockstep(Hiding(order=sorted)).finding.observable == "free"


def test_where_the_order_of_free_blocks_is_hidden_any_order_of_a_list_will_do():
    hides = {*HIDDEN, "free_order"}
    assert lockstep(Hiding(hides=hides, order=lambda free: free[::-1])).finding is None
    assert lockstep(Hiding(hides=hides, order=lambda free: free[1:])).finding.observable == "free"
    assert lockstep(Hiding(hides=hides, order=tuple)).finding.observable == "protocol"


def test_without_saying_so_it_is_a_difference():
    shown = Hiding()
    shown.hides = frozenset({"usage"})
    vars(shown)["blanked"] = lambda snapshot: snapshot._replace(stats=None, usage=0.0)
    assert lockstep(shown).finding.observable in ("stats", "outcome")


def test_what_is_lacking_is_not_sent_and_the_model_is_not_told():
    target = Hiding(hides=(), lacks={"Reset", "Evict", "drafts", "Allocate.reserved"})
    done = lockstep(target)
    assert done.finding is None
    assert not {"Reset", "Evict", "Reject"} & {type(operation).__name__ for operation in target.asked}
    assert not [one for one in target.asked if isinstance(one, Allocate) and one.reserved]
    assert done.impossible.total() == 0


# Which oracles.


def test_the_default_oracles_are_those_that_can_judge_what_a_target_shows_and_has():
    assert suited_to("impl", open_target("impl")) == ORACLES
    assert suited_to("mine:make", Hiding(hides=())) == ORACLES
    assert suited_to("mine:make", Hiding(hides={"events"})) == MODEL_FREE
    assert suited_to("mine:make", Hiding(hides=(), lacks={"Reset"})) == MODEL_FREE
    oracles, why = suited_and_why("mine:make", Hiding(hides={"events"}, lacks={"Take", "Touch", "Reset", "Evict"}))
    assert oracles == MODEL_FREE
    assert (
        why == "the target hides events and lacks Evict, Reset, Take and 1 more, so that no model describes it exactly"
    )
    assert suited_when_asked("impl") == ORACLES


def test_own_code_is_asked_in_a_child_and_what_cannot_be_asked_is_left_to_the_run():
    assert suited_when_asked("tests.fuzz.fakes:copies") == MODEL_FREE
    assert suited_when_asked("tests.fuzz.fakes:core_of_nobody") == ORACLES
    assert suited_when_asked("tests.fuzz.fakes:lacks_typo") == ORACLES


# Causes.


def test_a_refusal_is_put_down_to_the_most_unusual_thing_that_was_asked_for():
    run = open_run(open_target("impl"))
    assert run.start(draw_shape(SeededDraw(5), ("full",))) is None
    assert run.step(Submit("a", (0, 1, 0))) is None
    asked = {
        Allocate("a", 3): "room for its next tokens only",
        Allocate("a", 4): "drafts",
        Allocate("a", 4, reserved=2): "drafts",
        Allocate("a", 3, gate=True, reserved=2): "reserved blocks",
        Allocate("a", 2, gate=True, lookahead=1): "room for the whole prompt (gate)",
        Allocate("a", 1, external=1): "external tokens",
        Allocate("a", 1, lookahead=1): "lookahead",
        Allocate("nobody", 1): "room for its next tokens only",
    }
    for operation, wish in asked.items():
        assert why_not_done(operation, Refused(), run.scene) == f"asked for {wish}"
    assert why_not_done(Submit("b", (0,)), Refused(), run.scene) == "refused"


def test_a_failure_is_put_down_to_its_exception_with_numbers_left_out():
    def outcome(error):
        try:
            raise error
        except type(error) as caught:
            return failed(caught)

    scene = Model(draw_shape(SeededDraw(5), ("full",)))
    told = [why_not_done(Submit("b", (0,)), outcome(ValueError(f"block {n} of 12")), scene) for n in (3, 40)]
    assert told == ["ValueError: block # of #"] * 2
    assert why_not_done(Submit("b", (0,)), Failed("KeyError"), scene) == "KeyError, no message"
    assert len(why_not_done(Submit("b", (0,)), outcome(ValueError("x" * 500)), scene)) == 120


@pytest.mark.parametrize("oracles", [ORACLES, MODEL_FREE])
def test_a_summary_counts_refusals_by_cause(oracles):
    done = Summary("impl", "random", 1, oracles=oracles)
    run_random(open_target("impl"), Plan(1, operations=2_000, oracles=oracles, attention=("full",)), done)
    by_cause = sum(
        times for (kind, result, _), times in done.causes.items() if (kind, result) == ("Allocate", "Refused")
    )
    assert by_cause == done.outcomes["Allocate", "Refused"] > 0
