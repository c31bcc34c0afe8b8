"""Several oracles object at one operation: the worst is shown, the same everywhere, and the others are listed."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, EVERY, LIVENESS, LOCKSTEP, MODEL_FREE, SHADOW
from blockproof.fuzz.findings.severity import Severity, severity
from blockproof.fuzz.oracles.liveness.rules import IDLE_STEPS
from blockproof.fuzz.oracles.shadow import Shadow
from blockproof.fuzz.page.html import document_in
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.model.arith import usage
from blockproof.model.core import Model
from blockproof.model.ops import Advance, Allocate, Done, Failed, Group, Outcome, Refused, Shape, Submit, Take, Touch
from blockproof.model.snapshot import Snapshot

SHAPE = Shape((Group("full", 1),), 6, 9, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=9)
BEGUN = (Submit("a", (1, 2)), Allocate("a", 2))


class Wrong:
    """The model, with answers that are changed."""

    name = "wrong"

    def __init__(self, change):
        self.change = change

    def start(self, shape):
        self.model = Model(shape)
        built = isinstance(self.model.construction, Done)
        return self.model.construction, self.model.snapshot() if built else None

    def step(self, operation):
        return self.change(operation, *self.model.step(operation))

    def close(self):
        pass


def shown(change, *operations, oracles=(LOCKSTEP, SHADOW, CONTRACT), shape=SHAPE) -> Finding:
    finding, _ = replay(Trace(shape, operations), Wrong(change), Judging(oracles))
    assert finding is not None
    return finding


def only_at(kind, change):
    """The change after operations of this kind."""
    return lambda operation, outcome, seen: (
        change(operation, outcome, seen) if isinstance(operation, kind) else (outcome, seen)
    )


def with_free(seen: Snapshot, free: list[int]) -> Snapshot:
    """The same with this free queue, and all figures that follow from it."""
    return seen._replace(free=free, num_free=len(free), usage=usage(len(free), SHAPE.num_blocks))


def what(finding: Finding) -> list[tuple[str, str]]:
    return [(one.oracle, one.observable) for one in finding.every]


def test_a_block_that_is_free_and_held_is_wrong_content_and_shown_before_the_difference():
    def free_again(operation, outcome: Outcome, seen: Snapshot):
        held = seen.tables[0]["a"][0]
        return outcome, with_free(seen, [*seen.free, held])

    finding = shown(only_at(Allocate, free_again), *BEGUN)
    assert what(finding)[0] == (CONTRACT, "S1")
    assert what(finding)[-1] == (LOCKSTEP, "free")
    assert severity(finding) is Severity.WRONG_CONTENT
    assert "leak" not in str(finding)
    assert "free and held" in str(finding)


def test_a_lost_block_is_a_leak_and_shown_before_the_difference():
    def lost(operation, outcome: Outcome, seen: Snapshot):
        return outcome, with_free(seen, seen.free[1:])

    finding = shown(only_at(Allocate, lost), *BEGUN)
    assert what(finding) == [(CONTRACT, "S1"), (LOCKSTEP, "free")]
    assert severity(finding) is Severity.LEAK


def test_what_is_registered_before_its_tokens_are_in_it_is_wrong_content():
    def early(operation, outcome: Outcome, seen: Snapshot):
        block = seen.free[-1]
        labels = [99 if number == block else label for number, label in enumerate(seen.labels)]
        return outcome, seen._replace(labels=labels)

    finding = shown(only_at(Allocate, early), *BEGUN)
    assert what(finding)[0] == (CONTRACT, "S10")
    assert what(finding)[-1] == (LOCKSTEP, "labels")
    assert severity(finding) is Severity.WRONG_CONTENT


def test_a_worse_violation_of_the_contract_is_not_hidden_by_one_that_is_noticed_first():
    """Free blocks change places (S9, lost efficiency), and one of them is registered with nothing in it (S10)."""

    def both(operation, outcome: Outcome, seen: Snapshot):
        labels = [99 if number == seen.free[-1] else label for number, label in enumerate(seen.labels)]
        return outcome, seen._replace(free=seen.free[::-1], labels=labels)

    finding = shown(only_at(Allocate, both), *BEGUN, oracles=(CONTRACT,))
    assert [one.observable for one in finding.every][:2] == ["S10", "S9"]
    assert [severity(one) for one in finding.every] == sorted(severity(one) for one in finding.every)


def test_a_call_that_hands_out_what_is_held_is_shown_as_that_and_not_as_another_outcome():
    def held(operation, outcome: Outcome, seen: Snapshot):
        block = seen.tables[0]["a"][0]
        counts = [count + (number == block) for number, count in enumerate(seen.ref_cnt)]
        return Done((block,)), seen._replace(ref_cnt=counts)

    finding = shown(only_at(Take, held), *BEGUN, Take(1))
    assert what(finding)[0] == (CONTRACT, "S2")
    assert what(finding)[-1] == (LOCKSTEP, "outcome")


@pytest.mark.parametrize("operation", [Take(2), Touch((1, 2))])
def test_who_holds_blocks_outside_is_told_by_the_answer_of_the_target(operation):
    """A target that refuses what the model does is right by the contract: nobody holds more than before."""
    states = []

    def refuses(wanted, outcome: Outcome, seen: Snapshot):
        states.append(seen)
        return (Failed("ValueError"), states[-2]) if isinstance(wanted, Take | Touch) else (outcome, seen)

    finding = shown(refuses, *BEGUN, operation)
    assert [one for one in what(finding) if one[1] == "S1"] == []
    assert what(finding)[-1] == (LOCKSTEP, "outcome")


def test_a_difference_alone_stays_what_it_is():
    finding = shown(only_at(Advance, lambda _, outcome, seen: (Done(7), seen)), *BEGUN, Advance("a"))
    assert what(finding) == [(LOCKSTEP, "outcome")]
    assert finding.also == ()


def test_an_oracle_that_breaks_beside_a_difference_does_not_lose_it(monkeypatch):
    def broken(*_given):
        raise KeyError("a state that no rule describes")

    def late(operation, outcome: Outcome, seen: Snapshot):
        if isinstance(operation, Advance):
            monkeypatch.setattr(Shadow, "step", broken)
            return Done(7), seen
        return outcome, seen

    assert what(shown(late, *BEGUN, Advance("a"))) == [(LOCKSTEP, "outcome")]


class RefusesForEver(Wrong):
    """Refuses every request; where that is seen to be for ever, free blocks change places."""

    def __init__(self):
        super().__init__(None)

    def start(self, shape):
        self.refused = 0
        return super().start(shape)

    def step(self, operation):
        if not isinstance(operation, Allocate):
            outcome, seen = self.model.step(operation)
            return outcome, seen._replace(free=seen.free[::-1]) if self.refused >= IDLE_STEPS else seen
        self.refused += 1
        seen = self.model.snapshot()
        return Refused(), seen._replace(free=seen.free[::-1]) if self.refused >= IDLE_STEPS else seen


def test_liveness_is_heard_beside_what_is_less_bad():
    script = Trace(SHAPE, (Submit("a", (1, 2)), Advance("a", (3,))))
    finding, applied = replay(script, RefusesForEver(), Judging(MODEL_FREE))
    assert finding is not None
    assert what(finding) == [(LIVENESS, "L1"), (CONTRACT, "S9")]
    assert severity(finding) is Severity.CRASH
    assert applied == script
    alone, _ = replay(script, RefusesForEver(), Judging((LIVENESS,)))
    assert alone is not None
    assert alone.key == finding.key


def test_terminal_json_junit_and_page_show_the_same(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fuzz", "--target", "fault:touch-ignores-used-blocks", "--oracle", ",".join(EVERY), "--seed", "0"]
    words += ["--operations", "4000", "--out", "found", "--junit", "junit.xml", "--json"]
    assert main(words) == 1
    told = json.loads(capsys.readouterr().out)
    (first, *_) = told["findings"]
    assert first["severity"] == "wrong content"
    assert first["oracle"] != LOCKSTEP
    assert first["also"]
    assert {one["oracle"] for one in first["also"]} >= {LOCKSTEP}
    head, *_, last = first["text"].splitlines()
    assert last.startswith("  also: lockstep: ")
    failure = ElementTree.parse("junit.xml").getroot().find(".//failure")
    assert failure is not None
    assert head in (failure.text or "")
    assert last in (failure.text or "")
    page = document_in(Path(first["reproduction"]["page"]).read_text(encoding="utf-8"))
    assert page is not None
    assert page.verdict.headline == head
    assert last in page.verdict.text
    assert page.verdict.severity == "wrong content"
    assert main(["replay", first["reproduction"]["trace"], "--target", "fault:touch-ignores-used-blocks"]) == 1
    assert first["text"] in capsys.readouterr().out
