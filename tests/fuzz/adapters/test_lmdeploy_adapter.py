"""What of LMDeploy's adapter needs no LMDeploy: which shapes it builds, and how a package's `__init__` is left out."""

import importlib
import sys

import pytest
from blockproof.fuzz.adapters import families, family_of
from blockproof.fuzz.adapters.lmdeploy import engine
from blockproof.fuzz.adapters.lmdeploy.target import HIDES, LACKS
from blockproof.fuzz.targets.declarations import problem_with_names
from blockproof.model.ops import Group, Shape

FULL, WINDOW = Group("full", 4), Group("sliding", 4, window=6)


def shape(*groups, num_blocks=16, max_model_len=40, **changes):
    return Shape(groups, num_blocks, max_model_len, 4, 4, 16, **changes)


def test_lmdeploy_is_a_family_with_no_reference_for_lockstep():
    assert family_of("lmdeploy==0.18.0") is families()["lmdeploy"]
    assert families()["lmdeploy"].reference is None


def test_its_names_are_legal():
    assert problem_with_names("hides", HIDES) is None
    assert problem_with_names("lacks", LACKS) is None


@pytest.mark.parametrize(
    "wanted", [shape(FULL), shape(FULL, caching=False), shape(Group("mla", 4)), shape(WINDOW, caching=False)]
)
def test_full_attention_and_a_window_without_caching_are_built(wanted):
    assert engine._require_buildable(wanted) == wanted.groups[0]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (shape(FULL, WINDOW), r"attention full\+sliding"),
        (shape(Group("mamba", 4)), "attention mamba"),
        (shape(FULL, decode_parallel=2), "2 context-parallel ranks"),
        (shape(Group("sliding", 4, window=1), caching=False), "a window of 1 token"),
        (shape(WINDOW), "prefix caching with a sliding window"),
        (shape(Group("sliding", 1, window=3), caching=False), "blocks of 1 token"),
        (shape(FULL, max_model_len=45), "45 tokens in 16 blocks: LMDeploy takes requests of at most 44"),
    ],
)
def test_what_lmdeploy_has_no_scheduler_for_is_refused_with_the_reason(wanted, reason):
    with pytest.raises(NotImplementedError, match=reason):
        engine._require_buildable(wanted)


def test_room_is_made_ahead_for_a_token_or_more_and_at_most_for_the_default():
    asked = [Shape((FULL,), 64, 24, 4, 4, tokens) for tokens in (0, 7, 100)]
    assert [engine._preallocated(one) for one in asked] == [1, 7, engine.MOST_PREALLOCATED]


@pytest.fixture
def loud_package(tmp_path, monkeypatch):
    """A package whose `__init__` fails, with a module that does not; modules are as they were, afterwards."""
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('executed')")
    (package / "quiet.py").write_text("value = 7")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return "loud_package"


def test_a_package_can_be_used_without_its_init(loud_package):
    engine._leave_out_init_of(loud_package)
    assert importlib.import_module(f"{loud_package}.quiet").value == 7
    before = sys.modules[loud_package]
    engine._leave_out_init_of(loud_package)
    assert sys.modules[loud_package] is before


def test_a_package_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        engine._leave_out_init_of("no_such_package_at_all")
