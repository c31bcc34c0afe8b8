"""The shadow memory: silent on a right core, loud on a wrong one, and it has looked at everything in between."""

from collections import Counter

import pytest
from blockproof.fuzz.cli import main
from blockproof.fuzz.deviations import DEVIATIONS, corrupting, model_for
from blockproof.fuzz.engines import Plan, run_random
from blockproof.fuzz.faults import open_fault
from blockproof.fuzz.lockstep import CORRUPTION, LOCKSTEP, ORACLES, SHADOW, Lockstep, Trace, replay
from blockproof.fuzz.machine import DifferenceError, lockstep_machine
from blockproof.fuzz.report import Summary, plain, verdict
from blockproof.fuzz.shadow import GARBAGE, KNOWN_LOSSES, POISON, Corruption, ListMemory, Shadow
from blockproof.fuzz.shapes import ATTENTION, draw_shape
from blockproof.fuzz.targets.registry import open_target
from blockproof.fuzz.trace import read_trace
from blockproof.fuzz.workload import SeededDraw, Workload
from blockproof.model.core import Model
from blockproof.model.ops import (
    NULL,
    Advance,
    Allocate,
    Arrive,
    Done,
    Evict,
    Free,
    Group,
    Item,
    Lookup,
    Preempt,
    Refused,
    Reject,
    RemoveSkipped,
    Shape,
    StepStart,
    Submit,
    Take,
)
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .test_deviations import FOLDER, Release

CORRUPTING = [deviation.id for deviation in DEVIATIONS["vllm==0.23.0"] if deviation.corrupts]


def shape(*groups, num_blocks=32, max_len=32, **fields):
    sizes = {group.block_size for group in groups}
    size = max(sizes)
    return Shape(groups, num_blocks, max_len, min(sizes), size, max_len, **fields)


class Story:
    """A model whose every answer the shadow memory sees, possibly tampered with on the way."""

    def __init__(self, of, new_memory=ListMemory, tamper=lambda operation, snapshot: None):
        self.model, self.shadow, self.tamper = Model(of), Shadow(of, new_memory), tamper

    def __call__(self, *operations):
        for operation in operations:
            outcome, snapshot = self.model.step(operation)
            self.tamper(operation, snapshot)
            self.shadow.step(operation, outcome, snapshot)
        return self

    def corruption(self, *operations):
        with pytest.raises(Corruption) as caught:
            self(*operations)
        return str(caught.value)


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
        ("known loss computed-taken-back", 1),
    ):
        assert summary.reached[f"shadow: {name}"] > floor, name
    assert "shadow: tokens read back" in plain(summary)


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
    run_random(open_fault(name), Plan(1, operations=20_000, oracles=(SHADOW,)), summary)
    assert summary.finding is not None
    assert summary.finding.observable == CORRUPTION
    assert verdict(summary) == f"FOUND: wrong content at {summary.finding.kind[1]}"
    text = str(summary.finding)
    assert text.startswith("shadow memory: wrong content at operation")
    assert summary.finding.detail in text
    assert replay(summary.trace, open_fault(name), oracles=(SHADOW,))[0] == summary.finding


def test_where_model_and_target_part_a_run_without_lockstep_ends_and_says_so():
    summary = Summary("fault:free-order-reversed", "random", 1)
    run_random(open_fault("free-order-reversed"), Plan(1, operations=4_000, oracles=(SHADOW,)), summary)
    assert summary.finding is None
    assert summary.reached["shadow: run ended where model and target parted"] > 10


@pytest.mark.parametrize("name", CORRUPTING)
def test_each_corrupting_deviation_of_the_release_makes_a_request_read_wrong_content(name):
    trace = read_trace(FOLDER / f"{name}.corruption.json").trace
    finding, _ = replay(trace, Release(), without=(name,), oracles=(SHADOW,))
    assert finding is not None
    assert finding.observable == CORRUPTION
    assert replay(trace, open_target("impl"), oracles=ORACLES)[0] is None


def test_wrong_content_after_a_known_deviation_is_counted_and_ends_the_run():
    name = CORRUPTING[0]
    trace = read_trace(FOLDER / f"{name}.corruption.json").trace
    lockstep = Lockstep(Release())
    lockstep.start(trace.shape)
    assert [lockstep.step(operation) for operation in trace.operations] == [None] * len(trace.operations)
    assert lockstep.seen[f"shadow: corruption after {name}"] == 1
    assert lockstep.model.dead


def test_a_deviation_that_corrupts_nothing_excuses_nothing():
    """Found by review: the mixture of all deviations must not count as one that corrupts."""
    model = model_for("vllm==0.23.0", shape(Group("full", 2)))
    model.deviated.update({deviation.id: 1 for deviation in DEVIATIONS["vllm==0.23.0"] if not deviation.corrupts})
    assert corrupting(model) == []
    model.deviated[CORRUPTING[0]] += 1
    assert [deviation.id for deviation in corrupting(model)] == CORRUPTING[:1]


def test_a_finding_of_one_oracle_is_repeated_under_that_oracle(tmp_path, capsys):
    target = "fault:same-step-rule-dropped"
    command = ["fuzz", "--target", target, "--oracle", "shadow", "--operations", "20000", "--seed", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 1
    capsys.readouterr()
    (path,) = tmp_path.glob("*.json")
    assert main(["replay", str(path), "--target", target, "--oracle", "shadow"]) == 1
    assert "shadow memory: wrong content" in capsys.readouterr().out
    assert main(["replay", str(path), "--target", target]) == 1
    assert "lockstep: model and target differ" in capsys.readouterr().out
    (test,) = tmp_path.glob("test_*.py")
    assert "oracles=('shadow',)" in test.read_text()


def test_the_state_machine_reduces_under_its_own_oracles():
    machine = lockstep_machine("fault:skipped-off-by-one", attention=("sliding",), oracles=(SHADOW,))
    with pytest.raises(DifferenceError) as caught:
        run_state_machine_as_test(
            machine, settings=settings(machine.TestCase.settings, max_examples=200, database=None)
        )
    assert caught.value.finding.observable == CORRUPTION
    assert len(caught.value.trace.operations) <= 8


FULL = shape(Group("full", 2))
A = Submit("a", (1, 2, 3, 4, 5))


def test_an_entry_that_is_exchanged_is_read_wrong():
    def exchange(operation, snapshot):
        if isinstance(operation, Advance):
            snapshot.tables[0]["a"][:2] = snapshot.tables[0]["a"][1::-1]

    text = Story(FULL, tamper=exchange)(A, Allocate("a", 5)).corruption(Advance("a", (6,)))
    assert text == "a, group 0, position 0: reads another content in block 2, offset 0"


def test_an_entry_that_is_missing_is_noticed_before_the_write():
    def shorten(operation, snapshot):
        snapshot.tables[0].get("a", [0]).pop()

    text = Story(FULL, tamper=shorten).corruption(A, Allocate("a", 5))
    assert text == "a, group 0, position 4: is written, but has no block: its table is [1, 2]"


def test_a_null_entry_that_is_still_in_the_window_is_read_wrong():
    def null(operation, snapshot):
        if isinstance(operation, Advance):
            snapshot.tables[0]["a"][0] = NULL

    story = Story(shape(Group("sliding", 2, window=5)), tamper=null)(A, Allocate("a", 3))
    text = story.corruption(Advance("a"), Allocate("a", 2))
    assert text == "a, group 0, position 1: is read, but has no block: its table is [0, 2]"


def test_two_requests_in_one_block_are_noticed_at_the_write():
    def share(operation, snapshot):
        if "b" in snapshot.tables[0]:
            snapshot.tables[0]["b"] = [1]
            snapshot.ref_cnt[1] = 2

    story = Story(FULL, tamper=share)(A, Allocate("a", 5))
    text = story.corruption(Submit("b", (7,)), Allocate("b", 1))
    assert text == "b, group 0, position 0: is written into block 1, which a holds with another content"


def test_a_hit_on_other_content_is_read_wrong():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a"), Submit("b", (1, 9, 3, 4, 5)))
    _, snapshot = story.model.step(Allocate("b", 5))
    snapshot.tables[0]["b"][0] = snapshot.tables[0]["a"][0]
    story.shadow.step(Lookup("b"), Done((2, ((1,),))), snapshot)
    with pytest.raises(Corruption, match="b, group 0, position 1: reads another content in block 1, offset 1"):
        story.shadow.step(Allocate("b", 3, hit=True), Done(((4, 5),)), snapshot)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Submit("a", (1, 2), adapter="x"), Submit("b", (1, 2), adapter="y")),
        (Submit("a", (1, 2), salt="x"), Submit("b", (1, 2), adapter="x")),
        (Submit("a", (0, 0), embeds=(1, 2)), Submit("b", (0, 0), embeds=(1, 3))),
        (Submit("a", (1, 2), items=(Item("p", 0, 1),)), Submit("b", (1, 2), items=(Item("q", 0, 1),))),
        (Submit("a", (1, 1), items=(Item("p", 0, 1),)), Submit("b", (1, 1), items=(Item("p", 1, 1),))),
        (Submit("a", (1, 1), items=(Item("p", 0, 2),)), Submit("b", (1, 1), items=(Item("p", 0, 1), Item("p", 1, 1)))),
    ],
)
def test_content_is_more_than_tokens(one, other):
    story = Story(FULL)(one, Allocate("a", 2), Advance("a"), other)
    _, snapshot = story.model.step(Allocate("b", 2))
    snapshot.tables[0]["b"][0] = snapshot.tables[0]["a"][0]
    story.shadow.step(Lookup("b"), Done((2, ((1,),))), snapshot)
    with pytest.raises(Corruption, match="reads another content"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((),)), snapshot)


def test_a_draft_that_was_rejected_is_not_content():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a", (7,), rejected=2))
    story(Allocate("a", 1), Advance("a", (8,)))
    assert story.shadow.reached["shadow: drafts accepted"] == 0
    story(Allocate("a", 3), Advance("a", (9, 9, 9)))
    assert story.shadow.reached["shadow: drafts accepted"] == 2


def test_a_draft_that_is_overwritten_before_it_is_judged_is_noticed():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][3:], 99)
    assert "reads another content" in story.corruption(Advance("a", (7, 8, 9)))


def test_blocks_that_somebody_outside_takes_are_overwritten():
    story = Story(FULL)(A, Allocate("a", 5), Take(1))
    (taken,) = story.model.state.outside
    _, snapshot = story.model.step(StepStart())
    snapshot.tables[0]["a"][0] = taken
    with pytest.raises(Corruption, match=f"reads another content in block {taken}"):
        story.shadow.step(Advance("a", (6,)), Done(2), snapshot)


def test_external_tokens_are_read_only_after_they_have_arrived():
    story = Story(FULL)(A, Allocate("a", 0, external=4, delay=True))
    assert story.shadow.reached["shadow: tokens written"] == 0
    story(Arrive("a"), Allocate("a", 1), Advance("a", (6,)))
    assert story.shadow.reached["shadow: external tokens"] == 4


def test_known_tokens_in_the_lookahead_are_no_content_before_their_step_has_run():
    story = Story(FULL)(A, Allocate("a", 2, lookahead=2), Submit("b", A.prompt))
    _, snapshot = story.model.step(Allocate("b", 5))
    snapshot.tables[0]["b"][:2] = snapshot.tables[0]["a"]
    story.shadow.step(Lookup("b"), Done((4, ((1, 2),))), snapshot)
    with pytest.raises(Corruption, match="b, group 0, position 2: reads what nobody wrote in block 2"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((5,),)), snapshot)


MAMBA = shape(Group("mamba", 2, mamba_mode="align", speculative_blocks=2))


def test_a_mamba_state_is_followed_into_the_block_of_an_accepted_draft():
    story = Story(MAMBA)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a", (7, 8, 9)))
    story(StepStart(), Allocate("a", 1), Advance("a", (1,)), Allocate("a", 2), Advance("a", (1,), rejected=1))
    assert story.shadow.reached["shadow: mamba states read back"] == 3


def test_a_mamba_state_in_a_block_that_is_not_held_any_more_is_noticed():
    def let_go(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 1:
            snapshot.tables[0]["a"][2] = 9

    story = Story(MAMBA, tamper=let_go)(A, Allocate("a", 5), Advance("a", (6,)))
    assert "its state is in block 1, which is not held" in story.corruption(Allocate("a", 1))


def test_a_mamba_state_that_another_one_of_the_request_has_replaced_is_noticed():
    def once_more(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 2:
            snapshot.tables[0]["a"][-2] = snapshot.tables[0]["a"][-3]

    story = Story(MAMBA, tamper=once_more)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 2))
    text = story.corruption(Advance("a", (7,), rejected=1), Allocate("a", 1))
    assert text == "a, group 0, position 5: its state is in no block any more: its table is [0, 0, 1, 2, 3, 4]"


def test_a_mamba_state_with_other_content_is_read_wrong():
    story = Story(MAMBA)(A, Allocate("a", 5), Advance("a", (6,)))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][2:3], 99)
    text = story.corruption(Allocate("a", 1))
    assert text == "a, group 0, position 4: reads another content as its state in block 1"


def test_a_state_at_the_end_of_a_block_is_there_for_others_though_its_request_has_been_aborted():
    story = Story(shape(Group("mamba", 3, mamba_mode="align", speculative_blocks=1)))(Submit("a", (0,)))
    story(Allocate("a", 2), Advance("a", (0, 0)), Allocate("a", 2), Free("a"), StepStart())
    story(Submit("b", (0, 0, 0, 0)), Lookup("b"), Allocate("b", 1, hit=True))
    assert story.shadow.reached["shadow: mamba states read back"] == 2


def test_a_mamba_state_of_this_very_step_is_no_start():
    story = Story(shape(Group("mamba", 2, mamba_mode="all")))(A, Allocate("a", 5), Submit("b", (1, 2, 3, 4, 5)))
    snapshot = story.model.snapshot()
    snapshot.tables[0]["b"] = [NULL, snapshot.tables[0]["a"][1], 9]
    story.shadow.step(Lookup("b"), Done((4, ((NULL, 2),))), snapshot)
    with pytest.raises(Corruption, match="whose state is computed in this very step"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((9,),)), snapshot)


def test_cross_attention_reads_what_the_encoder_wrote():
    story = Story(shape(Group("cross", 2), caching=False))(A, Allocate("a", 5, encoder_tokens=3))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][1:], 99)
    assert "position 2: reads another content" in story.corruption(Advance("a", (6,)))


# What is known to be unsafe in the specification itself, and nothing wider.


def test_a_hit_astride_a_chunk_is_counted_where_the_block_size_does_not_divide_the_chunk():
    trace = read_trace(FOLDER.parent / "agreed-chunked-hit.json").trace
    story = Story(trace.shape)(*trace.operations)
    story(Allocate("a", 6, hit=True))
    assert story.shadow.reached["shadow: known loss chunk-astride-block"] > 0


def test_tokens_taken_back_are_counted_where_the_window_was_cut_for_them():
    story = Story(shape(Group("sliding", 1, window=2)))(A, Allocate("a", 5), Advance("a", (6,)))
    story(Allocate("a", 3), Advance("a"), RemoveSkipped("a"), Reject("a", 2), Allocate("a", 1))
    assert story.shadow.reached["shadow: known loss computed-taken-back"] > 0


def test_what_is_written_where_the_window_was_cut_does_not_go_into_the_null_block():
    story = Story(shape(Group("sliding", 1, window=1)))(A, Allocate("a", 5), Advance("a", (6,)))
    story(Allocate("a", 3), Advance("a"), RemoveSkipped("a"), Reject("a", 2), Allocate("a", 2))
    assert story.model.state.tables[0]["a"][6] == NULL
    assert story.shadow.memory.read_block(0, NULL) == POISON


def test_a_refused_allocation_has_cut_the_window_too():
    story = Story(shape(Group("sliding", 1, window=2), num_blocks=6))(A, Allocate("a", 5), Advance("a", (6,)))
    story(Allocate("a", 3), Advance("a"), Allocate("a", 9))
    assert story.model.last[1] == Refused()
    story(Reject("a", 2), Allocate("a", 1))
    assert story.shadow.reached["shadow: known loss computed-taken-back"] > 0


def test_the_same_loss_without_such_a_cause_is_reported():
    def null(operation, snapshot):
        snapshot.tables[0].get("a", [0])[0] = NULL

    story = Story(shape(Group("chunked", 2, chunk=4)), tamper=null)
    assert "is written, but has no block" in story.corruption(A, Allocate("a", 3))
    assert set(KNOWN_LOSSES) == {"chunk-astride-block", "computed-taken-back", "running-state-moved-on"}


def test_where_a_block_lies_astride_chunks_only_what_a_hit_has_begun_with_may_be_missing():
    def null(operation, snapshot):
        snapshot.tables[0].get("a", [0])[-1] = NULL

    story = Story(shape(Group("chunked", 2, chunk=5)), tamper=null)
    assert "position 2: is written, but has no block" in story.corruption(A, Allocate("a", 3))


def test_a_shorter_step_behind_rejected_drafts_is_counted_where_the_running_state_has_moved_on():
    story = Story(shape(Group("mamba", 1, mamba_mode="align", speculative_blocks=2)))(A, Allocate("a", 5))
    story(Advance("a", (6,)), Allocate("a", 3), Advance("a", (7,), rejected=2), Allocate("a", 1))
    assert story.model.state.tables[0]["a"][6] == NULL
    assert story.shadow.reached["shadow: known loss running-state-moved-on"] == 1


@pytest.mark.parametrize("mode", ["align", "all"])
def test_a_state_without_a_block_is_reported_where_no_step_was_longer(mode):
    def null(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 2:
            snapshot.tables[0]["a"][-3] = NULL

    of = shape(Group("mamba", 1, mamba_mode=mode, speculative_blocks=2))
    story = Story(of, tamper=null)(A, Allocate("a", 3), Advance("a"))
    assert "position 4: has no block for its state: its table is" in story.corruption(Allocate("a", 2))


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
    finding, _ = replay(trace, Odd(tables_with(block)), oracles=(SHADOW,))
    assert finding.detail == f"a, group 0, position 0: its table names block {block}, the pool has 0 .. 7"


@pytest.mark.parametrize(
    ("lie", "observable"),
    [
        (lambda operation, outcome, snapshot: (outcome, snapshot._replace(ref_cnt=[])), CORRUPTION),
        (lambda operation, outcome, snapshot: (outcome, snapshot._replace(tables=[])), "protocol"),
        (lambda operation, outcome, snapshot: (Done(()), snapshot), None),
        (lambda operation, outcome, snapshot: (Done((10**9, 10**9)), snapshot), None),
    ],
)
def test_nonsense_is_a_finding_or_ends_the_run(lie, observable):
    for operations in ((A, Lookup("a"), Allocate("a", 5)), (A, Take(1)), (A, Allocate("a", -1))):
        finding, _ = replay(Trace(FULL, operations), Odd(lie), oracles=(SHADOW,))
        assert (finding and finding.observable) == observable


def test_a_mamba_table_that_is_cut_off_is_a_finding():
    def lie(operation, outcome, snapshot):
        if isinstance(operation, Allocate):
            snapshot.tables[0]["a"] = []
        return outcome, snapshot

    trace = Trace(shape(Group("mamba", 2, mamba_mode="all")), (A, Allocate("a", 5)))
    finding, _ = replay(trace, Odd(lie), oracles=(SHADOW,))
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
