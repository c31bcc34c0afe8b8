"""What the tests of installed engines have in common."""

from collections.abc import Iterator
from typing import Any

import pytest
from blockproof.fuzz.opening.child import PythonPlace
from blockproof.fuzz.opening.targets import interpreter_of, open_target
from blockproof.fuzz.targets.base import Target, TargetUnavailableError
from blockproof.fuzz.targets.family import Family
from blockproof.model.ops import Done, Operation, Shape
from blockproof.model.snapshot import Snapshot


def opened(family: Family, shape: Shape) -> Iterator[Target]:
    """The installed release of a family, started once, for a fixture; skips where none is installed."""
    try:
        target = family.open_target() if family.here else open_target(family.example)
        target.start(shape)
    except TargetUnavailableError as missing:
        pytest.skip(str(missing))
    yield target
    target.close()


def place_of(name: str) -> PythonPlace:
    """Where an installed release has its interpreter and its files; skips where none is installed, or only here."""
    try:
        _, place = interpreter_of(name)
    except TargetUnavailableError as missing:
        pytest.skip(str(missing))
    if place is None:
        pytest.skip(f"{name} is in this environment, so its package may have been imported already")
    return place


def do(target: Target, *operations: Operation) -> tuple[Any, Snapshot | None]:
    """Value and state after the last of these; every one must be done."""
    for operation in operations:
        outcome, seen = target.step(operation)
        assert isinstance(outcome, Done), (operation, outcome)
    return outcome.value, seen
