"""The search that shrinks traces and configurations, on numbers: what fails is what has 7 among its digits."""

import pytest
from blockproof.fuzz.traces.reducer import Reducer, SearchLimits


class Digits(Reducer[str, str]):
    """Drops one digit at a time, or lowers one; the finding is the number in words."""

    interrupt_at: int | None = None

    def search(self):
        self.exhaust(lambda number: (number[:i] + number[i + 1 :] for i in range(len(number))))
        self.exhaust(lambda number: (number[:i] + "0" + number[i + 1 :] for i in range(len(number))))

    def worth_trying(self, candidate):
        return candidate != ""

    def shows(self, candidate):
        if self.interrupt_at is not None and len(candidate) <= self.interrupt_at:
            raise KeyboardInterrupt
        return (candidate, f"number {candidate}") if "7" in candidate else None

    def is_smaller(self, case):
        return (len(case), case) < (len(self.best), self.best)


def digits(number, **limits):
    return Digits(number, f"number {number}", SearchLimits(**limits))


def test_what_still_fails_takes_the_place_of_the_best_until_nothing_smaller_does():
    reducer = digits("1273")
    reduced = reducer.run()
    assert (reducer.best, reduced.finding) == ("7", "number 7")
    assert reduced.complete
    assert not reduced.interrupted
    assert reduced.candidates == 5, "273, 73, 3, 7, and 0; the empty one does not count"


@pytest.mark.parametrize("missing", ["search", "shows"])
def test_a_search_says_itself_what_it_proposes_and_what_that_shows(missing):
    assert digits("7").best == "7"
    incomplete = type("Incomplete", (Digits,), {missing: getattr(Reducer, missing)})
    with pytest.raises(TypeError, match=f"abstract method '?{missing}"):
        incomplete("7", "number 7", SearchLimits())


def test_a_candidate_that_is_not_smaller_is_tried_and_not_taken():
    class Growing(Digits):
        def search(self):
            self.exhaust(lambda number: [number + "0"])

    reducer = Growing("7", "number 7", SearchLimits())
    reduced = reducer.run()
    assert (reducer.best, reduced.candidates, reduced.complete) == ("7", 1, True)


@pytest.mark.parametrize(("limits", "best"), [({"candidates": 1}, "273"), ({"seconds": -1.0}, "1273")])
def test_a_limit_ends_the_search_with_the_best_so_far(limits, best):
    reducer = digits("1273", **limits)
    reduced = reducer.run()
    assert (reducer.best, reduced.finding) == (best, f"number {best}")
    assert (reduced.complete, reduced.interrupted) == (False, False)


def test_ctrl_c_ends_the_search_with_the_best_so_far():
    reducer = digits("1273")
    reducer.interrupt_at = 2
    reduced = reducer.run()
    assert reducer.best == "273"
    assert (reduced.complete, reduced.interrupted) == (False, True)
