"""What of transformers' adapter needs no transformers."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from blockproof.fuzz.adapters import families, family_of
from blockproof.fuzz.adapters.transformers import VARIABLE
from blockproof.fuzz.adapters.transformers.remedies import FINDINGS, Mending, fixes
from blockproof.fuzz.adapters.transformers.shown import StepIndices, rows
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.simulation.protocol import Slots
from blockproof.fuzz.targets.base import TargetUnavailableError

FAMILY = families()["transformers"]


def test_transformers_is_a_family_that_is_only_simulated():
    assert family_of("transformers==5.24.0") is FAMILY
    assert FAMILY.open_engine is not None
    with pytest.raises(TargetUnavailableError, match="only simulated; write blockproof simulate"):
        open_here("transformers")


def test_importing_the_family_imports_no_engine():
    assert "transformers" not in sys.modules or FAMILY.here


def test_what_it_needs_is_pinned():
    lines = [line for line in FAMILY.requirements.splitlines() if not line.startswith("#")]
    assert lines
    assert all(line.count("==") == 1 for line in lines)


def test_a_word_that_the_variable_does_not_know_is_named(monkeypatch):
    monkeypatch.setenv(VARIABLE, "worker,repaired")
    with pytest.raises(ValueError, match=r"'repaired'; write mended, worker"):
        FAMILY.open_engine()


def test_every_written_up_defect_of_it_has_a_remedy():
    about = {path.parent.name for path in FINDINGS.glob("*/scenario.py") if "transformers_without" in path.read_text()}
    assert set(fixes()) == about
    assert len(about) == 10


def test_changes_are_put_over_classes_and_taken_back(monkeypatch):
    class Engine:
        def says(self):
            return "plain"

    def change():
        plain = Engine.says
        setattr(Engine, "says", lambda self: f"mended {plain(self)}")  # noqa: B010  # a fix does it to an engine of Any

    monkeypatch.setattr("blockproof.fuzz.adapters.transformers.remedies.fixes", lambda: {"one": change})
    mending = Mending((Engine,))
    for names, said in ((("one",), "mended plain"), (("one",), "mended plain"), ((), "plain")):
        mending.only(names)
        assert Engine().says() == said


# What kernels get. Two pages of 4 tokens in a block would lie 16 rows apart: keys and values of two layers.


def allocator(**more):
    plain = {"index": 0, "block_physical_stride": 16, "tokens_per_page": 4, "write_trash_index": 1, "sentinel_index": 0}
    return SimpleNamespace(**plain, **more)


def step(read, written, table=None):
    numbers = {"read": np.array([[*read, 0]]), "written": np.array([[*written, 0]])}
    return SimpleNamespace(
        use_block_table=table is not None,
        block_table=np.array([table or [[0]]]),
        read_index_storage=numbers["read"],
        write_index_storage=numbers["written"],
        true_read_sizes=[len(read)],
        true_write_sizes=[len(written)],
    )


def test_rows_of_a_block():
    assert list(rows(allocator(), 2)) == [32, 33, 34, 35]


def test_indices_of_full_attention_are_cut_request_by_request():
    indices = StepIndices(
        step([32, 33, 34, 64, 65], [34, 64, 65]), allocator(get_seqlen_k=lambda first, length: first + length)
    )
    assert indices.next(2, 1) == Slots(at={0: 32, 1: 33, 2: 34}, written={2: 34})
    assert indices.next(0, 2) == Slots(at={0: 64, 1: 65}, written={0: 64, 1: 65})


def test_indices_of_a_ring_leave_out_what_is_not_in_memory():
    """A window of 3: of four tokens the first is not kept, and the two before them are read."""
    ring = allocator(get_seqlen_k=lambda first, length: length + min(first, 2))
    indices = StepIndices(step([33, 34, 0, 0, 0, 0], [1, 33, 34, 32]), ring)
    assert indices.next(3, 4) == Slots(at={1: 33, 2: 34}, written={4: 33, 5: 34, 6: 32})


def test_indices_of_prompts_without_a_past_are_those_that_are_written():
    assert StepIndices(step([], [32, 33]), allocator()).next(0, 2) == Slots(at={0: 32, 1: 33})


def test_indices_of_a_kernel_with_block_tables():
    """Its tables count pages of four rows."""
    indices = StepIndices(step([], [], table=[[8, 16, -1], [4, -1, -1]]), allocator())
    assert indices.next(5, 1) == Slots(at={0: 32, 1: 33, 2: 34, 3: 35, 4: 64, 5: 65})
    assert indices.next(0, 1) == Slots(at={0: 16})
