"""A target that is a program in any language: `program:COMMAND`, asked on its standard input, a line of JSON at a time.

The protocol is documented in docs/reference/pipe-protocol.md. In short: the program begins with
`{"protocol": 1, "name": ..., "hides": [...], "lacks": [...]}`; it is asked `{"start": shape}` and
`{"step": operation}`, with all their fields; and answers `{"outcome": "Done", "value": ..., "snapshot": {...}}`.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from ...model.ops import Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..findings.cause import MAX_MESSAGE
from ..findings.ops_json import outcome_from_json
from ..findings.visible import one_line
from ..targets.base import TargetUnavailableError
from ..targets.declarations import problem_with_names, problem_with_sizes
from .child import ServedTarget, TargetInChild
from .names import Program, parsed
from .process import ChildLimits, Launch
from .wire import Notes, document_of, frozen, line_of, shown

PROTOCOL = 1
"""Version of the protocol. It changes when a program written for it would no longer work."""
MEASURE_EVERY = 256
"""Resident memory is measured every Nth operation."""
_HELLO: Mapping[str, type] = {
    "name": str,
    "version": str,
    "hides": list,
    "lacks": list,
    "designs": list,
    "block_sizes": list,
}
_OPTIONAL = ("version", "designs", "block_sizes")
_ANSWER = ("outcome", "value", "error", "message", "snapshot", "copies")


class ProgramTarget(TargetInChild):
    """A `Target` in a program. `start` raises TargetUnavailableError if it does not come up."""

    def __init__(self, name: str | Program, limits: ChildLimits | None = None) -> None:
        """ValueError for a name that is not `program:COMMAND`."""
        named = parsed(name) if isinstance(name, str) else name
        if not isinstance(named, Program):
            raise ValueError(f"{name}: this is no program; write, for example, program:./my_target")
        super().__init__(named.spec, limits)
        self._command = [*named.command]

    def _launch(self) -> ServedTarget:
        return _Program(self.name, self._command, self._limits)


class _Program(ServedTarget):
    """The running program."""

    def __init__(self, spec: str, command: list[str], limits: ChildLimits) -> None:
        try:
            super().__init__(Launch(spec, command, python=False), limits)
            hello = self.first(hello_of)
        except TargetUnavailableError as error:
            self.end()
            if "cannot run" in str(error):
                raise TargetUnavailableError(
                    f"{error}; is it built, and is the path right? It counts from the current folder"
                ) from None
            raise
        except BaseException:
            self.end()
            raise
        self.version = " ".join(text for text in (hello["name"], hello.get("version", "")) if text)
        self.hides, self.lacks = frozenset(hello["hides"]), frozenset(hello["lacks"])
        self.designs = frozenset(hello.get("designs", ()))
        self.block_sizes = tuple(hello.get("block_sizes", ()))
        self.resident_at_start = self.resident
        self._num_groups = 0
        self._asked = 0

    def ask(
        self, about: Shape | Operation, deadline_s: float, looks: bool = True
    ) -> tuple[Outcome, Snapshot | None, Notes]:
        """See `ServedTarget.ask`. The state is always shown."""
        if isinstance(about, Shape):
            self._num_groups = len(about.groups)
        document = {"start" if isinstance(about, Shape) else "step": complete(about)}
        read = partial(answer_of, num_groups=self._num_groups, hides=self.hides)
        outcome, snapshot, notes = self.exchange(line_of(document), document, deadline_s, read)
        self._asked += 1
        if self._asked % MEASURE_EVERY == 0:
            self.check_memory(self.resident)
        return outcome, snapshot, notes


def answer_of(line: bytes, num_groups: int, hides: frozenset[str]) -> tuple[Outcome, Snapshot | None, Notes]:
    """Outcome, snapshot and copies in the answer of a program that hides this. ValueError says what is wrong."""
    raw = object_of(line)
    _no_others(raw, _ANSWER, "the answer")
    shown = raw.get("snapshot")
    snapshot = None if shown is None else snapshot_of(shown, num_groups, hides)
    return _outcome_of(raw), snapshot, {"copies": frozen(raw["copies"])} if "copies" in raw else {}


def complete(data: object) -> object:
    """A shape or an operation as JSON with all its fields, those at their default as well."""
    if isinstance(data, tuple):
        return [complete(element) for element in data]
    if not is_dataclass(data):
        return data
    tag = {"op": type(data).__name__} if isinstance(data, Operation) else {}
    return tag | {field.name: complete(getattr(data, field.name)) for field in fields(data)}


def snapshot_of(raw: object, num_groups: int, hides: frozenset[str]) -> Snapshot:
    """The snapshot in an answer; what the program hides may be left out. ValueError says what is wrong."""
    if not isinstance(raw, dict):
        raise ValueError(f"the snapshot is {_shown(raw)}; expected an object with its fields")
    _no_others(raw, Snapshot._fields, "the snapshot")
    missing = [name for name in Snapshot._fields if name not in raw and name not in hides]
    if missing:
        raise ValueError(f"the snapshot has no {missing[0]!r}; show it, or name it in `hides`")
    empty = Snapshot([], 0, 0.0, [], [{}] * num_groups, [{}] * num_groups, [], [], 0, (), [[]] * num_groups, None)
    given: dict[str, Any] = {
        name: frozen(value) if name in ("events", "stats") else value for name, value in raw.items()
    }
    return empty._replace(**given)  # types are checked where every target's answers are


def _outcome_of(raw: Mapping[str, object]) -> Outcome:
    frozen(raw.get("value"))  # bounds its depth
    if raw.get("outcome") == "Failed":
        error, message = raw.get("error"), raw.get("message", "")
        if not isinstance(error, str) or not isinstance(message, str):
            raise ValueError(f"Failed wants the kind of error as a text, as in {_EXAMPLE}, got {_shown(error)}")
        if not message:
            return Failed(error)
        cause = {"type": error, "message": one_line(message, MAX_MESSAGE)}
        return outcome_from_json({"outcome": "Failed", "error": error, "cause": cause}, "the answer")
    return outcome_from_json({name: raw[name] for name in ("outcome", "value") if name in raw}, "the answer")


_EXAMPLE = '{"outcome":"Failed","error":"NotImplementedError"}'


def hello_of(line: bytes) -> dict[str, Any]:
    """The first line of a program. ValueError says what is wrong."""
    raw = object_of(line)
    if raw.get("protocol") != PROTOCOL:
        raise ValueError(f"it speaks protocol {_shown(raw.get('protocol'))}, we speak {PROTOCOL}")
    _no_others(raw, ("protocol", *_HELLO), "the first line")
    for name, kind in _HELLO.items():
        if type(raw.get(name)) is not kind and (name in raw or name not in _OPTIONAL):
            expected = "a text" if kind is str else "an array"
            raise ValueError(f"{name!r} of the first line is {_shown(raw.get(name))}; expected {expected}")
    problems = [problem_with_names(name, raw.get(name, ())) for name in ("hides", "lacks", "designs")]
    problems.append(problem_with_sizes(raw.get("block_sizes", ())))
    if said := [problem for problem in problems if problem]:
        raise ValueError(said[0])
    return raw


def object_of(line: bytes) -> dict[str, Any]:
    """The object in a line. ValueError if there is none."""
    try:
        raw = document_of(line)
    except json.JSONDecodeError:
        text = line[:80].decode("utf-8", "replace")
        raise ValueError(f"a line that is no JSON: {text!r}; print anything else to the standard error") from None
    if not isinstance(raw, dict):
        raise ValueError(f"expected an object, got {_shown(raw)}")
    return raw


def _no_others(raw: Mapping[str, object], names: tuple[str, ...], what: str) -> None:
    if unknown := [name for name in raw if name not in names]:
        raise ValueError(f"{what} has an unknown field {unknown[0]!r}; it may have {', '.join(names)}")


def _shown(value: object) -> str:
    try:
        return "nothing" if value is None else json.dumps(value)[:80]
    except (ValueError, RecursionError):
        return shown(value)
