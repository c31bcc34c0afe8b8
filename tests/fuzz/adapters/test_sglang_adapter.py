"""What of SGLang's adapter needs no SGLang: which shapes it builds, and the empty modules it puts in place."""

import importlib
import sys

import pytest
from blockproof.fuzz.adapters import families, family_of
from blockproof.fuzz.adapters.sglang.engine import _require_buildable
from blockproof.fuzz.adapters.sglang.kernels import Launched, slots_for_decode, slots_for_extend
from blockproof.fuzz.adapters.sglang.releases import RELEASES, release_for
from blockproof.fuzz.adapters.sglang.standing_in import stand_in_for
from blockproof.model.ops import Group, Shape

FULL, WINDOW = Group("full", 4), Group("sliding", 4, window=6)


def shape(*groups, num_blocks=16, **changes):
    return Shape(groups, num_blocks, 64, 4, 4, 16, **changes)


def test_sglang_is_a_family_with_no_reference_for_lockstep():
    assert family_of("sglang==0.5.23") is families()["sglang"]
    assert families()["sglang"].reference is None


def test_importing_the_family_imports_no_engine():
    assert "sglang" not in sys.modules or families()["sglang"].here


@pytest.mark.parametrize("groups", [(FULL,), (Group("mla", 4),), (FULL, WINDOW)])
def test_full_attention_and_a_window_beside_it_are_built(groups):
    assert _require_buildable(shape(*groups)) == 4


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (shape(WINDOW), "attention sliding"),
        (shape(FULL, Group("mamba", 4)), r"attention full\+mamba"),
        (shape(FULL, Group("sliding", 8, window=6)), r"block sizes \[4, 8\]"),
        (shape(FULL, decode_parallel=2), "2 ranks"),
        (shape(FULL, Group("sliding", 4, window=1)), "a window of 1 token"),
        (shape(FULL, WINDOW, num_blocks=4), "4 blocks"),
    ],
)
def test_what_sglang_has_no_cache_for_is_refused_with_the_reason(wanted, reason):
    with pytest.raises(NotImplementedError, match=reason):
        _require_buildable(wanted)


@pytest.fixture
def finders(monkeypatch):
    """Finders and modules are as they were, afterwards."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.usefixtures("finders")
def test_a_missing_package_is_stood_in_for_with_all_that_is_in_it():
    stand_in_for("no_such_package_at_all")
    inside = importlib.import_module("no_such_package_at_all.deep.inside")
    assert inside.Anything.at_all(1) is not None
    with pytest.raises(AttributeError):
        inside.__no_special_name__  # noqa: B018 - the look-up is what is tested


@pytest.mark.usefixtures("finders")
def test_a_package_that_is_there_stays_itself():
    before = list(sys.meta_path)
    stand_in_for("json")
    assert sys.meta_path == before


@pytest.mark.usefixtures("finders")
def test_no_other_package_is_made_up():
    stand_in_for("no_such_package_at_all")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package_at_all_either")


def test_every_release_of_the_family_is_called_as_one_that_is_known():
    assert [release_for(version).since for version in families()["sglang"].releases] == [
        "0.5.20",
        "0.5.21",
        "0.5.22",
        "0.5.22",
    ]
    assert release_for("0.5.22.post1") is release_for("0.6.0") is RELEASES[-1]


def test_an_older_release_is_refused_with_the_reason():
    with pytest.raises(ImportError, match=r"SGLang 0.5.9 is older than 0.5.20"):
        release_for("0.5.9")


class Row(list[int]):
    """As much of a tensor as the functions for slots use."""

    def tolist(self):
        return list(self)

    def __sub__(self, number):
        return Row(value - number for value in self)


def test_new_slots_fill_the_last_page_and_go_on_in_new_pages():
    out = [None] * 5
    Launched(slots_for_extend)[(2,)](Row([3, 0]), Row([6, 2]), Row([22, -1]), Row([7, 9]), out, 2, 4)
    assert out == [23, 28, 29, 36, 37]


def test_a_decode_takes_a_new_page_where_the_last_one_is_full():
    out = [None] * 2
    Launched(slots_for_decode)[(2,)](Row([5, 4]), Row([11, 22]), Row([7]), out, 2, 4)
    assert out == [28, 23]
