"""Lines between a target's process and ours: what was sent arrives, and nonsense is told in a line."""

from typing import Any

import pytest
from blockproof.fuzz.findings.cause import Cause, Frame, cause_of
from blockproof.fuzz.findings.reading import MAX_DEPTH
from blockproof.fuzz.opening import wire
from blockproof.fuzz.opening.wire import (
    answer_message,
    answer_of,
    answers_of,
    frozen,
    line_of,
    lost_message,
    lost_of,
    message_of,
    notes_of,
    shown,
    unavailable_message,
)
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.model.core import Model
from blockproof.model.ops import Done, Failed, Group, Refused, Shape

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
CAUSE = Cause("KeyError", "no such block", (Frame("core.py", 7, "free"),))


class Copying:
    """A target that says that a block was copied."""

    copies = ((1, 2),)
    hides = frozenset({"events"})


COPYING: Any = Copying()


@pytest.mark.parametrize(
    "outcome", [Done(), Done((1, ((2, 3), ()))), Refused(), Failed("ValueError"), Failed("KeyError", CAUSE)]
)
def test_an_answer_arrives_as_it_was_sent(outcome):
    snapshot = Model(SHAPE).snapshot()
    sent = line_of(answer_message(outcome, snapshot, 4096, notes_of(COPYING, True)))
    arrived, seen, resident, notes = answer_of(message_of(sent))
    assert arrived == outcome
    assert getattr(arrived, "cause", None) == getattr(outcome, "cause", None)
    assert seen.free == snapshot.free
    assert seen.events == snapshot.events
    assert (resident, notes) == (4096, {"copies": ((1, 2),), "hides": ("events",)})
    assert answer_of(answer_message(outcome, None, 0, {}))[1] is None


def test_what_is_hidden_is_said_once():
    assert notes_of(COPYING, False) == {"copies": ((1, 2),)}


def test_a_loss_arrives_as_it_was_sent():
    for cause in (None, CAUSE):
        lost = TargetLostError("crash", "it ended", cause)
        assert lost_of(message_of(line_of(lost_message(lost)))) == ("crash", "it ended", cause)


def test_half_a_character_in_what_went_wrong_arrives_as_its_escape():
    """An error's text may hold one, as a name of a file may; why a target was lost must arrive all the same."""
    lost = TargetLostError("protocol", "half: \ud800", cause_of(ValueError("\udcff")))
    kind, detail, cause = lost_of(message_of(line_of(lost_message(lost))))
    assert (kind, detail) == ("protocol", "half: \\ud800")
    assert cause is not None
    assert cause.message == "\\udcff"
    assert message_of(line_of(unavailable_message(ValueError("\ud800")))) == ["unavailable", "\\ud800"]


def test_answers_to_questions_arrive_in_order():
    given = [{"output": [1]}, {"raises": "ValueError"}]
    assert answers_of(["answers", given, 7], 2) == (given, 7)


@pytest.mark.parametrize(
    ("read", "message", "part"),
    [
        (message_of, b"7", "expected an array that begins with a text, got 7"),
        (message_of, b"[]", "expected an array that begins with a text, got []"),
        (message_of, b"[" * 200_000, "nested too deeply"),
        (message_of, b'["\\ud800"]', "half a character"),
        (lost_of, ["lost", "boredom", "", None], "expected how the target was lost"),
        (answer_of, ["Done", None], "expected an outcome, a value, a snapshot, a size and notes"),
        (answer_of, ["Done", None, None, "much", {}], "expected a size in bytes, got much"),
        (answer_of, ["Done", None, None, 0, {"luck": 1}], "expected notes on copies and handed and hides"),
        (answer_of, ["Done", None, None, 0, []], "expected notes on copies and handed and hides"),
        (answer_of, ["Maybe", 1, None, 0, {}], "expected an outcome, got 'Maybe' with 1"),
        (answer_of, ["Done", None, [1, 2], 0, {}], "expected a snapshot of"),
        (lambda message: answers_of(message, 2), ["answers", [{"output": 1}], 0], "expected 2 answers"),
        (
            lambda message: answers_of(message, 1),
            ["answers", [{"guess": 1}], 0],
            "expected an output or what is raised",
        ),
    ],
)
def test_what_cannot_be_read_is_said(read, message, part):
    with pytest.raises(ValueError, match=part.replace("[", r"\[")):
        read(message)


def test_values_are_tuples_to_a_depth():
    deep: object = []
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert isinstance(frozen(deep), tuple)
    with pytest.raises(ValueError, match="nested too deeply"):
        frozen([[deep]])


def test_a_line_has_a_longest_length(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 10)
    assert line_of(["a"]) == b'["a"]\n'
    with pytest.raises(ValueError, match="a message of 14 bytes is longer than a line may be"):
        line_of(["a" * 10])


def test_a_value_is_shown_shortly_whatever_it_is():
    assert shown("a" * 100) == "a" * 80
    assert shown(10**5_000) == "a int that is too large to be shown"
