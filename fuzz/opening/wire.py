"""The protocol between the harness and a target in a Python child: lines over two pipes.

A line is JSON: an array whose first element is its kind. Both sides are of one version, so it may change at any time;
programs in other languages speak the protocol of `program`, which is documented.

* The child begins with `["ready", version, bytes, lacks, hides, designs, offers, loses, block_sizes, name]`, or with
  `["unavailable", message]`.
* The harness sends `["start", shape]` and `["step", operation]`; `["answer", operation]` where it does not look at the
  state afterwards: the snapshot in the answer is null then.
* The child answers `["Done", value, snapshot, bytes, notes]` (or `Refused`, `Failed`), or
  `["lost", kind, detail, cause]`. The value of `Failed` is the kind of error, or an object with it (`error`) and with
  the `cause`, as `to_json` has it; the cause of a loss is null if it is not known.
* `["time", [[shape, operations], ...]]` is answered by `["seconds", seconds]`: of processor time, without starts.
* To a calculator the harness sends `["ask", [[op, inputs], ...]]`; it answers `["answers", [answer, ...], bytes]`.

`bytes` is the child's resident memory if it was measured, else 0. `notes` is an object with what a target says besides
its answer (`NOTES`).
"""

import json
from collections.abc import Mapping
from typing import TypeAlias, cast

from ...model.ops import Done, Failed, Outcome, Refused, Value
from ...model.snapshot import Snapshot
from ..findings.cause import Cause
from ..findings.finding import LOST
from ..findings.ops_json import cause_from_json, outcome_from_json, to_json
from ..findings.reading import MAX_DEPTH, check_depth
from ..findings.visible import whole
from ..targets.base import Target, TargetLostError, hidden_from_model

MAX_LINE = 1 << 28
"""The most bytes of a line; a longer one means that the other side does not follow the protocol."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def line_of(message: object) -> bytes:
    """The message as a line. TypeError or ValueError if it has no JSON form, or is too long."""
    line = _encode(message).encode("ascii")
    if len(line) > MAX_LINE:
        raise ValueError(f"a message of {len(line)} bytes is longer than a line may be ({MAX_LINE} bytes)")
    return line + b"\n"


def message_of(line: bytes) -> list[object]:
    """The message in a line. ValueError if it is malformed."""
    message = document_of(line)
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise ValueError(f"expected an array that begins with a text, got {shown(message)}")
    return message


def shown(value: object) -> str:
    """The beginning of a value, for a message; it may be nested deeply, or a number of thousands of digits."""
    try:
        return str(value)[:80]
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to be shown"


def document_of(line: bytes) -> object:
    """The JSON in a line. ValueError if there is none, if it is nested too deeply, or a text has half a character."""
    try:
        document: object = json.loads(line.decode())
    except RecursionError:
        raise ValueError("a line that is nested too deeply") from None
    if b"\\ud" in line or b"\\uD" in line:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text with half a character (a lone surrogate)") from None
    return document


NOTES = ("copies", "handed", "hides")
"""Attributes of a target that can be sent with an answer: `copies` and what is `handed` over if there are any, `hides`
after a start."""
Notes: TypeAlias = Mapping[str, Value]


def notes_of(target: Target, started: bool) -> Notes:
    """The notes to send with an answer of this target; `started` if it answers a start."""
    told = {name: value for name in ("copies", "handed") if (value := getattr(target, name, ()))}
    hides = {"hides": tuple(sorted(hidden_from_model(target)))} if started else {}
    return {**told, **hides}


def answer_message(outcome: Outcome, snapshot: Snapshot | None, resident: int, notes: Notes) -> list[object]:
    """The child's answer to an operation."""
    value: object = None
    if isinstance(outcome, Done):
        value = outcome.value
    elif isinstance(outcome, Failed):
        value = outcome.error if outcome.cause is None else {"error": outcome.error, "cause": to_json(outcome.cause)}
    return [type(outcome).__name__, value, snapshot, resident, notes]


def lost_message(lost: TargetLostError) -> list[object]:
    """The child's answer if its target is unusable."""
    return ["lost", lost.kind, whole(lost.detail), to_json(lost.cause)]


def unavailable_message(error: Exception) -> list[object]:
    """The child's answer if there is no target."""
    return ["unavailable", whole(str(error))]


def lost_of(message: list[object]) -> tuple[str, str, Cause | None]:
    """Kind, detail and cause of the loss: the inverse of `lost_message`. ValueError if the message is malformed."""
    match message:
        case ["lost", str(kind), str(detail), cause] if kind in LOST:
            return kind, detail, None if cause is None else cause_from_json(cause)
    raise ValueError(f"expected how the target was lost, got {shown(message)}")


def answer_of(message: list[object]) -> tuple[Outcome, Snapshot | None, int, Notes]:
    """Outcome, snapshot, resident bytes and notes: the inverse of `answer_message`. ValueError if malformed."""
    try:
        kind, value, fields, resident, notes = message
    except ValueError:
        what = "an outcome, a value, a snapshot, a size and notes"
        raise ValueError(f"expected {what}, got {shown(message)}") from None
    if not isinstance(resident, int):
        raise ValueError(f"expected a size in bytes, got {shown(resident)}")
    return _outcome_of(kind, value), None if fields is None else _snapshot_of(fields), resident, _notes_of(notes)


def _notes_of(raw: object) -> Notes:
    if not isinstance(raw, dict) or not raw.keys() <= set(NOTES):
        raise ValueError(f"expected notes on {' and '.join(NOTES)}, got {shown(raw)}")
    return {name: frozen(value) for name, value in raw.items()}


def answers_of(message: list[object], count: int) -> tuple[list[dict[str, object]], int]:
    """The answers to `count` questions, and resident bytes. ValueError if the message is malformed."""
    match message:
        case ["answers", list(answers), int(resident)] if len(answers) == count:
            check_depth(answers)
            if wrong := [answer for answer in answers if not _is_answer(answer)]:
                raise ValueError(f"expected an output or what is raised, got {shown(wrong[0])}")
            return answers, resident
    raise ValueError(f"expected {count} answers, got {shown(message)}")


def _is_answer(answer: object) -> bool:
    return isinstance(answer, dict) and list(answer) in (["output"], ["raises"])


def _outcome_of(kind: object, value: object) -> Outcome:
    if kind == "Done":
        return Done(frozen(value))
    if kind == "Refused":
        return Refused()
    if kind == "Failed" and isinstance(value, str):
        return Failed(value)
    if kind == "Failed" and isinstance(value, dict):
        return outcome_from_json({"outcome": kind, **value}, "the outcome")
    raise ValueError(f"expected an outcome, got {kind!r} with {shown(value)}")


def _snapshot_of(fields: object) -> Snapshot:
    if not isinstance(fields, list) or len(fields) != len(Snapshot._fields):
        raise ValueError(f"expected a snapshot of {len(Snapshot._fields)} fields, got {shown(fields)}")
    snapshot = Snapshot(*fields)
    return snapshot._replace(
        events=cast(tuple[Value, ...], frozen(snapshot.events)),
        stats=cast(tuple[Value, ...] | None, frozen(snapshot.stats)),
    )


def frozen(value: object, levels: int = MAX_DEPTH) -> Value:
    """The value with all arrays, at every depth, as tuples. ValueError if they stand in each other too deeply."""
    if isinstance(value, list):
        if not levels:
            raise ValueError(f"a value that is nested too deeply, more than {MAX_DEPTH} levels")
        return tuple([frozen(element, levels - 1) for element in value])
    return cast(Value, value)
