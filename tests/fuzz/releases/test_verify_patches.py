"""A patched release against the release: what is introduced, what is fixed, and that nothing is said of nothing."""

from pathlib import Path

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.patches import Patch
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases import verify_report as report
from blockproof.fuzz.releases.verify import Verification, verify
from blockproof.fuzz.releases.verify_effects import Where, occurring
from blockproof.fuzz.releases.verify_sides import named_sides
from blockproof.model.ops import Allocate, Group, Shape, Submit

RELEASE = "vllm==0.23.0"
pytestmark = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
NOTHING = """
import vllm.v1.core.block_pool as pools


class Renamed(pools.BlockPool):
    pass
"""
ONE_MORE = """
import vllm.v1.core.single_type_kv_cache_manager as managers

real = managers.MambaManager.get_num_blocks_to_allocate
managers.MambaManager.get_num_blocks_to_allocate = lambda self, *args, **kwargs: real(self, *args, **kwargs) + 1
"""
OWN_TARGET = """
from blockproof.fuzz.opening.targets import open_target


class Wrapped:
    name = "my own"
    version = ""

    def __init__(self):
        self._core = open_target("vllm==0.23.0")
        self.start, self.step, self.close = self._core.start, self._core.step, self._core.close

    def __getattr__(self, name):
        return getattr(self._core, name)


def make_target():
    return Wrapped()
"""


@pytest.fixture(autouse=True)
def _without_timing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verifying, "compare_speed", lambda *arguments: "not timed")
    monkeypatch.chdir(tmp_path)


def patched(text: str) -> str:
    """The release with this patch."""
    Path("change.py").write_text(text)
    return Patch(("change.py",)).over(RELEASE)


def verified(new: str, attention: tuple[str, ...] = ("full", "full+mamba", "sliding")) -> Verification:
    with named_sides(RELEASE, new) as (old, changed):
        assert old.oracles == changed.oracles
        assert LOCKSTEP in old.oracles
        assert changed.like == RELEASE
        return verify(old, changed, Plan(3, operations=1_200, attention=attention), lambda line: None)


@pytest.mark.slow
@pytest.mark.parametrize("new", ["itself", "patched", "own"])
def test_a_change_that_changes_nothing_shows_nothing(new: str) -> None:
    if new == "own":
        Path("mine.py").write_text(OWN_TARGET)
    names = {"itself": RELEASE, "own": "mine.py:make_target"}
    done = verified(names.get(new) or patched(NOTHING))
    assert (done.code, report.differences(done)) == (0, [])
    assert report.verdict(done).startswith("same behaviour over ")


@pytest.mark.slow
def test_a_mistake_of_a_patch_is_introduced() -> None:
    done = verified(patched(ONE_MORE))
    assert done.code == 1
    rows = report.differences(done)
    assert rows[0].where is Where.NEW
    refused = [
        row
        for row in rows
        if row.where is Where.NEW and row.noticed == "requests wait, or are preempted, that were served"
    ]
    assert refused
    assert min(len(row.trace.operations) for row in refused) <= 4
    assert " introduced" in report.verdict(done)
    assert any(line.startswith(f"the new side is {RELEASE} with change.py") for line in report.lines(done))


CORRECTED = """
import vllm.v1.core.kv_cache_manager as managers

real = managers.KVCacheManager.get_num_common_prefix_blocks


def asked(self, request):
    known = request in self.coordinator.single_type_managers[0].req_to_blocks
    return real(self, request) if known else [0] * self.num_kv_cache_groups


managers.KVCacheManager.get_num_common_prefix_blocks = asked
"""


@pytest.mark.slow
def test_a_known_deviation_that_a_patch_does_right_is_fixed() -> None:
    done = verified(patched(CORRECTED), ("full",))
    (row,) = report.differences(done)
    assert row.where is Where.OLD
    assert "common-prefix-unknown" in row.what
    assert "1 fixed" in report.verdict(done)


def test_which_known_deviations_occur_in_a_trace_is_asked_of_the_model() -> None:
    shape = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
    assert occurring(RELEASE, Trace(shape, (Submit("a", (0,)), Allocate("a", 1)))) == ()
