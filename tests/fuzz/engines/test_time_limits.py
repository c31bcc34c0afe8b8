"""Seconds count from the moment the target is ready, and a target that is slow is said to be."""

import time

import pytest
from blockproof.fuzz.engines.fuzzing import slow
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import ENGINES, run_engine
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary


class Clock:
    """Goes on only when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Slow:
    """Our core; its first start takes 100 s, and every operation 1 s."""

    def __init__(self, clock):
        self._core, self._clock, self._ready = open_target("impl"), clock, False
        self.name = "impl"

    def start(self, shape):
        self._clock.now += 0.0 if self._ready else 100.0
        self._ready = True
        return self._core.start(shape)

    def step(self, operation):
        self._clock.now += 1.0
        return self._core.step(operation)

    def close(self):
        self._core.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_launch_of_a_target_does_not_count(engine, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    summary = run_engine(Slow(clock), Plan(1, seconds=30.0), Summary("impl", engine, 1))
    asked = summary.operations - summary.operation_counts["Landed"]  # of which our core is not told
    assert summary.seconds == asked >= 30


@pytest.mark.parametrize(("operations", "seconds", "said"), [(49, 1.0, 0), (99, 2.0, 1), (101, 2.0, 0), (0, 9.0, 0)])
def test_a_slow_target_is_said_to_be_slow(operations, seconds, said):
    lines = slow(Summary("x", "random", 1, operations=operations, seconds=seconds))
    assert len(lines) == said
    assert all("49.5 operations a second" in line and "--seconds or --jobs" in line for line in lines)
