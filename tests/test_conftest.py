"""Coverage of the quick tests stays the same when slow ones run beside them."""

import os
from types import SimpleNamespace
from typing import Any

import coverage
import pytest

from .conftest import pytest_runtest_protocol


def ran_in_a_test():
    return os.environ.get("COVERAGE_PROCESS_CONFIG")


@pytest.mark.parametrize("slow", [False, True])
def test_of_slow_tests_and_their_children_nothing_is_measured(slow, monkeypatch):
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "of the children")
    item: Any = SimpleNamespace(get_closest_marker=lambda name: slow and name == "slow")
    measuring = coverage.Coverage(data_file=None, include=[__file__], config_file=False)
    measuring.start()
    try:
        protocol = pytest_runtest_protocol(item)
        next(protocol)
        assert ran_in_a_test() == (None if slow else "of the children")
        with pytest.raises(StopIteration):
            next(protocol)
        measured = line_of(ran_in_a_test) in (measuring.get_data().lines(__file__) or [])
    finally:
        measuring.stop()
    assert measured is not slow
    assert os.environ["COVERAGE_PROCESS_CONFIG"] == "of the children"


def test_what_follows_a_slow_test_is_measured_again(monkeypatch):
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    measuring = coverage.Coverage(data_file=None, include=[__file__], config_file=False)
    measuring.start()
    item: Any = SimpleNamespace(get_closest_marker=lambda _: True)
    try:
        list(pytest_runtest_protocol(item))
        ran_in_a_test()
        assert line_of(ran_in_a_test) in measuring.get_data().lines(__file__)
    finally:
        measuring.stop()


def line_of(function):
    """The line of its only statement."""
    return function.__code__.co_firstlineno + 1
