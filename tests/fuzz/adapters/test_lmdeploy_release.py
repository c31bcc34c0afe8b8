"""LMDeploy itself, driven through its adapter: skipped where neither it nor an environment with it is installed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.findings.oracle_names import CONTRACT, SHADOW
from blockproof.fuzz.opening.child import ChildTarget
from blockproof.fuzz.opening.targets import interpreter_of
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.targets.base import Target, adapted_shape, lacking, left_out_for
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.model.ops import Advance, Allocate, Done, Free, Group, Lookup, Preempt, Refused, Shape, Submit

from .released import do, opened

FAMILY = families()["lmdeploy"]
REPOSITORY = Path(__file__).resolve().parents[3]
EVIDENCE = REPOSITORY / "docs" / "evidence"
FULL = Group("full", 4)
WINDOW = Group("sliding", 4, window=6)
PROMPT = tuple(range(1, 22))


def shape(group: Group = FULL, num_blocks: int = 24, ahead: int = 4) -> Shape:
    longest = (num_blocks - 1) * group.block_size - max(group.block_size, ahead)
    return Shape((group,), num_blocks, min(64, longest), 4, 4, ahead, caching=group.kind == "full")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    yield from opened(FAMILY, shape())


def prefill(name, prompt=PROMPT):
    return Submit(name, prompt), Lookup(name), Allocate(name, len(prompt), hit=True), Advance(name, (9,))


def test_a_second_prompt_hits_the_whole_blocks_of_the_first(target):
    target.start(shape())
    _, seen = do(target, *prefill("a"), Free("a"))
    assert seen.num_free == 23
    (tokens, rows), seen = do(target, Submit("b", PROMPT), Lookup("b"))
    assert (tokens, len(rows[0])) == (20, 5)
    assert seen.tables == [{}]
    _, seen = do(target, Allocate("b", 1, hit=True))
    assert tuple(seen.tables[0]["b"][:5]) == rows[0]
    assert set(seen.free) == set(range(1, 24)) - set(seen.tables[0]["b"])


def test_a_hit_that_is_there_is_used_or_the_step_is_refused(target):
    target.start(shape())
    do(target, *prefill("a"), Submit("b", PROMPT))
    assert target.step(Allocate("b", 21))[0] == Refused()


def test_adapters_share_nothing(target):
    target.start(shape())
    do(target, *prefill("a"))
    assert do(target, Submit("b", PROMPT, adapter="x"), Lookup("b"))[0][0] == 0


def test_a_prompt_in_chunks_takes_blocks_for_its_chunks_only(target):
    target.start(shape())
    _, seen = do(target, Submit("a", PROMPT), Allocate("a", 6))
    assert len(seen.tables[0]["a"]) == 2
    _, seen = do(target, Advance("a"), Allocate("a", 10))
    assert len(seen.tables[0]["a"]) == 4
    _, seen = do(target, Advance("a"), Allocate("a", 5), Advance("a", (9,)), Allocate("a", 1))
    assert len(seen.tables[0]["a"]) == 7
    assert target.step(Allocate("a", 3))[0] == Refused()


def test_blocks_behind_the_window_are_null_and_free(target):
    target.start(shape(WINDOW))
    do(target, Submit("a", PROMPT), Allocate("a", 21), Advance("a", (9,)))
    for _ in range(8):
        _, seen = do(target, Allocate("a", 1), Advance("a", (9,)))
    table = seen.tables[0]["a"]
    assert table[:3] == [0, 0, 0]
    assert 0 not in table[-3:]
    assert set(seen.free) == set(range(1, 24)) - set(table)


def test_a_decode_without_room_is_refused_and_changes_nothing(target):
    target.start(shape(num_blocks=10))
    do(target, *prefill("a", PROMPT[:10]), *prefill("b", tuple(range(50, 61))))
    outcome, before = Done(), None
    while isinstance(outcome, Done):
        _, before = do(target, Advance("b", (7,)))
        outcome, after = target.step(Allocate("b", 1))
    assert outcome == Refused()
    assert after == before
    _, seen = do(target, Preempt("b"))
    assert "b" not in seen.tables[0]


def test_a_preempted_request_finds_its_prefill_again(target):
    target.start(shape())
    _, seen = do(target, *prefill("a"), Preempt("a"))
    assert (seen.num_free, seen.tables) == (23, [{}])
    assert do(target, Lookup("a"))[0][0] == 20


def objection(target, group, seed):
    """What contract and shadow memory say of a random run; blocks of 4 or more, so that room ahead is a block."""
    draw = SeededDraw(f"lmdeploy/{seed}")
    built = adapted_shape(shape(group, num_blocks=draw.integer(8, 40)), lacking(target))
    run = ModelFreeRun(target, Judging((SHADOW, CONTRACT)))
    assert run.start(built) is None
    assert run.built
    workload = Workload(draw, built, lacks=left_out_for(target))
    for _ in range(175):
        found = run.step(workload.next(run.scene))
        if found is not None:
            return str(found)
    return None


@pytest.mark.parametrize("group", [FULL, Group("mla", 4), WINDOW])
def test_a_random_run_reads_back_what_it_wrote_and_loses_no_block(target, group):
    assert [objection(target, group, seed) for seed in range(3)] == [None] * 3


def test_the_finding_still_shows(target):
    file = read_trace(EVIDENCE / "findings" / "appended-behind-own-blocks.json")
    for oracle, seen in ((SHADOW, "corruption"), (CONTRACT, "S2")):
        found, _ = replay(file.trace, target, Judging((oracle,)))
        assert found is not None
        assert found.observable == seen


FAULTS = """
from blockproof.fuzz.adapters.lmdeploy import FAMILY


def opened():
    target = FAMILY.open_target()
    target.name = "a planted fault"
    return target


def reference_lost():
    target = opened()
    from lmdeploy.pytorch.paging.block_trie import kv_lifecycle

    original = kv_lifecycle.KVBlockLifecycle.commit_path_extension

    def forgets(self, node, ref_blocks, free_blocks):
        original(self, node, [], free_blocks)

    kv_lifecycle.KVBlockLifecycle.commit_path_extension = forgets
    return target


def adapters_forgotten():
    target = opened()
    from lmdeploy.pytorch.paging.block_trie import trie

    roots = trie.BlockTrie._get_or_create_root
    trie.BlockTrie._get_or_create_root = lambda self, name: roots(self, "all")
    return target


def window_too_small():
    target = opened()
    from lmdeploy.pytorch.paging.block_manager import window_block_manager

    drops = window_block_manager._num_blocks_to_drop
    window_block_manager._num_blocks_to_drop = lambda sequence, window: drops(sequence, 1)
    return target


def last_block_lost():
    target = opened()
    from lmdeploy.pytorch.paging.block_manager import DefaultBlockManager

    free = DefaultBlockManager.free

    def keeps_one(self, sequence):
        sequence.logical_blocks.resize(sequence.num_blocks - 1)
        free(self, sequence)

    DefaultBlockManager.free = keeps_one
    return target
"""


@pytest.mark.parametrize(
    ("fault", "group"),
    [
        ("reference_lost", FULL),
        pytest.param("adapters_forgotten", FULL, marks=pytest.mark.slow),
        pytest.param("window_too_small", Group("sliding", 2, window=9), marks=pytest.mark.slow),
        pytest.param("last_block_lost", FULL, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("target")
def test_a_fault_planted_into_lmdeploy_is_found(fault, group, tmp_path, monkeypatch):
    (tmp_path / "lmdeploy_faults.py").write_text(FAULTS)
    monkeypatch.chdir(tmp_path)
    _, place = interpreter_of(FAMILY.example)
    faulty = ChildTarget(fault, f"lmdeploy_faults:{fault}", place)
    try:
        assert any(objection(faulty, group, seed) for seed in range(60))
    finally:
        faulty.close()


@pytest.mark.usefixtures("target")
@pytest.mark.slow
def test_the_defects_show_with_lmdeploys_own_scheduler():
    _, place = interpreter_of(FAMILY.example)
    if place is None:
        pytest.skip("LMDeploy is in this environment, so its package may have been imported already")
    done = subprocess.run(
        [place.python, EVIDENCE / "lmdeploy_confirm.py"],
        env={"PYTHONPATH": f"{place.layers[0]}:{EVIDENCE / 'findings'}", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert not [line for line in lines if "does not show" in line]
