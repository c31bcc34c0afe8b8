"""Calculators for tests: the model itself, and some that misbehave at the op `num_blocks`."""

import itertools
import os
import time
from collections.abc import Callable

from blockproof.fuzz.targets.configuration_answers import answer
from blockproof.fuzz.targets.deviations import DeviatingRules


class Modelled:
    """Answers as a model does, but for what it does first at `num_blocks`."""

    version = "1.2"

    def __init__(
        self, rules: DeviatingRules | None = None, name: str = "modelled", misbehave: Callable[[], object] = int
    ) -> None:
        self.name = name
        self.asked: list[str] = []
        self._answer = rules.answer if rules else answer
        self._misbehave = misbehave

    def ask(self, op, inputs):
        self.asked.append(op)
        if op == "num_blocks":
            self._misbehave()
        return self._answer(op, inputs)

    def close(self) -> None:
        pass


def modelled() -> Modelled:
    return Modelled()


def exits() -> Modelled:
    return Modelled(misbehave=lambda: os._exit(3))


def hangs() -> Modelled:
    return Modelled(misbehave=lambda: time.sleep(3600))


def eats() -> Modelled:
    eaten: list[bytes] = []
    return Modelled(misbehave=lambda: eaten.append(b"x" * (64 << 20)))


def says_when_running() -> Modelled:
    """Is in the middle of its work when it is asked for the third time; see `fakes`."""
    from fakes import in_the_middle  # type: ignore[import-not-found]  # only seen where this module is

    count = itertools.count(1)
    return Modelled(misbehave=lambda: in_the_middle(next(count)))


def answers_nonsense() -> Modelled:
    calculator = Modelled()
    calculator.ask = lambda op, inputs: {"outputs": 3}  # type: ignore[method-assign]
    return calculator


def answers_nothing() -> None:
    return None
