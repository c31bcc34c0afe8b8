"""A run that takes too long is ended, but never in the midst of what Python gives up on the way."""

import sys
import weakref

import pytest
from blockproof.proofs import samples
from blockproof.proofs.samples import LINES_MOST


class Given:
    """An object that takes many lines when it is given up, and must be given up whole."""

    whole = 0

    def __del__(self):
        spend(2 * LINES_MOST)
        Given.whole += 1


class Kept:
    """An object that may be kept weakly."""


def spend(lines):
    for _ in range(lines):
        pass


def gives_up(values):
    one = Given()
    del one
    spend(values["lines"])
    raise AssertionError("it was not ended")


def forgets(values):
    kept = weakref.WeakValueDictionary()
    for number in range(values["lines"]):
        kept[number] = Kept()  # which is forgotten at once
    raise AssertionError("it was not ended")


def own_callback(values):
    for _ in range(values["lines"]):
        one = Kept()
        note = weakref.ref(one, lambda gone: spend(50))
        del one
        assert note() is None
    raise AssertionError("it was not ended")


@pytest.fixture
def unraisable(monkeypatch):
    """What could be raised nowhere, and was printed instead."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: printed.append(told.exc_value))
    return printed


@pytest.mark.parametrize("run", [gives_up, forgets, own_callback])
def test_a_run_is_ended_where_its_end_is_heard(run, unraisable):
    lines, _ = samples._cost(run, {"lines": 50 * LINES_MOST})
    assert lines > LINES_MOST
    assert not unraisable


def test_a_run_that_is_short_is_measured():
    lines, _ = samples._cost(lambda values: (bool(spend(values["lines"])), ""), {"lines": 100})
    assert 100 < lines < 400


def test_what_is_given_up_is_given_up_whole(monkeypatch):
    before = Given.whole
    samples._cost(gives_up, {"lines": 10})
    assert Given.whole == before + 1
    monkeypatch.setattr(samples, "_is_aside", lambda frame: False)
    samples._cost(gives_up, {"lines": 10})
    assert Given.whole == before + 1


def test_other_errors_that_nobody_hears_are_still_told(unraisable):
    class Broken:
        def __del__(self):
            raise ValueError("broken")

    samples._cost(lambda values: (Broken() is None, ""), {})
    assert [str(one) for one in unraisable] == ["broken"]
