"""The shadow memory on tensors: right tensors show nothing, and every planted fault of the data plane is caught."""

from importlib.util import find_spec
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults import Part, faults_in
from blockproof.fuzz.findings.finding import CORRUPTION
from blockproof.fuzz.findings.oracle_names import SHADOW
from blockproof.fuzz.opening.oracles import memory_named
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.shadow import GARBAGE, POISON, Corruption, Shadow
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.reproduction import replay_text, write_reproduction
from blockproof.fuzz.traces.shrink import shrink
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Group, Shape, Submit

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="make tensors")
HYBRID = Shape((Group("full", 4), Group("sliding", 2, window=3), Group("mla", 1)), 16, 16, 1, 4, 16)


def follow(memory, *operations):
    """The tables of a model that has carried these operations out, told to the memory."""
    model = Model(HYBRID)
    for operation in operations:
        _, snapshot = model.step(operation)
        memory.follow(snapshot)
    return snapshot


def fuzz(tensors, operations=3_000, oracles=("lockstep", SHADOW), seed=2):
    summary = Summary("impl", "random", seed)
    run_random(open_target("impl"), Plan(seed, operations=operations, oracles=oracles, tensors=tensors), summary)
    return summary


@needs_torch
@pytest.mark.slow
def test_right_tensors_show_nothing_in_all_attention_types():
    summary = fuzz("cpu", operations=20_000)
    assert summary.finding is None, summary.finding
    assert set(summary.attention) == set(ATTENTION)
    assert summary.reached["shadow: tokens read back"] > 20_000
    assert summary.reached["shadow: mamba states read back"] > 50
    assert summary.reached["shadow: external tokens"] > 200


@needs_torch
@pytest.mark.parametrize("name", faults_in(Part.TENSORS))
def test_a_planted_fault_is_caught_and_its_reproduction_shows_it(name, tmp_path):
    tensors = f"fault:{name}"
    summary = fuzz(tensors, seed=0)
    assert summary.finding is not None, f"not found: blockproof mutants --only {name}"
    assert summary.finding.observable == CORRUPTION
    memory, core = memory_named(tensors), open_target("impl")
    shrunk = shrink(summary.trace, summary.finding.kind, core, Judging(new_memory=memory))
    assert 0 < len(shrunk.trace.operations) <= 6
    assert replay(shrunk.trace, core)[0] is None
    assert replay(shrunk.trace, core, Judging(new_memory=memory_named("cpu")))[0] is None
    file = TraceFile(shrunk.trace, "impl", FoundWhat.of(shrunk.finding))
    files = write_reproduction(file, tmp_path, tensors)
    assert main(files.command.split()[1:]) == 1
    assert main([*files.command.split()[1:], "--tensors", "cpu"]) == 0
    assert replay_text(files.trace.read_text(), "impl") == shrunk.finding
    assert f'"tensors": "{tensors}"' in files.test.read_text()


@needs_torch
def test_a_wrong_block_after_window_skipping_is_read_wrong_on_tensors_too():
    summary = Summary("fault:skipped-off-by-one", "random", 1)
    plan = Plan(1, operations=10_000, oracles=(SHADOW,), tensors="cpu", attention=("sliding", "full+sliding"))
    run_random(open_target("fault:skipped-off-by-one"), plan, summary)
    assert summary.finding is not None
    assert "is read, but has no block" in summary.finding.detail


@needs_torch
def test_groups_share_the_buffers_of_their_configuration_and_nothing_else():
    memory: Any = memory_named("cpu")(HYBRID)
    shared = [tensor.shared_by for tensor in memory.config.kv_cache_tensors]
    assert shared == [["group0.layer0", "group1.layer0", "group2.layer0"], ["group0.layer1", "group2.layer1"]]
    follow(memory, Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5))
    for group in range(3):
        memory.write(group, "a", 0, [group + 7, -3, 99, 5, 6])
    assert [memory.read(group, "a", 0, 5) for group in range(3)] == [[group + 7, -3, 99, 5, 6] for group in range(3)]
    assert memory.damage() is None


@needs_torch
def test_what_was_never_written_reads_as_garbage_and_is_a_finding():
    memory = memory_named("cpu")(HYBRID)
    snapshot = follow(memory, Submit("a", (1, 2)), Allocate("a", 2))
    assert memory.read(0, "a", 0, 2) == [GARBAGE, GARBAGE] != [POISON, POISON]
    shadow = Shadow(HYBRID, lambda shape: memory)
    shadow.memory.follow(snapshot)
    assert shadow.memory.damage() is None


@needs_torch
def test_bytes_behind_the_tables_back_are_damage():
    memory: Any = memory_named("cpu")(HYBRID)
    follow(memory, Submit("a", (1, 2)), Allocate("a", 2))
    memory.tensors.buffers[1][3 * memory.page_bytes + 5] ^= 1
    layers = "group0.layer1, group2.layer1"
    assert memory.damage() == f"block 3, byte 5 of the buffer of {layers} has changed though nobody wrote it"


@needs_torch
def test_a_write_that_the_tensors_refuse_is_a_finding():
    memory = memory_named("cpu")(HYBRID)
    follow(memory, Submit("a", (1, 2)), Allocate("a", 2))
    with pytest.raises(Corruption, match="a, group 0, position 4: the tensors refuse the write: group 0, row 0"):
        memory.write(0, "a", 4, [1])


@needs_torch
def test_tables_that_no_worker_could_hold_are_a_finding():
    memory = memory_named("cpu")(HYBRID)
    snapshot = follow(memory, Submit("a", (1, 2)), Allocate("a", 2))
    snapshot.tables[1]["a"] *= 99
    with pytest.raises(Corruption, match="a, group 1, position 0: the block tables refuse what it holds: group 1, row"):
        memory.follow(snapshot)


@pytest.mark.parametrize(
    ("tensors", "code", "message"),
    [
        ("fault:nonsense", 2, "unknown fault 'nonsense'; see blockproof mutants"),
        ("moon", 2, "'moon' is no device; write auto, cpu"),
        # Devices that torch knows by name and this machine cannot have: the last one needs a module of its vendor.
        pytest.param("cuda:9999", 3, "device 'cuda:9999'", marks=needs_torch),
        pytest.param("hpu:9", 3, "device 'hpu:9'", marks=needs_torch),
    ],
)
def test_a_wrong_place_is_one_line(tensors, code, message, capsys):
    assert main(["fuzz", "--tensors", tensors, "--operations", "10"]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") <= 1


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_one_line_names_the_extra(capsys):
    with pytest.raises(TargetUnavailableError, match=r"blockproof\[tensors\]"):
        memory_named("cpu")
    assert main(["fuzz", "--tensors", "cpu", "--operations", "10"]) == 3
    assert "pip install '/path/to/blockproof[tensors]'" in capsys.readouterr().err
    assert main(["mutants", "--only", "slot-off-by-one"]) == 0
    assert "not tried without torch: slot-off-by-one" in capsys.readouterr().err
