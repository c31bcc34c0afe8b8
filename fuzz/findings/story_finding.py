"""What a judge of an engine under a scheduler objects to; and which shorter stories are tried."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
_NUMBER = re.compile(r"\d+")
_ROOT = f"{__name__.split('.')[0]}.fuzz"
_BETWEEN = tuple(
    f"{_ROOT}.{name}"
    for name in (
        *("simulation.in_words", "simulation.picture"),
        *("engines.deadlines", "engines.forked", "targets.unharmed"),
    )
)
"""Modules that stand between the driver and an engine, or between it and the system, to tell what is called."""
_DRIVER = f"{_ROOT}.simulation.run"


@dataclass(frozen=True)
class StoryFinding:
    """What one judge objects to."""

    judge: str
    """Its name; `BLOCKPROOF` for a bug of our own, which says nothing of the engine."""
    rule: str
    """The property, or what was read, or the exception with the functions that raised it. Two findings with one judge
    and one rule may have one cause."""
    what: str
    step: int
    """Number of the scheduler's step, from 1 on."""
    said: str = ""
    """Which of the property's sentences it is (`Violation.kind`)."""
    more: tuple[str, ...] = ()
    """Lines that help to find the place, as the stack of a call that hangs."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """Judge, rule, and sentence: findings that differ in one of them have two causes."""
        return self.judge, self.rule, self.said


def rule_of(line: str) -> str:
    """What a line says, without who it is about (what stands before the colon), who else has a part in it (behind a
    semicolon) and without numbers."""
    return _NUMBER.sub("N", line.partition(": ")[2].partition("; ")[0])


def place_of(trace: TracebackType | None) -> str:
    """The two innermost functions of an exception, the inner one first; it is the same where its calls are told."""
    names: list[str] = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") not in _BETWEEN:
            names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return " < ".join(names[:-3:-1]) or "nowhere"


def stack_of(trace: TracebackType | None, most: int = 12) -> tuple[str, ...]:
    """Where each call of an exception stands, in the form of a Python stack, the innermost one first."""
    lines: list[str] = []
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__")
        if name == _DRIVER:
            lines.clear()  # of the engine is what it calls
        elif name not in _BETWEEN:
            code = trace.tb_frame.f_code
            lines.append(f'File "{code.co_filename}", line {trace.tb_lineno} in {code.co_name}')
        trace = trace.tb_next
    return tuple(lines[: -most - 1 : -1])


def with_pieces_left_out(happenings: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """What happens in a story without a half of it, then without ever smaller pieces, down to single ones."""
    width = len(happenings) // 2
    while width:
        for first in range(0, len(happenings), width):
            yield happenings[:first] + happenings[first + width :]
        width //= 2
