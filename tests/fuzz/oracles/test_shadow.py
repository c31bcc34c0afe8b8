"""The shadow memory: silent on a right core, loud on a wrong one, and it has looked at everything in between."""

from collections import Counter

import pytest
from blockproof.fuzz import replay_text
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import CORRUPTION, Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, ORACLES, SHADOW
from blockproof.fuzz.opening.known_deviations import declared_for, model_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.shadow import GARBAGE, Corruption, ListMemory
from blockproof.fuzz.reports.formats import plain
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.targets.deviations import DeviatingModel, corrupting
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.ops import (
    NULL,
    Advance,
    Allocate,
    Done,
    Evict,
    Free,
    Group,
    Lookup,
    Preempt,
    Take,
)

from ..adapters.test_deviations import FOLDER, Release
from ..stories import FULL, A, Story, shape

CORRUPTING = [deviation.id for deviation in declared_for("vllm==0.23.0") if deviation.corrupts]


def run_all(new_memory, runs=92, operations=120):
    """The first corruption over all attention types, and what was reached until then."""
    reached = Counter()
    for index in range(runs):
        draw = SeededDraw(f"shadow {index}")
        drawn = draw_shape(draw, ATTENTION[list(ATTENTION)[index % len(ATTENTION)]])
        story = Story(drawn, new_memory)
        if story.model.construction != Done():
            continue
        workload = Workload(draw, drawn)
        try:
            for _ in range(operations):
                story(workload.next(story.model))
        except Corruption as corruption:
            return corruption, reached
        finally:
            reached.update(story.shadow.reached)
    return None, reached


# Right cores.


def test_our_core_is_right_in_every_attention_type_and_everything_is_looked_at():
    summary = Summary("impl", "random", 3)
    run_random(open_target("impl"), Plan(3, operations=23_000), summary)
    assert summary.finding is None, summary.finding
    for name, floor in (
        ("tokens written", 5_000),
        ("tokens read back", 20_000),
        ("mamba states read back", 50),
        ("drafts accepted", 100),
        ("external tokens", 200),
    ):
        assert summary.reached[f"shadow: {name}"] > floor, name
    assert not [name for name in summary.reached if "known loss" in name]
    assert "shadow: tokens read back" in plain(RunDocument.of(summary))


def test_a_run_may_be_judged_by_one_oracle_alone():
    for oracles in ((LOCKSTEP,), (SHADOW,)):
        summary = Summary("impl", "random", 3)
        run_random(open_target("impl"), Plan(3, operations=2_000, oracles=oracles), summary)
        assert summary.finding is None
        assert (summary.reached["shadow: tokens read back"] > 0) == (SHADOW in oracles)


# Wrong cores.


@pytest.mark.parametrize(
    "name", ["skipped-off-by-one", "lookahead-ignored", "table-entries-swapped", "same-step-rule-dropped"]
)
def test_it_finds_unsafe_faults_of_a_core_without_comparing_it(name):
    summary = Summary(f"fault:{name}", "random", 1)
    run_random(open_target(f"fault:{name}"), Plan(1, operations=20_000, oracles=(SHADOW,)), summary)
    assert summary.finding is not None
    assert summary.finding.observable == CORRUPTION
    assert RunDocument.of(summary).lead().conclusion == f"FOUND: wrong content at {summary.finding.kind[1]}"
    text = str(summary.finding)
    assert text.startswith("shadow memory: wrong content at operation")
    assert summary.finding.detail in text
    assert replay(summary.trace, open_target(f"fault:{name}"), Judging((SHADOW,)))[0] == summary.finding


@pytest.mark.parametrize("name", CORRUPTING)
def test_each_corrupting_deviation_of_the_release_makes_a_request_read_wrong_content(name):
    trace = read_trace(FOLDER / f"{name}.corruption.json").trace
    finding, _ = replay(trace, Release(), Judging((SHADOW,), without=(name,)))
    assert finding is not None
    assert finding.observable == CORRUPTION
    assert replay(trace, open_target("impl"), Judging(ORACLES))[0] is None


def test_wrong_content_after_a_known_deviation_is_counted_and_ends_the_run():
    name = CORRUPTING[0]
    trace = read_trace(FOLDER / f"{name}.corruption.json").trace
    lockstep = LockstepRun(Release())
    lockstep.start(trace.shape)
    assert [lockstep.step(operation) for operation in trace.operations] == [None] * len(trace.operations)
    assert lockstep.seen[f"shadow: corruption after {name}"] == 1
    assert lockstep.dead


def test_a_deviation_that_corrupts_nothing_excuses_nothing():
    """Found by review: the mixture of all deviations must not count as one that corrupts."""
    model = model_for("vllm==0.23.0", shape(Group("full", 2)))
    assert isinstance(model, DeviatingModel)
    for deviation in declared_for("vllm==0.23.0"):
        model.note(deviation.id, not deviation.corrupts)
    assert corrupting(model) == []
    model.note(CORRUPTING[0], True)
    assert [deviation.id for deviation in corrupting(model)] == CORRUPTING[:1]


def test_a_finding_of_one_oracle_is_repeated_under_that_oracle(tmp_path, capsys):
    target = "fault:same-step-rule-dropped"
    command = ["fuzz", "--target", target, "--oracle", "shadow", "--operations", "20000", "--seed", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 1
    capsys.readouterr()
    shrunk, whole = sorted(tmp_path.glob("*.json"), key=lambda path: path.stem.endswith("_whole"))
    for path in (shrunk, whole):
        assert main(["replay", str(path), "--target", target]) == 1
        assert "shadow memory: wrong content" in capsys.readouterr().out
        assert main(["replay", str(path), "--target", target, "--oracle", "lockstep"]) == 1
        assert "lockstep: model and target differ" in capsys.readouterr().out
    assert replay_text(shrunk.read_text(), target).observable == CORRUPTION


# Targets that answer what no core would.


class Odd(Release):
    """A core of ours that lies from some operation on."""

    name = "odd"

    def __init__(self, lie):
        self.core, self.lie = open_target("impl"), lie

    def start(self, of):
        return self.core.start(of)

    def step(self, operation):
        return self.lie(operation, *self.core.step(operation))

    def close(self):
        self.core.close()


def tables_with(block):
    def lie(operation, outcome, snapshot):
        for tables in snapshot.tables:
            for table in tables.values():
                table[-1] = block
        return outcome, snapshot

    return lie


@pytest.mark.parametrize("block", [-1, 8, 2**40])
def test_a_block_that_the_pool_does_not_have_is_a_finding(block):
    trace = Trace(shape(Group("full", 2), num_blocks=8), (A, Allocate("a", 5)))
    finding, _ = replay(trace, Odd(tables_with(block)), Judging((SHADOW,)))
    assert finding.detail == f"the table of a in group 0 names block {block}, the pool has 0 .. 7"


@pytest.mark.parametrize(
    ("lie", "observable"),
    [
        (lambda operation, outcome, snapshot: (outcome, snapshot._replace(ref_cnt=[])), "protocol"),
        (lambda operation, outcome, snapshot: (outcome, snapshot._replace(tables=[])), "protocol"),
        (lambda operation, outcome, snapshot: (Done(()), snapshot), None),
        (lambda operation, outcome, snapshot: (Done((10**9, 10**9)), snapshot), "S4 if they are blocks"),
    ],
)
def test_nonsense_is_a_finding_or_ends_the_run(lie, observable):
    for operations in ((A, Lookup("a"), Allocate("a", 5)), (A, Take(1)), (A, Allocate("a", -1))):
        finding, _ = replay(Trace(FULL, operations), Odd(lie), Judging((SHADOW,)))
        if observable == "S4 if they are blocks":
            assert (finding and finding.observable) == ("S4" if Take(1) in operations else None)
            continue
        assert (finding and finding.observable) == observable


def test_a_mamba_table_that_is_cut_off_is_a_finding():
    def lie(operation, outcome, snapshot):
        if isinstance(operation, Allocate):
            snapshot.tables[0]["a"] = []
        return outcome, snapshot

    trace = Trace(shape(Group("mamba", 2, mamba_mode="all")), (A, Allocate("a", 5)))
    finding, _ = replay(trace, Odd(lie), Judging((SHADOW,)))
    assert finding.detail == "a, group 0, position 4: has no block for its state: its table is []"


# Who checks the checker: an engine that does not do as the tables say.


class OneSlotLate(ListMemory):
    def write(self, group, request, start, tags):
        size = self._sizes[group]
        for at, tag in enumerate(tags, start):
            self._pages[self._tables[group][request][at // size]][(at + 1) % size] = tag


class Forgetful(ListMemory):
    def write(self, group, request, start, tags):
        super().write(group, request, start, tags[:-1])


class Aliased(ListMemory):
    """Two pages in the same place."""

    def __init__(self, shape):
        super().__init__(shape)
        self._pages[-1] = self._pages[1]


class LateWriter(ListMemory):
    """Goes on writing into the blocks of requests that have ended."""

    def follow(self, snapshot):
        for old, new in zip(self._tables, snapshot.tables, strict=False):
            for name in old.keys() - new.keys():
                self.overwrite([block for block in old[name] if block != NULL], 12345)
        super().follow(snapshot)


class Damaged(ListMemory):
    """A byte changes in the third block, though nobody has written it."""

    def damage(self):
        return "block 2, byte 5 has changed" if self._tables[0] else None


def test_damage_is_a_finding_at_whatever_operation_it_shows():
    text = Story(FULL, Damaged).corruption(A, Allocate("a", 5))
    assert text == "nobody, group 0, position 0: block 2, byte 5 has changed"


def test_a_right_engine_shows_nothing():
    corruption, reached = run_all(ListMemory)
    assert corruption is None, corruption
    assert reached["shadow: tokens read back"] > 10_000


@pytest.mark.parametrize("memory", [OneSlotLate, Forgetful, Aliased, LateWriter])
def test_a_wrong_engine_is_caught(memory):
    assert run_all(memory)[0] is not None


def test_garbage_is_told_apart():
    story = Story(FULL)(A, Allocate("a", 5))
    story.shadow.memory.overwrite([1], GARBAGE)
    assert "reads bytes that were not written together in block 1" in story.corruption(Advance("a", (6,)))


def test_a_request_that_starts_again_is_read_anew():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a", (6,)), Preempt("a"), Evict((1, 2)))
    story(Lookup("a"), Allocate("a", 6, hit=True), Advance("a", (7,)), Free("a"))
    assert story.shadow.reached["shadow: tokens written"] == 11


def test_a_block_that_the_core_has_copied_is_read_as_its_source():
    def copied(copies):
        play = Story(FULL)
        play(A, Allocate("a", 5))
        snapshot = play.model.snapshot()
        first, *rest = snapshot.tables[0]["a"]
        moved = snapshot._replace(tables=[{"a": [9, *rest]}])
        play.shadow.step(Advance("a", (0,)), Done(), moved, [pair for pair in copies if pair[0] == first])
        return play.shadow.reached["shadow: blocks copied"]

    assert copied([(1, 9)]) == 1
    with pytest.raises(Corruption, match="what nobody wrote"):
        copied([])
