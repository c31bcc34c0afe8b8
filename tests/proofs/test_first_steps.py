"""First steps that are taken at once, beside the long way, in a few of the small cores of T16.first."""

import pytest
from blockproof.proofs import roles
from blockproof.proofs.coverage import Watched
from blockproof.proofs.theorems.first_steps import FIRST

OF = ("enable_kv_cache_events", "enable_caching", "watermark")


def few(subject):
    """The cores in which a hit, a full pool or an option decides."""
    names, scopes = FIRST.parts(roles.subject(subject))
    return names, [one for one in scopes if one.room == 4 and not one.runs_on and {*one.options} <= {*OF}]


@pytest.mark.parametrize("subject", ["impl", "impl-today"])
def test_a_first_step_is_what_the_long_way_makes_of_it(subject):
    trial = FIRST.tried(few(subject), Watched([]))
    assert (trial.problem, trial.counterexample) == ("", None)


@pytest.mark.parametrize("change", FIRST.wrong, ids=[what for what, *_ in FIRST.wrong])
def test_a_wrong_one_is_refuted_in_small_cores(change):
    assert FIRST.is_refuted(few("impl"), *change[1:])


def test_where_no_step_is_refused_or_left_to_the_long_way_nothing_is_shown():
    names, scopes = few("impl")
    plenty = [one._replace(room=40, options=()) for one in scopes[:1]]
    assert FIRST.tried((names, plenty), Watched([])).problem.startswith("steps were only")


def test_a_line_that_stands_nowhere_is_no_control():
    with pytest.raises(LookupError, match="no begin has a line that says 'nothing like it'"):
        FIRST.is_refuted(few("impl"), "begin", "nothing like it", "pass")
