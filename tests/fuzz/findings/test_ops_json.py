"""JSON in and out: an exact round trip for everything that can be said, one clear line for everything that cannot."""

import json
from dataclasses import fields
from typing import Any

import pytest
from blockproof.fuzz.findings.cause import failed
from blockproof.fuzz.findings.ops_json import OUTCOMES, operation_from_json, outcome_from_json, shape_from_json, to_json
from blockproof.model.ops import (
    OPERATIONS,
    Allocate,
    Done,
    Evict,
    Failed,
    Group,
    Item,
    OnRequest,
    Operation,
    Refused,
    Reset,
    Shape,
    Submit,
    error_kind,
)
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)
SHAPES = st.builds(Shape, groups=st.lists(st.builds(Group), max_size=3).map(tuple))
OUTCOME_VALUES = st.builds(Done, VALUES) | st.builds(Refused) | st.builds(Failed, st.text())


def through_json(data: object) -> object:
    return json.loads(json.dumps(to_json(data)))


def exactly_equal(one: object, other: object) -> bool:
    """Equal, and of the same types all the way down: `1 == True` and `1 == 1.0` do not count."""
    return one == other and repr(one) == repr(other)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_survives_a_round_trip(name):
    @settings(max_examples=30, deadline=None)
    @given(st.builds(OPERATIONS[name]))
    def check(operation):
        assert exactly_equal(operation_from_json(through_json(operation)), operation)

    check()


@settings(max_examples=80, deadline=None)
@given(SHAPES)
def test_every_shape_survives_a_round_trip(shape):
    assert exactly_equal(shape_from_json(through_json(shape)), shape)


@settings(max_examples=150, deadline=None)
@given(OUTCOME_VALUES)
def test_every_outcome_survives_a_round_trip(outcome):
    assert exactly_equal(outcome_from_json(through_json(outcome)), outcome)


def test_all_kinds_are_known_by_name():
    assert {"Submit", "Lookup", "Allocate", "Reset", "Release"} < OPERATIONS.keys()
    assert all(issubclass(kind, Operation) and kind.__name__ == name for name, kind in OPERATIONS.items())
    assert OnRequest not in OPERATIONS.values()
    assert len(OPERATIONS) == 22
    assert {"Done": Done, "Refused": Refused, "Failed": Failed} == OUTCOMES


def test_operations_of_different_kinds_with_equal_fields_differ():
    free: Any = OPERATIONS["Free"]
    preempt: Any = OPERATIONS["Preempt"]
    assert free("a") == free("a")
    assert free("a") != preempt("a")
    assert Reset() != OPERATIONS["StepStart"]()


@pytest.mark.parametrize("data", [Allocate("a", 1), Group("full", 1), Done(1), Item("p", 0, 1), Reset()])
def test_operations_shapes_and_outcomes_cannot_be_changed(data):
    for field in fields(data):
        with pytest.raises(AttributeError):
            setattr(data, field.name, None)


def test_fields_at_their_default_are_left_out():
    assert to_json(Allocate("a", 3)) == {"op": "Allocate", "request": "a", "new_tokens": 3}
    assert to_json(Done()) == {"outcome": "Done"}


def test_a_value_that_equals_the_default_but_is_another_is_kept():
    assert outcome_from_json(through_json(Done(False))).value is False
    assert outcome_from_json(through_json(Done(()))).value == ()


SUBMIT = {"op": "Submit", "request": "a", "prompt": [1, 2]}
SHAPE = {
    "groups": [{"kind": "full", "block_size": 2}],
    "num_blocks": 4,
    "max_model_len": 8,
    "hash_block_size": 2,
    "scheduler_block_size": 2,
    "max_num_batched_tokens": 8,
}


def test_what_the_refusals_start_from_is_sound():
    assert operation_from_json(SUBMIT) == Submit("a", (1, 2))
    assert shape_from_json(SHAPE).groups == (Group("full", 2),)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "operation: expected an object, got NoneType"),
        ([], "operation: expected an object, got list"),
        ("Reset", "operation: expected an object, got str"),
        ({}, "operation.op: expected one of Submit"),
        ({"op": None}, "operation.op: expected one of .*, got None"),
        ({"op": ["Reset"]}, r"operation.op: expected one of .*, got \['Reset'\]"),
        ({"op": "Destroy"}, "operation.op: expected one of .*, got 'Destroy'"),
        ({"op": "OnRequest", "request": "a"}, "operation.op: expected one of .*, got 'OnRequest'"),
        ({"op": "Done"}, "operation.op: expected one of .*, got 'Done'"),
        ({"op": "Reset", "now": 1}, "operation: unknown field 'now'; Reset has none"),
        ({**SUBMIT, "more": 1}, "operation: unknown field 'more'; Submit has request, prompt"),
        ({"op": "Submit", "request": "a"}, "operation: field 'prompt' of Submit is missing"),
        ({**SUBMIT, "request": 1}, "operation.request: expected str, got int"),
        ({**SUBMIT, "request": None}, "operation.request: expected str, got NoneType"),
        ({**SUBMIT, "prompt": "12"}, "operation.prompt: expected an array, got str"),
        ({**SUBMIT, "prompt": {"0": 1}}, "operation.prompt: expected an array, got dict"),
        ({**SUBMIT, "prompt": [1, "2"]}, r"operation.prompt\[1\]: expected int, got str"),
        ({**SUBMIT, "prompt": [1.0]}, r"operation.prompt\[0\]: expected int, got float"),
        ({**SUBMIT, "prompt": [True]}, r"operation.prompt\[0\]: expected int, got bool"),
        ({**SUBMIT, "salt": 5}, "operation.salt: expected str, got int"),
        ({**SUBMIT, "embeds": ["x"]}, r"operation.embeds\[0\]: expected int, got str"),
        ({**SUBMIT, "skip_lookup": 1}, "operation.skip_lookup: expected bool, got int"),
        ({**SUBMIT, "items": [3]}, r"operation.items\[0\]: expected an object, got int"),
        ({**SUBMIT, "items": [{"identifier": "p", "offset": 0}]}, r"operation.items\[0\]: field 'length' of Item is"),
        (
            {**SUBMIT, "items": [{"identifier": "p", "offset": 0, "length": None}]},
            r"operation.items\[0\].length: expected int, got NoneType",
        ),
    ],
)
def test_a_malformed_operation_is_refused_with_its_place(raw, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        operation_from_json(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (7, "shape: expected an object, got int"),
        ({**SHAPE, "op": "Reset"}, "shape: unknown field 'op'"),
        ({**SHAPE, "num_blocks": True}, "shape.num_blocks: expected int, got bool"),
        ({**SHAPE, "caching": 0}, "shape.caching: expected bool, got int"),
        ({**SHAPE, "retention_interval": "2"}, "shape.retention_interval: expected int, got str"),
        ({**SHAPE, "groups": [None]}, r"shape.groups\[0\]: expected an object, got NoneType"),
        (
            {**SHAPE, "groups": [{"kind": "flat", "block_size": 2}]},
            r"shape.groups\[0\].kind: expected one of full",
        ),
        ({**SHAPE, "groups": [{"kind": 1, "block_size": 2}]}, r"shape.groups\[0\].kind: expected one of .*, got 1"),
        ({**SHAPE, "groups": [{"kind": "full"}]}, r"shape.groups\[0\]: field 'block_size' of Group is missing"),
        ({"groups": []}, "shape: field 'num_blocks' of Shape is missing"),
    ],
)
def test_a_malformed_shape_is_refused_with_its_place(raw, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        shape_from_json(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("Done", "outcome: expected an object, got str"),
        ({"outcome": "Lost"}, "outcome.outcome: expected one of Done, Refused, Failed, got 'Lost'"),
        ({"outcome": "Failed"}, "outcome: field 'error' of Failed is missing"),
        ({"outcome": "Failed", "error": 3}, "outcome.error: expected str, got int"),
        ({"outcome": "Refused", "value": 3}, "outcome: unknown field 'value'; Refused has none"),
        ({"outcome": "Done", "value": {}}, "outcome.value: expected a number, .*, got dict"),
        ({"outcome": "Done", "value": [1, [{}]]}, r"outcome.value\[1\]\[0\]: expected a number, .*, got dict"),
    ],
)
def test_a_malformed_outcome_is_refused_with_its_place(raw, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        outcome_from_json(raw)


def test_the_caller_names_the_document():
    with pytest.raises(ValueError, match=r"^operations\[3\].blocks\[0\]: expected int"):
        operation_from_json({"op": "Evict", "blocks": ["x"]}, "operations[3]")
    assert operation_from_json({"op": "Evict", "blocks": []}, "operations[3]") == Evict(())


def test_the_kind_of_an_error_is_its_first_builtin_class():
    class TooFull(ValueError):
        pass

    assert error_kind(TooFull()) == "ValueError"
    assert error_kind(KeyError()) == "KeyError"


class Unspeakable(IndexError):
    def __str__(self):
        raise ValueError("no text")


def raised_by(core):
    """The outcome of a call into a core that raises."""
    try:
        core()
    except Exception as error:
        return failed(error)
    raise AssertionError("nothing was raised")


def core_that(error):
    """A function of another file than this one, which raises through three places."""
    names = {"error": error}
    exec(
        compile("def inner():\n  raise error\ndef middle(): inner()\ndef outer(): middle()\n", "/a/core.py", "exec"),
        names,
    )
    return names["outer"]


def test_a_failure_keeps_type_message_and_innermost_places_of_core_and_adapter():
    cause = raised_by(core_that(Unspeakable())).cause
    assert (cause.type, cause.message) == ("Unspeakable", "(no message: its text raised ValueError)")
    adapter, *core = cause.frames
    assert (adapter.file, adapter.function, adapter.adapter) == ("test_ops_json.py", "raised_by", True)
    assert [(frame.file, frame.line, frame.function) for frame in core] == [
        ("core.py", 3, "middle"),
        ("core.py", 2, "inner"),
    ]
    assert not any(frame.adapter for frame in core)


def test_the_message_of_a_failure_is_one_short_line():
    message = raised_by(core_that(KeyError("a\nb" * 1000))).cause.message
    assert len(message) == 300
    assert "\n" not in message
    assert raised_by(core_that(ValueError("two\n  lines"))).cause.message == "two lines"


def test_the_cause_of_a_failure_survives_json_and_takes_no_part_in_comparisons():
    outcome = raised_by(core_that(ValueError("gone")))
    again = outcome_from_json(json.loads(json.dumps(to_json(outcome))))
    assert again.cause == outcome.cause
    assert outcome == Failed("ValueError")
    assert hash(outcome) == hash(Failed("ValueError"))
    assert outcome_from_json({"outcome": "Failed", "error": "ValueError"}).cause is None
    assert failed(KeyError()).cause.frames == ()  # never raised
