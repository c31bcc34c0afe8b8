"""Targets that are broken in the ways in which a first target of one's own is; our core does what is not broken."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from blockproof.fuzz.opening.targets import open_target
from blockproof.model.ops import Allocate, Done, Failed, Lookup, Operation, Outcome, Refused, Shape, Submit


class Broken:
    """Our core, with answers that are changed."""

    name: Any = "broken"

    def __init__(self, answer: Callable[[Any, Any, Any], Any] | None = None, **said: Any) -> None:
        self.core = open_target("impl")
        self.change = answer or (lambda operation, outcome, snapshot: (outcome, snapshot))
        vars(self).update(said)

    def start(self, shape: Shape) -> Any:
        return self.change(None, *self.core.start(shape))

    def step(self, operation: Operation) -> Any:
        return self.change(operation, *self.core.step(operation))

    def close(self) -> None:
        self.core.close()


def at_steps(change: Callable[[Any, Any, Any], Any]) -> Broken:
    """Starts as it should."""
    return Broken(lambda operation, *answer: answer if operation is None else change(operation, *answer))


def showing(**fields: Any) -> Broken:
    return Broken(lambda operation, outcome, snapshot: (outcome, snapshot._replace(**fields)))


def raising(error: BaseException) -> Any:
    raise error


def typo_in_hides() -> Broken:
    return Broken(hides={"lables", "events"})


def typo_in_lacks() -> Broken:
    return Broken(lacks={"Allocate.gait"})


def text_for_a_set() -> Broken:
    return Broken(lacks="Reset")


def text_once_started() -> Broken:
    broken = Broken(hides=frozenset())
    broken.change = lambda operation, *answer: vars(broken).update(hides="events") or answer
    return broken


def sizes_of_no_block() -> Broken:
    return Broken(block_sizes=[0])


def lacks_all_kinds() -> Broken:
    return Broken(lacks={"hybrids", *(f"Group.kind={kind}" for kind in ("full", "mla", "tq"))})


def nameless() -> Broken:
    return Broken(name=7)


def never_made() -> Broken:
    raise RuntimeError("no such library: libcache.so")


def nothing_made() -> None:
    return None


def cannot_be_closed() -> Any:
    made = type("Half", (), {"name": "half", "start": None, "step": None})
    return made()


def raises_in_start() -> Broken:
    return Broken(lambda *answer: raising(ValueError("unsupported dtype")))


def raises_in_step() -> Broken:
    return at_steps(lambda *answer: raising(KeyError("r0")))


def exits_in_step() -> Broken:
    return at_steps(lambda *answer: sys.exit("device lost"))


def dies_in_step() -> Broken:
    return at_steps(lambda *answer: os._exit(9))


def hangs_in_step() -> Broken:
    return at_steps(lambda *answer: time.sleep(3600))


def returns_nothing() -> Broken:
    return at_steps(lambda *answer: None)


def returns_outcome_alone() -> Broken:
    return at_steps(lambda operation, outcome, snapshot: outcome)


def returns_true() -> Broken:
    return at_steps(lambda operation, outcome, snapshot: (True, snapshot))


def shows_nothing() -> Broken:
    return Broken(lambda operation, outcome, snapshot: (outcome, None))


def shows_a_dict() -> Broken:
    return at_steps(lambda operation, outcome, snapshot: (outcome, snapshot._asdict()))


def shows_a_number_for_a_list() -> Broken:
    return showing(free=3)


def shows_another_number_of_groups() -> Broken:
    return showing(tables=[{}, {}, {}, {}, {}])


def shows_no_null_block() -> Broken:
    return Broken(
        lambda operation, outcome, snapshot: (outcome, snapshot._replace(ref_cnt=snapshot.ref_cnt[1:])), hides={"usage"}
    )


def lists_for_tuples() -> Broken:
    return at_steps(
        lambda operation, outcome, snapshot: (
            Done(cast(Any, [*outcome.value])) if isinstance(operation, Lookup) else outcome,
            snapshot,
        )
    )


def block_beyond_the_pool() -> Broken:
    def change(operation: Any, outcome: Any, snapshot: Any) -> Any:
        far = [{name: [10_000 for _ in row] for name, row in table.items()} for table in snapshot.tables]
        return outcome, snapshot._replace(tables=far)

    return Broken(change, hides={"usage"})


def builds_nothing() -> Broken:
    return Broken(lambda operation, outcome, snapshot: (Failed("NotImplementedError"), None))


def answering(kind: type[Operation], outcome: Outcome) -> Broken:
    """Answers operations of a kind with this outcome, without passing them on."""
    broken = Broken(hides={"usage"})
    shown: list[Any] = []

    def asked(answer: Any) -> Any:
        shown[:] = [answer[1]]
        return answer

    def step(operation: Operation) -> Any:
        return (outcome, shown[0]) if isinstance(operation, kind) else asked(broken.core.step(operation))

    vars(broken).update(step=step, start=lambda shape: asked(broken.core.start(shape)))
    return broken


def refuses_everything() -> Broken:
    return answering(Allocate, Refused())


def knows_no_request() -> Broken:
    return answering(Submit, Failed("KeyError"))


class SkipsEveryLookup(Broken):
    """As if every request had asked that nothing is looked up for it."""

    def step(self, operation: Operation) -> Any:
        return super().step(replace(operation, skip_lookup=True) if isinstance(operation, Submit) else operation)


def never_hits() -> Broken:
    return SkipsEveryLookup()


def prints_and_builds_nothing() -> Broken:
    def change(operation: Any, outcome: Any, snapshot: Any) -> Any:
        print("building ... { not json")
        return Failed("NotImplementedError"), None

    return Broken(change)
